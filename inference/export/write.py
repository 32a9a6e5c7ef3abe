"""Export a model: write it, compare it with the original, and keep it only if both compute the same."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from ernie import __version__
from ernie.atomic import check_absent, disk_guard, make_folder, partial_folder, put
from ernie.data.document import Sample
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.model.export.compare import Difference, compare, random_rows
from ernie.model.export.padded import INPUTS
from ernie.model.export.runtimes import Format, check_able, open_model, write_model
from ernie.model.inference import tokenizer_of
from ernie.model.pretrained import TOKENIZER_FOLDER
from ernie.model.published.convert import check_model_finite
from ernie.model.published.task_head import TaskHead, read_task_head
from ernie.model.published.write import write_for_auto_classes
from inference.export.card import CARD_FILE, LABELS_FILE, card
from inference.export.exportable import Exportable, exportable
from tasks.downstream.saved import find_model

RECORD_FILE = "export.json"
MAX_DIFFERENCE = 1e-4
MAX_INT8_SHARE = 0.2  # of the norm of the output
_BATCH = 8


@dataclass(frozen=True)
class Export:
    """What to export, and how: `rows` is a file of rows to compare on, `task` an encoder's task embedding.

    Without a file `own_rows` gives the rows, such as those of a run's dev split.
    """

    run: Path
    to: Format
    int8: bool = False
    rows: str | None = None
    task: int | None = None
    own_rows: Callable[[], Iterable[Row]] | None = None

    @property
    def tolerance(self) -> float:
        return MAX_INT8_SHARE if self.int8 else MAX_DIFFERENCE

    def passes(self, difference: Difference) -> bool:
        return (difference.share if self.int8 else difference.largest) <= self.tolerance


def export(request: Export, folder: Path, say: Callable[[str], None]) -> list[Difference]:
    """Write `folder`, unless a difference is too large; return the differences on random and on real rows.

    Raises UserError when the folder exists already, and when the model cannot be loaded or exported, or has no
    tokenizer.
    """
    check_absent(folder)
    check_able(request.to, request.int8)
    model = exportable(request.run, request.task)
    check_model_finite(request.run, model.padded.ernie, _task_head(request.run))
    if model.padded.ernie.tokenizer is None:
        raise UserError(
            f"{request.run}: the model in it has no tokenizer, which is part of an export. Put the tokenizer's "
            f"files, such as vocab.txt, into the model's folder, in one of this library's into {TOKENIZER_FOLDER}/"
        )
    sentences = model.padded.ernie.sentence_config
    if sentences is not None and not model.labels and not model.padded.pooling:
        say(
            "note: the pooling of this sentence encoder is not part of the graph; apply it to last_hidden_state: "
            f"{sentences.summary}"
        )
    rows = _comparison_rows(model, request, say)
    make_folder(folder.parent)
    partial = partial_folder(folder)
    partial.mkdir()
    try:
        with disk_guard(folder, "nothing was exported"):
            return _write_and_compare(model, rows, request, partial, folder)
    finally:
        shutil.rmtree(partial, ignore_errors=True)


def _task_head(run: Path) -> TaskHead | None:
    place = find_model(run)
    return None if place is None else read_task_head(place)


def _comparison_rows(model: Exportable, request: Export, say: Callable[[str], None]) -> list[Sample]:
    rows: list[Sample] = []
    try:
        if request.rows is not None:
            rows = model.samples(model.read(request.rows))
        elif request.own_rows is not None:
            rows = model.samples(request.own_rows())
    except UserError as error:
        if request.rows is not None:
            raise
        say(f"note: the rows of the run cannot be read again ({error})")
    if not rows and request.rows is not None:
        raise UserError(f"{request.rows}: there are no rows to compare on")
    if not rows:
        say("note: compared on random rows only; --input FILE gives real ones")
    return rows


def _write_and_compare(
    model: Exportable, rows: list[Sample], request: Export, partial: Path, folder: Path
) -> list[Difference]:
    """Write the model to `partial` and compare it; if the differences are small enough, move it to `folder`."""
    write_model(model.padded, partial, request.to, request.int8)
    differences = _measure_differences(model, rows, request, partial)
    if all(map(request.passes, differences)):
        _write_metadata(model, request, partial, folder.name, differences)
        put(partial, folder, lambda: check_absent(folder))
    return differences


def _measure_differences(model: Exportable, rows: list[Sample], request: Export, folder: Path) -> list[Difference]:
    exported, outputs = open_model(folder, request.to), model.padded.outputs
    batches = random_rows(model.padded.ernie.config, model.longest)
    differences = compare(outputs, model.outputs, exported, batches, "random rows")
    if rows:
        batches = [rows[first : first + _BATCH] for first in range(0, len(rows), _BATCH)]
        name = "rows of the run" if request.rows is None else f"rows of {Path(request.rows).name}"
        differences += compare(outputs, model.outputs, exported, batches, name)
    return differences


def _write_metadata(model: Exportable, request: Export, folder: Path, name: str, differences: list[Difference]) -> None:
    """Write what accompanies the model: tokenizer, labels, the measured differences, and a README."""
    tokenizer_of(model.padded.ernie).save(folder / TOKENIZER_FOLDER)
    head = _task_head(request.run)
    write_for_auto_classes(model.padded.ernie, folder, head if head is not None and head.format is not None else None)
    if model.labels:
        (folder / LABELS_FILE).write_text(json.dumps(model.labels, ensure_ascii=False) + "\n", encoding="utf-8")
    record = {
        "source": str(request.run),
        "version": __version__,
        "format": request.to,
        "int8": request.int8,
        "inputs": INPUTS,
        "outputs": model.padded.outputs,
        "longest": model.longest,
        "task": model.padded.task if model.padded.ernie.config.task_vocab_size else None,
        "differences": [asdict(difference) for difference in differences],
    }
    (folder / RECORD_FILE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")
    text = card(model, str(request.run), name, request.to, request.int8, differences)
    (folder / CARD_FILE).write_text(text, encoding="utf-8")
