"""Write answers as lines of JSON or TSV."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, Literal, TextIO

from ernie.data.labeled.row import Row
from ernie.errors import UserError, about
from ernie.text.surrogates import require_encodable
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

    A column with the same name as a part of the answer is kept as `given_NAME`. TSV starts with a header line;
    whitespace in a cell becomes one space. Values that JSON cannot represent, such as dates, are written as text, and
    NaN, which tables use for an empty cell, as null. Raises UserError for a row that cannot be answered, after the
    lines of the rows before it, and if two columns to keep would have the same name.
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
                    out.write(require_encodable(line) + "\n")
        finally:
            out.flush()


def _tsv(record: Answer) -> str:
    return "\t".join(" ".join(_cell(value).split()) for value in record.values())


def _cell(value: Any) -> str:
    return value if isinstance(value, str) else as_json(value)


def as_json(value: Any) -> str:
    """Return a value as one line of JSON: values that JSON cannot represent become text, NaN becomes null."""
    return json.dumps(_json_safe(value), ensure_ascii=False, default=str)


def _json_safe(value: Any) -> Any:
    """Replace NaN and infinities, which Python writes although JSON does not have them."""
    if isinstance(value, float) and not math.isfinite(value):
        return None if math.isnan(value) else str(value)
    if isinstance(value, dict):
        return {name: _json_safe(part) for name, part in value.items()}
    return [_json_safe(part) for part in value] if isinstance(value, (list, tuple)) else value
