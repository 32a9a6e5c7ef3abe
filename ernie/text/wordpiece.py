"""WordPiece as in BERT and ERNIE, over the `tokenizers` library.

Text is cleaned, Chinese characters stand alone, words may be lower-cased and stripped of accents, punctuation stands
alone, and what is left is cut into the longest pieces of the vocabulary (Devlin et al., 2019, arXiv 1810.04805; Wu et
al., 2016, arXiv 1609.08144, section 4.1).
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
from ernie.text.scripts import NO_SPACES
from ernie.text.tokenizer import Encoding, Tokenizer
from ernie.text.whole import unreadable

SPECIAL_TOKENS = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]")
VOCABULARY_FILE = "vocab.txt"
_FEW = 0.01  # share of the entries

# The blocks that BERT sets apart as Chinese characters.
_CJK = (
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0002a6df\U0002a700-\U0002b81f"
    "\U0002b920-\U0002ceaf\U0002f800-\U0002fa1f"
)
# The punctuation of everyday text, all of which BERT cuts at.  Rarer marks stay in a unit and are cut with its pieces.
_PUNCTUATION = (
    r"!-/:-@\[-`{-~"
    "\u00a1\u00a7\u00ab\u00b6\u00b7\u00bb\u00bf\u2010-\u2027\u2030-\u2043\u2045-\u2051\u2053-\u205e\u3001-\u3003"
    "\u3008-\u3011\u3014-\u301f\uff01-\uff03\uff05-\uff0a\uff0c-\uff0f\uff1a\uff1b\uff1f\uff20\uff3b-\uff3d\uff3f\uff5b\uff5d"
)
# A unit: one Chinese character, one punctuation mark, or a run of anything else that is not white space.
_UNIT = re.compile(rf"[{_CJK}{_PUNCTUATION}]|[^\s{_CJK}{_PUNCTUATION}]+")
# An apostrophe that BERT has cut a word at: before an English ending, or behind what French and Italian elide.
_ELISION = re.compile(
    r"(?<=\w) (['’]) (?=(?:s|t|d|m|n|ll|re|ve)\b)|(?:(?<=\b[cdjlmnosy])|(?<=\bqu)) (['’]) (?=\w)", re.IGNORECASE
)
# A space between two letters or marks of scripts that have none.
_GAP = re.compile(f"(?<=[{NO_SPACES}]) (?=[{NO_SPACES}])")
# Anything outside the blocks in which BERT's cleaning drops nothing for certain.
_SUSPECT = re.compile(
    "[^\t\n\r -~\xa0-\xac\xae-\u0377\u0400-\u052f\u1e00-\u1eff\u2010-\u2027\u2030-\u205e\u2190-\u2200"
    "\u3000-\u303f\u3041-\u3096\u30a0-\u30ff\u4e00-\u9fa5\uac00-\ud7a3\uff01-\uff5e]"
)


class _Cleaning(dict[int, str]):
    """A table for str.translate that drops what BERT's cleaning drops: asked of the engine once a character.

    Not computed from Python's Unicode tables, which may be of another age than the engine's.
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

    `tokens` is the vocabulary in the order of the ids.  A token that stands twice keeps its last id for encoding, as
    in the originals, whose dictionaries are filled line by line; every line has an id, so no other id moves.
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
        """Read a `vocab.txt`; with `lowercase` left out, a vocabulary without capitals lower-cases.

        Raises UserError when the file cannot be read or is no vocabulary.
        """
        tokens = read_vocabulary(path)
        with about(path):
            return cls(tokens, lowers_case(tokens) if lowercase is None else lowercase)

    @property
    def tokens(self) -> list[str]:
        return self._tokens

    def split(self, text: str) -> list[str]:
        return _UNIT.findall(text.translate(_CLEANING) if _SUSPECT.search(text) else text)

    def pieces(self, unit: str) -> list[int]:
        return self._engine.encode(unit, add_special_tokens=False).ids

    def encode(self, text: str) -> Encoding:
        try:
            found = self._engine.encode(text, add_special_tokens=False)
        except TypeError:
            raise unreadable(text) from None
        offsets = np.array(found.offsets, np.int64).reshape(-1, 2)
        if self.lowercase and not text.isascii():
            _take_in_accents(text, offsets)
        return Encoding(np.array(found.ids, np.int64), offsets)

    def readable(self, ids: list[int]) -> str:
        text = self._engine.decoder.decode([self._tokens[i] for i in ids if i not in self._hidden])
        return _GAP.sub("", _ELISION.sub(r"\1\2", text))

    def can_produce(self, token: str) -> bool:
        """Whether some text has the entry `token` among its pieces."""
        word = f"a{token.removeprefix('##')}" if token.startswith("##") else token  # "##x" stands inside a word
        cut = self._engine.pre_tokenizer.pre_tokenize_str(self._engine.normalizer.normalize_str(word))
        return [part for part, _ in cut] == [word]

    def write_files(self, folder: Path) -> None:
        (folder / VOCABULARY_FILE).write_text("".join(f"{token}\n" for token in self._tokens), encoding="utf-8")

    @property
    def _hidden(self) -> frozenset[int]:
        return frozenset((self.pad_id, self.cls_id, self.sep_id))

    def __reduce__(self) -> tuple[Any, ...]:
        return WordPiece, (self._tokens, self.lowercase)


def _take_in_accents(text: str, offsets: np.ndarray) -> None:
    """Let tokens end behind the accents of their last letters that are characters of their own and were stripped.

    Then a word has the same offsets, character for character, as where letter and accent are one.
    """
    marks = [unicodedata.category(character) == "Mn" for character in text]
    if not any(marks):
        return
    starts = {start for start, _ in offsets.tolist()}
    for row in offsets:
        while row[1] < len(text) and marks[row[1]] and row[1] not in starts:
            row[1] += 1


def make_engine(model: models.WordPiece, lowercase: bool) -> Engine:
    """The library's tokenizer around a model, cleaning and cutting text as BERT's does."""
    engine = Engine(model)
    # strip_accents=None: with the lower-casing, as in the originals.
    engine.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=None)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    engine.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    return engine


def read_vocabulary(path: Path) -> list[str]:
    """The tokens of a vocabulary file, a line each; what follows a tab (an id, in ERNIE's files) is left out.

    Raises UserError when the file cannot be read, or an id is not the number of its line, counted from 0.
    """
    try:
        text = path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is not UTF-8 text (byte {error.start}); save it as UTF-8") from None
    except OSError as error:
        raise UserError(f"{path}: cannot be read: {error.strerror}") from None
    lines = text.split("\n")  # not splitlines: some vocabularies hold U+2028 as a token
    if lines[-1] == "":
        lines.pop()
    return [_token(line.rstrip("\r"), number, path) for number, line in enumerate(lines)]


def _token(line: str, number: int, path: Path) -> str:
    token, tab, written = line.partition("\t")
    if tab and written.strip() not in ("", str(number)):
        raise UserError(
            f"{path}:{number + 1}: expected a token, or a token, a tab and the id {number}; found '{written}' behind "
            "the tab"
        )
    return token


def lowers_case(tokens: Sequence[str]) -> bool:
    """Whether a vocabulary is one of lower-cased text: of its entries not in brackets, hardly any has a capital."""
    return sum(token != token.lower() and token[0] != "[" for token in tokens) <= _FEW * len(tokens)
