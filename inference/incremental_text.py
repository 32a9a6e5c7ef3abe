"""Committed text: it grows token by token, and what has been returned is never revised."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, NamedTuple

import numpy as np

from ernie.decode.stream import S, strip_prefix, with_prefix
from ernie.text.scripts import NO_SPACES

if TYPE_CHECKING:
    from typing_extensions import Self

# Tokens that are decoded again when new ones arrive, at most twice as many; the text of those before them is final.
_WINDOW = 64
# A last word, which more letters may still extend, also after an apostrophe.
_OPEN = re.compile(rf"[^\s{NO_SPACES}]+(?: ['’])?$")


def newly_committed(committed: str, text: str, done: bool) -> str:
    """Return what follows `committed` in the stable part of a text: in all of the text once it is `done`."""
    stable = text if done or text.endswith("\n") else _OPEN.sub("", text).rstrip()
    # Decoding more tokens may remove a space before a word: what was committed stays.
    return stable.removeprefix(committed) if stable.startswith(committed) else stable[len(committed) :]


class _Progress(NamedTuple):
    """The progress of one stream: how many tokens are `past`, and the `committed` text of the tokens after them."""

    past: int
    committed: str


def _commit(
    before: _Progress, recent: Sequence[int], done: bool, decode: Callable[[Sequence[int]], str], window: int
) -> tuple[_Progress, str]:
    """Return the progress, and the newly committed text, of a stream with the tokens `recent` after the past ones."""
    text = decode(recent)
    new = newly_committed(before.committed, text, done)
    now = _Progress(before.past, before.committed + new)
    if len(recent) <= 2 * window:
        return now, new
    early = decode(recent[:-window])
    if text.startswith(early) and early.startswith(now.committed) and len(early) > len(now.committed):
        # A word without end, as in scripts without word separators.  One of its tokens is kept to represent it.
        start = len(recent) - window - 1
        return _Progress(before.past + start, decode(recent[start : start + 1])), early[len(before.committed) :]
    # The first tokens become past, unless their text is not committed yet or the text of the rest depends on them.
    tail = decode(recent[-window:])
    cut = len(text) - len(tail)
    if not (text.endswith(tail) and text.startswith(now.committed) and cut <= len(now.committed)):
        return now, new
    return _Progress(before.past + len(recent) - window, now.committed[cut:]), new


@dataclass(frozen=True, eq=False)
class CommittedText(Generic[S]):
    """The state of some streams of text: the state of their tokens, and the text of each that is `committed`.

    A subclass sets `kind`, the class of the token state.  In a long stream the first tokens are `past`, and `committed`
    covers only the tokens after them.  For decoders that take text, `held` is the input that each stream holds back
    (see `ernie.text.incoming`).
    """

    tokens: S
    committed: tuple[str, ...]
    held: tuple[str, ...] = ()
    past: tuple[int, ...] = ()

    kind: ClassVar[type[Any]]

    @property
    def streams(self) -> int:
        """The number of streams."""
        return self.tokens.streams

    def select(self, streams: Sequence[int]) -> Self:
        """Return the state of these streams only, in this order."""
        committed, held = (tuple(texts[n] for n in streams) if texts else () for texts in (self.committed, self.held))
        past = tuple(self.past_tokens[n] for n in streams)
        return type(self)(self.tokens.select(streams), committed, held, past)

    def concat(self, others: Sequence[Self]) -> Self:
        """Concatenate the streams of this state and of others, in order."""
        states = (self, *others)
        committed = tuple(text for state in states for text in state.committed)
        held = tuple(text for state in states for text in state.held)
        past = tuple(count for state in states for count in state.past_tokens)
        return type(self)(self.tokens.concat([state.tokens for state in others]), committed, held, past)

    def arrays(self) -> dict[str, np.ndarray]:
        """Return the whole state as arrays by name."""
        texts = {"given": np.array(self.committed, str), "held": np.array(self.held, str)}
        return {**texts, "past": np.array(self.past_tokens), **with_prefix("tokens", self.tokens.arrays())}

    @classmethod
    def from_arrays(cls, arrays: Mapping[str, np.ndarray]) -> Self:
        """Restore a state from its `arrays`."""
        committed, held = tuple(map(str, arrays["given"])), tuple(map(str, arrays.get("held", ())))
        past, tokens = tuple(map(int, arrays.get("past", ()))), cls.kind.from_arrays(strip_prefix("tokens", arrays))
        for name, found in (("given", committed), ("held", held), ("past", past)):
            if len(found) != tokens.streams and (found or name == "given"):
                raise ValueError(f"{len(found)} of '{name}' for {tokens.streams} streams")
        return cls(tokens, committed, held, past)

    def commit(
        self,
        tokens: S,
        recent: Sequence[Sequence[int]],
        done: Sequence[bool],
        decode: Callable[[Sequence[int]], str],
        window: int = _WINDOW,
    ) -> tuple[Self, list[str]]:
        """Return the state with these tokens, and the newly committed text of each stream.

        `recent` holds the tokens of each stream but for the first, `past_tokens` ones, `done` says which streams are
        finished, and `decode` turns tokens into text.  However long a stream is, at most twice `window` tokens are
        decoded, plus the new ones.
        """
        before = map(_Progress, self.past_tokens, self.committed)
        results = [_commit(*stream, decode, window) for stream in zip(before, recent, done, strict=True)]
        committed, past = tuple(now.committed for now, _ in results), tuple(now.past for now, _ in results)
        return type(self)(tokens, committed, self.held, past), [new for _, new in results]

    @property
    def past_tokens(self) -> tuple[int, ...]:
        """The number of past tokens of each stream."""
        return self.past or (0,) * self.streams
