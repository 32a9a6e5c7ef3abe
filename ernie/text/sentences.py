"""Sentence splitting: a regular expression finds the marks, a few rules filter them; in Thai a library does it."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from functools import lru_cache
from importlib.util import find_spec

from ernie.errors import UserError
from ernie.text.chinese_sentences import chinese_ends
from ernie.text.japanese_sentences import japanese_ends
from ernie.text.scripts import HAN, KANA, THAI
from ernie.text.sentence_marks import BULLET, CLOSING, ENGLISH_TAIL, SPACE, skip
from ernie.text.thai_sentences import thai_ends

# Abbreviations that precede what they belong to, so that no sentence ends with them.
_BEFORE_NAME = frozenset(
    "mr mrs ms dr prof rev fr hon mt gen col maj capt cmdr cdr lt sgt cpl pvt pfc adm gov sen rep pres insp supt "
    "messrs mme mmes mlle e.g i.e a.k.a cf v vs viz approx ca esp incl eds".split()
)
# Abbreviations before a number; elsewhere they are words that may end a sentence ("no", "art", "fig").
_BEFORE_NUMBER = frozenset(
    "no nos vol vols p pp fig figs tab ch chap chaps sec secs art eq eqs ref refs ver op tel ext b c d fl jan feb mar "
    "apr jun jul aug sep sept oct nov dec".split()
)
# Abbreviations after which a sentence may end or continue: the next word decides.
_UNDECIDED = frozenset(
    "inc corp co ltd bros jr sr etc al bc ad ph.d m.d b.a m.a a.m p.m u.s u.k u.n u.s.a d.c e.u l.a ave blvd dept univ "
    "assn est min max st ft".split()
)
# Words that, when capitalized, nearly always begin a sentence.
_STARTERS = frozenset(
    "the a an this that these those it its he she his her they their we our you your i my in on at by for from with to "
    "as if when while where after before since although though because but and or so yet however there here what why "
    "how who which both each some many most all no not one two such thus then also another other several during under "
    "despite unlike according today nobody nothing everybody everyone everything somebody someone something".split()
)

LANGUAGES = ("en", "zh", "ja", "th")  # whose sentences can be split

# One mark, or several: ... ?!  Those of Chinese and Japanese, and of Hindi, Arabic and Urdu, may stand in English text.
_MARKS = re.compile(r"[.!?\u2026\u203c\u2047-\u2049\u3002\uff01\uff1f\uff61\u0964\u0965\u061f\u06d4]+")
_SPACELESS = frozenset("\u3002\uff01\uff1f\uff61")  # marks that no space follows
# A bullet or dash, opening quotes and brackets, a word.
_PLAIN_NEXT = re.compile(r" ([A-Za-z][^\W_]*)")  # the usual case of what follows, in a third of the time
_NEXT = re.compile(rf"(?:{BULLET}\s*)?[\"'\u201c\u2018\u300c\u300e\u300a\uff08(\[\xab\xbf\xa1*\u2014-]*([^\W_]+)")
_LAST_WORD = re.compile(r"[^\s\"'\u201c\u2018(\[\xab\u2014/-]*\Z")
_LONGEST_WORD = 24  # characters looked at before a full stop: more than any abbreviation has

_LETTERS = re.compile(r"[^\W\d_]+")
_HAN_OR_KANA = re.compile(f"[{HAN}{KANA}]+")
_KANA = re.compile(f"[{KANA}]+")
_LEAST_KANA = 0.1  # share of the Chinese characters and kana: Chinese text has few, and any Japanese sentence some
_THAI = re.compile(f"[{THAI}]+")
_LETTERS_AND_MARKS = re.compile(rf"(?:[^\W\d_]|[{THAI}])+")
_LEAST_HAN = 0.2  # share of the letters; a Chinese character carries about as much as four or five Latin letters


def split_sentences(text: str, language: str) -> list[str]:
    """Split a paragraph into sentences, in order, stripped of surrounding white space.

    `language` is one of LANGUAGES.  Only white space is lost; a blank paragraph has no sentences.  Raises UserError for
    any other language, and if the package is missing that a language needs.
    """
    if language not in _ENDS:
        raise UserError(f"language '{language}': sentences can be split in {', '.join(_ENDS)} only")
    if sentence := lacking(language):
        raise UserError(sentence)
    sentences = []
    start = 0
    for end in _ENDS[language](text):
        sentences.append(text[start:end].strip())
        start = end
    sentences.append(text[start:].strip())
    return list(filter(None, sentences))


@lru_cache
def lacking(language: str) -> str:
    """Return what must be installed before sentences of a language can be split, in a sentence; "" for nothing."""
    if language != "th" or all(map(find_spec, ("pythainlp", "pycrfsuite"))):
        return ""
    return "Thai sentences are split by the package pythainlp: pip install 'ernie-continual[languages]'"


def detect_script(text: str) -> str:
    """Return the language of LANGUAGES that the script of a text shows, "en" for any other one.

    A text with a fifth of Chinese characters or kana is Japanese if a tenth of these are kana, else Chinese.  One with
    a fifth of Thai letters is Thai.
    """
    if text.isascii():
        return "en"
    if detect_language(text) == "zh":
        return "ja" if _total(_KANA, text) >= _LEAST_KANA * _total(_HAN_OR_KANA, text) else "zh"
    thai = _total(_THAI, text)
    return "th" if thai and thai >= _LEAST_HAN * _total(_LETTERS_AND_MARKS, text) else "en"


def detect_language(text: str) -> str:
    """Return 'zh' if at least a fifth of the letters are Chinese characters or Japanese kana, else 'en'."""
    chinese = 0 if text.isascii() else _total(_HAN_OR_KANA, text)
    if not chinese or chinese >= _LEAST_HAN * len(text):  # the usual cases, for which the letters need not be counted
        return "zh" if chinese else "en"
    return "zh" if chinese >= _LEAST_HAN * _total(_LETTERS, text) else "en"


def _total(runs: re.Pattern[str], text: str) -> int:
    """Return the number of characters in runs, which are found ten times as fast as single characters."""
    return sum(map(len, runs.findall(text)))


def _english_ends(text: str) -> Iterator[int]:
    first = len(text) - len(text.lstrip())
    last = 0
    for match in _MARKS.finditer(text):
        if match.start() < last:
            continue
        tail = match.end()
        following, after = _PLAIN_NEXT.match(text, tail), tail + 1
        if following is None:
            tail = skip(ENGLISH_TAIL, text, tail)
            after = skip(SPACE, text, tail)
            following = _NEXT.match(text, after)
        if following is None or not _may_begin(following[1]):
            continue
        # Without a space, as in 3.5 or U.S, only a footnote or an emoji shows that a sentence ends.
        if (
            after == tail
            and match.group()[-1] not in _SPACELESS
            and (tail == skip(CLOSING, text, match.end()) or not following[1][0].isupper())
        ):
            continue
        if match.group() == "." and not _full_stop_ends(text, max(first, last), match.start(), following[1]):
            continue
        yield after
        last = after


def _full_stop_ends(text: str, first: int, at: int, next_word: str) -> bool:
    """Whether the full stop at index `at`, before `next_word`, ends a sentence rather than an abbreviation.

    `first` is the index of the first character of the sentence.
    """
    last_word = _LAST_WORD.search(text, max(0, at - _LONGEST_WORD), at)
    word = last_word.group() if last_word else ""
    lower = word.lower()
    if lower in _BEFORE_NAME:
        return False
    if lower in _BEFORE_NUMBER and (next_word[0].isdigit() or text[at + 1 : at + 2].isdigit()):
        return False
    if _is_initial(word) or lower in _UNDECIDED:
        return next_word.lower() in _STARTERS
    # "1. First" at the start of a sentence is a numbering.
    return not (word.isdigit() and len(word) <= 3 and at - len(word) <= first)


def _may_begin(word: str) -> bool:
    """Whether a sentence may begin with a word: not with one in small letters, but with iPhones."""
    return not word[0].islower() or word[1:2].isupper()


def _is_initial(word: str) -> bool:
    """Whether a word is one capital letter, or several separated by full stops (J, J.R.R, U.S), but not the word I."""
    return word != "I" and word[:1].isupper() and all(len(part) == 1 for part in word.split("."))


_ENDS: dict[str, Callable[[str], Iterator[int]]] = {
    "en": _english_ends,
    "zh": chinese_ends,
    "ja": japanese_ends,
    "th": thai_ends,
}
