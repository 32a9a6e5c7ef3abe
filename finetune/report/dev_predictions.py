"""The answers to the rows of the dev split, for error analysis.

One JSON line per row: `row` is where it was read, `right` is the content of its label column (of several, by column),
the rest is the answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

from ernie.atomic import replacing
from ernie.data.labeled.row import Row, as_value, spelled
from ernie.json_file import check_kind, parsing
from finetune.prepare import Prepared
from inference.answer_writer import as_json
from tasks.downstream.base import (
    Answer,
    FinetuneTask,
    answer_columns,
)

ANSWERS_FILE = "dev.jsonl"
_REMEDY = "Remove the folder of this trial, and it is run again."
_SAMPLES = {"bytes", "array"}  # keys under which a cell may hold audio samples


def write_dev_answers(folder: Path, task: FinetuneTask, split: Prepared, answers: Sequence[Answer]) -> None:
    """Write the answers to a split beside its labels."""
    with replacing(folder / ANSWERS_FILE) as partial, partial.open("w", encoding="utf-8") as file:
        for row, answer in zip(split.rows, answers, strict=True):
            record = {"row": str(row.place), "right": _right(row, answer_columns(task)), **answer}
            file.write(as_json(record) + "\n")


def _right(row: Row, columns: Sequence[str]) -> Any:
    cells = {column: _without_samples(_with_lists(row[column])) for column in columns}
    return cells if len(columns) > 1 else cells[columns[0]]


def _with_lists(cell: Any) -> Any:
    """Return a cell with arrays as lists; text stays, as a label may be '(1)'."""
    return cell if isinstance(cell, str) else as_value(cell)


def _without_samples(cell: Any) -> Any:
    """Return a cell without audio samples, so that people can read it."""
    if isinstance(cell, Mapping) and not _SAMPLES.isdisjoint(cell):
        return {name: value for name, value in cell.items() if name not in _SAMPLES}
    return cell


def read_dev_answers(folder: Path) -> list[dict[str, Any]]:
    """Read what `write_dev_answers` wrote to a trial's folder.  Raises UserError if the file is damaged."""
    with using_dev_answers(folder), (folder / ANSWERS_FILE).open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
        check_kind(records, [{"row": str}], file.name, _REMEDY)
        return records


def using_dev_answers(folder: Path) -> AbstractContextManager[None]:
    """Raise UserError for answers, used inside, that are not those of the dev split's rows."""
    return parsing(folder / ANSWERS_FILE, _REMEDY)


def confusion(records: Sequence[dict[str, Any]], labels: Sequence[str]) -> list[list[int]]:
    """Return the confusion matrix: how often each right label (row) was answered as each label (column)."""
    counts = Counter((spelled(record["right"]).strip(), record["label"]) for record in records)
    return [[counts[right, answered] for answered in labels] for right in labels]


def surest_mistakes(records: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the wrong answers with the highest probabilities."""
    wrong = [record for record in records if spelled(record["right"]).strip() != record["label"]]
    return sorted(wrong, key=lambda record: -record["probability"])[:most]
