"""Key-value cache of packed sequences, for incremental encoding and decoding.

Legend: T packed tokens, N sequences, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask
from ernie.kernels.precision import to_numpy

Pairs = tuple[tuple[Tensor, Tensor], ...]  # keys and values (T, D) of each layer


@dataclass(frozen=True, eq=False)
class KeyValueCache:
    """Keys and values of N packed sequences, layer by layer; `layers` is empty before the first token.

    Caches are immutable, so that one can be extended in several ways, split into its sequences and joined with others.
    """

    layout: Layout
    layers: Pairs = ()

    @classmethod
    def empty(cls, sequences: int) -> KeyValueCache:
        """Return the cache of sequences without tokens."""
        return cls(Layout.of_lengths([0] * sequences))

    @classmethod
    def joined(cls, caches: Sequence[KeyValueCache]) -> KeyValueCache:
        """Concatenate the sequences of several caches, in order."""
        layout = Layout.of_lengths(np.concatenate([cache.layout.lengths for cache in caches]))
        filled = [cache.layers for cache in caches if cache.layers]
        pairs = zip(*filled, strict=True)
        return cls(
            layout, tuple((_concatenate([k for k, _ in pair]), _concatenate([v for _, v in pair])) for pair in pairs)
        )

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the cache as arrays by name, see `from_arrays`."""
        found = {"lengths": self.layout.lengths}
        for index, (keys, values) in enumerate(self.layers):
            found["dtype"] = np.array(str(keys.dtype).removeprefix("paddle."))
            found |= {f"keys.{index}": to_numpy(keys), f"values.{index}": to_numpy(values)}
        return found

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> KeyValueCache:
        """Restore a cache from the result of `arrays`."""
        layers: list[tuple[Tensor, Tensor]] = []
        while (index := len(layers)) < sum(name.startswith("keys.") for name in arrays):
            pair = (paddle.to_tensor(arrays[f"{what}.{index}"]) for what in ("keys", "values"))
            keys, values = (tensor.astype(str(arrays["dtype"])) for tensor in pair)
            layers.append((keys, values))
        return cls(Layout.of_lengths(arrays["lengths"]), tuple(layers))

    def extended(self, more: Layout, layers: Pairs) -> KeyValueCache:
        """Append the keys and values of more tokens to each sequence; `layers` holds those of every layer."""
        extended = self.extension(more)
        return KeyValueCache(extended.layout, tuple(extended(index, pair) for index, pair in enumerate(layers)))

    def extension(self, more: Layout, window: int | None = None) -> ExtendedCache:
        """Prepare to append more tokens to each sequence, layer by layer, see `ExtendedCache`."""
        return ExtendedCache(self, more, window)

    def windows(self, more: Layout, chunk: int, before: int) -> ChunkWindows:
        """Prepare to append chunks of `chunk` tokens to each sequence, layer by layer, see `ChunkWindows`."""
        return ChunkWindows(self, more, chunk, before)

    def last(self, count: int) -> KeyValueCache:
        """Keep at most the last `count` tokens of each sequence."""
        layout = self.layout
        kept = np.minimum(layout.lengths, count)
        if kept.sum() == layout.tokens:
            return self
        rows = layout.positions >= np.repeat(layout.lengths - kept, layout.lengths)
        where = paddle.to_tensor(np.flatnonzero(rows))
        pairs = tuple((paddle.gather(k, where), paddle.gather(v, where)) for k, v in self.layers)
        return KeyValueCache(Layout.of_lengths(kept), pairs)

    def select(self, sequences: Sequence[int] | np.ndarray) -> KeyValueCache:
        """Select sequences, in this order; indices may repeat."""
        layout, chosen = self.layout, np.asarray(sequences, np.int64)
        rows = [np.arange(layout.offsets[n], layout.offsets[n + 1]) for n in chosen]
        found = Layout.of_lengths(layout.lengths[chosen])
        if not found.tokens:
            return KeyValueCache(found)
        where = paddle.to_tensor(np.concatenate(rows))
        return KeyValueCache(found, tuple((paddle.gather(k, where), paddle.gather(v, where)) for k, v in self.layers))


class ExtendedCache:
    """A cache to which new tokens are appended, layer by layer.

    `layout` is that of old and new tokens together.  Under `mask` each new token attends to itself and to all earlier
    tokens of its sequence; with a `window` to at most that many tokens, itself included.
    """

    def __init__(self, cache: KeyValueCache, more: Layout, window: int | None = None):
        self._cache = cache
        self.layout = cache.layout.followed_by(more)
        end = more.positions + 1 + np.repeat(cache.layout.lengths, more.lengths)
        self.mask = Mask.until(end) if window is None else Mask(end - window, end)
        # Sort keys: by sequence, old tokens before new ones.
        old, new = (2 * np.repeat(np.arange(part.sequences), part.lengths) for part in (cache.layout, more))
        self._order = np.argsort(np.concatenate([old, new + 1]), kind="stable")

    def __call__(self, layer: int, new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Append the new keys and values of a layer; return those of all tokens, in the order of `layout`."""
        if not self._cache.layers:
            return new
        order = paddle.to_tensor(self._order)
        old = self._cache.layers[layer]
        keys, values = (paddle.gather(paddle.concat(parts), order) for parts in zip(old, new, strict=True))
        return keys, values


class ChunkWindows:
    """A cache to which several chunks of new tokens of each sequence are appended, layer by layer.

    Each chunk attends to itself and to the `before` tokens before it, as if it alone were new.  `chunks` is the layout
    of the new tokens in which each chunk is a sequence; `layout` is that of the keys, a window for each chunk.  A
    sequence without new tokens has an empty chunk.
    """

    mask: Mask | None = None  # a chunk sees all of its window

    def __init__(self, cache: KeyValueCache, more: Layout, chunk: int, before: int):
        self._extended, self._before = ExtendedCache(cache, more), before
        counts = np.maximum(1, -(-more.lengths // chunk))
        sequence = np.repeat(np.arange(more.sequences), counts)
        first = chunk * Layout.of_lengths(counts).positions
        lengths = np.minimum(chunk, more.lengths[sequence] - first)
        end = cache.layout.lengths[sequence] + first + lengths
        begin = np.maximum(0, end - lengths - before)
        self.chunks, self.layout = Layout.of_lengths(lengths), Layout.of_lengths(end - begin)
        self._last = np.cumsum(counts) - 1
        self._single = len(counts) == len(sequence) and not begin.any()  # all windows are all tokens of a sequence
        starts = self._extended.layout.starts[sequence] + begin
        self._rows = np.repeat(starts, end - begin) + self.layout.positions

    def __call__(self, layer: int, new: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Append the new keys and values of a layer; return those of all windows, in the order of `layout`."""
        keys, values = self._extended(layer, new)
        if self._single:
            return keys, values
        rows = paddle.to_tensor(self._rows)
        return paddle.gather(keys, rows), paddle.gather(values, rows)

    def cache(self, layers: Pairs) -> KeyValueCache:
        """Return the last `before` tokens of each sequence; `layers` are the keys and values of all windows."""
        windows = KeyValueCache(self.layout, layers)
        return (windows if self._single else windows.select(self._last)).last(self._before)


def _concatenate(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else paddle.concat(list(parts))
