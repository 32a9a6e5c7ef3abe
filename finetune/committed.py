"""Text that grows token by token: what is handed out of it is never taken back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np

from ernie.decode.stream import S, part, under
from ernie.text.incoming import NO_SPACES

if TYPE_CHECKING:
    from typing_extensions import Self

_OPEN = re.compile(rf"[^\s{NO_SPACES}]+$")  # a last word, to which more letters may still be added


def newly_sure(given: str, text: str, done: bool) -> str:
    """What follows `given`, which was handed out, in the sure part of a text: all of it once it is `done`."""
    sure = text if done else _OPEN.sub("", text).rstrip()
    # A decoder may close up to a word what comes before it: what was handed out stays.
    return sure.removeprefix(given) if sure.startswith(given) else sure[len(given) :]


@dataclass(frozen=True, eq=False)
class Given(Generic[S]):
    """The state of some streams of text: that of their tokens, of a class of its own, and what was handed out of each.

    A subclass says which class that is, its `kind`.  Where text comes in, `held` is what is held back of each stream
    (see `ernie.text.incoming`).
    """

    tokens: S
    given: tuple[str, ...]
    held: tuple[str, ...] = ()

    kind: ClassVar[type[Any]]

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self.tokens.streams

    def chosen(self, streams: Sequence[int]) -> Self:
        """These streams only, in this order."""
        given, held = (tuple(texts[n] for n in streams) if texts else () for texts in (self.given, self.held))
        return type(self)(self.tokens.chosen(streams), given, held)

    def with_others(self, others: Sequence[Self]) -> Self:
        """The streams of this state and those of others, in their order."""
        every = (self, *others)
        given, held = (tuple(text for state in every for text in getattr(state, name)) for name in ("given", "held"))
        return type(self)(self.tokens.with_others([state.tokens for state in others]), given, held)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        texts = {"given": np.array(self.given, str), "held": np.array(self.held, str)}
        return {**texts, **under("tokens", self.tokens.arrays())}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The state of which `arrays` gave these."""
        given, held = (tuple(map(str, arrays.get(name, ()))) for name in ("given", "held"))
        return cls(cls.kind.of_arrays(part("tokens", arrays)), given, held)

    def told(self, tokens: S, texts: Sequence[str], done: Sequence[bool]) -> tuple[Self, list[str]]:
        """The state with these tokens, whose texts are `done` or not, and what is handed out of each now."""
        new = [newly_sure(*each) for each in zip(self.given, texts, done, strict=True)]
        return type(self)(tokens, tuple(map("".join, zip(self.given, new, strict=True))), self.held), new
