"""Answers as lines of output."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TextIO

from ernie.data.labelled.row import Row
from finetune.model import FinetunedModel
from tasks.downstream.base import Answer


def write_answers(
    model: FinetunedModel,
    rows: Iterable[Row],
    out: TextIO,
    form: Literal["jsonl", "tsv"],
    keep: Sequence[str],
    batch_tokens: int,
) -> None:
    """Write a line for each row as soon as it is answered, the columns to `keep` before the answer.

    TSV begins with a line of names; tabs and line breaks in a cell become spaces.  Raises UserError for a row that
    cannot be answered, after the lines of the rows before it.
    """
    kept: list[Row] = []

    def noted() -> Iterator[Row]:
        for row in rows:
            kept.append(row)
            yield row

    header = form == "tsv"
    for number, answer in enumerate(model.predict(noted(), batch_tokens)):
        record = {**{column: kept[0].cell(column) for column in keep}, **answer}
        kept.pop(0)
        if header and number == 0:
            out.write("\t".join(record) + "\n")
        out.write((_tsv(record) if form == "tsv" else json.dumps(record, ensure_ascii=False)) + "\n")
    out.flush()


def _tsv(record: Answer) -> str:
    return "\t".join(" ".join(_cell(value).split()) for value in record.values())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
