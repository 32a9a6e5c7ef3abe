"""Exact match and F1 of answers to questions, as defined by SQuAD and CMRC 2018.

SQuAD: Rajpurkar et al., 2016 (arXiv 1606.05250), section 6.1, and 2018 (arXiv 1806.03822) for unanswerable questions.
CMRC: Cui et al., 2019 (arXiv 1810.07366), section 4: characters instead of words, and their longest common substring
instead of the common ones.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

_ARTICLES = re.compile(r"\b(a|an|the)\b")
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
# Exactly the marks that the official CMRC measure removes.
_NO_CMRC_MARKS = str.maketrans("", "", "-:_*^/\\~`+=，。：？！“”；’《》·、「」（）－～『』")
# A Chinese character; a number; a word; any other mark.
_CMRC_UNIT = re.compile(r"[\u4e00-\u9fa5]|\d+(?:[.,]\d+)+|[^\W\u4e00-\u9fa5]+|[^\w\s]")

T = TypeVar("T")
Answers = Sequence[Sequence[str]]  # the accepted answers of each question; none if it is unanswerable


def squad_exact(targets: Answers, predictions: Sequence[str]) -> float:
    """Return the share of answers that equal an accepted one, ignoring case, articles, punctuation and spaces."""
    return _mean_of_best(targets, predictions, squad_words, lambda a, b: float(a == b))


def squad_f1(targets: Answers, predictions: Sequence[str]) -> float:
    """Return the mean F1 of the words shared with the best-matching accepted answer."""
    return _mean_of_best(targets, predictions, squad_words, _shared_words)


def cmrc_exact(targets: Answers, predictions: Sequence[str]) -> float:
    """Return the share of answers that equal an accepted one, ignoring case and most marks."""
    return _mean_of_best(targets, predictions, _without_marks, lambda a, b: float(a == b))


def cmrc_f1(targets: Answers, predictions: Sequence[str]) -> float:
    """Return the mean F1 of the longest run of characters shared with the best-matching accepted answer."""
    return _mean_of_best(targets, predictions, cmrc_units, _shared_run)


def squad_words(text: str) -> list[str]:
    """Return the words of an answer that are compared."""
    return _ARTICLES.sub(" ", text.lower().translate(_NO_PUNCTUATION)).split()


def cmrc_units(text: str) -> list[str]:
    """Return the units of an answer that are compared: Chinese characters, and words of other scripts."""
    return _CMRC_UNIT.findall(_without_marks(text))


def _without_marks(text: str) -> str:
    return text.lower().strip().translate(_NO_CMRC_MARKS)


def _mean_of_best(
    targets: Answers, predictions: Sequence[str], normalized: Callable[[str], T], measure: Callable[[T, T], float]
) -> float:
    """Return the mean over the questions of the best score against an accepted answer.

    An accepted answer of which nothing is left, such as "the", does not count beside others, as in SQuAD's evaluation.
    Where none is left, as for an unanswerable question, only an answer of which nothing is left is right.
    """

    def best(accepted: Sequence[str], answer: str) -> float:
        left = [found for found in map(normalized, accepted) if found] or [normalized("")]
        return max(measure(one, normalized(answer)) for one in left)

    return float(np.mean([best(accepted, answer) for accepted, answer in zip(targets, predictions, strict=True)]))


def _shared_words(target: Sequence[str], prediction: Sequence[str]) -> float:
    if not target or not prediction:
        return float(target == prediction)
    return _f1((Counter(target) & Counter(prediction)).total(), len(target), len(prediction))


def _shared_run(target: Sequence[str], prediction: Sequence[str]) -> float:
    if not target or not prediction:
        return float(target == prediction)
    return _f1(_longest_run(target, prediction), len(target), len(prediction))


def _f1(common: int, target_length: int, predicted_length: int) -> float:
    return 2 * common / (target_length + predicted_length) if common else 0.0


def _longest_run(a: Sequence[str], b: Sequence[str]) -> int:
    """Return the length of the longest common run of two sequences."""
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
