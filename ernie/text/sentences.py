"""Where sentences end, in English and in Chinese: a regular expression finds the candidates, a few rules judge them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator

from ernie.errors import UserError
from ernie.text.scripts import HAN_CHARACTER

# Abbreviations that stand before what they belong to, so that no sentence ends with them.
_BEFORE_NAME = frozenset(
    "mr mrs ms dr prof rev fr hon st mt ft gen col maj capt cmdr cdr lt sgt adm gov sen rep pres messrs mme mlle "
    "e.g i.e cf vs viz approx ca esp incl".split()
)
# Abbreviations that stand before a number; elsewhere they are words that end sentences ("no", "art", "fig").
_BEFORE_NUMBER = frozenset(
    "no nos vol vols p pp fig figs ch chap sec art eq ver op jan feb mar apr jun jul aug sep sept oct nov dec".split()
)
# Abbreviations after which a sentence may end or go on: the next word decides.
_UNDECIDED = frozenset(
    "inc corp co ltd bros jr sr etc al bc ad ph.d m.d b.a m.a a.m p.m u.s u.k u.n u.s.a d.c e.u l.a ave blvd dept univ "
    "assn est min max".split()
)
# Words that begin sentences and, written with a capital, seldom anything else.
_STARTERS = frozenset(
    "the a an this that these those it its he she his her they their we our you your i my in on at by for from with to "
    "as if when while where after before since although though because but and or so yet however there here what why "
    "how who which both each some many most all no not one two such thus then also another other several during under "
    "despite unlike according today".split()
)

_ENGLISH = re.compile(
    r"""
    (?<![.!?\u2026])(?P<mark>[.!?\u2026]+)  # the mark, or several: ... ?! \u2026
    ["'\u201d\u2019)\]\xbb*]*           # what closes behind it
    \s+
    (?=["'\u201c\u2018(\[\xab\xbf\xa1*\u2014-]*(?P<next>[^\W_]+))   # the next word, behind what opens before it
    """,
    re.VERBOSE,
)
_LAST_WORD = re.compile(r"[^\s\"'\u201c\u2018(\[\xab\u2014/-]*\Z")
_LONGEST_WORD = 24  # characters looked at before a full stop: more than any abbreviation has

# A mark, what closes behind it, and then neither a comma nor the verb of the one who spoke ("..."he said).
_CHINESE = re.compile(
    r"""
    (?<![。！？!?；…])(?P<mark>[。！？!?；…]+)
    (?P<close>[”’」』）》】〉〕"')\]]*)
    \s*
    (?![\s，、：；。！？!?…,”’」』）》】〉〕"')\]])(?=.)   # white space among them: all of it lies behind
    """,
    re.VERBOSE | re.DOTALL,
)
_SPEAKER = re.compile(r"[^，。！？；：“”‘’「」\s]{0,6}?(?:说|道|问|答|喊|叫|写|表示|指出|回答|强调)(?!.{0,3}[：:]“)")

_LETTER = re.compile(r"[^\W\d_]")
_LEAST_HAN = 0.2  # share of the letters; one Chinese character says as much as four or five Latin ones


def split_sentences(text: str, language: str) -> list[str]:
    """The sentences of a paragraph, in order, without the white space around them.

    `language` is 'en' or 'zh'.  Nothing but white space is lost; a paragraph of white space has no sentence.
    Raises UserError for another language.
    """
    if language not in _ENDS:
        raise UserError(f"language '{language}': sentences can be split in {' and '.join(_ENDS)} only")
    sentences = []
    start = 0
    for end in _ENDS[language](text):
        sentences.append(text[start:end].strip())
        start = end
    sentences.append(text[start:].strip())
    return list(filter(None, sentences))


def detect_language(text: str) -> str:
    """'zh' when at least a fifth of the letters are Chinese characters, else 'en'."""
    chinese = len(HAN_CHARACTER.findall(text))
    return "zh" if chinese and chinese >= _LEAST_HAN * len(_LETTER.findall(text)) else "en"


def _english_ends(text: str) -> Iterator[int]:
    first = len(text) - len(text.lstrip())
    for match in _ENGLISH.finditer(text):
        following = match["next"]
        if following[0].islower():
            continue
        if match["mark"] == "." and not _full_stop_ends(text, first, match.start(), following):
            continue
        yield match.end()


def _full_stop_ends(text: str, first: int, at: int, following: str) -> bool:
    """Whether the full stop at `at`, before the word `following`, ends a sentence rather than an abbreviation.

    `first` is the place of the text's first character that is no white space.
    """
    found = _LAST_WORD.search(text, max(0, at - _LONGEST_WORD), at)
    word = found.group() if found else ""
    lower = word.lower()
    if lower in _BEFORE_NAME:
        return False
    if lower in _BEFORE_NUMBER and following[0].isdigit():
        return False
    if _is_initial(word) or lower in _UNDECIDED:
        return following.lower() in _STARTERS
    # "1. First" at the head of a paragraph numbers it.
    return not (word.isdigit() and len(word) <= 3 and at - len(word) <= first)


def _is_initial(word: str) -> bool:
    """A capital letter alone or several with full stops between them, but not the word I: J, J.R.R, U.S."""
    return word != "I" and word[:1].isupper() and all(len(part) == 1 for part in word.split("."))


def _chinese_ends(text: str) -> Iterator[int]:
    for match in _CHINESE.finditer(text):
        spoken = match["close"][:1] in ("”", "’", "」", "』") and match["mark"] != "；"
        if spoken and _SPEAKER.match(text, match.end()):
            continue
        yield match.end()


_ENDS: dict[str, Callable[[str], Iterator[int]]] = {"en": _english_ends, "zh": _chinese_ends}
