"""Fine-tuning from Python: the configuration as a mapping, and rows in memory."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ernie.atomic import make_folder, put_text
from ernie.errors import UserError
from ernie.runtime import check_paddle
from finetune.config import load, load_mapping
from finetune.train.run_contents import ROWS_FOLDER, check_folder
from tasks.downstream.saved import TRIALS_FOLDER

if TYPE_CHECKING:
    from finetune.train.trial import Result


def fine_tune(config: str | Path | Mapping[str, Any], output: str | Path, *, quiet: bool = True) -> Result:
    """Fine-tune as `ernie finetune` does, in this process, and return the scores of all trials.

    `config` is a YAML file, the name of a configuration that comes with the library, or a mapping with the keys of one.
    In the `data` of a mapping rows may stand in place of files: dictionaries, or a data set of `datasets`.  They are
    written to `output`/rows, so that the run can be scored and continued later.  `output` is the run's folder; if it
    has trials, only what is missing is trained.  Unless `quiet`, what is done is told on standard error.

    Raises UserError for a configuration, data or a folder that cannot be used, and TrainingFailed if training diverged.
    """
    check_paddle()
    from ernie.kernels.precision import precision
    from finetune.train.run import run

    folder = Path(output)
    check_folder(folder)
    found = load_mapping(_with_files(config, folder)) if isinstance(config, Mapping) else load(Path(config))
    found.check_is_no_search()
    found.parallel.over(1)  # several processes are started by the command

    def say(sentence: str) -> None:
        if not quiet:
            print(sentence, file=sys.stderr, flush=True)

    with precision(found.train.precision, found.train.amp_level):
        return run(replace(found, output=folder), folder, say, quiet)


def _with_files(config: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return a configuration in which rows are replaced by the files that they were written to."""
    data = config.get("data")
    config = {key: str(value) if isinstance(value, Path) else value for key, value in config.items()}
    if not isinstance(data, Mapping):
        return config
    more = data.get("more", {})
    files = {name: _file_of(given, name, folder) for name, given in data.items() if name != "more"}
    if isinstance(more, Mapping) and more:
        files["more"] = {name: _file_of(given, name, folder) for name, given in more.items()}
    return {**config, "data": files}


def _file_of(given: Any, split: str, folder: Path) -> Any:
    """Return the file to which the rows of a split were written, or `given` itself if it is no rows."""
    if isinstance(given, Path):
        return str(given)
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        return given
    rows = list(given)
    if not rows or not any(isinstance(row, Mapping) for row in rows):
        return [str(each) if isinstance(each, Path) else each for each in rows]
    lines = []
    for number, row in enumerate(rows):
        if not isinstance(row, Mapping):
            raise UserError(
                f"data.{split}: row {number}, counted from 0, is a {type(row).__name__}; expected a mapping"
            )
        try:
            lines.append(f"{json.dumps(dict(row), ensure_ascii=False)}\n")
        except TypeError as error:
            raise UserError(
                f"data.{split}: row {number}, counted from 0, cannot be written as JSON ({error}); save the rows as a "
                "data set of `datasets`, and name its folder"
            ) from None
    file, text = folder / ROWS_FOLDER / f"{split}.jsonl", "".join(lines)
    if file.is_file() and file.read_text(encoding="utf-8") != text and any((folder / TRIALS_FOLDER).glob("*")):
        raise UserError(f"{file}: the run in {folder} was trained on other rows; choose another output")
    make_folder(file.parent)
    put_text(file, text)
    return str(file)
