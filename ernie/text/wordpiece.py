"""WordPiece as in BERT and ERNIE, on top of the `tokenizers` library.

Text is cleaned, optionally lower-cased and stripped of accents, and split at white space, punctuation marks and Chinese
characters; each word is then split greedily into the longest matching vocabulary entries (Devlin et al., 2019, arXiv
1810.04805; Wu et al., 2016, arXiv 1609.08144, section 4.1).
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
from tokenizers import Tokenizer as Engine
from tokenizers import decoders, models, normalizers, pre_tokenizers

from ernie.errors import UserError, about
from ernie.saved import check_not_lfs_pointer
from ernie.text.scripts import NO_SPACES
from ernie.text.surrogates import invalid_text
from ernie.text.tokenizer import Encoding, Tokenizer

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_FILE = "vocab.txt"
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
    fill a dictionary line by line; every line still has an id, so no other id shifts.
    """

    kind: ClassVar[str] = "wordpiece"

    def __init__(self, tokens: Sequence[str], lowercase: bool = True):
        self.lowercase = lowercase
        self._tokens = list(tokens)
        ids = {token: i for i, token in enumerate(self._tokens)}
        missing = [token for token in SPECIAL_TOKENS if token not in ids]
        if missing:
            raise UserError(f"the vocabulary lacks {', '.join(missing)}; is it a WordPiece vocabulary?")
        self.pad_id, self.unk_id, self.cls_id, self.sep_id, self.mask_id = (ids[token] for token in SPECIAL_TOKENS)
        self._engine = make_engine(models.WordPiece(ids, unk_token="[UNK]", max_input_chars_per_word=100), lowercase)

    @classmethod
    def read(cls, path: Path, lowercase: bool | None = None) -> WordPiece:
        """Read a `vocab.txt`; unless `lowercase` is given, a vocabulary without capitals lower-cases.

        Raises UserError when the file cannot be read or is not a WordPiece vocabulary.
        """
        tokens = read_vocabulary(path)
        with about(path):
            return cls(tokens, is_uncased(tokens) if lowercase is None else lowercase)

    @property
    def tokens(self) -> list[str]:
        return self._tokens

    def split(self, text: str) -> list[str]:
        return _UNIT.findall(text.translate(_CLEANING) if _SUSPECT.search(text) else text)

    def pieces(self, unit: str) -> list[int]:
        return self._engine.encode(unit, add_special_tokens=False).ids

    def encode(self, text: str) -> Encoding:
        try:
            encoded = self._engine.encode(text, add_special_tokens=False)
        except TypeError:
            raise invalid_text(text) from None
        offsets = np.array(encoded.offsets, np.int64).reshape(-1, 2)
        if self.lowercase and not text.isascii():
            _extend_over_accents(text, offsets)
        return Encoding(np.array(encoded.ids, np.int64), offsets)

    def readable(self, ids: list[int]) -> str:
        text = self._engine.decoder.decode([self._tokens[i] for i in ids if i not in self._silent_ids])
        return _GAP.sub("", _ELISION.sub(r"\1\2", text))

    def can_produce(self, token: str) -> bool:
        """Whether any text has the entry `token` among its pieces."""
        word = f"a{token.removeprefix('##')}" if token.startswith("##") else token  # "##x" needs a word before it
        words = self._engine.pre_tokenizer.pre_tokenize_str(self._engine.normalizer.normalize_str(word))
        return [part for part, _ in words] == [word]

    def write_files(self, folder: Path) -> None:
        (folder / VOCABULARY_FILE).write_text("".join(f"{token}\n" for token in self._tokens), encoding="utf-8")

    @property
    def _silent_ids(self) -> frozenset[int]:
        """The special tokens that decoding drops."""
        return frozenset((self.pad_id, self.cls_id, self.sep_id))

    def __reduce__(self) -> tuple[Any, ...]:
        return WordPiece, (self._tokens, self.lowercase)


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


def make_engine(model: models.WordPiece, lowercase: bool) -> Engine:
    """Build the library's tokenizer around a model, with BERT's cleaning and splitting of text."""
    engine = Engine(model)
    # strip_accents=None: strip accents exactly when lower-casing, as in the originals.
    engine.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=None)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return engine


def read_vocabulary(path: Path) -> list[str]:
    """Read the tokens of a vocabulary file, one per line; text after a tab (an id, in ERNIE's files) is dropped.

    Raises UserError when the file cannot be read, or an id is not its line number, counted from 0.
    """
    check_not_lfs_pointer(path)
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    lines = text.split("\n")  # not splitlines: some vocabularies hold U+2028 as a token
    if lines[-1] == "":
        lines.pop()
    return [_parse_token(line.rstrip("\r"), number, path) for number, line in enumerate(lines)]


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
