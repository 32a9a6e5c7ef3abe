"""Write answers as lines of JSON or TSV."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Sequence
from reprlib import repr as shortened
from typing import Any, Literal, TextIO

from ernie.data.labeled.row import Row
from ernie.errors import Remark, UserError, about
from ernie.formatting import plural
from ernie.text.surrogates import require_encodable
from inference.task_model import TaskModel, first_notes

_BREAKS = re.compile("\r\n|[\t\n\r\v\f\x1c-\x1e\x85\u2028\u2029]")
_FORMULA = re.compile(r"[=@]|[-+](?![\d.,]*$)")  # not a number with a sign


def write_answers(
    model: TaskModel,
    groups: Iterable[Sequence[Row]],
    out: TextIO,
    form: Literal["jsonl", "tsv"],
    keep: Sequence[str],
    batch_tokens: int,
) -> None:
    """Write a line for each row as soon as its group is answered, the columns to `keep` before the answer.

    A column with the same name as a part of the answer is kept as `given_NAME`. TSV starts with a header line; see
    `TsvCells`. Values that JSON cannot represent, such as dates, are written as text, and
    NaN, which tables use for an empty cell, as null. Raises UserError for a row that cannot be answered, after the
    lines of the rows before it, and if two columns to keep would have the same name.
    """
    names: list[str] = []
    cells, noted = TsvCells(), set[str]()
    for group in groups:
        try:
            for row, outcome in zip(group, model.group_outcomes(group, batch_tokens), strict=True):
                for sentence in first_notes(outcome.notes, noted):
                    warnings.warn(sentence, Remark, stacklevel=2)
                answer = outcome.get()
                with about(row.place):
                    kept = {f"given_{name}" if name in answer else name: row.cell(name) for name in keep}
                    if len(kept) < len(set(keep)):
                        raise UserError(f"--keep: two of {', '.join(keep)} would be called alike beside the answer")
                record = {**kept, **answer}
                if form == "tsv" and not names:
                    names = list(record)
                    out.write("\t".join(names) + "\n")
                line = cells.line(record.values()) if form == "tsv" else as_json(record)
                with about(row.place):
                    out.write(require_encodable(line) + "\n")
        finally:
            out.flush()
    cells.remark()


class TsvCells:
    """Writes cells of TSV, which cannot hold tabs and line breaks: each becomes a space, and is counted."""

    def __init__(self) -> None:
        self._broken = self._formulas = 0
        self._first_formula = ""

    def line(self, values: Iterable[Any]) -> str:
        """Return the line of a row."""
        return "\t".join(map(self._cell, values))

    def _cell(self, value: Any) -> str:
        text = value if isinstance(value, str) else as_json(value)
        written = _BREAKS.sub(" ", text)
        self._broken += written != text
        if _FORMULA.match(text):
            self._formulas += 1
            self._first_formula = self._first_formula or text
        return written

    def remark(self) -> None:
        """Warn, with a Remark each, of cells that were changed, and of those that a spreadsheet would compute."""
        if self._broken:
            warnings.warn(
                f"{plural(self._broken, 'cell')} with tabs or line breaks, which TSV cannot hold: spaces stand for "
                "them; JSON lines keep them",
                Remark,
                stacklevel=3,
            )
        if self._formulas:
            warnings.warn(
                f"{plural(self._formulas, 'cell')} that a spreadsheet would take for a formula, the first "
                f"{shortened(self._first_formula)}; import such a file with its columns as text",
                Remark,
                stacklevel=3,
            )


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
