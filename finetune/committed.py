"""Text that grows token by token: what is handed out of it is never taken back."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic

import numpy as np

from ernie.decode.stream import S, part, under

if TYPE_CHECKING:
    from typing_extensions import Self

_NO_SPACES = r"\u3000-\u30ff\u3400-\u9fff\uf900-\ufaff\uff00-\uffef"  # Chinese, Japanese, and their punctuation
_OPEN = re.compile(rf"[^\s{_NO_SPACES}]+$")  # a last word, to which more letters may still be added


def has_no_spaces(letter: str) -> bool:
    """Whether a letter belongs to a script that does not part words by spaces."""
    return re.match(f"[{_NO_SPACES}]", letter) is not None


def newly_sure(given: str, text: str, done: bool) -> str:
    """What follows `given`, which was handed out, in the sure part of a text: all of it once it is `done`."""
    sure = text if done else _OPEN.sub("", text).rstrip()
    # A decoder may close up to a word what comes before it: what was handed out stays.
    return sure.removeprefix(given) if sure.startswith(given) else sure[len(given) :]


@dataclass(frozen=True, eq=False)
class Given(Generic[S]):
    """The state of some streams of text: that of their tokens, of a class of its own, and what was handed out of each.

    A subclass says which class that is, its `kind`.
    """

    tokens: S
    given: tuple[str, ...]

    kind: ClassVar[type[Any]]

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self.tokens.streams

    def chosen(self, streams: Sequence[int]) -> Self:
        """These streams only, in this order."""
        return type(self)(self.tokens.chosen(streams), tuple(self.given[n] for n in streams))

    def with_others(self, others: Sequence[Self]) -> Self:
        """The streams of this state and those of others, in their order."""
        given = tuple(text for state in (self, *others) for text in state.given)
        return type(self)(self.tokens.with_others([state.tokens for state in others]), given)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        return {"given": np.array(self.given, str), **under("tokens", self.tokens.arrays())}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The state of which `arrays` gave these."""
        return cls(cls.kind.of_arrays(part("tokens", arrays)), tuple(map(str, arrays["given"])))

    def told(self, tokens: S, texts: Sequence[str], done: Sequence[bool]) -> tuple[Self, list[str]]:
        """The state with these tokens, whose texts are `done` or not, and what is handed out of each now."""
        new = [newly_sure(*each) for each in zip(self.given, texts, done, strict=True)]
        return type(self)(tokens, tuple(map("".join, zip(self.given, new, strict=True)))), new
