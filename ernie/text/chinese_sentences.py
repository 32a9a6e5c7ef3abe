"""Where sentences end in Chinese text, simplified or traditional, with full or half-width marks."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from typing import NamedTuple

from ernie.text.scripts import HAN, TRANSLITERATION
from ernie.text.sentence_marks import SPACE, TAIL, skip

_MARK = "。｡！？!?；;…‥．.‼⁇⁈⁉"
# A run of marks.  The empty group is there after one that only a bracket keeps from ending a sentence, as most are.
# Both patterns begin with a set, which `re` searches for several times faster than for alternatives.
_MARKS = re.compile(f"[{_MARK}](?:(?<=[。！？；])(?=[{HAN}])()|[{_MARK}]*)")
_PLAIN = frozenset("。！？；…")  # the marks that every rule for other ones leaves alone
_ELLIPSIS = frozenset("…‥.")
_PAIRS = {"《": "》", "〈": "〉", "（": "）", "(": ")", "【": "】", "〔": "〕", "［": "］", "[": "]", "〖": "〗"}
_QUOTES = {"“": "”", "‘": "’", "「": "」", "『": "』", "﹁": "﹂", "﹃": "﹄", "〝": "〞"}
_STRAIGHT = "\"'＂＇"  # the same character opens and closes
_OPENS = {closer: opener for opener, closer in (_PAIRS | _QUOTES).items()} | {"〟": "〝"}
_CLOSERS = "".join(_OPENS) + _STRAIGHT
_BRACKETS = re.escape("".join([*_OPENS, *_OPENS.values(), _STRAIGHT]))
# A bracket, or a pair with neither a mark nor a bracket inside: such a pair keeps no mark from ending a sentence.
_TO_CLOSER = (f"(?<={re.escape(opens)})[^{_BRACKETS}{_MARK}]*{re.escape(closes)}" for closes, opens in _OPENS.items())
_BRACKET = re.compile(f"[{_BRACKETS}](?:{'|'.join(_TO_CLOSER)})?")
# A sentence goes on after these; straight quotes are judged apart, as they may open one.
_CONTINUES = frozenset("，、：；。！？!?…,．｡" + "".join(_OPENS))

# No sentence ends inside a bracket that is at most this long.  One that is longer or never closed may be a slip.
_LONGEST = {"《": 100, "〈": 100}
_LONGEST_OTHER, _LONGEST_QUOTED = 200, 30
_MOST_OPEN = 8  # brackets

# Who spoke, with a verb of saying, after the closing quote.  Some words only contain such a verb: 知道, 小說, 問題.
# In a longer clause the verb comes last.  After a colon, something else is said.
_VERB = (
    "(?:(?<![知难難味街频頻管轨軌渠铁鐵报報])道(?![路理歉])|(?<![小学學传傳])[说説說](?!法)|[问問](?![题題号號卷])|"
    "答(?!案)|喊|叫(?!做)|[写寫](?![作字])|吼|嚷|表示|指出|强调|強調|解释|解釋|补充|補充|宣布|宣佈|反驳|反駁|感叹|感嘆|"
    "嘀咕|嘟囔|告诉|告訴|(?<![这這那個个])提醒|承认|承認)"
)
# Verbs that are nouns, too, or parts of them: the sentence ends with them, or what was said goes on.
_LAST_VERB = (
    "(?:回应|回應|催促|低语|低語|咕哝|咕噥|抱怨|请求|請求|哀求|命令|建议|建議|警告|安慰|插嘴|插话|插話|坦言|透露|认为|認為|"
    "直言|呼吁|呼籲|评论|評論|吩咐|嘱咐|囑咐|保证|保證|祈祷|祈禱|重申|声称|聲稱|介绍|介紹|提议|提議|自言自语|自言自語|喃喃|"
    "抗议|抗議|惊呼|驚呼|赞叹|讚嘆|(?<![名简簡职職昵暱对對俗])[称稱])"
)
_NAME = '[^，。！？；：“”‘’「」『』"\\s]'
_SPEAKER = re.compile(
    rf"(?!{_NAME}{{0,6}}?[没沒][有人]|[这這那]是)(?:{_NAME}{{0,6}}?{_VERB}|"
    rf"{_NAME}{{7,30}}?{_VERB}[道著着了]?(?=[，。！？,.!?…]|\Z)|"
    rf"{_NAME}{{0,30}}?{_LAST_VERB}[道著着了]?(?=[。！？.!?…]|[，,][“「『\"]|\Z))"
    "(?!.{0,3}[：:])"
)
_SPOKEN = re.compile(rf"{_VERB}[道著着了]?\Z")
_QUOTE_GOES_ON = re.compile("[的之]|地一|等[问問]|[这這那]句|是(?![的啊呀吗嗎嘛，。！])|[和与與及或][“「『]")
_AFTER_ELLIPSIS = re.compile("[等的到至]")
_LIST_NUMBER = re.compile(
    r"(?:(?:^|[\s。！？；．：:])第?|[例图圖表题題])(?:[0-9０-９]{1,3}|[一二三四五六七八九十]{1,3})[章节節回]?\Z"
)
_INITIAL = re.compile("(?<![A-Za-zＡ-Ｚａ-ｚ])[A-Za-zＡ-Ｚａ-ｚ]\\Z")
_DIGIT, _HAN, _LATIN = re.compile("[0-9０-９]"), re.compile(f"[{HAN}]"), re.compile("[A-Za-zＡ-Ｚａ-ｚ]")
_NUMERAL = re.compile("[〇零一二三四五六七八九十]")
_ADDRESS = re.compile("[a-z0-9=&/_%#-]")  # what follows a half-width mark in a link
_TRANSLITERATES = f"[{TRANSLITERATION}翰亞爾蘭羅倫萊勞魯馬麥維韋賽薩貝馮蓋漢溫烏圖費萬盧裡納瑪喬龍傑凱]"
_NAME_BEFORE, _NAME_AFTER = re.compile(rf"{_TRANSLITERATES}+\Z"), re.compile(f"{_TRANSLITERATES}+")
_LEAST_FOREIGN = 4  # characters on both sides of the point within a transliterated name
_WINDOW = 8  # characters before a mark that rules look at


class _Pair(NamedTuple):
    """A bracket or quote that is closed: the indices of both characters."""

    start: int
    stop: int


class _Brackets:
    """The bracket pairs of a text with marks inside: `whole` have no sentence end inside, `quotes` may have some."""

    def __init__(self, text: str):
        self.closing: set[int] = set()  # straight quotes that close
        whole: list[_Pair] = []
        quotes: list[_Pair] = []
        stack: list[tuple[str, int]] = []
        for match in _BRACKET.finditer(text):
            at, letter = match.start(), match.group()
            if len(letter) > 1:  # an empty pair
                continue
            opener = _OPENS.get(letter) or letter
            straight = letter in _STRAIGHT
            depth = _depth(stack, opener) if straight or letter in _OPENS else 0
            if depth:
                pair = _Pair(stack[-depth][1], at)
                del stack[-depth:]
                if straight:
                    self.closing.add(at)
                if opener not in _PAIRS:
                    quotes.append(pair)
                if _is_whole(text, opener, pair):
                    whole.append(pair)
            elif letter not in _OPENS and not (straight and _is_apostrophe(text, at)):
                stack.append((opener, at))
        self.any_whole = bool(whole)
        self._whole, self._quotes = _outermost(whole), _outermost(quotes)

    def whole(self, at: int) -> _Pair | None:
        """Return the outermost pair without a sentence end inside that surrounds the character `at`."""
        return _around(self._whole, at)

    def quote(self, at: int) -> _Pair | None:
        """Return the outermost quote that surrounds the character `at`."""
        return _around(self._quotes, at)


def _depth(stack: list[tuple[str, int]], opener: str) -> int:
    """Return how many of the last open brackets a closing one closes, 0 if it was not opened."""
    if stack and stack[-1][0] == opener:
        return 1
    return next((n for n in range(2, min(len(stack), _MOST_OPEN) + 1) if stack[-n][0] == opener), 0)


def _is_apostrophe(text: str, at: int) -> bool:
    """Whether a straight quote stands between Latin letters or after a number, as in don't and 27"."""
    before, after = text[max(0, at - 1) : at], text[at + 1 : at + 2]
    return bool(_DIGIT.match(before)) or (before.isascii() and before.isalpha() and after.isascii() and after.isalpha())


def _is_whole(text: str, opener: str, pair: _Pair) -> bool:
    """Whether no sentence ends inside a pair: a bracket, or a short quote in the middle of a clause."""
    size = pair.stop - pair.start
    if opener in _PAIRS:
        return size <= _LONGEST.get(opener, _LONGEST_OTHER)
    before = text[max(0, pair.start - _WINDOW) : pair.start]
    return size <= _LONGEST_QUOTED and before[-1:].isalpha() and not _SPOKEN.search(before)


def _outermost(pairs: list[_Pair]) -> list[_Pair]:
    if len(pairs) < 2:
        return pairs
    found: list[_Pair] = []
    for pair in sorted(pairs):
        if not found or pair.start > found[-1].stop:
            found.append(pair)
    return found


def _around(pairs: list[_Pair], at: int) -> _Pair | None:
    index = bisect_right(pairs, (at, at)) - 1
    return pairs[index] if index >= 0 and pairs[index].stop > at else None


_NONE = _Brackets("")


def chinese_ends(text: str) -> Iterator[int]:
    """Yield where the sentences of a text end, after the white space that follows them."""
    brackets: _Brackets | None = None
    last, size = 0, len(text)
    for match in _MARKS.finditer(text):
        start, stop = match.span()
        if stop == size or start < last:
            continue
        brackets = brackets or (_Brackets(text) if _BRACKET.search(text) else _NONE)
        if match.lastindex:
            if not brackets.any_whole or not _inside(text, brackets, last, start, stop):
                yield stop
                last = stop
            continue
        if not _is_mark(text, start, stop):
            continue
        closed = stop
        while closed < len(text) and (text[closed] in _OPENS or closed in brackets.closing):
            closed += 1
        plain = closed < len(text) and _HAN.match(text, closed)
        after = closed if plain else skip(SPACE, text, skip(TAIL, text, closed))
        if after == len(text) or text[after] in _CONTINUES or after in brackets.closing:
            continue
        if _inside(text, brackets, last, start, closed) or _goes_on(text, brackets, start, stop, closed, after):
            continue
        yield after
        last = after


def _is_mark(text: str, start: int, stop: int) -> bool:
    """Whether a run of marks can end a sentence: full stops may be part of a number or name, others of a link."""
    mark = text[start:stop]
    if mark in _PLAIN:
        return True
    before, after = text[max(0, start - 1) : start], text[stop : stop + 1]
    if mark in ("．", "."):
        return _is_full_stop(text, start)
    if set(mark) <= {".", ";"}:
        return _ends_clause(text, start)
    return not (mark.isascii() and before.isascii() and not before.isspace() and _ADDRESS.match(after))


def _ends_clause(text: str, at: int) -> bool:
    """Whether a Chinese character, or a bracket or quote after one, stands before a half-width mark: not in code."""
    before = text[max(0, at - _WINDOW) : at]
    return bool(_HAN.match(before.rstrip(_CLOSERS)[-1:])) or (before[-1:] in _OPENS and not before[-1:].isascii())


def _is_full_stop(text: str, at: int) -> bool:
    """Whether a full-width or half-width full stop is none of a number, list number, initial or foreign name."""
    before, after = text[max(0, at - _WINDOW) : at], text[at + 1 : at + 1 + _WINDOW]
    if text[at] == "." and (not _ends_clause(text, at) or _LATIN.match(after)):
        return False
    if any(kind.match(before[-1:]) and kind.match(after) for kind in (_DIGIT, _NUMERAL, _LATIN)):
        return False
    if _LIST_NUMBER.search(before) or _INITIAL.search(before):
        return False
    first, second = _NAME_BEFORE.search(before), _NAME_AFTER.match(after)
    return not (first and len(first.group()) + (len(second.group()) if second else 0) >= _LEAST_FOREIGN)


def _inside(text: str, brackets: _Brackets, last: int, mark: int, closed: int) -> bool:
    """Whether a mark is inside a bracket, and its sentence does not end with that bracket.

    It does if the bracket surrounds the whole sentence, or a quote ends with the mark; with a title no sentence ends.
    """
    pair = brackets.whole(mark)
    if pair is None:
        return False
    if closed <= pair.stop or text[pair.start] in _LONGEST:
        return True
    return text[pair.start] in _PAIRS and bool(text[last : pair.start].strip())


def _goes_on(text: str, brackets: _Brackets, start: int, stop: int, closed: int, after: int) -> bool:
    """Whether what follows belongs to the same sentence: who said it, or the rest of it after a quote or a pause."""
    mark, closer = text[start:stop], text[stop : stop + 1]
    if _ELLIPSIS.issuperset(mark):
        if (quote := brackets.quote(start)) and closed <= quote.stop and quote.stop - quote.start <= _LONGEST_QUOTED:
            return True
        if closed == stop:
            return bool(_AFTER_ELLIPSIS.match(text, after)) or (start > 0 and text[start - 1] == text[after])
    quoted = closer and (closer in _STRAIGHT or _OPENS.get(closer) in _QUOTES)
    if not quoted or mark == "；":
        return False
    return bool(_SPEAKER.match(text, after) or (closed == after and _QUOTE_GOES_ON.match(text, after)))
