"""The folder of a fine-tuning run: which run it belongs to, and the model that it keeps."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

import numpy as np

from ernie.atomic import inner_folder, make_folder, partial_folder, put
from ernie.config import differences, from_dict, read, to_dict
from ernie.data.labeled.read import Split, read_rows
from ernie.data.labeled.row import Row, RowOptions
from ernie.errors import UserError, about, check_exists
from ernie.json_file import read_json, read_limited
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.model.adapted import ADAPTER_FOLDER
from ernie.model.checksums import check_model, write_checksums
from ernie.model.ernie import ErnieModel
from ernie.model.pretrained import TASK_FILE
from ernie.model.weights import arrays, fingerprint
from ernie.parallel.launch import LOGS_FOLDER
from ernie.registry import plugin_sources
from ernie.renames import key_path, renamed
from ernie.sha256 import file_sha256
from ernie.train.checkpoint import Checkpoints
from ernie.train.origin import origin
from ernie.train.run_folder import (
    CHECKPOINTS,
    CONFIG,
    MODEL,
    ORIGIN,
    another_configuration,
    changed_keys,
    locked_folder,
    write_config,
    write_origin,
)
from ernie.train.trackers import TRACKERS
from finetune.calibrate import with_decoding_of
from finetune.config import FinetuneConfig, decoding_overrides, load
from finetune.prepare import Prepared
from finetune.train.model import TrainingModel
from finetune.train.teacher import Teacher
from finetune.train.trial import SCORES_FILE
from finetune.train.warm_start import kept_head
from inference.rows import usable_rows
from inference.task_model import TaskModel
from tasks.downstream.base import FinetuneTask, LogitsTask
from tasks.downstream.hooks import FilesInRows, TrainingFiles
from tasks.downstream.saved import TRIALS_FOLDER, check_finished, find_model, member_folders, read_task, write_task

_TRIAL_FILE = "trial.txt"  # in the model's folder: the name of the trial that produced it
ROWS_FOLDER = "rows"  # of rows that were given in Python
_WAYS_OUT = "Choose another --output, or delete the folder to start over."
# Keys that do not affect a single fine-tuning: finished trials remain valid when they change.
_UNRELATED_KEYS = (
    "output",
    "seeds",
    "keep",
    "calibrate",
    "save_minutes",
    "grid",
    "plugins",
    "published",
    "submission",
    "local",
    "parallel",
    "workers",
    *TRACKERS,
)


@contextmanager
def claim_folder(config: FinetuneConfig, inputs: Mapping[str, str], folder: Path) -> Iterator[str]:
    """Assign the folder to this run and lock it; `inputs` are the fingerprints of the run's training inputs.

    Yields the identity that checkpoints of the run have.

    Raises UserError when the folder holds something else or another process is using it.  Also raises it when there are
    trials, finished or not, of another configuration or of other inputs.
    """
    trials, identity = folder / TRIALS_FOLDER, _identity(to_dict(config), inputs)
    if any(trials.glob(f"*/{SCORES_FILE}")) or any(
        Checkpoints(place).latest() for place in trials.glob(f"*/{CHECKPOINTS}")
    ):
        _check_same(config, inputs, folder)
        identity = _saved_identity(folder)
    check_folder(folder)
    inner_folder(make_folder(folder), TRIALS_FOLDER)
    with locked_folder(folder, (MODEL,)):
        _check_no_workers(folder)
        write_config(folder, config)
        write_origin(folder, {"inputs": inputs, "identity": identity, **origin()})
        yield identity


@contextmanager
def training_trials(folder: Path) -> Iterator[None]:
    """Mark the folder of a run as one whose trials this process trains for another one, which has its lock.

    The other one may die, and this process then takes a moment to save.
    """
    import fcntl  # not on Windows

    place = os.open(folder / TRIALS_FOLDER, os.O_RDONLY)
    try:
        with suppress(OSError):  # some file systems have no locks
            fcntl.flock(place, fcntl.LOCK_SH)
        yield
    finally:
        os.close(place)


def _check_no_workers(folder: Path) -> None:
    """Raise UserError if processes still train trials of the run, whose own process is gone."""
    if os.name == "nt":
        return
    import fcntl

    place = os.open(folder / TRIALS_FOLDER, os.O_RDONLY)
    try:
        fcntl.flock(place, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        raise UserError(
            f"{folder}: trials of an earlier command, which is gone, are being saved. Give the command again in a "
            "moment"
        ) from None
    except OSError:  # some file systems have no locks
        pass
    finally:
        os.close(place)


def check_folder(folder: Path) -> None:
    """Raise UserError for a folder that holds something other than a fine-tuning run."""
    found = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if found - {LOGS_FOLDER, ROWS_FOLDER} and TRIALS_FOLDER not in found:
        raise UserError(f"{folder}: is not empty and holds no fine-tuning run; choose another --output")


def _identity(config: Mapping[str, Any], inputs: Mapping[str, str]) -> str:
    """Return a fingerprint of everything that determines a trial's result, except its own seed and grid point."""
    tree = {key: value for key, value in config.items() if key not in _UNRELATED_KEYS}
    return hashlib.sha256(json.dumps([tree, dict(inputs)], default=str, sort_keys=True).encode()).hexdigest()


def _saved_identity(folder: Path) -> str:
    """Return the identity of the run in a folder.

    It is the one that the run began with, whatever keys were renamed or added since.  A run from before it was recorded
    has that of the configuration as it was written.
    """
    record = read_json(folder / ORIGIN, {"inputs": {str: str}, "identity?": str}, "Choose another --output.")
    return record.get("identity") or _identity(read(folder / CONFIG).plain(), record["inputs"])


def _check_same(config: FinetuneConfig, inputs: Mapping[str, str], folder: Path) -> None:
    if changed := changed_keys(load(folder / CONFIG, saved=True), config, _UNRELATED_KEYS):
        raise UserError(another_configuration(folder, changed) + _WAYS_OUT)
    changed_inputs = differences(read_inputs(folder), dict(inputs))
    if changed_inputs:
        raise UserError(
            f"{folder}: holds a run trained on other inputs under the same name: {', '.join(changed_inputs)} changed "
            f"since. {_WAYS_OUT}"
        )


def read_inputs(folder: Path) -> dict[str, str]:
    """Return the fingerprints of a run's training inputs, under today's names of the task's fields.

    Raises UserError when they cannot be read.
    """
    inputs = read_json(folder / ORIGIN, {"inputs": {str: str}}, "Choose another --output.")["inputs"]
    fields = {name.removeprefix("task."): digest for name, digest in inputs.items() if name.startswith("task.")}
    if not fields:
        return inputs
    kind = type(load(folder / CONFIG, saved=True).task)
    renames = renamed(kind, from_dict(fields), exact=True)[1]
    names = {f"task.{key_path(rename.path)}": f"task.{key_path(rename.new)}" for rename in renames}
    return {names.get(name, name): digest for name, digest in inputs.items()}


def inputs_of(
    encoder: str, splits: Mapping[str, Prepared | Split], config: FinetuneConfig, teacher: Teacher | None = None
) -> dict[str, str]:
    """Return fingerprints of a run's training inputs, named after the keys of its configuration.

    They cover the encoder, a head that is kept, the teacher, each split's rows and the files that they name, the task's
    own files, and the plug-ins' code.
    """
    task = config.task
    rows = {f"data.{name}": _rows_fingerprint(split.rows, task) for name, split in splits.items()}
    files = {f"task.{field}": file_sha256(file) for field, file in _learned_files(task).items()}
    code = {f"plugins.{name}": digest for name, digest in plugin_sources(config.plugins).items()}
    head = kept_head(config)
    taught = {} if teacher is None else {"teacher.model": _teacher_fingerprint(teacher)}
    return {"model": encoder, **({"head": file_sha256(head)} if head else {}), **taught, **rows, **files, **code}


def _learned_files(task: FinetuneTask) -> dict[str, Path]:
    """Return the files besides the rows that training depends on, by the field that names them."""
    files = {field: file for field in task.files if (file := getattr(task, field)) is not None}
    return {**files, **task.learns_from} if isinstance(task, TrainingFiles) else files


def encoder_fingerprint(ernie: ErnieModel) -> str:
    """Return a fingerprint of an encoder's shape, dropout, weights and tokenizer."""
    tokenizer = ernie.tokenizer.fingerprint if ernie.tokenizer else ""
    return fingerprint(json.dumps([tokenizer, to_dict(ernie.config)]), arrays(ernie))


def _teacher_fingerprint(teacher: Teacher) -> str:
    """Return a fingerprint of a teacher: of its encoder, or of the task, the encoders and heads of all its models."""
    model = teacher.model
    if model is None:
        return encoder_fingerprint(teacher.ernie)
    parts = [(encoder_fingerprint(single.ernie), fingerprint("", arrays(single.head))) for single in model.singles]
    return fingerprint(json.dumps([to_dict(model.task), model.task_id, parts], default=str, sort_keys=True), {})


def _rows_fingerprint(rows: Sequence[Row], task: FinetuneTask) -> str:
    digest = hashlib.sha256()
    for row in rows:
        files = task.file_fingerprint(row) if isinstance(task, FilesInRows) else b""
        digest.update(json.dumps(row, default=_encode_cell).encode() + files + b"\n")
    return digest.hexdigest()


def _encode_cell(cell: object) -> str:
    """Return a JSON value for a cell that JSON cannot encode, such as the bytes of an audio file."""
    if isinstance(cell, np.ndarray):
        cell = cell.tobytes()
    return hashlib.sha256(cell).hexdigest() if isinstance(cell, bytes) else str(cell)


def keep_model(model: TaskModel, trial: str, folder: Path, place: Path) -> None:
    """Save the model of a trial of a run to `place`, atomically, with the adapter that was trained, if any."""
    partial = partial_folder(place)
    model.save(partial)
    if isinstance(model, TrainingModel) and model.adapter is not None:
        base = load(folder / CONFIG, saved=True).model
        model.adapter.write(partial / ADAPTER_FOLDER, model.ernie.pooler, base)
    _write_trials(partial, [trial])
    put(partial, place)


def keep_ensemble(task: LogitsTask, trials: Sequence[str], folder: Path) -> None:
    """Make the models of these trials, which were kept, the run's model as an ensemble, atomically."""
    partial = partial_folder(folder / MODEL)
    partial.mkdir()
    places = {trial: place for trial in trials if (place := kept_model(folder, trial))}
    write_ensemble(partial, task, places, link=True)
    _write_trials(partial, trials)
    put(partial, folder / MODEL)


def keep_decoding(folder: Path, task: FinetuneTask) -> None:
    """Have the run's model answer by the temperature and the threshold of a task, atomically."""
    place, partial = folder / MODEL, partial_folder(folder / MODEL)
    saved, task_id = read_task(place)
    changed = with_decoding_of(saved, task)
    if changed == saved:
        return
    shutil.copytree(place, partial, copy_function=_link)
    members = [member.name for member in member_folders(place)]
    write_checksums(partial, write_task(partial, changed, task_id, members))
    put(partial, place)


def take_model(trial: str, folder: Path) -> None:
    """Make the model of a trial, which was kept, perhaps in an ensemble, the run's model, atomically."""
    place, partial = kept_model(folder, trial), partial_folder(folder / MODEL)
    assert place is not None
    shutil.copytree(place, partial, copy_function=_link)
    put(partial, folder / MODEL)


def _write_trials(place: Path, trials: Sequence[str]) -> None:
    (place / _TRIAL_FILE).write_text("".join(f"{trial}\n" for trial in trials), encoding="utf-8")
    write_checksums(place, [_TRIAL_FILE])


def write_ensemble(place: Path, task: LogitsTask, members: Mapping[str, Path], *, link: bool = False) -> None:
    """Write an ensemble of models to an empty folder, each with its name in the ensemble.

    With `link` the files are those of the models themselves, where the file system can do that, and otherwise copies.
    """
    for name, member in members.items():
        shutil.copytree(member, place / name, copy_function=_link if link else shutil.copy2)
    write_checksums(place, write_task(place, task, 0, [*members]))


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:
        shutil.copy2(source, target)


def kept_trials(folder: Path) -> list[str]:
    """Return the names of the trials whose models the run's model is; none if there is no model."""
    file = folder / MODEL / _TRIAL_FILE
    return read_limited(file).decode(errors="replace").splitlines() if file.is_file() else []


def trial_model(folder: Path, trial: str) -> Path:
    """Return where the model of a trial is kept until the end of a run that makes an ensemble."""
    return folder / TRIALS_FOLDER / trial / MODEL


def kept_model(folder: Path, trial: str) -> Path | None:
    """Return the model of a trial, kept as the run's, for it or in an ensemble; None if it was not kept."""
    alone = [folder / MODEL] if kept_trials(folder) == [trial] else []
    places = (trial_model(folder, trial), *alone, folder / MODEL / trial)
    return next((place for place in places if (place / TASK_FILE).is_file()), None)


def has_kept(folder: Path, trial: str) -> bool:
    """Return whether the model of a trial was kept.  Raises UserError if it was, and is damaged."""
    place = kept_model(folder, trial)
    if place is None:
        return False
    try:
        check_model(place)
    except UserError as error:
        raise UserError(f"{error}; or remove {place}, and the same command trains it again") from None
    return True


def load_model(folder: Path, overrides: Sequence[str], precision: InferencePrecisionChoice | None = None) -> TaskModel:
    """Load a run's model, with `--set` overrides of how answers are found.  Raises UserError for wrong ones."""
    model = TaskModel.load(folder, precision=precision)
    if given := decoding_overrides(type(model.task), overrides):
        with about("--set: task"):
            model.change_decoding(**given)
    return model


def read_run(folder: Path, takes_input: bool = False) -> FinetuneConfig:
    """Return the configuration of a finished run.

    Raises UserError when the folder is not one, which names --input where the command `takes_input`.
    """
    check_exists(folder)
    check_finished(folder)
    if not (folder / CONFIG).is_file() or not (folder / MODEL / TASK_FILE).is_file():
        hint = "; --input gives a model without a run its rows" if takes_input and find_model(folder) else ""
        raise UserError(f"{folder}: is not the folder of a finished fine-tuning run{hint}")
    return replace(load(folder / CONFIG, saved=True), output=folder)


def split_rows(config: FinetuneConfig, split: str, validate: Callable[[Row], object] | None = None) -> Iterator[Row]:
    """Yield the rows of a split of a run's data.

    If the data says that faulty rows are skipped, so are rows for which `validate` raises UserError.  Raises UserError
    when there is no such split, or a row cannot be read.
    """
    data, options = config.data, config.data.options(split)
    rows = chain.from_iterable(read_rows(source, options) for source in data.sources(split))
    return usable_rows(rows, options, validate if options.faulty == "skip" else None)


def rows_to_score(folder: Path, split: str, files: Sequence[str]) -> tuple[tuple[str, ...], RowOptions]:
    """Return the `files` or, without any, those of a split of a run's data, and how they are read.

    Files are read as the split is; those for a model without a run, such as a converted one, as their names say.
    """
    if files and not (folder / CONFIG).is_file() and find_model(folder) == folder:
        return tuple(files), RowOptions()
    data = read_run(folder, takes_input=True).data
    with about("--split"):
        sources = data.sources(split)
    return tuple(files) or sources, data.options(split)
