"""Pronouncing dictionaries: what a word sounds like, as the CMU dictionary writes it down."""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from ernie.errors import UserError

_WORD = re.compile(r"[^\W\d_]+(?:['’][^\W\d_]+)*")
_REMARK = re.compile(r"^#(?:\s.*)?$|\s#.*")  # but #HASH-MARK is a word of the CMU dictionary
_VARIANT = re.compile(r"\(\d+\)$")  # a second way to say a word, which is left out


@lru_cache(maxsize=4)
def read_dictionary(file: Path) -> dict[str, str]:
    """From words, in lower case, to their phonemes, parted by spaces.

    A line has a word and its phonemes, between which there may be a number, as NLTK writes which of several ways to say
    the word it is: the first way counts.  Lines that begin with ;;; are remarks, and so is what follows a #.  Raises
    UserError for a file that cannot be read, and for a line without phonemes.
    """
    found: dict[str, str] = {}
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{file}: cannot be read as a dictionary ({error})") from None
    for number, line in enumerate(lines, 1):
        line = _REMARK.sub("", line)
        if not line.strip() or line.startswith(";;;"):
            continue
        word, *phonemes = line.split()
        phonemes = phonemes[1:] if phonemes and phonemes[0].isdigit() else phonemes
        if not phonemes:
            raise UserError(f"{file}:{number}: the word '{word}' has no phonemes; expected WORD  P H O N E M E S")
        if not _VARIANT.search(word):
            found.setdefault(word.lower(), " ".join(phonemes))
    return found


def pronounced(text: str, dictionary: dict[str, str]) -> str:
    """A text whose words are written as their phonemes; those that the dictionary lacks stay as they are."""
    return _WORD.sub(lambda match: dictionary.get(match.group().lower().replace("’", "'"), match.group()), text)
