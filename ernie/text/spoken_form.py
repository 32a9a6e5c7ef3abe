"""The spoken form of a text: numbers, dates, units and abbreviations written out as words, by WeTextProcessing.

Zhang et al., 2022, "WeNet 2.0" (arXiv 2203.15455), is the toolkit whose text normalization this is.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Any, Literal

from ernie.errors import UserError

SpokenLanguage = Literal["none", "en", "zh", "ja"]
_DIGIT = re.compile(r"\d")


def spoken_form(text: str, language: SpokenLanguage) -> str:
    """Return a text as it is read out in a language: "3.5 km" as "three point five kilometers".

    Raises UserError when the package is not installed.
    """
    if language == "none" or not text.strip():
        return text
    # Its rules escape a double quote; no rule writes a backslash that the text lacks.
    return str(_normalizer(language).normalize(text)).replace('\\"', '"')


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
