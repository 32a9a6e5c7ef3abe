"""Key-value cache of packed sequences, for incremental encoding and decoding.

Legend: T packed tokens, S packed keys, N sequences, D width.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property

import numpy as np
import paddle
from paddle import Tensor

from ernie.data.batch import Layout
from ernie.kernels.attention import attention, attention_over_runs
from ernie.kernels.choose import runs_in_cpp
from ernie.kernels.mask import Mask
from ernie.kernels.precision import to_numpy
from ernie.model.pages import Pages, Pairs, Piece, Table, part


class KeyValueCache:
    """Keys and values of N packed sequences, layer by layer; `layers` is empty before the first token.

    Caches are immutable, so that one can be extended in several ways, split into its sequences and joined with others,
    also by several threads at once.

    Where the C++ kernels compute without gradients, sequences lie in pages (see ernie.model.pages).  Then none of this
    copies what is cached, but for at most a page of a sequence that is extended a second time.  Elsewhere tensors are
    copied.
    """

    def __init__(self, layout: Layout, layers: Pairs = ()):
        self.layout = layout
        self._held: Pairs | Pages = layers

    @property
    def layers(self) -> Pairs:
        """The keys and values of each layer, (T, D); each use copies them if they lie in pages."""
        held = self._held
        return held.pairs(self.layout) if isinstance(held, Pages) else held

    @classmethod
    def empty(cls, sequences: int) -> KeyValueCache:
        """Return the cache of sequences without tokens."""
        return cls(Layout.of_lengths([0] * sequences))

    @classmethod
    def joined(cls, caches: Sequence[KeyValueCache]) -> KeyValueCache:
        """Concatenate the sequences of several caches, in order."""
        layout = Layout.of_lengths(np.concatenate([cache.layout.lengths for cache in caches]))
        filled = [cache for cache in caches if cache._held]
        pages = [found for cache in filled if (found := cache._pages())]
        if filled and len(pages) == len(filled) and len({(each.layers, each.width) for each in pages}) == 1:
            sequences = tuple(pieces for cache in caches for pieces in cache._sequences())
            return cls._of_pages(layout, Pages(sequences, pages[0].layers, pages[0].width))
        pairs = zip(*(cache.layers for cache in filled), strict=True)
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

    def attend(
        self,
        layer: int,
        q_TD: Tensor,
        queries: Layout,
        heads: int,
        dropout: float = 0.0,
        mask: Mask | None = None,
    ) -> Tensor:
        """Attend to a layer's keys and values, (T, D) -> (T, D); the n-th sequence of queries to the n-th cached."""
        held = self._held
        if isinstance(held, Pages) and not paddle.is_grad_enabled():
            held.check(layer, q_TD)
            runs = held.table.at(layer)
            return attention_over_runs(q_TD, runs, queries, heads, dropout, keys=self.layout, mask=mask)
        keys, values = self.layers[layer]
        return attention(q_TD, keys, values, queries, heads, dropout, keys=self.layout, mask=mask)

    def extended(self, more: Layout, layers: Pairs) -> KeyValueCache:
        """Append the keys and values of more tokens to each sequence; `layers` holds those of every layer."""
        extended = self.extension(more)
        for new in layers:
            extended.append(new)
        return extended.cache()

    def extension(self, more: Layout, window: int | None = None) -> ExtendedCache:
        """Prepare to append more tokens to each sequence, layer by layer.

        Each new token attends to itself and to all earlier tokens of its sequence; with a `window` to at most that many
        tokens, itself included.
        """
        end = more.positions + 1 + np.repeat(self.layout.lengths, more.lengths)
        mask = Mask.until(end) if window is None else Mask(end - window, end)
        return ExtendedCache(self, more, more, mask=mask)

    def windows(self, more: Layout, chunk: int, before: int) -> ExtendedCache:
        """Prepare to append chunks of `chunk` tokens to each sequence, and to keep its last `before` tokens.

        Each chunk attends to itself and to the `before` tokens before it, as if it alone were new.  A sequence without
        new tokens has an empty chunk.
        """
        counts = np.maximum(1, -(-more.lengths // chunk))
        sequence = np.repeat(np.arange(more.sequences), counts)
        first = chunk * Layout.of_lengths(counts).positions
        lengths = np.minimum(chunk, more.lengths[sequence] - first)
        end = self.layout.lengths[sequence] + first + lengths
        begin = np.maximum(0, end - lengths - before)
        return ExtendedCache(self, more, Layout.of_lengths(lengths), spans=(sequence, begin, end), last=before)

    def last(self, count: int) -> KeyValueCache:
        """Keep at most the last `count` tokens of each sequence."""
        layout = self.layout
        kept = np.minimum(layout.lengths, count)
        if kept.sum() == layout.tokens:
            return self
        found = Layout.of_lengths(kept)
        if pages := self._pages():
            return self._of_pages(found, pages.parts(layout.lengths - kept, layout.lengths))
        rows = layout.positions >= np.repeat(layout.lengths - kept, layout.lengths)
        return KeyValueCache(found, tuple(_gathered(pair, np.flatnonzero(rows)) for pair in self.layers))

    def select(self, sequences: Sequence[int] | np.ndarray) -> KeyValueCache:
        """Select sequences, in this order; indices may repeat."""
        layout, chosen = self.layout, np.asarray(sequences, np.int64)
        found = Layout.of_lengths(layout.lengths[chosen])
        if pages := self._pages():
            return self._of_pages(found, pages.select(chosen.tolist()))
        if not found.tokens:
            return KeyValueCache(found)
        rows = np.concatenate([np.arange(layout.offsets[n], layout.offsets[n + 1]) for n in chosen])
        return KeyValueCache(found, tuple(_gathered(pair, rows) for pair in self.layers))

    @classmethod
    def _of_pages(cls, layout: Layout, pages: Pages) -> KeyValueCache:
        cache = cls(layout)
        if layout.tokens:
            cache._held = pages
        return cache

    def _pages(self) -> Pages | None:
        """Return the pages in which the sequences lie, moving them there first; None where they cannot."""
        held = self._held
        if isinstance(held, Pages) or not held or not self.layout.tokens:
            return held if isinstance(held, Pages) else None
        if paddle.is_grad_enabled() or not runs_in_cpp(*(tensor for pair in held for tensor in pair)):
            return None
        # Another thread may do the same at the same time: both find the same keys and values.
        self._held = pages = Pages.of_pairs(self.layout, held)
        return pages

    def _sequences(self) -> tuple[tuple[Piece, ...], ...]:
        held = self._held
        return held.sequences if isinstance(held, Pages) else ((),) * self.layout.sequences


class ExtendedCache:
    """A cache to which new tokens are appended, layer by layer.

    `queries` are the new tokens, grouped by the keys that they attend to, and `layout` is the layout of these keys.
    By default each group attends to all of its sequence, else to the rows of `spans`: the number of the sequence, and
    begin and end of the rows, (Q,) each.  `mask` limits which of them each token sees.  `cache` keeps the `last` tokens
    of each sequence (default: all).
    """

    def __init__(
        self,
        cache: KeyValueCache,
        more: Layout,
        queries: Layout,
        *,
        mask: Mask | None = None,
        spans: tuple[np.ndarray, np.ndarray, np.ndarray] | None = None,
        last: int | None = None,
    ):
        self._old, self._more, self._spans, self._last = cache, more, spans, last
        self._all = cache.layout.followed_by(more)
        self.queries, self.mask = queries, mask
        self.layout = self._all if spans is None else Layout.of_lengths(spans[2] - spans[1])
        self._pages = None if paddle.is_grad_enabled() else cache._pages()
        self._new: list[tuple[Tensor, Tensor]] = []
        self._together: list[tuple[Tensor, Tensor]] = []  # of the first layers; unused with pages

    def append(self, new: tuple[Tensor, Tensor]) -> None:
        """Append the new keys and values (T, D) of the next layer."""
        self._new.append(new)

    def attend(self, q_TD: Tensor, heads: int, dropout: float = 0.0) -> Tensor:
        """Return the attention of the new tokens in the layer that was appended last, (T, D) -> (T, D)."""
        layer = len(self._new) - 1
        if self._pages:
            self._pages.check(layer, q_TD, *self._new[layer])
            runs = self._table.at(layer, self._new[layer])
            return attention_over_runs(q_TD, runs, self.queries, heads, dropout, keys=self.layout, mask=self.mask)
        keys_values = self._tensors(layer)
        if self._window_rows is not None:
            keys_values = _gathered(keys_values, self._window_rows)
        return attention(q_TD, *keys_values, self.queries, heads, dropout, keys=self.layout, mask=self.mask)

    def values(self) -> Tensor:
        """Return the values (S, D) of the layer that was appended last: those of `layout`, one group after the other.

        Where sequences lie in pages this copies them.
        """
        layer = len(self._new) - 1
        values = self._new[layer][1]
        if self._pages or self._layers:
            old = self._pages.values(layer, self._old.layout) if self._pages else self._layers[layer][1]
            values = paddle.gather(paddle.concat([old, values]), paddle.to_tensor(self._order))
        rows = self._window_rows
        return values if rows is None else paddle.gather(values, paddle.to_tensor(rows))

    def cache(self) -> KeyValueCache:
        """Return the extended cache, once all layers are appended."""
        old, more, lengths = self._old.layout.lengths, self._more, self._all.lengths
        dropped = np.zeros_like(lengths) if self._last is None else np.maximum(0, lengths - self._last)
        layout = Layout.of_lengths(lengths - dropped)
        if self._pages:
            unwritten = np.maximum(0, dropped - old)
            begin, first, count = np.minimum(dropped, old), more.starts + unwritten, more.lengths - unwritten
            return KeyValueCache._of_pages(layout, self._pages.appended(begin, first, count, tuple(self._new)))
        layers = tuple(self._tensors(layer) for layer in range(len(self._new)))
        if dropped.any():
            rows = np.flatnonzero(self._all.positions >= np.repeat(dropped, lengths))
            layers = tuple(_gathered(pair, rows) for pair in layers)
        return KeyValueCache(layout, layers)

    def _tensors(self, layer: int) -> tuple[Tensor, Tensor]:
        """Return the keys and values of all tokens, old and new, in the order of sequences."""
        for index in range(len(self._together), layer + 1):
            pair = self._new[index]
            if self._layers:
                keys, values = (paddle.concat(parts) for parts in zip(self._layers[index], pair, strict=True))
                pair = _gathered((keys, values), self._order)
            self._together.append(pair)
        return self._together[layer]

    @cached_property
    def _layers(self) -> Pairs:
        return self._old.layers

    @cached_property
    def _order(self) -> np.ndarray:
        """The order of the old tokens followed by the new ones: by sequence, old tokens before new ones."""
        parts = (self._old.layout, self._more)
        old, new = (2 * np.repeat(np.arange(layout.sequences), layout.lengths) for layout in parts)
        return np.argsort(np.concatenate([old, new + 1]), kind="stable")

    @cached_property
    def _window_rows(self) -> np.ndarray | None:
        """The rows of the spans among all tokens, None if the spans are all of them."""
        if self._spans is None:
            return None
        sequence, begin, end = self._spans
        if len(sequence) == self._all.sequences and not begin.any():
            return None
        return np.repeat(self._all.starts[sequence] + begin, end - begin) + self.layout.positions

    @cached_property
    def _table(self) -> Table:
        """Where the keys and values of `layout` lie: in pages, or in the new tensors."""
        assert self._pages is not None
        rows = zip(self._more.starts.tolist(), self._more.lengths.tolist(), strict=True)
        new = ((Piece(None, first, count),) if count else () for first, count in rows)
        sequences = [old + more for old, more in zip(self._pages.sequences, new, strict=True)]
        if self._spans is not None:
            spans = zip(*(each.tolist() for each in self._spans), strict=True)
            sequences = [part(sequences[n], begin, end) for n, begin, end in spans]
        return Table(sequences, self._pages.width)


def _gathered(pair: tuple[Tensor, Tensor], rows: np.ndarray) -> tuple[Tensor, Tensor]:
    where = paddle.to_tensor(rows)
    return paddle.gather(pair[0], where), paddle.gather(pair[1], where)


def _concatenate(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else paddle.concat(list(parts))
