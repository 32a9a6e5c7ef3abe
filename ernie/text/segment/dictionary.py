"""`dictionary`: words, phrases and entities from a file of the user's."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Literal

import numpy as np

from ernie.errors import UserError, nearest
from ernie.text.scripts import NO_SPACES
from ernie.text.segment.base import Kind, Segmenter, Words, disjoint, in_order, segmenters

_LONGEST = 200  # characters of an entry; all its beginnings are held
_PARTED = re.compile(rf"[^\W\d_{NO_SPACES}]{{2}}|\d\d")
_NAMES = {kind.name.lower(): kind for kind in Kind}


@segmenters.register("dictionary")
@dataclass(frozen=True)
class Dictionary(Segmenter):
    """Marks the entries of a UTF-8 `file`: one a line, optionally a tab and its kind (word, phrase or entity) behind.

    `entry_kind` is that of lines without one.  The longest entry is taken, from left to right, each kind by itself;
    words are those of the entry, but in Chinese and Japanese, and beside punctuation marks, white space makes no
    difference, nor does case anywhere unless `match_case`.  Lines that are empty or begin with "# " are passed over.
    """

    file: Path
    entry_kind: Literal["word", "phrase", "entity"] = "phrase"
    match_case: bool = False

    def __post_init__(self) -> None:
        _ = self._entries  # read now, so that a mistake in the file is told with those of the configuration

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        words = Words.of(words)
        found = []
        for kind, entries in self._entries.items():
            firsts, stops = self._find(words, starts, entries)
            keep = disjoint(firsts, stops)
            found.append(np.column_stack((firsts[keep], stops[keep], np.full(keep.sum(), kind))))
        return in_order(np.concatenate(found))

    def _find(self, words: Words, starts: np.ndarray, entries: Entries) -> tuple[np.ndarray, np.ndarray]:
        """The longest entry that begins at each word: where it begins, and the place past its end."""
        folded = [self._fold(word) for word in words.distinct]
        begins = np.fromiter((word in entries.beginnings for word in folded), bool, len(folded))
        places = np.flatnonzero(begins[words.numbers])
        sentence_ends = np.append(starts, len(words))[np.searchsorted(starts, places, side="right")]
        firsts, stops = [], []
        for first, end in zip(places.tolist(), sentence_ends.tolist(), strict=True):
            stop = entries.longest([folded[i] for i in words.numbers[first : min(end, first + entries.most)].tolist()])
            if stop:
                firsts.append(first)
                stops.append(first + stop)
        return np.array(firsts, np.int64), np.array(stops, np.int64)

    @cached_property
    def _entries(self) -> dict[Kind, Entries]:
        whole: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        for entry, kind in read_entries(self.file, self.entry_kind):
            whole[kind].add(self._fold(entry))
        return {kind: Entries(entries) for kind, entries in whole.items()}

    def _fold(self, text: str) -> str:
        text = reduce(joined, text.split(), "")
        return text if self.match_case else text.lower()


class Entries:
    """A set of entries, and all their beginnings: words are joined as long as they are one."""

    def __init__(self, entries: set[str]):
        self.entries = entries
        self.beginnings = {entry[:end] for entry in entries for end in range(1, len(entry) + 1)}
        self.most = max(map(len, entries), default=0)  # words that an entry can have

    def longest(self, words: Sequence[str]) -> int:
        """The number of words at the beginning of `words` that make the longest entry, or 0."""
        text, longest = "", 0
        for count, word in enumerate(words, 1):
            text = joined(text, word)
            if text not in self.beginnings:
                break
            if text in self.entries:
                longest = count
        return longest


def joined(left: str, right: str) -> str:
    """Two words as one text, with a space where nothing but a space can part them: between letters, between digits."""
    return f"{left} {right}" if _PARTED.fullmatch(left[-1:] + right[:1]) else left + right


def read_entries(path: Path, default: str) -> list[tuple[str, Kind]]:
    """The entries of a dictionary file with their kinds.

    Raises UserError with file and line for a kind that there is not, an entry without text and one that is too long,
    and when the file cannot be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    found = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.startswith("# "):
            continue
        entry, tab, kind = line.partition("\t")
        entry, kind = entry.strip(), kind.strip()
        if not entry:
            raise UserError(f"{path}:{number}: expected an entry before the tab")
        if len(entry) > _LONGEST:
            raise UserError(
                f"{path}:{number}: an entry has at most {_LONGEST} characters, this one has {len(entry):,}. "
                "Is the file a dictionary, with an entry a line?"
            )
        if tab and kind not in _NAMES:
            raise UserError(
                f"{path}:{number}: '{kind}' is no kind of entry; expected word, phrase or entity."
                f"{nearest(kind, _NAMES)}"
            )
        found.append((entry, _NAMES[kind if tab else default]))
    return found
