"""Submission files for a leaderboard: GLUE's are TSV with a row's index and its prediction."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from ernie.atomic import make_folder, put_text
from ernie.data.labeled.read import read_split
from ernie.errors import Remark, UserError
from ernie.formatting import plural
from finetune.config import FinetuneConfig
from inference.answer_writer import TsvCells
from inference.task_model import TaskModel
from tasks.downstream.base import Answer


def write_submission(model: TaskModel, config: FinetuneConfig, folder: Path) -> list[Path]:
    """Write each file that the configuration's `submission` names to a folder, once all rows are predicted.

    Returns their paths.  A file whose split is missing from the run's data is left out, with a warning (a Remark).
    Raises UserError when no file is left, and for a split with skipped rows: a leaderboard expects all of them.
    """
    available = config.data.splits()
    files = {split: name for split, name in config.submission.files.items() if split in available}
    if not files:
        named = ", ".join(config.submission.files)
        why = f"the run's data has no split {named}" if named else "the run's configuration names none"
        raise UserError(f"submission.files: there is nothing to write for a leaderboard: {why}")
    for split in set(config.submission.files).difference(files):
        name = config.submission.files[split]
        warnings.warn(f"{name} is not written: the run's data has no split {split}", Remark, stacklevel=2)
    splits = {name: read_split(split, available[split], config.data.options(split)) for split, name in files.items()}
    for found in splits.values():
        if found.skipped:
            raise UserError(
                f"data: {plural(found.skipped, 'row')} of {found.name} would be skipped, as 'skip' or 'faulty' asks, "
                "and the answers after them would belong to other rows; read that split otherwise, under per_split"
            )
    texts = {
        folder / name: _format_tsv(model.predict(found.rows), config.submission.values)
        for name, found in splits.items()
    }
    make_folder(folder)
    for path, text in texts.items():
        put_text(path, text)
    return list(texts)


def _format_tsv(answers: Iterable[Answer], values: Mapping[str, str]) -> str:
    lines, cells = ["index\tprediction"], TsvCells()
    for number, answer in enumerate(answers):
        value = next(iter(answer.values()))
        cell = f"{value:.3f}" if isinstance(value, float) else str(value)
        lines.append(cells.line([str(number), values.get(cell, cell)]))
    cells.remark()
    return "\n".join(lines) + "\n"
