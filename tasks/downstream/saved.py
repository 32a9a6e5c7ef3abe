"""The folder of a fine-tuned model: finding it, and writing and reading its task file."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from ernie.atomic import check_within, put_text
from ernie.config import build, from_dict, to_dict
from ernie.errors import UserError, check_exists
from ernie.json_file import read_json
from ernie.model.pretrained import CONFIG_FILE, HEAD_FILE, TASK_FILE, models_inside
from ernie.model.published.formats import detect_format, weights_file
from ernie.model.published.task_head import foreign_head, published_task, read_task_head
from ernie.registry import import_asked
from ernie.terminal import one_line
from tasks.downstream.base import FinetuneTask, finetune_tasks
from tasks.downstream.hooks import CompletesSaved

TRIALS_FOLDER = "trials"  # in the folder of a run, from its start
_SCHEMA: Any = FinetuneTask  # abstract: its `variant` says which kind is built


def find_model(path: Path) -> Path | None:
    """Return the folder of the model in a run's folder, or that folder itself; None if there is none.

    The folder may be of another library, if its head is of one of our kinds.
    """
    own = next((place for place in (path, path / "model") if (place / TASK_FILE).is_file()), None)
    return path if own is None and published_task(path) is not None else own


def model_of(path: Path) -> Path:
    """As `find_model`, but raises UserError if there is none."""
    folder = find_model(path)
    if folder is None:
        check_exists(path)
        check_finished(path)
        if name := foreign_head(path):
            raise UserError(
                f"{path}: is a model of the class {one_line(name, 60)}, which has no head of a kind that can be read "
                "here; such are For-SequenceClassification, -TokenClassification, -QuestionAnswering and "
                "-MultipleChoice of BERT and ERNIE"
            )
        if detect_format(path) in ("hf", "paddlenlp"):
            raise UserError(
                f"{path}: its settings name no class of a model with a head; if it has one, name it there, as in "
                '"architectures": ["BertForSequenceClassification"]'
            )
        hint = models_inside(path)
        raise UserError(f"{path}: holds no fine-tuned model: there is no {TASK_FILE} or model/{TASK_FILE} in it{hint}")
    return folder


def check_finished(path: Path) -> None:
    """Raise UserError for the folder of a run that has no model yet."""
    if find_model(path) is None and (path / TRIALS_FOLDER).is_dir():
        raise UserError(f"{path}: the run in it is not finished; the same 'ernie finetune' command resumes it")


def head_file(folder: Path) -> Path:
    """Return the file with the weights of a model's head."""
    return folder / HEAD_FILE if (folder / TASK_FILE).is_file() else weights_file(folder)


def read_head(file: Path) -> dict[str, np.ndarray]:
    """Read the weights of a head from a file that `head_file` returned.  Raises UserError if it lacks them."""
    from ernie.model.weights import read_arrays

    if file.name == HEAD_FILE:
        return read_arrays(file)
    head = read_task_head(file.parent)
    assert head is not None
    if head.misfit:
        raise UserError(f"{file}: its head cannot be used: {head.misfit}")
    return dict(head.weights)


def member_folders(folder: Path) -> list[Path]:
    """Return the folders of the models of an ensemble; none if a model's folder is that of a single one.

    Raises UserError for names of anything else than folders in it.
    """
    names = _read_data(folder)[1].get("members", [])
    for name in names:
        if Path(name).name != name or not (folder / name).is_dir():
            raise UserError(f"{folder / TASK_FILE}: members: there is no folder '{one_line(name, 60)}' beside it")
        check_within(folder, folder / name)
        if (folder / name / TASK_FILE).is_file() and "members" in _read_data(folder / name)[1]:
            raise UserError(f"{folder / name}: is an ensemble, and a member of one; expected a single model")
    return [folder / name for name in names]


def write_task(folder: Path, task: FinetuneTask, task_id: int, members: Sequence[str] = ()) -> list[str]:
    """Write the task and the id of the task embedding, and copy the files that the task names; return all names.

    `members` are the folders of the models of an ensemble.
    """
    copied: dict[str, Any] = {}
    for field in task.files:
        file = getattr(task, field)
        if file is not None:
            if not (folder / file.name).exists() or not (folder / file.name).samefile(file):
                shutil.copyfile(file, folder / file.name)
            copied[field] = Path(file.name)
    # The module name lets `read_task` import a kind from outside the library.
    data = {"task": to_dict(replace(task, **copied)), "module": type(task).__module__, "task_id": task_id}
    if members:
        data["members"] = list(members)
    put_text(folder / TASK_FILE, json.dumps(data, indent=2, ensure_ascii=False) + "\n")
    return [TASK_FILE, *(str(name) for name in copied.values())]


def completed(saved: dict[str, Any]) -> dict[str, Any]:
    """Return a saved task with the fields that are newer than it (see `CompletesSaved`)."""
    kind = saved.get("kind")
    task = finetune_tasks[kind] if isinstance(kind, str) and kind in finetune_tasks else None
    return task.completed(saved) if task is not None and issubclass(task, CompletesSaved) else saved


def kind_of(folder: Path) -> str | None:
    """Return the kind of a model's task, without importing it; None if that cannot be read."""
    try:
        return _read_data(folder)[1]["task"].get("kind")
    except UserError:
        return None


def _read_data(folder: Path, positions: int | None = None) -> tuple[Path, dict[str, Any]]:
    """Return a model's task file and its content or, for a model of another library, its settings in that form."""
    path = folder / TASK_FILE
    if not path.is_file() and (found := published_task(folder, positions)) is not None:
        return folder / CONFIG_FILE, found[0]
    keys = {"task": (dict,), "module": (str,), "task_id": (int,), "members?": [str]}
    return path, read_json(path, keys, f"{folder} is damaged; copy it again.")


def read_task(
    folder: Path, trust_plugins: Sequence[str] | bool = (), positions: int | None = None
) -> tuple[FinetuneTask, int]:
    """Read what `write_task` wrote.  Raises UserError if it is damaged.

    A kind from outside the library is imported only if the user trusts its module: see `import_asked`.  `positions`
    are those of the encoder, which limit the rows of another library's model.
    """
    path, data = _read_data(folder, positions)
    import_asked(["tasks.downstream", data["module"]], f"{path}: module", trust_plugins)  # they register the kinds
    task: FinetuneTask = build(_SCHEMA, from_dict(completed(data["task"]), str(path)), saved=True)
    named = {field: folder / file.name for field in task.files if (file := getattr(task, field)) is not None}
    present: dict[str, Any] = {field: file for field, file in named.items() if file.is_file()}
    return replace(task, **present), data["task_id"]
