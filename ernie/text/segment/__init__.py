"""Segmenters, which mark words, phrases and entities in text; one module each."""

from __future__ import annotations

import warnings
from importlib.util import find_spec

from ernie.errors import Remark
from ernie.text.segment import capitals, chinese_names, dictionary, jieba, mined, spacy, sudachi, thai
from ernie.text.segment.base import Segmenter

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
]
_PACKAGES = {"ja": ("sudachipy", "sudachidict_core"), "th": ("pythainlp",)}


def default_segmenters(language: str) -> list[Segmenter]:
    """Return the default segmenters of a language.

    Those of Japanese and Thai need packages.  Without them there are none, which a remark says.
    """
    if language in _PACKAGES:
        if not all(map(find_spec, _PACKAGES[language])):
            needed = "pip install 'ernie-continual[languages]'"
            warnings.warn(f"no words, phrases or entities are marked in '{language}' without {needed}", Remark, 2)
            return []
        return [sudachi.Sudachi() if language == "ja" else thai.Thai()]
    if language == "zh":
        return [chinese_names.ChineseNames(), mined.Mined(language="zh")]
    return [capitals.Capitals(), mined.Mined(language="en")]
