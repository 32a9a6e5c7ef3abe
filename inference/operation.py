"""What a loaded model is asked for, in two parts that a server runs apart: preparing inputs, and computing a batch."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ernie.outcome import Note, Outcome


@dataclass(frozen=True)
class Prepared:
    """An input that is ready to be computed: its size in `tokens`, its `content`, and `notes` on what is unusual."""

    tokens: int
    content: Any
    notes: tuple[Note, ...] = ()


class Operation(ABC):
    """One thing that a model is asked for, such as a vector for each text.

    An input's result has the same bits whatever else is computed with it.
    """

    # What `prepare` takes beside the input, by name.
    settings: frozenset[str] = frozenset()

    @abstractmethod
    def prepare(self, given: Any, **settings: Any) -> Prepared:
        """Check and tokenize an input, in any thread; the network is not used.  Raises UserError for a faulty one."""

    @abstractmethod
    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[Any]]:
        """Return the outcome of each input, all of them computed at once.

        An input for which the network's outputs are not finite has an error.
        """

    @property
    @abstractmethod
    def longest(self) -> int:
        """The largest size of an input, in tokens."""

    @abstractmethod
    def exercise(self, lengths: Sequence[int]) -> None:
        """Compute as much as for inputs of these lengths in tokens, so that a caller can measure the time."""
