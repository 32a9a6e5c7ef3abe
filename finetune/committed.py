"""Text that grows token by token: what is handed out of it is never taken back."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple

import numpy as np

from ernie.decode.stream import S, part, under
from ernie.text.scripts import NO_SPACES

if TYPE_CHECKING:
    from typing_extensions import Self

# Tokens whose text is looked at again for each new one, at most twice as many: what is before them stays as it is.
_AGAIN = 64
# A last word, to which more letters may still be added, also behind an apostrophe.
_OPEN = re.compile(rf"[^\s{NO_SPACES}]+(?: ['’])?$")


def newly_sure(given: str, text: str, done: bool) -> str:
    """What follows `given`, which was handed out, in the sure part of a text: all of it once it is `done`."""
    sure = text if done else _OPEN.sub("", text).rstrip()
    # A decoder may close up to a word what comes before it: what was handed out stays.
    return sure.removeprefix(given) if sure.startswith(given) else sure[len(given) :]


class _Said(NamedTuple):
    """How far one stream is: the tokens that are `past`, and what was handed out of the text of those behind them."""

    past: int
    given: str


def _told(
    before: _Said, ids: Sequence[int], done: bool, decode: Callable[[Sequence[int]], str], again: int
) -> tuple[_Said, str]:
    """What is handed out now of the text of `ids`, all tokens of a stream."""
    looked_at = ids[before.past :]
    text = decode(looked_at)
    new = newly_sure(before.given, text, done)
    said = _Said(before.past, before.given + new)
    if len(looked_at) <= 2 * again:
        return said, new
    early = decode(looked_at[:-again])
    if text.startswith(early) and early.startswith(said.given) and len(early) > len(said.given):
        # A word without an end, as in scripts whose words nothing parts.  One of its tokens stands for what it is.
        start = len(looked_at) - again - 1
        return _Said(before.past + start, decode(looked_at[start : start + 1])), early[len(before.given) :]
    # The first of them are past, unless their text is not sure yet or that of the rest depends on them.
    tail = decode(looked_at[-again:])
    cut = len(text) - len(tail)
    if not (text.endswith(tail) and text.startswith(said.given) and cut <= len(said.given)):
        return said, new
    return _Said(len(ids) - again, said.given[cut:]), new


@dataclass(frozen=True, eq=False)
class Given(Generic[S]):
    """The state of some streams of text: that of their tokens, of a class of its own, and what was handed out of each.

    A subclass says which class that is, its `kind`.  Of a long stream the first tokens are `past`, and `given` is of
    those behind them alone.  Where text comes in, `held` is what is held back of each stream (see
    `ernie.text.incoming`).
    """

    tokens: S
    given: tuple[str, ...]
    held: tuple[str, ...] = ()
    past: tuple[int, ...] = ()

    kind: ClassVar[type[Any]]

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self.tokens.streams

    def chosen(self, streams: Sequence[int]) -> Self:
        """These streams only, in this order."""
        given, held = (tuple(texts[n] for n in streams) if texts else () for texts in (self.given, self.held))
        past = tuple(self._past[n] for n in streams)
        return type(self)(self.tokens.chosen(streams), given, held, past)

    def with_others(self, others: Sequence[Self]) -> Self:
        """The streams of this state and those of others, in their order."""
        every = (self, *others)
        given, held = (tuple(text for state in every for text in getattr(state, name)) for name in ("given", "held"))
        past = tuple(count for state in every for count in state._past)
        return type(self)(self.tokens.with_others([state.tokens for state in others]), given, held, past)

    def arrays(self) -> dict[str, np.ndarray]:
        """All that is known, as arrays by name."""
        texts = {"given": np.array(self.given, str), "held": np.array(self.held, str)}
        return {**texts, "past": np.array(self._past), **under("tokens", self.tokens.arrays())}

    @classmethod
    def of_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """The state of which `arrays` gave these."""
        given, held = tuple(map(str, arrays["given"])), tuple(map(str, arrays.get("held", ())))
        past, tokens = tuple(map(int, arrays.get("past", ()))), cls.kind.of_arrays(part("tokens", arrays))
        for name, found in (("given", given), ("held", held), ("past", past)):
            if len(found) != tokens.streams and (found or name == "given"):
                raise ValueError(f"{len(found)} of '{name}' for {tokens.streams} streams")
        return cls(tokens, given, held, past)

    def told(
        self,
        tokens: S,
        ids: Sequence[Sequence[int]],
        done: Sequence[bool],
        decode: Callable[[Sequence[int]], str],
        again: int = _AGAIN,
    ) -> tuple[Self, list[str]]:
        """The state with these tokens, and what is handed out now of the text that `decode` makes of each stream's
        `ids`, which is `done` or not.

        Of a stream of any length no more than twice `again` tokens are decoded, and the new ones.
        """
        before = map(_Said, self._past, self.given)
        found = [_told(*each, decode, again) for each in zip(before, ids, done, strict=True)]
        given, past = tuple(said.given for said, _ in found), tuple(said.past for said, _ in found)
        return type(self)(tokens, given, self.held, past), [new for _, new in found]

    @property
    def _past(self) -> tuple[int, ...]:
        return self.past or (0,) * self.streams
