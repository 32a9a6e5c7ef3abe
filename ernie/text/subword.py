"""SentencePiece models (Kudo and Richardson, 2018, arXiv 1808.06226), unigram or BPE, behind `Tokenizer`."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from functools import cached_property, lru_cache
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, ClassVar
from unicodedata import normalize

import numpy as np
import sentencepiece

from ernie.errors import UserError, about
from ernie.json_file import read_limited
from ernie.text.added import SPECIAL_NAMES
from ernie.text.subword_proto import with_controls, without_normalizer, without_self_test
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
# each with the space marker before it; or, coarser, everything between two spaces.  Some models have the marker after.
_WORD, _CHUNK = rf"(?:[^\W\d_{SPACE}]+|(?:[\W\d_](?<!{SPACE}))+)", f"[^{SPACE}]+"
_WORDS, _CHUNKS = (re.compile(f"{SPACE}?{unit}|{SPACE}") for unit in (_WORD, _CHUNK))
_WORDS_MARKED_AFTER, _CHUNKS_MARKED_AFTER = (re.compile(f"{unit}{SPACE}?|{SPACE}") for unit in (_WORD, _CHUNK))
_ACCENTS = [*map(chr, range(0x300, 0x370)), "\u3099", "\u309a"]  # accents, and those of kana
_AT_SPACE = re.compile(r"(?<=\w)(?= \w)")
_LETTER, _MARK = re.compile(rf"[^\W\d_{SPACE}]"), re.compile(rf"[\W\d_](?<!{SPACE})")


class SentencePiece(Tokenizer):
    """A tokenizer backed by a SentencePiece model.

    [PAD], [CLS], [SEP] and [MASK] are the model's own symbols where it has them (also as <pad>, <s>, </s>, <mask>);
    missing ones get ids after its vocabulary.  No text contains them, even if the model was trained with them as
    user-defined symbols.  It lower-cases if its normalizer does.

    Units are words and runs of non-letters if no piece of the model mixes letters and non-letters (SentencePiece's
    default).  Otherwise a unit is the text between two spaces, or the whole text if a piece holds a space.  Adjacent
    unknown characters become one unknown token within a unit, never across units.
    """

    kind: ClassVar[str] = "sentencepiece"

    def __init__(self, model: bytes):
        self._model = model
        engine = _engine(model)
        self._engine = engine
        own = {name for name in SPECIAL_NAMES if engine.IdToPiece(engine.PieceToId(name)) == name}
        if visible := {name for name in own if not _is_silent(engine, engine.PieceToId(name))}:
            model = with_controls(model, visible)
            self._engine = _engine(model)
        # Units are already normalized.
        self._unit_engine = _engine(without_normalizer(model), lambda: without_normalizer(without_self_test(model)))
        self._tokens = [self._engine.IdToPiece(i) for i in range(self._engine.GetPieceSize())]
        self._model_size = len(self._tokens)  # special tokens that the model lacks are appended behind
        self.unk_id = self._engine.unk_id()
        self.pad_id, self.cls_id, self.sep_id, self.mask_id = map(self._special, ("pad", "cls", "sep", "mask"))
        self.lowercase = self._engine.Normalize("A").endswith("a")
        self._units = self._unit_pattern()
        self._cut = lru_cache(maxsize=1 << 14)(self._cut_unit)
        self._settle = lru_cache(maxsize=1 << 8)(self._settled_pieces)  # a stream asks for those of a unit twice

    @classmethod
    def read(cls, path: Path) -> SentencePiece:
        """Read a `.model` file.  Raises UserError for one that cannot be read, is too large, or is no such model."""
        model = read_limited(path)
        with about(path):
            return cls(model)

    @property
    def tokens(self) -> list[str]:
        return self._tokens

    @cached_property
    def byte_ids(self) -> frozenset[int]:
        return frozenset(i for i in range(self._model_size) if self._engine.IsByte(i))

    def split(self, text: str) -> list[str]:
        marked = self._engine.Normalize(text)
        if self._units is None:
            return [marked] if marked else []
        return self._units.findall(marked)

    def pieces(self, unit: str) -> list[int]:
        return [i for i, _ in self._cut_unit(unit)]

    def settled_pieces(self, unit: str) -> list[int]:
        return self._settle(unit)

    def _settled_pieces(self, unit: str) -> list[int]:
        """Return what all ways to continue the unit have in common.

        Where a longer text is cut at a character, what precedes the cut is cut as if it stood alone: unigram models
        extend the best path to each character, and BPE never merges across a cut that remains.  The last cut that a
        continuation leaves untouched is at the end, or before characters that begin a longer piece.
        """
        if self._units in (_WORDS_MARKED_AFTER, _CHUNKS_MARKED_AFTER):
            return []  # the mark at the end stands there only until the unit grows
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
        return [unit.strip(SPACE) for unit in units]

    def words(self, text: str, units: Sequence[str]) -> list[str]:
        if not self.lowercase:
            return self.surface(units)
        if self._units is not None:  # fast path: the text nearly always splits where its lower-cased form does
            before, after = self._engine.Normalize("a").split("a")  # the marks that models add to a text
            cased = self._units.findall(before + SPACE.join(text.split()) + after)
            if [unit.casefold() for unit in cased] == list(units):
                return self.surface(cased)
        _, origins = self._engine.Normalize(text, with_offsets=True)
        ends = np.cumsum([0, *map(len, units)])
        starts = [*origins[: ends[-1]], len(text)]
        return [text[starts[i] : starts[j]].strip() for i, j in pairwise(ends)]

    @property
    def breaks(self) -> re.Pattern[str] | None:
        if self._units in (_WORDS, _CHUNKS) and self._engine.Normalize(" a  b ") == f"{SPACE}a{SPACE}b":
            return _AT_SPACE
        return None

    def encode_whole(self, text: str) -> Encoding:
        if not isinstance(text, str) or not is_encodable(text):
            raise invalid_text(text)
        marked, origins = self._engine.Normalize(text, with_offsets=True)
        if text.startswith(" ") and marked.startswith(SPACE) and origins[0]:
            origins[0] -= 1  # the mark before the first word stands for the space there
        # The last token ends where the text does, not counting trailing spaces, which the normalizer removes.
        last = origins[len(marked) - 1] if marked else -1
        origins = np.asarray([*origins[: len(marked)], min(len(text), max(last + 1, len(text.rstrip())))], np.int64)
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
        text = self._engine.DecodeIds([i for i in ids if i < self._model_size])
        # A mark that ends the last word is no space of the text.
        return text.rstrip(" ") if self._units in (_WORDS_MARKED_AFTER, _CHUNKS_MARKED_AFTER) else text

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
        ]
        longer = [piece for piece in ordinary if len(piece) > 1]
        before, after = any(piece[0] == SPACE for piece in longer), any(piece[-1] == SPACE for piece in longer)
        if (before and after) or any(SPACE in piece[1:-1] for piece in longer):
            return None
        letters = any(len(piece) == 1 and _LETTER.match(piece) for piece in ordinary)
        marks = any(len(piece) == 1 and _MARK.match(piece) for piece in ordinary)
        mixed = any(_LETTER.search(piece) and _MARK.search(piece) for piece in ordinary)
        coarse = mixed or not letters or not marks
        if after or self._engine.Normalize("a").endswith(SPACE):
            return _CHUNKS_MARKED_AFTER if coarse else _WORDS_MARKED_AFTER
        return _CHUNKS if coarse else _WORDS

    def _cut_unit(self, unit: str) -> list[tuple[int, int]]:
        """Return the pieces of a unit as (id, number of the unit's characters)."""
        pieces = []
        for piece in self._unit_engine.Encode(unit, return_type="proto").pieces:
            is_raw = (piece.id == self.unk_id and piece.surface) or self._engine.IsByte(piece.id)
            pieces.append((piece.id, len(piece.surface if is_raw else piece.piece)))
        return pieces

    def __reduce__(self) -> tuple[Any, ...]:
        return SentencePiece, (self._model,)


@lru_cache
def _may_compose(letter: str) -> bool:
    """Whether a mark that follows a letter may merge with it into another letter."""
    return any(len(normalize("NFC", letter + mark)) == 1 for mark in _ACCENTS)


def _engine(model: bytes, otherwise: Callable[[], bytes] | None = None) -> sentencepiece.SentencePieceProcessor:
    """Load a model, or if that fails the other one.  Raises UserError for what is no SentencePiece model."""
    engine = sentencepiece.SentencePieceProcessor()
    try:
        engine.LoadFromSerializedProto(model)
    except RuntimeError as error:
        if otherwise is not None:
            return _engine(otherwise())
        raise UserError(f"this is not a SentencePiece model ({error})") from None
    return engine


def _is_silent(engine: sentencepiece.SentencePieceProcessor, piece: int) -> bool:
    """Whether no text contains a piece."""
    return engine.IsControl(piece) or engine.IsUnknown(piece) or engine.IsUnused(piece)


def _origin(marked: str, origins: np.ndarray, start: int, stop: int) -> tuple[int, int]:
    """Map a span of the normalized text to characters [start, stop) of the original, less space markers at the ends."""
    while start < stop - 1 and marked[start] == SPACE:
        start += 1
    while start < stop - 1 and marked[stop - 1] == SPACE:
        stop -= 1
    begin, last = int(origins[start]), int(origins[stop - 1])
    after = int(np.searchsorted(origins, last, side="right"))
    return begin, int(origins[after]) if after < len(origins) else last
