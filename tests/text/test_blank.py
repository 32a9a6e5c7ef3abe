"""Text without any visible character."""

from __future__ import annotations

import pytest

from ernie.text.blank import is_blank

INVISIBLE = [
    "\u200b",
    "\ufeff",
    "\xad",
    "\xa0",
    "\u3000",
    "\u200d",
    "\u2060",
    "\u200e",
    "\ufe0f",
    "\u2800",
    "\u3164",
    "\x00",
]


@pytest.mark.parametrize("text", ["", " \t", *INVISIBLE, " \xa0\u200b\xad "])
def test_spaces_and_invisible_characters_are_blank(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize(
    "text", [*(f"{char}a" for char in INVISIBLE), ".", "é", "e\u0301", "中", "\U0001f600", "\ufffd"]
)
def test_a_text_with_a_visible_character_is_not_blank(text: str) -> None:
    assert not is_blank(text)
