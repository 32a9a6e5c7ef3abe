"""WordPiece as in BERT and ERNIE, on top of the `tokenizers` library.

Text is cleaned, optionally lower-cased and stripped of accents, and split at white space, punctuation marks and Chinese
characters; each word is then split greedily into the longest matching vocabulary entries (Devlin et al., 2019, arXiv
1810.04805; Wu et al., 2016, arXiv 1609.08144, section 4.1).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers

from ernie.errors import UserError, about
from ernie.json_file import read_limited
from ernie.text.added import Added, AddedTokens, add, describe
from ernie.text.scripts import NO_SPACES
from ernie.text.surrogates import invalid_text
from ernie.text.tokenizer import Encoding, Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
SPECIAL_KEYS = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")  # in tokenizer_config.json
VOCABULARY_FILE = "vocab.txt"
_MOST_TOKENS = 5_000_000  # ten times the largest published vocabulary
_MAX_CAPITALIZED = 0.01  # share of a lower-case vocabulary's entries that may hold capitals

# The blocks that BERT treats as Chinese characters.
_CJK = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
# Common punctuation, at all of which BERT splits.  Rarer marks stay inside a unit and are split off in `pieces`.
_PUNCTUATION = (
    r"!-/:-@\[-`{-~"
    "\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u2010-\u2027\u2030-\u2043\u2045-\u2051\u2053-\u205e\u3001-\u3003"
    "\u3008-\u3011\u3014-\u301f\uff01-\uff03\uff05-\uff0a\uff0c-\uff0f\uff1a\uff1b\uff1f\uff20\uff3b-\uff3d\uff3f\uff5b\uff5d"
)
# A unit: one Chinese character, one punctuation mark, or a run of other non-space characters.
_UNIT = re.compile(rf"[{_CJK}{_PUNCTUATION}]|[^\s{_CJK}{_PUNCTUATION}]+")
_UNIT_OF_WORDS = re.compile(rf"[{_PUNCTUATION}]|[^\s{_PUNCTUATION}]+")  # where Chinese characters stay in words
_AT_SPACE = re.compile(r"(?=[ \t\n])")
_ASCII_MARKS = r"!-/:-@\[-`{-~"
_AT_CHARACTER = re.compile(rf"(?=[ \t\n])|(?<=[{_CJK}])(?=[{_CJK}])|(?<=[{_ASCII_MARKS}])(?=[!-~])")
_AT_MARK = re.compile(rf"(?=[ \t\n])|(?<=[{_ASCII_MARKS}])(?=[!-~])")  # where Chinese characters stay in words
_BRIEF = 500  # characters; to let other threads run takes longer than to encode fewer
_LONGEST_WORD = 100  # characters; a longer word is unknown, as in BERT
# Letters and digits of a word that is certainly longer.
_LONG_WORD = re.compile(rf"[^\W_{_CJK}]{{{10 * _LONGEST_WORD},}}")
_ADDED = "\0"  # begins the unit of an added token; cleaning leaves no other unit with it
# An apostrophe that BERT split a word at: before an English ending, or after an elided French or Italian word.
_ELISION = re.compile(
    r"(?<=\w) (['’]) (?=(?:s|t|d|m|n|ll|re|ve)\b)|(?:(?<=\b[cdjlmnosy])|(?<=\bqu)) (['’]) (?=\w)", re.IGNORECASE
)
# A space between two characters of scripts written without spaces.
_GAP = re.compile(f"(?<=[{NO_SPACES}]) (?=[{NO_SPACES}])")
# Any character outside the blocks in which BERT's cleaning certainly drops nothing.
_SUSPECT = re.compile(
    "[^\t\n\r -~\xa0-\xac\xae-\u0377\u0400-\u052f\u1e00-\u1eff\u2010-\u2027\u2030-\u205e\u2190-\u2200"
    "\u3000-\u303f\u3041-\u3096\u30a0-\u30ff\u4e00-\u9fa5\uac00-\ud7a3\uff01-\uff5e]"
)


class _Cleaning(dict[int, str]):
    """A table for str.translate that applies BERT's cleaning, filled lazily by asking the engine once per character.

    Not computed from Python's Unicode tables, whose version may differ from the engine's.
    """

    _engine = normalizers.BertNormalizer(
        clean_text=True, handle_chinese_chars=False, strip_accents=False, lowercase=False
    )

    def __missing__(self, code: int) -> str:
        self[code] = self._engine.normalize_str(chr(code))
        return self[code]


_CLEANING = _Cleaning()


class WordPiece(Tokenizer):
    """The tokenizer of BERT's and ERNIE's published vocabularies.

    `tokens` is the vocabulary in id order.  A duplicate token is encoded as its last id, as in the originals, which
    fill a dictionary line by line; every line still has an id, so no other id shifts.  Accents are stripped as
    `strip_accents` says, None meaning exactly if text is lower-cased, as in BERT.  Each Chinese character is a word of
    its own unless `tokenize_chinese_chars` is False.  `added` are tokens of the vocabulary, by id, that are kept whole.
    Words are split into the first `base` tokens, by default all: those after them occur only where they are added.
    `special` names the model's own special tokens, in the order of SPECIAL_TOKENS, whose names are the usual ones.
    """

    kind: ClassVar[str] = "wordpiece"

    def __init__(
        self,
        tokens: Sequence[str],
        lowercase: bool = True,
        strip_accents: bool | None = None,
        tokenize_chinese_chars: bool = True,
        added: Mapping[int, Added] | None = None,
        base: int | None = None,
        special: Sequence[str] = SPECIAL_TOKENS,
    ):
        self.lowercase = lowercase
        self.strip_accents = strip_accents
        self.tokenize_chinese_chars = tokenize_chinese_chars
        self.added = dict(added or {})
        self._tokens = list(tokens)
        self._base = len(self._tokens) if base is None else base
        self._ids = ids = {token: i for i, token in enumerate(self._tokens[: self._base])}
        self.special = tuple(special)
        missing = [token for token in special if token not in ids]
        if missing:
            raise UserError(f"the vocabulary lacks {', '.join(missing)}; is it a WordPiece vocabulary?")
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[token] for token in special)
        model = models.WordPiece(ids, unk_token=special[1], max_input_chars_per_word=_LONGEST_WORD)
        self._engine = make_engine(model, lowercase, strip_accents, tokenize_chinese_chars)
        self._unit = _UNIT if tokenize_chinese_chars else _UNIT_OF_WORDS
        self._whole, self._cutter = self._engine, None  # the engine for whole texts also knows the added tokens
        if self.added:
            self._whole = make_engine(model, lowercase, strip_accents, tokenize_chinese_chars)
            add(self._whole, self.added)
            self._cutter = AddedTokens(self.added, self._engine.normalizer)

    @classmethod
    def read(cls, path: Path, lowercase: bool | None = None) -> WordPiece:
        """Read a `vocab.txt`; unless `lowercase` is given, a vocabulary without capitals lower-cases.

        Raises UserError when the file cannot be read or is not a WordPiece vocabulary.
        """
        tokens = without_end_spaces(read_vocabulary(path))
        with about(path):
            return cls(tokens, is_uncased(tokens) if lowercase is None else lowercase)

    @property
    def tokens(self) -> list[str]:
        return self._tokens

    @property
    def special_ids(self) -> frozenset[int]:
        return super().special_ids | {i for i, token in self.added.items() if token.special}

    @property
    def appended(self) -> dict[str, int]:
        """The ids of the added tokens that follow those of words."""
        return {token: i for i, token in enumerate(self._tokens[self._base :], self._base)}

    @property
    def strips_accents(self) -> bool:
        """Whether accents and other marks that combine with letters are stripped."""
        return self.lowercase if self.strip_accents is None else self.strip_accents

    def split(self, text: str) -> list[str]:
        if self._cutter is None:
            return self._split(text)
        units: list[str] = []
        for part, number in self._cutter.cut(text):
            units += self._split(part) if number is None else [_ADDED + self._tokens[number]]
        return units

    def _split(self, text: str) -> list[str]:
        return self._unit.findall(text.translate(_CLEANING) if _SUSPECT.search(text) else text)

    def pieces(self, unit: str) -> list[int]:
        if unit.isascii() and unit.isalnum() and len(unit) <= _LONGEST_WORD:  # nothing of it changes but its case
            known = self._ids.get(unit.lower() if self.lowercase else unit)
            if known is not None:
                return [known]
        if unit.startswith(_ADDED):
            return [self._added_ids[unit[1:]]]
        if len(unit) > 10 * _LONGEST_WORD:
            unit = _LONG_WORD.sub(lambda word: word[0][: 2 * _LONGEST_WORD], unit)
        return self._engine.encode(unit, add_special_tokens=False).ids

    def surface(self, units: Sequence[str]) -> list[str]:
        return super().surface(units) if self._cutter is None else [unit.removeprefix(_ADDED) for unit in units]

    def encode_whole(self, text: str) -> Encoding:
        if not isinstance(text, str) or len(text) <= 10 * _LONGEST_WORD or self.added:
            return self._encode(text)
        words = list(_LONG_WORD.finditer(text))
        if not words:
            return self._encode(text)
        # The engine takes a hundred bytes for each character of a word, which is unknown: its inside is left out.
        sizes = [word.end() - word.start() - 2 * _LONGEST_WORD for word in words]
        ends = [0, *(word.start() + 2 * _LONGEST_WORD for word in words)]
        short = "".join(
            text[i:j] for i, j in zip([0, *(word.end() for word in words)], [*ends[1:], len(text)], strict=True)
        )
        found = self._encode(short)
        left_out = np.concatenate([[0], np.cumsum(sizes)])
        places = np.array(ends[1:]) - left_out[:-1]  # in the shortened text
        return Encoding(found.ids, found.offsets + left_out[np.searchsorted(places, found.offsets, side="right")])

    def _encode(self, text: str) -> Encoding:
        try:
            if len(text) < _BRIEF:
                encoded = self._whole.encode(text, add_special_tokens=False)
            else:  # this lets other threads run meanwhile
                (encoded,) = self._whole.encode_batch([text], add_special_tokens=False)
        except TypeError:
            raise invalid_text(text) from None
        offsets = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        if self.strips_accents and not text.isascii():
            _extend_over_accents(text, offsets)
        return Encoding(np.array(encoded.ids, np.int64), offsets)

    @property
    def breaks(self) -> re.Pattern[str] | None:
        if any(token.lstrip or token.rstrip or set(token.content) & set(" \t\n") for token in self.added.values()):
            return None
        if self.added:  # which may hold marks
            return _AT_SPACE
        return _AT_CHARACTER if self.tokenize_chinese_chars else _AT_MARK

    def readable(self, ids: list[int]) -> str:
        silent = self._silent_ids
        text = self._engine.decoder.decode([self._tokens[i] for i in ids if i not in silent])
        if "'" in text or "\N{RIGHT SINGLE QUOTATION MARK}" in text:  # streams decode their last words again and again
            text = _ELISION.sub(r"\1\2", text)
        return _GAP.sub("", text)

    def can_produce(self, token: str) -> bool:
        """Whether any text has the entry `token` among its pieces."""
        word = f"a{token.removeprefix('##')}" if token.startswith("##") else token  # "##x" needs a word before it
        words = self._engine.pre_tokenizer.pre_tokenize_str(self._engine.normalizer.normalize_str(word))
        return [part for part, _ in words] == [word]

    def write_files(self, folder: Path) -> None:
        lines = "".join(f"{token}\n" for token in self._tokens[: self._base])
        (folder / VOCABULARY_FILE).write_text(lines, encoding="utf-8")

    @property
    def settings(self) -> dict[str, Any]:
        own: dict[str, Any] = {}
        if self.strip_accents is not None:
            own["strip_accents"] = self.strip_accents
        if not self.tokenize_chinese_chars:
            own["tokenize_chinese_chars"] = False
        if self.added:
            own["added_tokens_decoder"] = describe(self.added)
        named = zip(SPECIAL_KEYS, self.special, SPECIAL_TOKENS, strict=True)
        return own | {key: token for key, token, usual in named if token != usual}

    @cached_property
    def _added_ids(self) -> dict[str, int]:
        return {token.content: i for i, token in self.added.items()}

    @property
    def _silent_ids(self) -> frozenset[int]:
        """The special tokens that decoding drops."""
        return frozenset((self.pad_id, self.cls_id, self.sep_id))

    def __reduce__(self) -> tuple[Any, ...]:
        settings = self.strip_accents, self.tokenize_chinese_chars, self.added, self._base, self.special
        return WordPiece, (self._tokens, self.lowercase, *settings)


def _extend_over_accents(text: str, offsets: np.ndarray) -> None:
    """Extend token spans in place over the stripped combining accents that follow their last letters.

    This gives a word with combining accents the same span as one with precomposed letters.
    """
    marks = [unicodedata.category(character) == "Mn" for character in text]
    if not any(marks):
        return
    starts = {start for start, _ in offsets.tolist()}
    for row in offsets:
        while row[1] < len(text) and marks[row[1]] and row[1] not in starts:
            row[1] += 1


def make_engine(
    model: models.WordPiece,
    lowercase: bool,
    strip_accents: bool | None = None,
    tokenize_chinese_chars: bool = True,
) -> Engine:
    """Build the library's tokenizer around a model, with BERT's cleaning and splitting of text."""
    engine = Engine(model)
    # strip_accents=None: strip accents exactly when lower-casing, as in the originals.
    engine.normalizer = normalizers.BertNormalizer(
        lowercase=lowercase, strip_accents=strip_accents, handle_chinese_chars=tokenize_chinese_chars
    )
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return engine


def read_vocabulary(path: Path) -> list[str]:
    """Read the tokens of a vocabulary file, one per line; text after a tab (an id, in ERNIE's files) is dropped.

    Blank lines at the end are no tokens.  Raises UserError when the file cannot be read, is larger than any vocabulary,
    or an id is not its line number, counted from 0.
    """
    content = read_limited(path)
    if content.count(b"\n") > _MOST_TOKENS:
        raise UserError(f"{path}: has more than {_MOST_TOKENS:,} lines: no vocabulary is that large")
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    lines = text.split("\n")  # not splitlines: some vocabularies hold U+2028 as a token
    while lines and not lines[-1].strip(" \r"):
        lines.pop()
    return [_parse_token(line.rstrip("\r"), number, path) for number, line in enumerate(lines)]


def without_end_spaces(tokens: Sequence[str]) -> list[str]:
    """Return tokens without the spaces that an editor or a table left after them; no token ends with one."""
    return [token.rstrip(" ") or token for token in tokens]


def _parse_token(line: str, number: int, path: Path) -> str:
    token, tab, token_id = line.partition("\t")
    if tab and token_id.strip() not in ("", str(number)):
        raise UserError(
            f"{path}:{number + 1}: expected a token, or a token, a tab and the id {number}; found '{token_id}' after "
            "the tab"
        )
    return token


def is_uncased(tokens: Sequence[str]) -> bool:
    """Whether a vocabulary is for lower-cased text: hardly any entry, apart from those in brackets, has a capital."""
    return sum(token != token.lower() and token[0] != "[" for token in tokens) <= _MAX_CAPITALIZED * len(tokens)
