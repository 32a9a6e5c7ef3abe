"""`dictionary`: words, phrases and entities from a user's file."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, reduce
from pathlib import Path
from typing import Literal

import numpy as np

from ernie.errors import UserError, nearest
from ernie.text.scripts import HAN, NO_SPACES
from ernie.text.segment.base import Kind, Segmenter, Words, disjoint, in_order, segmenters

_LONGEST = 200  # characters of an entry; all its prefixes are held in memory
_SPACED = re.compile(rf"[^\W\d_{NO_SPACES}]{{2}}|\d\d")
_MOST_OTHERS = 0.8  # share of the lines
_OTHERS = {  # formats of other programs: how their lines look, and what to do with them
    "those of jieba's dictionaries (an entry, a number, a tag)": (
        # Without a tag, only Chinese entries: others may end in a number.
        re.compile(rf"(?:\S+ \d+ [A-Za-z]{{1,4}}|[{HAN}]+(?: [A-Za-z]{{1,4}})? \d+)\s*"),
        "Its first column is what is needed: cut -d ' ' -f 1 FILE",
    ),
    "rows of a CSV file": (
        re.compile(r"[^\t]+[,;]\s*\"?(?:word|phrase|entity|kind|type)\"?\s*", re.IGNORECASE),
        "Put a tab in place of the comma",
    ),
    "objects of JSON": (re.compile(r"\s*(?:\{\".*\}|\[\".*\])\s*"), "Write the entries alone"),
}
_NAMES = {kind.name.lower(): kind for kind in Kind}


@segmenters.register("dictionary")
@dataclass(frozen=True)
class Dictionary(Segmenter):
    """Marks the entries of a UTF-8 `file`: one per line, optionally with a tab and its kind (word, phrase or entity).

    `entry_kind` is the kind of lines without one.  The longest entry wins, from left to right, for each kind
    separately.  Words must match those of the entry; white space is ignored in Chinese and Japanese and next to
    punctuation marks, and case is ignored unless `match_case`.  Empty lines and lines that begin with "# " are skipped.
    """

    file: Path
    entry_kind: Literal["word", "phrase", "entity"] = "phrase"
    match_case: bool = False

    def __post_init__(self) -> None:
        _ = self._entries  # read now, so that a mistake in the file is reported with the configuration's

    @property
    def label(self) -> str:
        return str(self.file)

    def spans(self, words: Sequence[str], starts: np.ndarray) -> np.ndarray:
        words = Words.of(words)
        spans = []
        for kind, entries in self._entries.items():
            firsts, stops = self._find(words, starts, entries)
            keep = disjoint(firsts, stops)
            spans.append(np.column_stack((firsts[keep], stops[keep], np.full(keep.sum(), kind))))
        return in_order(np.concatenate(spans))

    def _find(self, words: Words, starts: np.ndarray, entries: Entries) -> tuple[np.ndarray, np.ndarray]:
        """Return the start and end of the longest entry at each word that begins one."""
        folded = [self._fold(word) for word in words.distinct]
        begins = np.fromiter((word in entries.prefixes for word in folded), bool, len(folded))
        candidates = np.flatnonzero(begins[words.numbers])
        sentence_ends = np.append(starts, len(words))[np.searchsorted(starts, candidates, side="right")]
        firsts, stops = [], []
        for first, end in zip(candidates.tolist(), sentence_ends.tolist(), strict=True):
            stop = min(end, first + entries.max_words)
            count = entries.longest([folded[i] for i in words.numbers[first:stop].tolist()])
            if count:
                firsts.append(first)
                stops.append(first + count)
        return np.array(firsts, np.int64), np.array(stops, np.int64)

    @cached_property
    def _entries(self) -> dict[Kind, Entries]:
        by_kind: dict[Kind, set[str]] = {kind: set() for kind in Kind}
        for entry, kind in read_entries(self.file, self.entry_kind):
            by_kind[kind].add(self._fold(entry))
        return {kind: Entries(entries) for kind, entries in by_kind.items()}

    def _fold(self, text: str) -> str:
        text = reduce(joined, text.split(), "")
        return text if self.match_case else text.lower()


class Entries:
    """A set of entries and all their prefixes, to match words one by one."""

    def __init__(self, entries: set[str]):
        self.entries = entries
        self.prefixes = {entry[:end] for entry in entries for end in range(1, len(entry) + 1)}
        self.max_words = max(map(len, entries), default=0)  # upper bound: one word per character

    def longest(self, words: Sequence[str]) -> int:
        """Return how many of the first `words` form the longest matching entry, or 0."""
        text, longest = "", 0
        for count, word in enumerate(words, 1):
            text = joined(text, word)
            if text not in self.prefixes:
                break
            if text in self.entries:
                longest = count
        return longest


def joined(left: str, right: str) -> str:
    """Join two words, with a space only where they would otherwise merge: between letters and between digits."""
    return f"{left} {right}" if _SPACED.fullmatch(left[-1:] + right[:1]) else left + right


def _check_format(path: Path, lines: Sequence[str]) -> None:
    """Raise UserError for a dictionary that is in another program's format: its lines would match no text."""
    for what, (pattern, remedy) in _OTHERS.items():
        if lines and sum(pattern.fullmatch(line) is not None for line in lines) > _MOST_OTHERS * len(lines):
            raise UserError(
                f"{path}: its lines look like {what}; expected an entry a line, which a tab and word, phrase or entity "
                f"may follow. {remedy}"
            )


def read_entries(path: Path, default: str) -> list[tuple[str, Kind]]:
    """Read the entries of a dictionary file with their kinds.

    Raises UserError with file and line for an unknown kind and for an empty or too long entry, and when the file cannot
    be read.
    """
    try:
        lines = path.read_text(encoding="utf-8-sig").split("\n")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    _check_format(path, [line for line in lines if line.strip() and not line.startswith("# ")])
    entries = []
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
        entries.append((entry, _NAMES[kind if tab else default]))
    return entries
