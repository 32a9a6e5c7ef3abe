"""SentencePiece models (Kudo and Richardson, 2018, arXiv 1808.06226), unigram or BPE, behind `Tokenizer`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar
from unicodedata import normalize

import numpy as np
import sentencepiece

from ernie.errors import UserError, about
from ernie.saved import read_limited
from ernie.text.surrogates import invalid_text, is_encodable
from ernie.text.tokenizer import Encoding, Tokenizer

MODEL_FILE = "sentencepiece.model"
SPACE = "\u2581"  # SentencePiece's marker for a space

_SPECIAL = {
    "pad": ("[PAD]", "<pad>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>"),
}
# Runs of letters and runs of non-letters (including digits: SentencePiece joins "1," into one piece, but not "a,"),
# each with the space marker before it; or, coarser, everything between two spaces.
_WORDS = re.compile(rf"{SPACE}?(?:[^\W\d_{SPACE}]+|(?:[\W\d_](?<!{SPACE}))+)|{SPACE}")
_CHUNKS = re.compile(rf"{SPACE}?[^{SPACE}]+|{SPACE}")
_MARKS = [*map(chr, range(0x300, 0x370)), "\u3099", "\u309a"]  # accents, and those of kana
_LETTER, _MARK = re.compile(rf"[^\W\d_{SPACE}]"), re.compile(rf"[\W\d_](?<!{SPACE})")


class SentencePiece(Tokenizer):
    """A tokenizer backed by a SentencePiece model.

    [PAD], [CLS], [SEP] and [MASK] are the model's own symbols where it has them (also as <pad>, <s>, </s>, <mask>);
    missing ones get ids after its vocabulary.  It lower-cases if its normalizer does.

    Units are words and runs of non-letters if no piece of the model mixes letters and non-letters (SentencePiece's
    default), otherwise the text between two spaces, and the whole text if a piece holds a space.  Adjacent unknown
    characters become one unknown token within a unit, never across units.
    """

    kind: ClassVar[str] = "sentencepiece"

    def __init__(self, model: bytes):
        self._model = model
        self._engine = sentencepiece.SentencePieceProcessor()
        try:
            self._engine.LoadFromSerializedProto(model)
        except RuntimeError as error:
            raise UserError(f"this is not a SentencePiece model ({error})") from None
        self._tokens = [self._engine.IdToPiece(i) for i in range(self._engine.GetPieceSize())]
        self._model_size = len(self._tokens)  # special tokens that the model lacks are appended behind
        self.unk_id = self._engine.unk_id()
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = map(self._special, ("pad", "cls", "sep", "mask"))
        self.lowercase = self._engine.Normalize("A").endswith("a")
        # Most models prepend a space marker to the text; a unit without one can then only be cut behind another unit.
        self._adds_dummy_prefix = self._engine.Normalize("a").startswith(SPACE)
        self._units = self._unit_pattern()
        self._cut = lru_cache(maxsize=1 << 14)(self._cut_unit)

    @classmethod
    def read(cls, path: Path) -> SentencePiece:
        """Read a `.model` file.  Raises UserError for one that cannot be read, is too large, or is no such model."""
        model = read_limited(path)
        with about(path):
            return cls(model)

    @property
    def tokens(self) -> list[str]:
        return self._tokens

    def split(self, text: str) -> list[str]:
        marked = self._engine.Normalize(text)
        if self._units is None:
            return [marked] if marked else []
        return self._units.findall(marked)

    def pieces(self, unit: str) -> list[int]:
        return [i for i, _ in self._cut_unit(unit)]

    def settled_pieces(self, unit: str) -> list[int]:
        """Return what all ways to continue the unit have in common.

        Where a longer text is cut at a character, what precedes the cut is cut as if it stood alone: unigram models
        extend the best path to each character, and BPE never merges across a cut that remains.  The last cut that a
        continuation leaves untouched is at the end, or before characters that begin a longer piece.
        """
        settled = unit[:-1] if unit and _may_compose(unit[-1]) else unit
        ways = [self.pieces(settled[:end]) for end in range(len(settled) + 1) if self._begins_piece(settled[end:])]
        return [ids[0] for ids in takewhile(lambda ids: len(set(ids)) == 1, zip(*ways, strict=False))]

    def _begins_piece(self, text: str) -> bool:
        """Whether a piece of the model is longer than a text and begins with it."""
        i = bisect_right(self._sorted, text)
        return i < len(self._sorted) and self._sorted[i].startswith(text)

    @cached_property
    def _sorted(self) -> list[str]:
        return sorted(self._tokens[: self._model_size])

    def surface(self, units: Sequence[str]) -> list[str]:
        return [unit.lstrip(SPACE) for unit in units]

    def words(self, text: str, units: Sequence[str]) -> list[str]:
        if not self.lowercase:
            return self.surface(units)
        if self._units is not None:  # fast path: the text nearly always splits where its lower-cased form does
            cased = self._units.findall(SPACE + SPACE.join(text.split()))
            if [unit.casefold() for unit in cased] == list(units):
                return self.surface(cased)
        _, origins = self._engine.Normalize(text, with_offsets=True)
        ends = np.cumsum([0, *map(len, units)])
        starts = [*origins[: ends[-1]], len(text)]
        return [text[starts[i] : starts[j]].strip() for i, j in pairwise(ends)]

    def encode(self, text: str) -> Encoding:
        if not isinstance(text, str) or not is_encodable(text):
            raise invalid_text(text)
        marked, origins = self._engine.Normalize(text, with_offsets=True)
        # The last token ends where the text does, not counting trailing spaces, which the normalizer removes.
        last = origins[len(marked) - 1] if marked else -1
        origins = np.asarray([*origins[: len(marked)], max(last + 1, len(text.rstrip()))], np.int64)
        ids: list[int] = []
        spans: list[tuple[int, int]] = []
        place = 0
        for unit in self.split(text):
            for i, length in self._cut(unit):
                ids.append(i)
                if length:  # of a character split into byte pieces, only the last has a length: all get its span
                    spans += [_origin(marked, origins, place, place + length)] * (len(ids) - len(spans))
                place += length
        return Encoding(np.array(ids, np.int64), np.array(spans, np.int64).reshape(-1, 2))

    def readable(self, ids: list[int]) -> str:
        return self._engine.DecodeIds([i for i in ids if i < self._model_size])

    def write_files(self, folder: Path) -> None:
        (folder / MODEL_FILE).write_bytes(self._model)

    def _special(self, name: str) -> int:
        for token in _SPECIAL[name]:
            if token in self._tokens:
                return self._tokens.index(token)
        self._tokens.append(_SPECIAL[name][0])
        return len(self._tokens) - 1

    def _unit_pattern(self) -> re.Pattern[str] | None:
        ordinary = [
            piece
            for i, piece in enumerate(self._tokens[: self._model_size])
            if not (self._engine.IsControl(i) or self._engine.IsUnknown(i) or self._engine.IsByte(i))
            and i not in self.special_ids
        ]
        if any(SPACE in piece[1:] for piece in ordinary):
            return None
        letters = [piece for piece in ordinary if len(piece) == 1 and _LETTER.match(piece)]
        marks = [piece for piece in ordinary if len(piece) == 1 and _MARK.match(piece)]
        mixed = any(_LETTER.search(piece) and _MARK.search(piece) for piece in ordinary)
        self._letters, self._marks = letters, marks
        return _CHUNKS if mixed or not letters or not marks else _WORDS

    def _cut_unit(self, unit: str) -> list[tuple[int, int]]:
        """Return the pieces of a unit as (id, number of the unit's characters)."""
        has_space = unit.startswith(SPACE)
        if unit == SPACE:
            return [(self._engine.PieceToId(SPACE), 1)]
        if self._adds_dummy_prefix and has_space:
            return self._encode(unit[1:])
        same_alone = not has_space and (self._units is not _WORDS or not self._adds_dummy_prefix)
        if self._units is None or same_alone:
            return self._encode(unit)
        # No piece mixes letters and non-letters, or spans a space marker: after a character that no piece joins with
        # the unit, the unit is cut exactly as within a text.
        for before in self._separators(unit):
            marked = SPACE * self._adds_dummy_prefix + before + unit
            if self._engine.Normalize(before + unit) == marked:  # not so where an accent merges into `before`
                return self._encode(before + unit)[len(self._encode(before)) :]
        return [(self.unk_id, len(unit))]

    def _separators(self, unit: str) -> list[str]:
        """Return characters that no piece joins with the start of a unit."""
        if unit.startswith(SPACE):
            return self._letters + self._marks
        return self._marks if _LETTER.match(unit) else self._letters

    def _encode(self, text: str) -> list[tuple[int, int]]:
        """Return the pieces of a text as (id, number of characters)."""
        pieces = []
        for piece in self._engine.Encode(text, return_type="proto").pieces:
            is_raw = (piece.id == self.unk_id and piece.surface) or self._engine.IsByte(piece.id)
            pieces.append((piece.id, len(piece.surface if is_raw else piece.piece)))
        return pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePiece, (self._model,)


@lru_cache
def _may_compose(letter: str) -> bool:
    """Whether a mark that follows a letter may merge with it into another letter."""
    return any(len(normalize("NFC", letter + mark)) == 1 for mark in _MARKS)


def _origin(marked: str, origins: np.ndarray, start: int, stop: int) -> tuple[int, int]:
    """Map a span of the normalized text to characters [start, stop) of the original, ignoring leading space markers."""
    while start < stop - 1 and marked[start] == SPACE:
        start += 1
    begin, last = int(origins[start]), int(origins[stop - 1])
    after = int(np.searchsorted(origins, last, side="right"))
    return begin, int(origins[after]) if after < len(origins) else last
