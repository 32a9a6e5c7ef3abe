"""Where sentences end in Japanese text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import accumulate

from ernie.text.sentence_marks import SPACE, TAIL, skip

_PAIRS = {
    "「": "」",
    "『": "』",
    "（": "）",
    "(": ")",
    "【": "】",
    "〈": "〉",
    "《": "》",
    "〔": "〕",
    "“": "”",
    "［": "］",
}
_OPENERS = {closes: opens for opens, closes in _PAIRS.items()}
_BRACKET = re.compile(f"[{re.escape(''.join([*_PAIRS, *_OPENERS]))}]")
_SPEECH = "」』”"
_LONGEST = 200  # characters: in longer brackets sentences end, too, and one that is not closed may be a slip
# Full stops end a sentence; question and exclamation marks unless a quotation goes on; dots only before a space.
_MARKS = re.compile(r"[。｡！？!?‼⁇⁈⁉．…‥]+")
_FULL_STOPS, _DOTS = frozenset("。｡"), frozenset("…‥")
_INSIDE = re.compile("[A-Za-z0-9Ａ-Ｚａ-ｚ０-９&=/_%#-]")  # what follows a mark in a number, a name or a link
# What follows speech, or a mark without brackets, and belongs to the same sentence.
_GOES_ON = re.compile("[、，,]|と(?!ころで|はいえ|りあえず|にかく|もあれ)|っ[てとつ]|なん[てか]|など|とか")
_AFTER_SPEECH = re.compile("[はがをにのもでへや]|から|まで|だ(?!が|から|けど)|です")


def japanese_ends(text: str) -> Iterator[int]:
    """Yield where the sentences of a text end, after the white space that follows them.

    No sentence ends in a bracket of at most 200 characters.  One ends with a quotation that has a mark before its
    closing bracket, unless a particle follows, as in 「行こう。」と言った。
    """
    depth = _depths(text)
    for match in _MARKS.finditer(text):
        stop = closed = match.end()
        while closed < len(text) and text[closed] in _OPENERS:
            closed += 1
        speaks = closed > stop and text[closed - 1] in _SPEECH
        if depth[closed] > 0 or (depth[stop] > 0 and not speaks):
            continue
        after = skip(SPACE, text, skip(TAIL, text, closed))
        if after < len(text) and _ends(text, match.group(), closed, after, speaks):
            yield after


def _ends(text: str, mark: str, closed: int, after: int, speaks: bool) -> bool:
    """Whether a mark, perhaps with closing brackets after it, ends a sentence, given the text `after` it."""
    if _GOES_ON.match(text, after) and (speaks or not _FULL_STOPS & set(mark)):
        return False
    if speaks and closed == after:
        return not _AFTER_SPEECH.match(text, after)
    if _FULL_STOPS & set(mark):
        return True
    if _DOTS >= set(mark):
        return after > closed
    return not (closed == after and _INSIDE.match(text, after) and not mark.endswith(("！", "？")))


def _depths(text: str) -> list[int]:
    """Return how many brackets are open before each character, and at the end, of those that no sentence ends in."""
    steps = [0] * (len(text) + 1)
    stack: list[tuple[str, int]] = []
    for match in _BRACKET.finditer(text):
        letter, at = match.group(), match.start()
        if letter in _PAIRS:
            stack.append((letter, at))
            continue
        opened = next((n for n in range(1, min(len(stack), 8) + 1) if stack[-n][0] == _OPENERS[letter]), 0)
        if opened:
            start = stack[-opened][1]
            del stack[-opened:]
            if at - start <= _LONGEST:
                steps[start + 1] += 1
                steps[at + 1] -= 1
    return list(accumulate(steps))
