"""The files that a leaderboard takes: GLUE's are TSV with a row's number and the answer."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

from ernie.beside import put_text
from ernie.errors import UserError
from finetune.config import FinetuneConfig
from finetune.model import FinetunedModel
from finetune.rows import split_rows
from tasks.downstream.base import Answer


def write_submission(model: FinetunedModel, config: FinetuneConfig, folder: Path) -> list[Path]:
    """Write each file that the configuration's `submission` names into a folder, once all are answered.

    Returns their paths.  Raises UserError when it names none, and for a split that the data has not.
    """
    if not config.submission.files:
        raise UserError("submission.files: the run's configuration names no files for a leaderboard")
    rows = {name: split_rows(config, split) for split, name in config.submission.files.items()}
    texts = {folder / name: _text(model.predict(found), config.submission.values) for name, found in rows.items()}
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
