"""Segmenters, which mark words, phrases and entities in text; one module each."""

from __future__ import annotations

from ernie.text.segment import capitals, chinese_names, dictionary, jieba, mined, spacy
from ernie.text.segment.base import Segmenter

__all__ = ["capitals", "chinese_names", "default_segmenters", "dictionary", "jieba", "mined", "spacy"]


def default_segmenters(language: str) -> list[Segmenter]:
    """Return the default segmenters of a language; they need no package besides NumPy."""
    if language == "zh":
        return [chinese_names.ChineseNames(), mined.Mined(language="zh")]
    return [capitals.Capitals(), mined.Mined(language="en")]
