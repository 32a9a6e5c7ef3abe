"""Text that comes in piece by piece, as token ids: those that the whole text has, as soon as they are known."""

from __future__ import annotations

import re
from typing import NamedTuple
from unicodedata import category

from ernie.text.scripts import NO_SPACES
from ernie.text.tokenizer import Tokenizer

NOTHING = " "  # what is held at the beginning


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
    # The first character stands before the text that is held: it is there so that no word seems to begin behind it.
    joined = has_no_spaces(held[-1]) or has_no_spaces(piece[:1] or NOTHING)
    text = held + piece if joined else f"{held} {piece}"
    units, before = tokenizer.split(text), int(held[0] != NOTHING)
    if len(units) == before:
        return Known([], held)
    if ended or not has_no_spaces(text[-1]) or not _may_grow(tokenizer, units[-1]):
        return Known(_ids(tokenizer, units[before:]), text[-1] if has_no_spaces(text[-1]) else NOTHING)
    # Held as it stands in the text, not as the tokenizer spells it.
    encoded = tokenizer.encode(text)
    start = int(encoded.offsets[len(encoded.ids) - len(tokenizer.pieces(units[-1]))][0])
    rest = text[start:].lstrip()
    stands_behind = text[: len(text) - len(rest)][-1:] or NOTHING
    return Known(_ids(tokenizer, units[before:-1]), (NOTHING if stands_behind.isspace() else stands_behind) + rest)


def _may_grow(tokenizer: Tokenizer, unit: str) -> bool:
    """Whether letters or marks that come behind a unit may belong to it."""
    (own,) = tokenizer.surface([unit])
    return any(len(tokenizer.split(own + more)) == 1 for more in "\u4e00\u3002")


def _ids(tokenizer: Tokenizer, units: list[str]) -> list[int]:
    return [i for unit in units for i in tokenizer.pieces(unit)]
