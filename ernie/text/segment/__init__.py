"""Words, phrases and entities in running text: segmenters, one file each."""

from __future__ import annotations

from ernie.text.segment import capitals, chinese_names, dictionary, jieba, mined, spacy
from ernie.text.segment.base import Segmenter

__all__ = ["capitals", "chinese_names", "default_segmenters", "dictionary", "jieba", "mined", "spacy"]


def default_segmenters(language: str) -> list[Segmenter]:
    """What marks words, phrases and entities of a language when nobody says otherwise; none needs more than NumPy."""
    if language == "zh":
        return [chinese_names.ChineseNames(), mined.Mined(language="zh")]
    return [capitals.Capitals(), mined.Mined(language="en")]
