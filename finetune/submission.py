"""The files that a leaderboard takes: GLUE's are TSV with a row's number and the answer."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path

from ernie.beside import put_text
from ernie.data.labelled.read import read_split
from ernie.errors import Remark, UserError
from ernie.report.words import plural
from finetune.config import FinetuneConfig
from finetune.model import FinetunedModel
from tasks.downstream.base import Answer


def write_submission(model: FinetunedModel, config: FinetuneConfig, folder: Path) -> list[Path]:
    """Write each file that the configuration's `submission` names into a folder, once all are answered.

    Returns their paths.  A file whose split the run's data has not is left out, with a remark.  Raises UserError when
    no file is left, and for a split of which rows are skipped: a leaderboard counts all of them.
    """
    there = config.data.splits()
    files = {split: name for split, name in config.submission.files.items() if split in there}
    if not files:
        named = ", ".join(config.submission.files)
        why = f"the run's data has no split {named}" if named else "the run's configuration names none"
        raise UserError(f"submission.files: there is nothing to write for a leaderboard: {why}")
    for split in set(config.submission.files).difference(files):
        name = config.submission.files[split]
        warnings.warn(f"{name} is not written: the run's data has no split {split}", Remark, stacklevel=2)
    splits = {name: read_split(split, there[split], config.data.options(split)) for split, name in files.items()}
    for found in splits.values():
        if found.skipped:
            raise UserError(
                f"data: {plural(found.skipped, 'row')} of {found.name} would be skipped, as 'skip' or 'faulty' asks, "
                "and the answers behind them would stand for other rows; read that split otherwise, under per_split"
            )
    texts = {
        folder / name: _text(model.predict(found.rows), config.submission.values) for name, found in splits.items()
    }
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        put_text(path, text)
    return list(texts)


def _text(answers: Iterable[Answer], values: Mapping[str, str]) -> str:
    lines = ["index\tprediction"]
    for number, answer in enumerate(answers):
        first = next(iter(answer.values()))
        said = f"{first:.3f}" if isinstance(first, float) else str(first)
        lines.append(f"{number}\t{values.get(said, said)}")
    return "\n".join(lines) + "\n"
