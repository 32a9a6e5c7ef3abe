"""Detection of text without visible characters, which is treated as empty."""

from __future__ import annotations

from unicodedata import category

_INVISIBLE = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})  # Unicode categories: spaces, control and format characters
# Letters and marks without ink: joiners, fillers, vowels, variation selectors, the empty Braille cell.
_WITHOUT_INK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(n) for n in range(0xFE00, 0xFE10)}


def is_blank(text: str) -> bool:
    """Whether a text is empty or has only spaces and invisible characters, such as soft hyphens."""
    return all(letter in _WITHOUT_INK or category(letter) in _INVISIBLE for letter in text)
