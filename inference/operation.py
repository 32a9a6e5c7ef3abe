"""What a loaded model is asked for, in two parts that a server runs apart: preparing inputs, and computing a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from ernie.outcome import Note, Outcome

K = TypeVar("K", bound=Hashable)


@dataclass(frozen=True)
class Prepared:
    """An input that is ready to be computed: its size in `tokens`, its `content`, and `notes` on what is unusual.

    `is_cut` says that it was too long, so that its end was cut off.
    """

    tokens: int
    content: Any
    notes: tuple[Note, ...] = ()
    is_cut: bool = False


@dataclass(frozen=True)
class Addressed:
    """A prepared input, and the operation that it is for: one of several that are computed together."""

    operation: Operation
    prepared: Prepared

    @property
    def tokens(self) -> int:
        """Its size."""
        return self.prepared.tokens


class Operation(ABC):
    """One thing that a model is asked for, such as a vector for each text.

    An input's result has the same bits whatever else is computed with it.
    """

    # What `prepare` takes beside the input, by name.
    settings: frozenset[str] = frozenset()
    # What operations have in common whose inputs `compute_together` computes at once; None if it cannot.
    together: Hashable | None = None

    @abstractmethod
    def prepare(self, given: Any, row: int = 0, **settings: Any) -> Prepared:
        """Check and tokenize an input, in any thread; the network is not used.

        Raises UserError for a faulty one, and names it by its `row`.
        """

    @abstractmethod
    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[Any]]:
        """Return the outcome of each input, all of them computed at once.

        An input for which the network's outputs are not finite has an error.
        """

    @staticmethod
    def compute_together(batch: Sequence[Addressed]) -> list[Outcome[Any]]:
        """Return the outcomes of inputs of operations with the same `together`, as `compute` does for one of them."""
        raise NotImplementedError

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest size of an input, in tokens."""

    @property
    def most_tokens(self) -> int | None:
        """The most tokens of inputs that are asked for together, None for any number.

        More would make an answer that is too large to keep.
        """
        return None

    @abstractmethod
    def exercise(self, lengths: Sequence[int]) -> None:
        """Compute as much as for inputs of these lengths in tokens, so that a caller can measure the time.

        Raises NotFinite if the network's outputs are NaN or infinite.
        """


def grouped(batch: Sequence[Prepared], key: Callable[[Prepared], K]) -> Iterator[tuple[K, list[int]]]:
    """Yield each key of a batch with the indices of its inputs, in order."""
    found: dict[K, list[int]] = {}
    for index, prepared in enumerate(batch):
        found.setdefault(key(prepared), []).append(index)
    yield from found.items()
