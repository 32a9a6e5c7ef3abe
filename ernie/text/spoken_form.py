"""The spoken form of a text: numbers, dates, units and abbreviations written out as words, by WeTextProcessing.

Zhang et al., 2022, "WeNet 2.0" (arXiv 2203.15455), is the toolkit whose text normalization this is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal
from unicodedata import category

from ernie.errors import UserError
from ernie.text.surrogates import require_encodable

SpokenLanguage = Literal["none", "en", "zh", "ja"]
_SPOKEN = "%‰&@#°№"  # what Unicode takes for punctuation, or for pictures, and people read aloud
_VARIATIONS = "\ufe0e\ufe0f"  # follow an emoji
_DIGIT = re.compile(r"\d")
_GROUPED = re.compile(r"(?<![\d,，])\d{1,3}(?:[,，]\d{3})+(?![\d,，])")  # 1,000,000
# What the English rules lack, and words or spellings that they know.
_SPELLINGS = (
    (re.compile(r"\b(1\d|20)([1-9]0)s\b"), r"\1 \2s"),  # decades, which are read as so many seconds
    (re.compile(r"(?<=\d)\s*m/s\b"), " meters per second"),  # m is minutes
    (re.compile(r"(?<![\d.,$£€])1\s?m\b(?!/)"), "1 meter"),
    (re.compile(r"(?<![\d.,$£€])(\d[\d.,]*)\s?m\b(?!/)"), r"\1 meters"),
    (re.compile(r"\bNo\.\s*(?=\d)"), "number "),
    (re.compile(r"#(?=\d)"), "number "),
    (re.compile(r"(?<!\w)\+(?=\d)"), "plus "),
    (re.compile(r"~(?=\d)"), "about "),
    (re.compile(r"±(?=\d)"), "plus or minus "),
    (re.compile(r"≈(?=\s*\d)"), "approximately "),
    (re.compile(r"(?<=\d)\s*×\s*(?=\d)"), " times "),
    (re.compile(r"(?<=\d)\s*÷\s*(?=\d)"), " divided by "),
    (re.compile(r"(?<=\d)\s*=\s*(?=\d)"), " equals "),
)
_BESIDE_DIGIT = re.compile(r"(?<=\d)(?=[^A-Za-z0-9\s])|(?<=[^A-Za-z0-9\s])(?=\d)")
_THOUSAND = re.compile(r"\bthousand\b")
_COUNTS = frozenset(
    "one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen "
    "eighteen nineteen twenty thirty forty fifty sixty seventy eighty ninety hundred".split()
)


@lru_cache(maxsize=64)  # the same text is read for its length, its tokens and the remarks on it
def spoken_form(text: str, language: SpokenLanguage) -> str:
    """Return a text as it is read out in a language: "3.5 km" as "three point five kilometers".

    Parts that cannot be read out stay as they are.  Raises UserError when the package is not installed, and for half a
    surrogate pair.
    """
    if language == "none" or not require_encodable(text).strip():
        return text
    if language == "en":
        return _in_english(" ".join(text.split()))
    return _normalized(_GROUPED.sub(lambda number: re.sub("[,，]", "", number.group()), text), language) or text


def _in_english(text: str) -> str:
    for pattern, spelling in _SPELLINGS:
        text = pattern.sub(spelling, text)
    spoken = _normalized(text, "en")
    if spoken is None:  # for a sign beside a digit
        words = [word if _normalized(word, "en") else _BESIDE_DIGIT.sub(" ", word) for word in text.split()]
        spoken = _normalized(" ".join(words), "en") or text
    # The rules leave out the one of 1,000.
    return spoken if "thousand" in text.lower() else _THOUSAND.sub(_counted, spoken)


def _counted(thousand: re.Match[str]) -> str:
    before = re.split(r"[\s-]", thousand.string[: thousand.start()].rstrip(" -"))[-1]
    return thousand.group() if before in _COUNTS else "one thousand"


def _normalized(text: str, language: str) -> str | None:
    """Return what the rules make of a text; None if they cannot read it."""
    try:
        # They escape a double quote; none writes a backslash that the text lacks.
        return str(_normalizer(language).normalize(text)).replace('\\"', '"')
    except AssertionError:
        return None


def is_unspoken(text: str) -> bool:
    """Whether a text has only marks that nobody reads aloud, such as a comma or an emoji, but no %, & or €."""
    return all(character not in _SPOKEN and _is_mark(character) for character in text)


def _is_mark(character: str) -> bool:
    kind = category(character)
    return kind.startswith("P") or kind in ("So", "Sk", "Cf") or character in _VARIATIONS


def has_digits(text: str) -> bool:
    """Whether a text has a digit, which is read out as a word."""
    return _DIGIT.search(text) is not None


@lru_cache(maxsize=4)
def _normalizer(language: str) -> Any:
    try:
        from wetext import Normalizer
    except ImportError:
        raise UserError("text_normalization needs wetext: pip install 'ernie-continual[speech]'") from None
    return Normalizer(lang=language, operator="tn")
