"""The folds of a cross-validation: which rows of train each model is not trained on.

Legend: N rows, C classes, K folds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

import numpy as np

from ernie.data import seeded_rng
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import UserError, about, nearest
from ernie.formatting import plural
from ernie.text.tokenizer import Tokenizer
from finetune.config import HELD_OUT, FinetuneConfig
from finetune.label_remarks import labels_of
from finetune.prepare import Prepared, prepare, seen_texts
from finetune.train.trial import Trial
from tasks.downstream.base import Answer, FinetuneTask, LogitsTask
from tasks.downstream.hooks import ComparesAnswers, GroupedRows
from tasks.downstream.loss_settings import WeightedClasses
from tasks.downstream.scoring import score_answers

T = TypeVar("T")


def assign_folds(task: FinetuneTask, rows: Sequence[Row], folds: int, column: str, seed: int) -> np.ndarray:
    """Return the fold (N,) of each row of train, from 1 on; it depends on the rows, the seed and nothing else.

    Rows with the same cell in `column` are in one fold.  Without a column, so are rows that belong together by their
    kind, as the texts of a query.  Groups are dealt from the largest to the smallest, those of a size in random order.
    A group goes to the fold that has the least of its labels, as shares of all rows with them.  Of equal folds it goes
    to the smallest.

    Raises UserError for fewer rows or groups than folds, and for rows without the column.
    """
    if len(rows) < folds:
        raise UserError(f"folds: train has {plural(len(rows), 'row')}; expected at most as many folds, found {folds}")
    groups = _groups(task, rows, column)
    if len(groups) < folds:
        by_kind = task.grouped_by if isinstance(task, GroupedRows) else "row"
        named = f"fold_by: column '{column}'" if column else f"folds: the {by_kind}"
        raise UserError(
            f"{named} has {plural(len(groups), 'different value')} in train; expected at least one for each of the "
            f"{folds} folds"
        )
    classes = _classes_of(task)
    totals = sum(map(classes, rows), np.zeros(1))
    counts, sizes, found = np.zeros((folds, len(totals))), [0] * folds, np.zeros(len(rows), np.int64)
    for name in sorted(groups, key=lambda name: (-len(groups[name]), seeded_rng.key(seed, "fold", name))):
        members = groups[name]
        own = sum((classes(rows[i]) for i in members), np.zeros(1))
        alike = (counts * (own / np.maximum(totals, 1e-9))).sum(1).tolist()
        fold = min(range(folds), key=lambda k: (alike[k], sizes[k], k))
        counts[fold] += own
        sizes[fold] += len(members)
        found[members] = fold + 1
    return found


def _groups(task: FinetuneTask, rows: Sequence[Row], column: str) -> dict[int | str, list[int]]:
    """Return the numbers of the rows of each group, by the group's name."""
    names: Iterator[int | str] = iter(range(len(rows)))
    if column:
        names = _cells(rows, column)
    elif isinstance(task, GroupedRows):
        names = map(task.group_of, rows)
    groups: dict[int | str, list[int]] = {}
    for number, name in enumerate(names):
        groups.setdefault(name, []).append(number)
    return groups


def _cells(rows: Sequence[Row], column: str) -> Iterator[str]:
    columns = {name for row in rows for name in row}
    if column not in columns:
        raise UserError(f"fold_by: no row of train has a column '{column}'.{nearest(column, columns)}")
    for row in rows:
        with about("fold_by"), about(row.place):
            yield row.text(column)


def _classes_of(task: FinetuneTask) -> Callable[[Row], np.ndarray]:
    """Return a function of a row: how often each class occurs in it, (C,); for kinds without classes, of one class."""
    if isinstance(task, WeightedClasses):
        return lambda row: task.occurrences(row).sum(0)
    return lambda row: np.ones(1)


@dataclass(frozen=True)
class CrossValidation:
    """The folds of a run: the rows of train as they are answered and scored, and the fold of each row, by seed."""

    held_out: Prepared
    assigned: Mapping[int, np.ndarray]

    @classmethod
    def of(
        cls, config: FinetuneConfig, task: FinetuneTask, train: Prepared, tokenizer: Tokenizer
    ) -> CrossValidation | None:
        """Split the rows of train as a configuration says, which may be not at all.  Raises UserError if it cannot."""
        if config.folds == 1:
            return None
        seeds = range(config.seed, config.seed + config.seeds)
        assigned = {seed: assign_folds(task, train.rows, config.folds, config.fold_by, seed) for seed in seeds}
        return cls(held_out(task, train, tokenizer), assigned)

    def splits(self, splits: Mapping[str, Prepared], seed: int, fold: int) -> dict[str, Prepared]:
        """Return the splits of a run with the rows of a fold held out from train."""
        train = splits["train"].part(np.flatnonzero(self.assigned[seed] != fold))
        return {**splits, "train": train, HELD_OUT: self.held_out.part(np.flatnonzero(self.assigned[seed] == fold))}

    def remarks(self, task: FinetuneTask, splits: Mapping[str, Prepared], tokenizer: Tokenizer) -> list[str]:
        """Return remarks on the folds of the first seed: labels of one fold only, and texts in several of them."""
        seed = next(iter(self.assigned))
        remarks = _lone_labels(task, self.held_out.rows, self.assigned[seed])
        if isinstance(task, LogitsTask):
            parts = self.splits(splits, seed, 1)
            remarks += seen_texts(task, parts["train"], parts[HELD_OUT], tokenizer.unk_id)
        return remarks

    def gathered(self, seed: int, by_fold: Mapping[int, Sequence[T]], place: object) -> list[T]:
        """Return what each row of train has in its fold, in the order of train, given what each fold's rows have.

        Raises UserError, with the place, for a fold with another number of rows.
        """
        assigned = self.assigned[seed]
        found: dict[int, T] = {}
        for fold, own in by_fold.items():
            numbers = np.flatnonzero(assigned == fold).tolist()
            if len(numbers) != len(own):
                raise UserError(
                    f"{place}: fold {fold} has {plural(len(numbers), 'row')}, and its trial has answered {len(own):,}. "
                    "Remove the folder of this trial, and it is run again."
                )
            found |= zip(numbers, own, strict=True)
        return [found[number] for number in range(len(assigned))]

    def scores(self, task: FinetuneTask, trials: Sequence[Trial], answers: Sequence[Answer]) -> dict[str, float]:
        """Return the scores of one seed on all rows of train, given its trials and the answers to the rows."""
        if not isinstance(task, ComparesAnswers):
            return score_answers(task, self.held_out.rows, answers)
        sizes = np.bincount(self.assigned[trials[0].seed])
        each = [(trial.scores[HELD_OUT], int(sizes[trial.fold or 0])) for trial in trials]
        rows = len(self.held_out)
        return {name: sum(scores[name] * size for scores, size in each) / rows for name in task.scored_by}

    def note(self, splits: Mapping[str, Prepared]) -> str:
        """Return a sentence about the sizes of the folds, and about the rows that checkpoints are chosen on."""
        sizes = np.bincount(next(iter(self.assigned.values())))[1:]
        smallest, largest = int(sizes.min()), int(sizes.max())
        rows = plural(largest, "row") if smallest == largest else f"{smallest:,} to {largest:,} rows"
        where = "dev" if "dev" in splits else "the rows that are held out, whose scores are slightly too good by it"
        return f"{len(sizes)} folds of {rows}; checkpoints are chosen on {where}"


def _lone_labels(task: FinetuneTask, rows: Sequence[Row], assigned: np.ndarray) -> list[str]:
    """Return a remark if labels are in one fold only, so that its model cannot learn them."""
    if not hasattr(task, "labels"):
        return []
    found: dict[str, set[int]] = {}
    for row, fold in zip(rows, assigned.tolist(), strict=True):
        for label in labels_of(task, row):
            found.setdefault(label, set()).add(fold)
    alone = [label for label, folds in found.items() if len(folds) == 1]
    if not alone:
        return []
    more = f" (and {len(alone) - 1:,} more)" if len(alone) > 1 else ""
    return [f"train: label '{alone[0]}'{more} is in rows of one fold only, whose model cannot learn it"]


def held_out(task: FinetuneTask, train: Prepared, tokenizer: Tokenizer) -> Prepared:
    """Return rows of train, prepared to be answered and scored."""
    return replace(prepare(task, Split(HELD_OUT, train.rows), tokenizer), remarks=[])
