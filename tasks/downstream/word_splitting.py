"""Words of raw text, split as those of a tagger's training rows were."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal
from unicodedata import category

from ernie.text.scripts import HAN, NO_SPACES
from ernie.text.tokenizer import Tokenizer

# `spaces`: at white space.  `marks`: there, and at marks on the edge of a word.  `segmented`: the same, where Chinese
# words were known.  `characters`: at each character.  `units`: as the tokenizer splits, at every mark.
Splitting = Literal["spaces", "marks", "segmented", "characters", "units"]
Span = tuple[int, int]  # characters [start, end)

_MOST_ATTACHED = 1000  # words kept with a model
_LONGEST = 100  # characters of initials and numbers
_CHUNK = re.compile(f"[{NO_SPACES}]|[^\\s{NO_SPACES}]+")
_INITIALS = re.compile(r"(?:[^\W\d_]\.){2,}|[A-Z]\.")  # U.S., e.g., J.
_SIGNED = re.compile(r"[-+−]\d[\d.,]*")
_CLITIC = re.compile(r"['’]\w+|n['’]t")
_ENDS = frozenset('.,;:!?)"”')  # marks that end a clause
_INNER = frozenset("-'’/")  # marks that stand inside of words
_CHINESE_WORD = re.compile(f"[{HAN}]{{2,}}")


def splitting_of(sentences: Iterable[Sequence[str]]) -> tuple[Splitting | None, tuple[str, ...]]:
    """Return how the words of training rows were split, None if there are none, and words that keep a mark at an edge.

    Those words, such as Mr. and 's, are the most frequent of their kind.
    """
    counts = Counter(word for words in sentences for word in words)
    if not counts:
        return None, ()
    if max(map(len, counts)) == 1 and len(counts) > 1:
        return "characters", ()
    if any(map(_CHINESE_WORD.search, counts)):
        return "segmented", _attached(counts)
    lone = Counter({word: count for word, count in counts.items() if len(word) == 1 and _is_mark(word)})
    ends = sum(count for word, count in lone.items() if word in _ENDS)
    if sum(count for word, count in counts.items() if _keeps_end(word)) > ends:
        return "spaces", ()
    has_inner = any(re.search(r"\w[^\w\s]\w", word) for word in counts)
    if not has_inner and any(word in _INNER for word in lone):
        return "units", ()
    return "marks", _attached(counts)


def _keeps_end(word: str) -> bool:
    """Whether a word ends in a mark that is usually a word of its own."""
    return word[-1:] in _ENDS and any(map(str.isalnum, word)) and not _INITIALS.fullmatch(word)


def _attached(counts: Counter[str]) -> tuple[str, ...]:
    def is_attached(word: str) -> bool:
        at_edge = _is_mark(word[:1]) or _is_mark(word[-1:])
        return bool(_CLITIC.fullmatch(word)) or (at_edge and any(map(str.isalnum, word)))

    frequent = [word for word, _ in sorted(counts.items(), key=lambda item: (-item[1], item[0])) if is_attached(word)]
    return tuple(sorted(frequent[:_MOST_ATTACHED]))


def split_words(text: str, splitting: Splitting | None, attached: Iterable[str], tokenizer: Tokenizer) -> list[Span]:
    """Return the words of a text, as spans of its characters."""
    if splitting in ("spaces", "characters"):
        return [found.span() for found in re.finditer(r"\S+" if splitting == "spaces" else r"\S", text)]
    if splitting in (None, "units"):
        return list(_located([word for word in tokenizer.words(text, tokenizer.split(text)) if word], text))
    kept = frozenset(attached)
    known = {form for word in kept if _CLITIC.fullmatch(word) for form in (word, word.replace("'", "’"))}
    clitics = sorted(known, key=lambda clitic: (-len(clitic), clitic))  # n't before 't
    return [span for found in _CHUNK.finditer(text) for span in _at_marks(text, *found.span(), kept, clitics)]


def _located(words: Iterable[str], text: str) -> Iterator[Span]:
    """Yield where words stand in a text, one after the other; characters that the text lacks are passed over."""
    at = 0
    for word in words:
        start = text.find(word, at)
        if start >= 0:
            at = start + len(word)
            yield start, at
            continue
        places = []
        for character in word:
            if (place := text.find(character, at)) >= 0:
                places.append(place)
                at = place + 1
        yield (places[0], at) if places else (at, at)


def _at_marks(text: str, start: int, end: int, attached: frozenset[str], clitics: Sequence[str]) -> list[Span]:
    """Split text[start:end], which has no space, at the marks on its edges, and before clitics such as 's."""
    behind: list[Span] = []
    before: list[Span] = []
    longest = max(map(len, attached), default=0)
    while start < end:  # no part of the text is copied for each mark: there may be a million of them
        known = end - start <= longest and text[start:end] in attached
        short = end - start <= _LONGEST
        if known or (short and (_INITIALS.fullmatch(text, start, end) or _SIGNED.fullmatch(text, start, end))):
            break
        last = text[end - 1]
        if _is_mark(last):
            first = end - 1
            while last in ".-" and first > start and text[first - 1] == last:  # ... and -- are one word
                first -= 1
            behind.append((first, end))
            end = first
        elif clitic := next((clitic for clitic in clitics if text.endswith(clitic, start, end)), ""):
            behind.append((end - len(clitic), end))
            end -= len(clitic)
        elif _is_mark(text[start]):
            before.append((start, start + 1))
            start += 1
        else:
            break
    return [*before, *([(start, end)] if start < end else []), *reversed(behind)]


def _is_mark(character: str) -> bool:
    return bool(character) and category(character)[0] in "PS"
