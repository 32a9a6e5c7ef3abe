"""Exact match and F1 of answers to questions, as SQuAD and CMRC 2018 define them.

SQuAD: Rajpurkar et al., 2016 (arXiv 1606.05250), section 6.1, and 2018 (arXiv 1806.03822) for questions without an
answer.  CMRC: Cui et al., 2019 (arXiv 1810.07366), section 4: characters in place of words, and the longest common
run of them in place of the common ones.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# The marks that CMRC's own measure takes out, and no others.
_NO_CMRC_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# A Chinese character; a number; a word; any other mark.
_CMRC_UNIT = re.compile(r"[\u4e00-\u9fa5]|\d+(?:[.,]\d+)+|[^\W\u4e00-\u9fa5]+|[^\w\s]")

Answers = Sequence[Sequence[str]]  # for each question the answers that count as right; none where it has none


def squad_exact(right: Answers, given: Sequence[str]) -> float:
    """The share of answers that are equal to a right one, but for case, articles, punctuation and spaces."""
    return _mean_of_best(right, given, lambda a, b: float(squad_words(a) == squad_words(b)))


def squad_f1(right: Answers, given: Sequence[str]) -> float:
    """The mean F1 of the words shared with the nearest right answer."""
    return _mean_of_best(right, given, _shared_words)


def cmrc_exact(right: Answers, given: Sequence[str]) -> float:
    """The share of answers that are equal to a right one, but for case and most marks."""
    return _mean_of_best(right, given, lambda a, b: float(_without_marks(a) == _without_marks(b)))


def cmrc_f1(right: Answers, given: Sequence[str]) -> float:
    """The mean F1 of the longest run of characters shared with the nearest right answer."""
    return _mean_of_best(right, given, _shared_run)


def squad_words(text: str) -> list[str]:
    """The words of an answer that are compared."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def cmrc_units(text: str) -> list[str]:
    """The units of an answer that are compared: Chinese characters, and words of other scripts."""
    return _CMRC_UNIT.findall(_without_marks(text))


def _without_marks(text: str) -> str:
    return text.lower().strip().translate(_NO_CMRC_MARKS)


def _mean_of_best(right: Answers, given: Sequence[str], measure: Callable[[str, str], float]) -> float:
    # A question without an answer is answered rightly by nothing.
    return float(
        np.mean([max(measure(a, b) for a in accepted or [""]) for accepted, b in zip(right, given, strict=True)])
    )


def _shared_words(right: str, given: str) -> float:
    a, b = squad_words(right), squad_words(given)
    if not a or not b:
        return float(a == b)
    return _f1((Counter(a) & Counter(b)).total(), len(a), len(b))


def _shared_run(right: str, given: str) -> float:
    a, b = cmrc_units(right), cmrc_units(given)
    return _f1(_longest_run(a, b), len(a), len(b))


def _f1(common: int, right: int, given: int) -> float:
    return 2 * common / (right + given) if common else 0.0


def _longest_run(a: Sequence[str], b: Sequence[str]) -> int:
    """The length of the longest stretch that two sequences share."""
    longest = 0
    before = [0] * (len(b) + 1)
    for x in a:
        row = [0] * (len(b) + 1)
        for j, y in enumerate(b, 1):
            if x == y:
                row[j] = before[j - 1] + 1
                longest = max(longest, row[j])
        before = row
    return longest
