"""Exporting a model: written, compared with what it was made of, and kept only if it computes the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from ernie import __version__
from ernie.beside import beside, check_absent, put, room
from ernie.data.document import Sample
from ernie.errors import UserError
from ernie.model.export.compare import Difference, compare, random_rows
from ernie.model.export.padded import INPUTS
from ernie.model.export.runtimes import Format, check_able, open_model, write_model
from ernie.model.inference import tokenizer_of
from ernie.model.pretrained import TOKENIZER_FOLDER
from finetune.export_card import CARD_FILE, LABELS_FILE, card
from finetune.exportable import Exportable, exportable

RECORD_FILE = "export.json"
LARGEST, LARGEST_SHARE = 1e-4, 0.2  # of a difference; of int8's, as a share of the output's norm
_BATCH = 8


@dataclass(frozen=True)
class Export:
    """What is exported, and how: `rows` is a file to compare on, `task` an encoder's task embedding."""

    run: Path
    to: Format
    int8: bool = False
    rows: str | None = None
    task: int | None = None

    @property
    def tolerance(self) -> float:
        return LARGEST_SHARE if self.int8 else LARGEST

    def passes(self, difference: Difference) -> bool:
        return (difference.share if self.int8 else difference.largest) <= self.tolerance


def export(wanted: Export, folder: Path, say: Callable[[str], None]) -> list[Difference]:
    """Write `folder`, unless a difference is too large; the differences on random and on real rows.

    Raises UserError when the folder is there already, and when the model cannot be loaded or exported, or has no
    tokenizer.
    """
    check_absent(folder)
    check_able(wanted.to, wanted.int8)
    model = exportable(wanted.run, wanted.task)
    if model.padded.ernie.tokenizer is None:
        raise UserError(
            f"{wanted.run}: the model in it has no tokenizer, which goes with what is exported. Put the tokenizer's "
            f"files, such as vocab.txt, into the model's folder, in one of this library's into {TOKENIZER_FOLDER}/"
        )
    rows = _rows_to_compare_on(model, wanted, say)
    folder.parent.mkdir(parents=True, exist_ok=True)
    partial = beside(folder)
    partial.mkdir()
    try:
        with room(folder, "nothing was exported"):
            return _exported(model, rows, wanted, partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _rows_to_compare_on(model: Exportable, wanted: Export, say: Callable[[str], None]) -> list[Sample]:
    try:
        rows = model.rows(wanted.rows)
    except UserError as error:
        if wanted.rows is not None:
            raise
        say(f"note: the rows of the run cannot be read again ({error})")
        rows = []
    if not rows and wanted.rows is not None:
        raise UserError(f"{wanted.rows}: there are no rows to compare on")
    if not rows:
        say("note: compared on random rows only; --input FILE gives real ones")
    return rows


def _exported(model: Exportable, rows: list[Sample], wanted: Export, partial: Path, folder: Path) -> list[Difference]:
    """Write `partial` and compare; where the differences are small enough it becomes `folder`."""
    write_model(model.padded, partial, wanted.to, wanted.int8)
    differences = _compared(model, rows, wanted, partial)
    if all(map(wanted.passes, differences)):
        _describe(model, wanted, partial, folder.name, differences)
        put(partial, folder, lambda: check_absent(folder))
    return differences


def _compared(model: Exportable, rows: list[Sample], wanted: Export, folder: Path) -> list[Difference]:
    exported, outputs = open_model(folder, wanted.to), model.padded.outputs
    batches = random_rows(model.padded.ernie.config, model.longest)
    differences = compare(outputs, model.outputs, exported, batches, "random rows")
    if rows:
        batches = [rows[first : first + _BATCH] for first in range(0, len(rows), _BATCH)]
        name = "dev rows" if wanted.rows is None else f"rows of {Path(wanted.rows).name}"
        differences += compare(outputs, model.outputs, exported, batches, name)
    return differences


def _describe(model: Exportable, wanted: Export, folder: Path, name: str, differences: list[Difference]) -> None:
    """Write what goes with the model: tokenizer, labels, figures, and how to call it."""
    tokenizer_of(model.padded.ernie).save(folder / TOKENIZER_FOLDER)
    if model.labels:
        (folder / LABELS_FILE).write_text(json.dumps(model.labels, ensure_ascii=False) + "\n", encoding="utf-8")
    record = {
        "source": str(wanted.run),
        "version": __version__,
        "format": wanted.to,
        "int8": wanted.int8,
        "inputs": INPUTS,
        "outputs": model.padded.outputs,
        "longest": model.longest,
        "differences": [asdict(difference) for difference in differences],
    }
    (folder / RECORD_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    text = card(model, str(wanted.run), name, wanted.to, wanted.int8, differences)
    (folder / CARD_FILE).write_text(text, encoding="utf-8")
