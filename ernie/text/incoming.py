"""Text that comes in piece by piece, as token ids: those that the whole text has, as soon as they are known."""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import category

from ernie.text.scripts import NO_SPACES
from ernie.text.tokenizer import Tokenizer

NOTHING = " "  # what is held at the beginning
# One of each sort of character that may go on with a unit: letters, digits, marks, an accent.
_MORE = "\u4e00\u3002\u30a2\uff11\uff21a1\u3099"
_TAIL = 16  # characters of which one will be more than an accent, or one that a tokenizer drops


class Known(NamedTuple):
    """The `ids` of the tokens that nothing to come can change, and the text that is `held` until it is known."""

    ids: list[int]
    held: str


def has_no_spaces(letter: str) -> bool:
    """Whether a letter belongs to a script that does not part words by spaces."""
    return re.match(f"[{NO_SPACES}]", letter) is not None


def is_space(letter: str) -> bool:
    """Whether a letter parts words: other control characters than these are dropped by tokenizers, and part none."""
    return letter in "\t\n\r" or category(letter).startswith("Z")


def known(tokenizer: Tokenizer, held: str, piece: str, ended: bool = False) -> Known:
    """What is known after one more piece of a text, which ends where a word does, of which `held` is held back.

    Between pieces there is a space, unless a letter beside it is of a script that has none and the piece does not begin
    with one.  Of such a script a run of letters is one unit to many vocabularies: it is held until it is over.
    """
    # The first letter stands before the text that is held: by it a tokenizer knows whether a word begins behind it.
    before = held[0].strip()
    if piece.isspace():
        return Known([], held.rstrip() + NOTHING if before else held)
    joined = has_no_spaces(held[-1]) or has_no_spaces(piece[:1] or NOTHING)
    text = held + piece if joined else f"{held} {piece}"
    units, old = tokenizer.split(text), tokenizer.split(before)
    if units[: len(old)] != old:  # it goes on with a unit whose tokens were told: they stay, and it begins another one
        return known(tokenizer, NOTHING + text[len(before) :].lstrip(), "", ended)
    new = units[len(old) :]
    if not new:
        return Known([], held)
    grows = not ended and has_no_spaces(text[-1]) and _may_grow(tokenizer, new[-1])
    if grows and len(new) == 1:
        return Known([], text)
    if not grows:
        return Known(_ids(tokenizer, new), _last_letter(tokenizer, text))
    # Held as it stands in the text, not as the tokenizer spells it; the normalizer may leave nothing of a unit.
    offsets, count, size = tokenizer.encode(text).offsets, 0, 0
    while not size and count < len(new):
        count += 1
        size = len(tokenizer.pieces(new[-count]))
    if count == len(new):
        return Known([], text)
    start = int(offsets[-size][0])
    start += len(text[start:]) - len(text[start:].lstrip())
    done, space = text[:start].rstrip(), NOTHING * text[:start].endswith(NOTHING)
    return Known(_ids(tokenizer, new[:-count]), _last_letter(tokenizer, done) + space + text[start:])


def _may_grow(tokenizer: Tokenizer, unit: str) -> bool:
    """Whether letters or marks that come behind a unit may belong to it."""
    (own,) = tokenizer.surface([unit])
    return not own or any(len(tokenizer.split(_last_letter(tokenizer, own) + more)) == 1 for more in _MORE)


def _last_letter(tokenizer: Tokenizer, text: str) -> str:
    """The last character of a text that a tokenizer does not drop; before an accent that melts into it, the letter."""
    kept = [letter for letter in text[-_TAIL:] if not letter.isspace() and tokenizer.split(letter)]
    accents = 0
    while accents < len(kept) and category(kept[-1 - accents]).startswith("M"):
        accents += 1
    melts = accents < len(kept) and len(tokenizer.split("".join(kept[-1 - accents :]))) == 1
    return kept[-1 - accents * melts] if kept else NOTHING


def _ids(tokenizer: Tokenizer, units: list[str]) -> list[int]:
    return [i for unit in units for i in tokenizer.pieces(unit)]
