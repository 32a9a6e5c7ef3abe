"""Pronouncing dictionaries, which map words to phonemes, in the format of the CMU dictionary."""

from __future__ import annotations

import codecs
import re
from functools import lru_cache
from pathlib import Path
from unicodedata import normalize

from ernie.errors import UserError

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_COMMENT = re.compile(r"^#(?:\s.*)?$|\s#.*")  # but #HASH-MARK is a word of the CMU dictionary
_VARIANT = re.compile(r"(?<=.)\(\d+\)$")  # the number of an alternative pronunciation
# Separators that other formats put after a word; the CMU dictionary has ,COMMA and ;SEMI-COLON.
_SEPARATOR = re.compile(r"(?<=\w)(?:[,;|]|[:=]$)")
# Tokens that cannot be phonemes: a separator alone, anything with a comma in it, a probability.
_NO_PHONEME = re.compile(r"[;|:=-]+>?|.*,.*|\d*\.\d+(?:[eE][+-]?\d+)?")


@lru_cache(maxsize=4)
def read_dictionary(file: Path) -> dict[str, str]:
    """Read a dictionary from lower-case words to their phonemes, separated by spaces.

    A line has a word and its phonemes; between them may stand a number, as NLTK numbers the pronunciations of a word.
    The first pronunciation wins; one marked as a variant, as in READ(1), is used only for a word without any other.
    Lines that begin with ;;; and text after a # are comments.  Raises UserError for a file that cannot be read.  It
    also does, with the line number, for a line that is not UTF-8, or has no phonemes, or separates them by something
    other than spaces and tabs.
    """
    try:
        content = file.read_bytes()
    except OSError as error:
        raise UserError(f"{file}: cannot be read as a dictionary ({error})") from None
    entries: dict[str, str] = {}
    variants: dict[str, str] = {}
    for number, line in enumerate(content.removeprefix(codecs.BOM_UTF8).split(b"\n"), 1):
        try:
            entry = _parse_line(line)
        except UserError as error:
            raise UserError(f"{file}:{number}: {error}") from None
        if entry is not None:
            word, phonemes = entry
            base = _VARIANT.sub("", word)
            (entries if base == word else variants).setdefault(base, phonemes)
    return variants | entries


def _parse_line(content: bytes) -> tuple[str, str] | None:
    """Return the word of a line, in lower case, and its phonemes; None for a blank line or a comment."""
    try:
        line = content.decode("utf-8")
    except UnicodeDecodeError:
        raise UserError(
            "is not UTF-8 text; release 0.7b of the CMU dictionary, for one, is in Latin-1: convert the file with "
            "'iconv -f latin1 -t utf-8'"
        ) from None
    line = normalize("NFC", _COMMENT.sub("", line))
    if not line.strip() or line.lstrip().startswith(";;;"):
        return None
    word, *phonemes = line.split()
    phonemes = phonemes[1:] if phonemes and phonemes[0].isdigit() else phonemes
    expected = "expected WORD  P H O N E M E S, with spaces or tabs between them"
    if _SEPARATOR.search(word):
        raise UserError(f"'{word}' is no word; {expected}")
    if not phonemes:
        raise UserError(f"the word '{word}' has no phonemes; {expected}")
    wrong = next((phoneme for phoneme in phonemes if _NO_PHONEME.fullmatch(phoneme)), None)
    if wrong is not None:
        raise UserError(f"the word '{word}' has '{wrong}' among its phonemes; {expected}")
    return word.lower(), " ".join(phonemes)


def to_phonemes(text: str, dictionary: dict[str, str]) -> str:
    """Replace the words of a text by their phonemes; words that the dictionary lacks are left as they are."""
    return _WORD.sub(lambda match: dictionary.get(_key(match.group()), match.group()), normalize("NFC", text))


def all_pronounceable(text: str, dictionary: dict[str, str]) -> bool:
    """Whether the dictionary contains every word of a text."""
    return all(_key(word) in dictionary for word in _WORD.findall(normalize("NFC", text)))


def _key(word: str) -> str:
    return word.lower().replace("’", "'")
