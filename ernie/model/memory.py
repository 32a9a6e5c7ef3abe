"""What attention remembers of sequences that grow: keys and values, layer by layer.

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
class Memory:
    """Keys and values of N sequences, one after the other; `layers` is empty before the first token.

    Nothing is changed in place: from one memory one may go on twice, take some of its sequences, and put those of
    several together.
    """

    layout: Layout
    layers: Pairs = ()

    @classmethod
    def empty(cls, sequences: int) -> Memory:
        """That of sequences of which nothing is known yet."""
        return cls(Layout.of_lengths([0] * sequences))

    @classmethod
    def joined(cls, memories: Sequence[Memory]) -> Memory:
        """The sequences of all of them, in their order."""
        layout = Layout.of_lengths(np.concatenate([memory.layout.lengths for memory in memories]))
        filled = [memory.layers for memory in memories if memory.layers]
        pairs = zip(*filled, strict=True)
        return cls(layout, tuple((_concat([k for k, _ in pair]), _concat([v for _, v in pair])) for pair in pairs))

    def arrays(self) -> dict[str, np.ndarray]:
        """The memory as arrays by name, which `of_arrays` takes."""
        found = {"lengths": self.layout.lengths}
        for number, (keys, values) in enumerate(self.layers):
            found["dtype"] = np.array(str(keys.dtype).removeprefix("paddle."))
            found |= {f"keys.{number}": to_numpy(keys), f"values.{number}": to_numpy(values)}
        return found

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Memory:
        """The memory of which `arrays` gave these."""
        layers: list[tuple[Tensor, Tensor]] = []
        while (number := len(layers)) < sum(name.startswith("keys.") for name in arrays):
            pair = (paddle.to_tensor(arrays[f"{what}.{number}"]) for what in ("keys", "values"))
            keys, values = (tensor.astype(str(arrays["dtype"])) for tensor in pair)
            layers.append((keys, values))
        return cls(Layout.of_lengths(arrays["lengths"]), tuple(layers))

    def extended(self, more: Layout, layers: Pairs) -> Memory:
        """The same with the keys and values of more tokens behind those of each sequence."""
        grown = self.places(more)
        return Memory(grown.layout, tuple(grown(number, pair) for number, pair in enumerate(layers)))

    def places(self, more: Layout, together: bool = False, window: int | None = None) -> Grown:
        """How to put more tokens behind those of each sequence, for one layer after the other."""
        return Grown(self, more, together, window)

    def last(self, most: int) -> Memory:
        """At most so many tokens of each sequence, the last ones."""
        layout = self.layout
        kept = np.minimum(layout.lengths, most)
        if kept.sum() == layout.tokens:
            return self
        rows = layout.positions >= np.repeat(layout.lengths - kept, layout.lengths)
        where = paddle.to_tensor(np.flatnonzero(rows))
        pairs = tuple((paddle.gather(k, where), paddle.gather(v, where)) for k, v in self.layers)
        return Memory(Layout.of_lengths(kept), pairs)

    def chosen(self, sequences: Sequence[int] | np.ndarray) -> Memory:
        """These sequences only, in this order; one may be there several times."""
        layout, chosen = self.layout, np.asarray(sequences, np.int64)
        rows = [np.arange(layout.offsets[n], layout.offsets[n + 1]) for n in chosen]
        found = Layout.of_lengths(layout.lengths[chosen])
        if not found.tokens:
            return Memory(found)
        where = paddle.to_tensor(np.concatenate(rows))
        return Memory(found, tuple((paddle.gather(k, where), paddle.gather(v, where)) for k, v in self.layers))


class Grown:
    """The keys and values of a memory's layers with those of more tokens behind them.

    `mask` has each of these see all that is before it in its sequence; those that come `together` see one another too.
    With a `window` each sees so many tokens at most, itself the last of them.
    """

    def __init__(self, memory: Memory, more: Layout, together: bool = False, window: int | None = None):
        self._memory = memory
        self.layout = memory.layout.followed_by(more)
        own = np.repeat(more.lengths, more.lengths) if together else more.positions + 1
        last = own + np.repeat(memory.layout.lengths, more.lengths)
        self.mask = Mask.until(last) if window is None else Mask.between(last - window, last)
        both = [2 * np.repeat(np.arange(part.sequences), part.lengths) for part in (memory.layout, more)]
        self._order = np.argsort(np.concatenate([both[0], both[1] + 1]), kind="stable")

    def __call__(self, layer: int, pair: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
        """Those of a layer, given the new ones."""
        if not self._memory.layers:
            return pair
        where = paddle.to_tensor(self._order)
        before = self._memory.layers[layer]
        keys, values = (paddle.gather(paddle.concat(both), where) for both in zip(before, pair, strict=True))
        return keys, values


def _concat(parts: Sequence[Tensor]) -> Tensor:
    return parts[0] if len(parts) == 1 else paddle.concat(list(parts))
