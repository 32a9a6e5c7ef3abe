"""Pronouncing dictionaries: what a word sounds like, as the CMU dictionary writes it down."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path
from unicodedata import normalize

from ernie.errors import UserError

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_REMARK = re.compile(r"^#(?:\s.*)?$|\s#.*")  # but #HASH-MARK is a word of the CMU dictionary
_VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # a second way to say a word
# What other tables put behind a word; the CMU dictionary has ,COMMA and ;SEMI-COLON.
_APART = re.compile(r"(?<=\w)(?:[,;|]|[:=]$)")
# What is no phoneme: such a sign alone, what has a comma in it, a probability.
_NO_PHONEME = re.compile(r"[;|:=-]+>?|.*,.*|\d*\.\d+(?:[eE][+-]?\d+)?")
_UTF8, _UTF8_BEGINS = "utf-8", b"\xef\xbb\xbf"  # some editors write the latter first


@lru_cache(maxsize=4)
def read_dictionary(file: Path) -> dict[str, str]:
    """From words, in lower case, to their phonemes, parted by spaces.

    A line has a word and its phonemes, between which there may be a number, as NLTK writes which of several ways to say
    the word it is.  The first way counts; one that is marked, as in READ(1), only for a word without any other.  Lines
    that begin with ;;; are remarks, and so is what follows a #.  Raises UserError for a file that cannot be read, and
    with its number for a line that is no UTF-8, has no phonemes, or has something else than spaces and tabs between
    them.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read as a dictionary ({error})") from None
    found: dict[str, str] = {}
    marked: dict[str, str] = {}
    for number, line in enumerate(content.removeprefix(_UTF8_BEGINS).split(b"\n"), 1):
        try:
            entry = _entry(line)
        except UserError as error:
            raise UserError(f"{file}:{number}: {error}") from None
        if entry is not None:
            word, phonemes = entry
            plain = _VARIANT.sub("", word)
            (found if plain == word else marked).setdefault(plain, phonemes)
    return marked | found


def _entry(content: bytes) -> tuple[str, str] | None:
    """The word of a line, in lower case, and its phonemes; None where it has neither."""
    try:
        line = content.decode(_UTF8)
    except UnicodeDecodeError:
        raise UserError(
            "is not UTF-8 text; release 0.7b of the CMU dictionary, for one, is in Latin-1: convert the file with "
            "'iconv -f latin1 -t utf-8'"
        ) from None
    line = normalize("NFC", _REMARK.sub("", line))
    if not line.strip() or line.lstrip().startswith(";;;"):
        return None
    word, *phonemes = line.split()
    phonemes = phonemes[1:] if phonemes and phonemes[0].isdigit() else phonemes
    expected = "expected WORD  P H O N E M E S, with spaces or tabs between them"
    if _APART.search(word):
        raise UserError(f"'{word}' is no word; {expected}")
    if not phonemes:
        raise UserError(f"the word '{word}' has no phonemes; {expected}")
    wrong = next((one for one in phonemes if _NO_PHONEME.fullmatch(one)), None)
    if wrong is not None:
        raise UserError(f"the word '{word}' has '{wrong}' among its phonemes; {expected}")
    return word.lower(), " ".join(phonemes)


def pronounced(text: str, dictionary: dict[str, str]) -> str:
    """A text whose words are written as their phonemes; those that the dictionary lacks stay as they are."""
    return _WORD.sub(lambda match: dictionary.get(_key(match.group()), match.group()), normalize("NFC", text))


def all_known(text: str, dictionary: dict[str, str]) -> bool:
    """Whether the dictionary has every word of a text."""
    return all(_key(word) in dictionary for word in _WORD.findall(normalize("NFC", text)))


def _key(word: str) -> str:
    return word.lower().replace("’", "'")
