"""The files that a leaderboard takes: GLUE's are TSV with a row's number and the answer."""

from __future__ import annotations

from pathlib import Path

from ernie.errors import UserError
from finetune.config import FinetuneConfig
from finetune.model import FinetunedModel
from finetune.rows import split_rows


def write_submission(model: FinetunedModel, config: FinetuneConfig, folder: Path) -> list[Path]:
    """Write each file that the configuration's `submission` names into a folder; returns their paths.

    Raises UserError when it names none.
    """
    if not config.submission.files:
        raise UserError("submission.files: the run's configuration names no files for a leaderboard")
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for split, name in config.submission.files.items():
        path = folder / name
        answers = model.predict(split_rows(config, split))
        with path.open("w", encoding="utf-8") as file:
            file.write("index\tprediction\n")
            for number, answer in enumerate(answers):
                first = next(iter(answer.values()))
                said = f"{first:.3f}" if isinstance(first, float) else str(first)
                file.write(f"{number}\t{config.submission.values.get(said, said)}\n")
        written.append(path)
    return written
