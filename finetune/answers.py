"""The dev split's rows with what was answered: what one reads to learn where a model errs.

A line of JSON a row: `row` is where it was read, `right` what its own column says, the rest is the answer.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from ernie.data.labelled.row import spelled
from finetune.output import as_json
from finetune.prepare import Prepared
from tasks.downstream.base import Answer, FinetuneTask

ANSWERS_FILE = "dev.jsonl"
_SOUND = {"bytes", "array"}  # how a cell may hold the samples of a sound


def write_dev_answers(folder: Path, task: FinetuneTask, split: Prepared, answers: Sequence[Answer]) -> None:
    """Write the answers to a split beside what is right."""
    column = getattr(task, task.answer_field)
    with (folder / ANSWERS_FILE).open("w", encoding="utf-8") as file:
        for row, answer in zip(split.rows, answers, strict=True):
            record = {"row": str(row.place), "right": _told(row[column]), **answer}
            file.write(as_json(record) + "\n")


def _told(cell: Any) -> Any:
    """A cell as people read it: of a sound its name, not its samples."""
    if isinstance(cell, Mapping) and not _SOUND.isdisjoint(cell):
        return {name: value for name, value in cell.items() if name not in _SOUND}
    return cell


def read_dev_answers(folder: Path) -> list[dict[str, Any]]:
    """What `write_dev_answers` wrote into a trial's folder."""
    with (folder / ANSWERS_FILE).open(encoding="utf-8") as file:
        return [json.loads(line) for line in file]


def confusion(records: Sequence[dict[str, Any]], labels: Sequence[str]) -> list[list[int]]:
    """How often a label that was right (row) was answered as a label (column)."""
    counts = Counter((spelled(record["right"]).strip(), record["label"]) for record in records)
    return [[counts[right, answered] for answered in labels] for right in labels]


def surest_mistakes(records: Sequence[dict[str, Any]], most: int) -> list[dict[str, Any]]:
    """The wrong answers that the model was surest of."""
    wrong = [record for record in records if spelled(record["right"]).strip() != record["label"]]
    return sorted(wrong, key=lambda record: -record["probability"])[:most]
