"""What is unusual about the labels of the training rows: how often each occurs, and those that may be a mistake."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

import numpy as np

from ernie.data.labeled.row import Row, as_list
from ernie.formatting import percent, plural
from tasks.downstream.base import (
    FinetuneTask,
    answer_columns,
)
from tasks.downstream.classify import Classify
from tasks.downstream.labels import is_placeholder
from tasks.downstream.multilabel import MultiLabel

_SHOWN = 20  # labels listed with their counts
_MANY = 20  # labels: with more of them, few rows for each are remarked on
_FEW_ROWS = 5  # rows a label, on average
_SEPARATORS = ";|，；、/"  # what data sets write between labels in place of the comma
_EDGES = "\"'“”‘’«».,;:!?。、"  # marks around a label, as if it were a sentence; others are already folded
_NUMBER = re.compile(r"[-+]?\d+(?:\.\d+)?")


def label_counts(task: FinetuneTask, rows: Sequence[Row]) -> Counter[str]:
    """Return how often each label of the task occurs: in rows or, for tags of words, in words."""
    counts: Counter[str] = Counter()
    for row in rows:
        counts.update(labels_of(task, row))
    return counts


def labels_of(task: FinetuneTask, row: Row) -> Sequence[str]:
    """Return the labels of a row, for kinds with `labels`: one, those that apply, or one for each word."""
    names, target = getattr(task, "labels"), task.target(row)  # noqa: B009 - not every kind has labels
    if isinstance(target, np.ndarray):  # of a multi-label task: whether each label applies
        return [names[n] for n in np.flatnonzero(target)]
    return [names[target]] if isinstance(target, int) else target


def listed_counts(counts: Mapping[str, int], rows: int, unit: str) -> str:
    """Return labels with their counts and shares of `rows`, the most frequent first, and how many others there are."""
    ordered = sorted(counts.items(), key=lambda item: -item[1])
    shown = ", ".join(f"{label} {count:,} ({percent(count / max(1, rows))})" for label, count in ordered[:_SHOWN])
    if len(ordered) <= _SHOWN:
        return f"{shown} of {plural(rows, unit)}"
    rarest, least = ordered[-1]
    return f"{shown} of {plural(rows, unit)}, and {len(ordered) - _SHOWN:,} more labels, down to {rarest} {least:,}"


def label_remarks(task: FinetuneTask, rows: Sequence[Row]) -> list[str]:
    """Return remarks on labels that were collected from the training rows `rows`."""
    counts = label_counts(task, rows)
    remarks = [*_too_many(task, counts, len(rows)), *_placeholders(task, counts), *_alike(counts)]
    if isinstance(task, MultiLabel):
        remarks += _multi_hot(task, counts) if task.multi_hot else _separable(task, counts)
    if isinstance(task, Classify):
        remarks += _lists(counts)
    return [f"train: {remark}" for remark in remarks]


def _multi_hot(task: MultiLabel, counts: Counter[str]) -> Iterator[str]:
    """Yield remarks on labels that the rows name only by their place, or that apply to no row."""
    if task.labels == tuple(map(str, range(len(task.labels)))):
        last = len(task.labels) - 1
        yield f"the labels have no names, and are numbered from 0 to {last}; task.labels can name them"
    for label in task.labels:
        if not counts[label]:
            yield f"label '{label}' applies to no row: it cannot be learned"


def _separable(task: MultiLabel, counts: Counter[str]) -> Iterator[str]:
    """Yield a remark on labels that are probably several, with another mark between them than the separator."""
    for mark in _SEPARATORS:
        joined = [label for label in sorted(counts) if mark in label]
        parts = Counter(part.strip() for label in joined for part in {*label.split(mark)})
        if any(part in counts or count > 1 for part, count in parts.items() if part):
            yield (
                f"label '{joined[0]}' has parts, at '{mark}', that other labels have, too; if such are several labels "
                f"each, set task.separator: '{mark}'"
            )
            return


def _lists(counts: Counter[str]) -> Iterator[str]:
    lists = [label for label in sorted(counts) if as_list(label) is not None]
    if lists:
        yield f"label '{lists[0]}' spells a list, and is learned as one label; the kind multilabel reads such lists"


def _too_many(task: FinetuneTask, counts: Counter[str], rows: int) -> Iterator[str]:
    if len(counts) > _MANY and counts.total() < _FEW_ROWS * len(counts):
        column = "', '".join(answer_columns(task))
        yield (
            f"{len(counts):,} different labels in {plural(rows, 'row')}, most of them in few: does the column "
            f"'{column}' hold the labels?"
        )


def _placeholders(task: FinetuneTask, counts: Counter[str]) -> Iterator[str]:
    whole_rows = task.labels_belong_to == "row"
    way = "data.skip can leave such rows out" if whole_rows else "data.values can make it another"
    for label in sorted(counts):
        if is_placeholder(label, counts):
            yield (
                f"label '{label}' ({counts[label]:,} of {counts.total():,}) looks like a mark of "
                f"{task.labels_belong_to}s without a label, and is learned as a label; {way}"
            )


def _alike(counts: Counter[str]) -> Iterator[str]:
    """Yield a remark for labels that are the same number, or differ in case, width, marks or spaces only."""
    groups: dict[str, list[str]] = {}
    for label in sorted(counts):
        groups.setdefault(_folded(label), []).append(label)
    for same in groups.values():
        if len(same) > 1:
            named = " and ".join(f"{label!r} ({counts[label]:,})" for label in same)
            yield (
                f"labels {named} differ only in how they are written, and are learned as {len(same)} labels; "
                "data.values can make them one"
            )


def _folded(label: str) -> str:
    visible = "".join(c for c in unicodedata.normalize("NFKC", label) if unicodedata.category(c) not in ("Cf", "Cc"))
    folded = " ".join(visible.casefold().split())
    return str(float(folded)) if _NUMBER.fullmatch(folded) else folded.strip(_EDGES).strip() or folded
