"""The answers to the rows of a split, for error analysis, and those of a cross-validation to all rows of train.

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
from finetune.config import HELD_OUT, OUT_OF_FOLD
from finetune.prepare import Prepared
from inference.answer_writer import as_json
from tasks.downstream.base import (
    Answer,
    FinetuneTask,
    answer_columns,
)
from tasks.downstream.hooks import ComparesAnswers

OUT_OF_FOLD_FILE = f"{OUT_OF_FOLD}.jsonl"
_REMEDY = "Remove the folder of this trial, and it is run again."
_SAMPLES = {"bytes", "array"}  # keys under which a cell may hold audio samples


def answers_file(folder: Path, split: str) -> Path:
    """Return the file, in a trial's folder, of the answers to a split."""
    return folder / f"{split}.jsonl"


def logits_file(folder: Path, split: str) -> Path:
    """Return the file, in a trial's folder, of the logits of a split."""
    return folder / f"{split}-logits.safetensors"


def write_split_answers(folder: Path, task: FinetuneTask, split: Prepared, answers: Sequence[Answer]) -> None:
    """Write the answers to a split beside its labels.

    Those to rows that were held out are without the parts by which the answers of one model are compared.
    """
    without = task.compared if split.name == HELD_OUT and isinstance(task, ComparesAnswers) else ()
    with replacing(answers_file(folder, split.name)) as partial, partial.open("w", encoding="utf-8") as file:
        for row, answer in zip(split.rows, answers, strict=True):
            shown = {key: value for key, value in answer.items() if key not in without}
            file.write(as_json({"row": str(row.place), "right": _right(row, answer_columns(task)), **shown}) + "\n")


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


def read_split_answers(folder: Path, split: str) -> list[dict[str, Any]]:
    """Read what `write_split_answers` wrote to a trial's folder.  Raises UserError if the file is damaged."""
    with using_answers(answers_file(folder, split)), answers_file(folder, split).open(encoding="utf-8") as file:
        records = [json.loads(line) for line in file]
        check_kind(records, [{"row": str}], file.name, _REMEDY)
        return records


def using_answers(file: Path) -> AbstractContextManager[None]:
    """Raise UserError for answers of a file, used inside, that are not those of its split's rows."""
    return parsing(file, _REMEDY)


def write_out_of_fold(folder: Path, answers: Mapping[int, Sequence[Mapping[str, Any]]]) -> None:
    """Write, for each seed, the answer to each row of train by the model that did not see it."""
    with replacing(folder / OUT_OF_FOLD_FILE) as partial, partial.open("w", encoding="utf-8") as file:
        for seed, records in answers.items():
            for record in records:
                file.write(as_json({"seed": seed, **record}) + "\n")


def read_out_of_fold(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Read the answers of one seed that `write_out_of_fold` wrote to a run's folder."""
    with (folder / OUT_OF_FOLD_FILE).open(encoding="utf-8") as file:
        return [record for line in file if (record := json.loads(line))["seed"] == seed]


def confusion(records: Sequence[dict[str, Any]], labels: Sequence[str]) -> list[list[int]]:
    """Return the confusion matrix: how often each right label (row) was answered as each label (column)."""
    counts = Counter((spelled(record["right"]).strip(), record["label"]) for record in records)
    return [[counts[right, answered] for answered in labels] for right in labels]


def surest_mistakes(records: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """Return the wrong answers with the highest probabilities."""
    wrong = [record for record in records if spelled(record["right"]).strip() != record["label"]]
    return sorted(wrong, key=lambda record: -record["probability"])[:most]
