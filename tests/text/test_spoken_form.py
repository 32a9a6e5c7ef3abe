"""Spoken forms of texts that the rules of WeTextProcessing cannot read, or read wrongly."""

from __future__ import annotations

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.text.spoken_form import has_digits, spoken_form

pytest.importorskip("wetext")


@pytest.mark.parametrize(
    ("text", "spoken"),
    [
        ("We are #1", "We are number one"),
        ("+1 and ±2", "plus one and plus or minus two"),
        ("about ≈5, ~6", "about approximately five, about six"),
        ("2×3 = 6", "two times three equals six"),
        ("5 dogs  and\n6 cats", "five dogs and six cats"),  # two spaces in a row
        ("café5 and 3.5 km", "café five and three point five kilometers"),
        ("[12]", "[ twelve ]"),
    ],
)
def test_signs_that_the_rules_do_not_know_are_read_or_left_alone(text: str, spoken: str) -> None:
    assert spoken_form(text, "en") == spoken


@pytest.mark.parametrize(
    ("language", "text", "spoken"),
    [
        ("en", "the 1990s", "the nineteen nineties"),
        ("en", "$1,000 or 1,200 people", "one thousand dollars or one thousand two hundred people"),
        ("en", "1,000 1,000", "one thousand one thousand"),
        ("en", "100 m at 10 m/s, 1 m", "one hundred meters at ten meters per second, one meter"),
        ("en", "$5 m and 25 m²", "five million dollars and twenty five square meters"),
        ("en", "21,000 and a thousand", "twenty one thousand and a thousand"),
        ("en", "see No. 5", "see number five"),
        ("zh", "价格1,000,000美元", "价格一百万美元"),
        ("zh", "12,345.67", "一万二千三百四十五点六七"),
        ("zh", "10,20,30", "十,二十,三十"),
    ],
)
def test_decades_and_thousands_are_read_as_people_say_them(language: str, text: str, spoken: str) -> None:
    assert spoken_form(text, language) == spoken  # type: ignore[arg-type]


@settings(max_examples=25, deadline=None)
@given(st.text(alphabet="a5 #+[]é\"\\'½→‰©😀\n,.-$", min_size=1, max_size=8))
@example("5\\")
@example("#")
def test_no_text_stops_a_voice(text: str) -> None:
    spoken_form(text, "en")


def test_a_digit_beside_any_sign_is_read() -> None:
    assert not has_digits(spoken_form("5→6 ©7 8ß 9中", "en"))


def test_half_a_character_is_refused() -> None:
    with pytest.raises(UserError, match="half a surrogate pair"):
        spoken_form("\udc80 5", "en")
