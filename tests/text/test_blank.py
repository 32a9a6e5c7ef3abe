"""Text in which nothing can be seen."""

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
def test_spaces_and_what_only_tells_how_to_show_others_are_nothing(text: str) -> None:
    assert is_blank(text)


@pytest.mark.parametrize("text", [*(f"{one}a" for one in INVISIBLE), ".", "é", "e\u0301", "中", "\U0001f600", "\ufffd"])
def test_a_text_with_anything_that_can_be_seen_is_one(text: str) -> None:
    assert not is_blank(text)
