"""Cutting text into utterances, what a voice says at once: sentences, or parts of those that are too long for it."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Callable

from ernie.text.blank import is_blank
from ernie.text.sentences import detect_language, split_sentences

Fits = Callable[[str], bool]  # whether a text is short enough to be said at once

_MARK = re.compile("[.!?…。！？；．｡‼⁇⁈⁉]")  # every complete sentence has one
_LOOK_AHEAD = 16  # characters after a full stop that decide whether it ends a sentence
_FIRST_SIZE = 64  # characters of the beginning that is measured first
_CHECKED = 16  # characters after which growing text is measured again
_CHINESE_END = re.compile("[。！？；．｡]")
_SMALL_BEGINNING = re.compile(r"([.!?…][\"'”’)\]]*\s+[\"'“‘(\[]*)(\w)")
# Where too long a text is cut: after a mark, or else at a space, or else anywhere.
_BREAKS = (re.compile(r"[.!?…;:,—]\s+|[。！？；，、：…]"), re.compile(r"\s+"), re.compile(r".", re.DOTALL))


def utterances(text: str, fits: Fits) -> list[str]:
    """Cut a whole text into utterances."""
    return [part for sentence in _sentences(text) for part in _parts(sentence, fits)]


def complete_utterances(before: str, piece: str, fits: Fits) -> tuple[list[str], str]:
    """Return the utterances that are complete once `piece` follows the text `before`, and the rest of the text.

    A sentence is complete when the next one has begun or its line is over; of one that grows too long the beginning is.
    Text without visible characters is no utterance, and is forgotten where it comes before one.  This works character
    by character, so that the result does not depend on how the text is cut into pieces.
    """
    complete, text = [], before
    for letter in piece:
        text += letter
        if letter == "\n":
            complete += utterances(text, fits)
            text = ""
        while (cut := _first_complete(text)) is not None:
            sentence, text = cut
            complete += _parts(sentence, fits)
        if len(text) % _CHECKED:
            continue
        if is_blank(text):
            text = ""
        elif not fits(text):
            *parts, text = _parts(text, fits)
            complete += parts
    return complete, text


def _sentences(text: str) -> list[str]:
    """Split a text into sentences; those without capital letters also after marks before small letters."""
    language = "zh" if _CHINESE_END.search(text) else detect_language(text)
    split = split_sentences(text, language)
    return [part for sentence in split for part in (_uncased(sentence) if language == "en" else [sentence])]


def _uncased(sentence: str) -> list[str]:
    if sentence != sentence.lower():
        return [sentence]
    # Capitals where a sentence may begin, of as many characters: "ß" has none.
    raised = _SMALL_BEGINNING.sub(lambda match: match[1] + (match[2].upper() + match[2])[: len(match[2])], sentence)
    parts, start = [], 0
    for part in split_sentences(raised, "en"):
        start = raised.index(part, start)
        parts.append(sentence[start : start + len(part)])
        start += len(part)
    return parts


def _first_complete(text: str) -> tuple[str, str] | None:
    """Return the first sentence of a text and the text after it, or None if that sentence may not be complete.

    Whether a full stop ends a sentence depends on what follows: one whole word, or some Chinese characters.
    """
    mark = _MARK.search(text)
    if mark is None or not _decides(text[mark.end() :].lstrip()):  # to split it into sentences takes long
        return None
    sentence = next(iter(_sentences(text)), "")
    rest = text[text.index(sentence) + len(sentence) :].lstrip()
    return (sentence, rest) if _decides(rest) else None


def _decides(rest: str) -> bool:
    """Whether what follows a mark is enough to tell that a sentence ends there, if it does."""
    return len(rest) >= _LOOK_AHEAD or len(rest.split(maxsplit=1)) == 2 or rest[-1:].isspace()


def _parts(text: str, fits: Fits) -> list[str]:
    """Cut a text into as few parts as fit, the last of which may grow; a part that fits nowhere is left whole."""
    parts = []
    while (beginning := _too_long(text, fits)) and (end := _cut(beginning, fits)) < len(beginning):
        parts.append(text[:end].strip())
        text = text[end:].lstrip()
    return [*parts, text]


def _too_long(text: str, fits: Fits) -> str:
    """Return a beginning of the text that is too long, "" if all of it fits; few are much longer than what fits."""
    size = _FIRST_SIZE
    while fits(text[:size]):
        if size >= len(text):
            return ""
        size *= 2
    return text[:size]


def _cut(text: str, fits: Fits) -> int:
    """Return where the longest beginning of a text ends that fits and ends at the best kind of break."""
    for pattern in _BREAKS:
        ends = [match.end() for match in pattern.finditer(text)]
        fitting = bisect_left(ends, True, key=lambda end: not fits(text[:end]))
        if fitting and not is_blank(text[: ends[fitting - 1]]):
            return ends[fitting - 1]
    return len(text)
