"""Text in which nothing can be seen, which is as good as none."""

from __future__ import annotations

from unicodedata import category

_NOTHING = frozenset({"Zs", "Zl", "Zp", "Cc", "Cf"})  # spaces, controls, and what only tells how to show others
# Letters and marks that have no ink: joiners, fillers, vowels, variation selectors, the cell of Braille without dots.
_WITHOUT_INK = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0") | {chr(n) for n in range(0xFE00, 0xFE10)}


def is_blank(text: str) -> bool:
    """Whether there is nothing in a text but spaces and what cannot be seen, such as a soft hyphen; also where there is
    nothing at all."""
    return all(letter in _WITHOUT_INK or category(letter) in _NOTHING for letter in text)
