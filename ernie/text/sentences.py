"""Sentence splitting for English and Chinese, one paragraph at a time, by rule.

Only places that could end a sentence are looked at, so the cost is that of one pass of a regular expression.
"""

from __future__ import annotations

import re

LANGUAGES = ("en", "zh")

# Words that end in a period without ending a sentence, as they stand before the period.
_TITLES = "Mr Mrs Ms Dr Prof St Mt Gen Col Maj Capt Lt Sgt Cmdr Adm Rev Hon Pres Gov Sen Rep Sr Jr Messrs Mme Mlle"
_SHORT = (
    "vs etc cf al e.g i.e viz approx ca c Fig fig Figs Eq eq Eqs No no Nos Vol vol Vols pp p Ch ch Sec sec Ed ed eds"
)
_MONTHS = "Jan Feb Mar Apr Jun Jul Aug Sep Sept Oct Nov Dec"
_FIRMS = "Inc Ltd Co Corp Bros Dept Univ Assn"
_PLACES = "U.S U.K U.N E.U D.C Ave Blvd Rd"
# Before a capital, these are part of a name more often than they end a sentence.
_NEVER_END = frozenset(f"{_TITLES} {_MONTHS} {_SHORT}".split()) - {"etc", "al"}
# These end a sentence when a capital follows that is a usual first word.
_MAY_END = frozenset(f"{_FIRMS} {_PLACES} etc al a.m p.m B.C A.D Ph.D M.D".split())
_OPENERS = frozenset(
    "The A An In On At It He She They We I You This That These Those There But And However For As By After Before When "
    "While If His Her Its Their Our My According Some Many Most Since Although With From To Both".split()
)

# A run of closing punctuation, optional closing quotes or brackets, white space, then what may begin a sentence.
_ENGLISH = re.compile(r"[.!?]+[\"'”’)\]]*\s+(?=[\"'“‘(\[]*[A-Z0-9À-ÖØ-ÞΑ-ΩА-Я])")
_LAST_WORD = re.compile(r"([^\s\"'“‘(\[]+)\.[\"'”’)\]]*\s+$")
_NEXT_WORD = re.compile(r"[\"'“‘(\[]*([^\s,;:.!?]+)")
_CHINESE = re.compile(r"(?:[。！？!?]|…+|(?<=[一-鿿”’」』）》])[;；])+[”’」』）》〉】\"']*")
_CJK = re.compile(r"[\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff]")


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a paragraph, in order, without the white space around them.

    `language` is "en" or "zh".  No character other than white space is lost.
    """
    ends = _chinese_ends(text) if language == "zh" else _english_ends(text)
    sentences, start = [], 0
    for end in (*ends, len(text)):
        sentence = text[start:end].strip()
        if sentence:
            sentences.append(sentence)
        start = end
    return sentences


def detect_language(text: str) -> str:
    """ "zh" when a fifth of the characters that are no white space are Chinese, otherwise "en"."""
    visible = len(text) - sum(map(str.isspace, text))
    return "zh" if len(_CJK.findall(text)) * 5 > visible else "en"


def _english_ends(text: str) -> list[int]:
    return [match.end() for match in _ENGLISH.finditer(text) if _ends_sentence(text, match)]


def _ends_sentence(text: str, match: re.Match[str]) -> bool:
    """Whether a period after an abbreviation or an initial ends the sentence; anything else does."""
    if text[match.start()] != "." or text.startswith("..", match.start()):
        return True
    before = text[max(0, match.start() - 24) : match.end()]
    found = _LAST_WORD.search(before)
    if found is None:
        return True
    word = found[1].lstrip("-—–/")
    if word in _NEVER_END:
        return False
    if len(word) == 1 and word.isupper():
        return _next_word(text, match.end()) in _OPENERS  # an initial, "J. Smith"
    if word in _MAY_END or re.fullmatch(r"(?:[A-Za-z]\.)+[A-Za-z]", word):
        return _next_word(text, match.end()) in _OPENERS
    return True


def _next_word(text: str, place: int) -> str:
    found = _NEXT_WORD.match(text, place)
    return found[1] if found else ""


def _chinese_ends(text: str) -> list[int]:
    return [match.end() for match in _CHINESE.finditer(text)]
