"""Segmenters, which mark words, phrases and entities in text; one module each."""

from __future__ import annotations

from ernie.text.segment import capitals, chinese_names, dictionary, jieba, mined, spacy, sudachi, thai
from ernie.text.segment.base import Segmenter
from ernie.text.segment.tagged import Tagged

__all__ = [
    "capitals",
    "chinese_names",
    "default_segmenters",
    "dictionary",
    "jieba",
    "mined",
    "spacy",
    "sudachi",
    "thai",
    "unmarked",
]
_TAGGED: dict[str, type[Tagged]] = {"ja": sudachi.Sudachi, "th": thai.Thai}


def default_segmenters(language: str) -> list[Segmenter]:
    """Return the default segmenters of a language; any but "en", "zh", "ja" and "th" has the same.

    Those of Japanese and Thai need packages, without which there are none, see `unmarked`.
    """
    if language in _TAGGED:
        return [] if unmarked(language) else [_TAGGED[language]()]
    if language == "zh":
        return [chinese_names.ChineseNames(), mined.Mined(language="zh")]
    # Capitals are no names in every language of this alphabet: German nouns have them.
    return [*([capitals.Capitals()] if language == "en" else []), mined.Mined(language="en")]


def unmarked(language: str) -> str:
    """Return a sentence on the packages that the default segmenters of a language lack, "" for none."""
    if language not in _TAGGED or _TAGGED[language].has_packages():
        return ""
    return f"nothing is marked in documents in '{language}' without pip install 'ernie-continual[languages]'"
