"""Answers as lines of output."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TextIO

from ernie.data.labelled.row import Row
from ernie.errors import UserError, about
from ernie.text.whole import whole
from finetune.model import FinetunedModel
from tasks.downstream.base import Answer


def write_answers(
    model: FinetunedModel,
    groups: Iterable[Sequence[Row]],
    out: TextIO,
    form: Literal["jsonl", "tsv"],
    keep: Sequence[str],
    batch_tokens: int,
) -> None:
    """Write a line for each row as soon as its group is answered, the columns to `keep` before the answer.

    A column that is called like a part of the answer is kept as `given_NAME`. TSV begins with a line of names; white
    space in a cell becomes one space. What JSON has no word for, such as a date, is written as text, and a number that
    is none, which is what tables have for an empty cell, as null. Raises UserError for a row that cannot be answered,
    after the lines of the rows before it, and where two columns to keep would have one name.
    """
    names: list[str] = []
    for group in groups:
        try:
            for row, answer in zip(group, model.answer_group(group, batch_tokens), strict=True):
                with about(row.place):
                    kept = {f"given_{name}" if name in answer else name: row.cell(name) for name in keep}
                    if len(kept) < len(set(keep)):
                        raise UserError(f"--keep: two of {', '.join(keep)} would be called alike beside the answer")
                record = {**kept, **answer}
                if form == "tsv" and not names:
                    names = list(record)
                    out.write("\t".join(names) + "\n")
                line = _tsv(record) if form == "tsv" else as_json(record)
                with about(row.place):
                    out.write(whole(line) + "\n")
        finally:
            out.flush()


def _tsv(record: Answer) -> str:
    return "\t".join(" ".join(_cell(value).split()) for value in record.values())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    """A value as JSON, on one line: what JSON has no word for is text, a number that is none is null."""
    return json.dumps(_worded(value), ensure_ascii=False, default=str)


def _worded(value: Any) -> Any:
    """The same without the numbers that JSON has no word for, though Python writes NaN and Infinity."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {name: _worded(part) for name, part in value.items()}
    return [_worded(part) for part in value] if isinstance(value, (list, tuple)) else value
