"""What may follow the mark at the end of a sentence and belongs to it: footnotes, superscripts, emoji, emoticons."""

from __future__ import annotations

import re

# One emoji: a pictograph, a sign made a picture by a variation selector, or a keycap; then joiners, skin tones, tags.
_EMOJI = (
    r"(?:[\U0001f000-\U0001faff\u2600-\u2604\u2607-\u2619\u2620-\u2712\u2715-\u2725\u2728\u2744\u274c-\u2755\u2757-\u2775"
    r"\u2795-\u2797\u27a1\u27b0\u27bf\u2b1b\u2b1c\u2b50\u2b55\u231a\u231b\u23e9-\u23f3\u23f8-\u23fa]"
    r"|[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u23ff\u25a0-\u25ff\u2900-\u2bff\u3030\u303d\u3297\u3299]\ufe0f"
    r"|[0-9#*]\ufe0f?\u20e3)[\ufe0e\ufe0f\u200d\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f]*"
)
_EMOTICON = r"(?:[:;=]['’]?-?[)(\]DPpO/|]+|<3|\^_?\^)(?=\s|\Z)"
_FOOTNOTE = (  # [1], [12, 13], [1]:20, [a], [note 1], [citation needed], [註1]
    r"\[(?:\d{1,4}(?:\s?[,\u2013-]\s?\d{1,4})*|[a-z]|(?:note|nb|fn)\.?\s?\d{1,4}|[a-z]{2,20} needed)\]"
    r"(?::\s?\d{1,4}(?:[\u2013-]\d{1,4})?)?"
    r"|［\d{1,4}］|[\xb9\xb2\xb3\u2070\u2074-\u2079\u207d\u207e\u2020\u2021]+"
)
# Right after a mark, any short text in brackets is one, and in English a number, too.
_CLOSE_FOOTNOTE = r"\[{1,2}[^\[\]\n]{1,24}\]{1,2}"
_CLOSE_NUMBER = r"\(\d{1,3}\)|\^\d{1,3}|(?:(?<=[a-z]{3}[.!?])|(?<=[.!?][\"\u201d\u2019]))\d{1,3}(?=\s)"
_MORE = rf"\s?(?:{_FOOTNOTE})|\s*(?:{_EMOJI}|{_EMOTICON})|\ufe0f"

# A sentence may begin with one: a bullet, or the dash before what somebody says.
BULLET = r"[\u2022\u2023\u25a0-\u25ff\u2605\u2606\u2713\u2714\u2756\u27a2\u27a4\u2013\u2014-]"

_CLOSERS = """["'\u201d\u2019)\\]\xbb*\u300d\u300f]"""
CLOSING = re.compile(f"{_CLOSERS}*")
TAIL = re.compile(rf"(?:\[\w{{1,6}}\])?(?:{_MORE})*")
ENGLISH_TAIL = re.compile(rf"{_CLOSERS}*(?:(?:{_FOOTNOTE}|{_CLOSE_FOOTNOTE})+|{_CLOSE_NUMBER})?(?:{_CLOSERS}|{_MORE})*")
SPACE = re.compile(r"[\s\u200b\u2060\ufeff]*")


def skip(pattern: re.Pattern[str], text: str, at: int) -> int:
    """Return where a pattern that begins at index `at` ends, `at` itself if it is not there."""
    found = pattern.match(text, at)
    return found.end() if found else at
