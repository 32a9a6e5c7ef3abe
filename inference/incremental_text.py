"""Committed text: it grows token by token, and what has been returned is never revised."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Generic, NamedTuple

from ernie.decode.states import BatchState
from ernie.decode.stream import S
from ernie.text.scripts import NO_SPACES

if TYPE_CHECKING:
    from typing_extensions import Self

# Tokens that are decoded again when new ones arrive, at most twice as many; the text of those before them is final.
_WINDOW = 24
# A last word, which more letters may still extend, also after an apostrophe; from its end, which takes less time.
_OPEN_REVERSED = re.compile(rf"(?:['’] )?[^\s{NO_SPACES}]+")


def newly_committed(committed: str, text: str, done: bool) -> str:
    """Return what follows `committed` in the stable part of a text: in all of the text once it is `done`."""
    stable = text if done or text.endswith("\n") else text[: len(text) - _open_letters(text)].rstrip()
    # Decoding more tokens may remove a space before a word: what was committed stays.
    return stable.removeprefix(committed) if stable.startswith(committed) else stable[len(committed) :]


def _open_letters(text: str) -> int:
    """Return the length of the last word of a text if letters may still follow it, 0 if not."""
    found = _OPEN_REVERSED.match(text[::-1])
    return found.end() if found else 0


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
class CommittedText(BatchState, Generic[S]):
    """The state of some streams of text: the state of their tokens, and the text of each that is `committed`.

    A subclass says of which class `tokens` are.  `past` is the number of first tokens of a long stream that are no
    longer decoded; `committed` covers only the tokens after them.
    """

    tokens: S
    committed: tuple[str, ...]
    past: tuple[int, ...]

    def commit(
        self,
        tokens: S,
        recent: Sequence[Sequence[int] | None],
        done: Sequence[bool],
        decode: Callable[[Sequence[int]], str],
        window: int = _WINDOW,
    ) -> tuple[Self, list[str]]:
        """Return the state with these tokens, and the newly committed text of each stream.

        `recent` holds the tokens of each stream without the `past` ones, None for a stream in which nothing is new.
        `done` says which streams are finished.  `decode` turns tokens into text.  However long a stream is, at most
        twice `window` tokens are decoded, plus the new ones.
        """
        results = []
        for before, own, is_done in zip(map(_Progress, self.past, self.committed), recent, done, strict=True):
            results.append((before, "") if own is None else _commit(before, own, is_done, decode, window))
        committed, past = tuple(now.committed for now, _ in results), tuple(now.past for now, _ in results)
        return replace(self, tokens=tokens, committed=committed, past=past), [new for _, new in results]
