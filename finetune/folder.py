"""The folder of a fine-tuning run: whose it is, and the model that it keeps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import numpy as np

from ernie.beside import beside, put, put_text
from ernie.config import differences, dump, read, to_dict
from ernie.data.labelled.read import Split
from ernie.data.labelled.row import Row
from ernie.data.shards import file_sha256
from ernie.errors import UserError, check_there
from ernie.kernels.precision import WantedForInference
from ernie.model.ernie import ErnieModel
from ernie.model.pretrained import TASK_FILE
from ernie.model.weights import arrays
from ernie.parallel.launch import LOGS_FOLDER
from ernie.registry import plugin_sources
from ernie.saved import read_json
from ernie.train.alone import alone
from ernie.train.origin import origin
from finetune.config import FinetuneConfig, load
from finetune.model import FinetunedModel
from finetune.prepare import Prepared
from finetune.trial import SCORES_FILE
from tasks.downstream.base import FinetuneTask

CONFIG_FILE, ORIGIN_FILE, MODEL_FOLDER, TRIALS_FOLDER = "config.yaml", "origin.json", "model", "trials"
_TRIAL_FILE = "trial.txt"  # in the model's folder: the name of the trial that it came of
# Keys that change nothing of a single fine-tuning: with others, finished ones still count.
_FREE = ("output", "seeds", "save_minutes", "grid", "plugins", "published", "submission", "local", "parallel")


@contextmanager
def claimed(config: FinetuneConfig, inputs: Mapping[str, str], folder: Path) -> Iterator[None]:
    """Make the folder this run's, and keep it from other processes; `inputs` are fingerprints of what it learns from.

    Raises UserError when it holds something else, when another process is at work on it, or when it has finished
    trials of another configuration or of other inputs.
    """
    if any((folder / TRIALS_FOLDER).glob(f"*/{SCORES_FILE}")):
        _check_same(config, inputs, folder)
    check_folder(folder)
    (folder / TRIALS_FOLDER).mkdir(parents=True, exist_ok=True)
    with alone(folder):
        put_text(folder / CONFIG_FILE, dump(config))
        put_text(folder / ORIGIN_FILE, json.dumps({"inputs": inputs, **origin()}, indent=2) + "\n")
        yield


def check_folder(folder: Path) -> None:
    """Raise UserError for a folder that holds something else than a fine-tuning run."""
    found = {path.name for path in folder.iterdir()} if folder.exists() else set()
    if found - {LOGS_FOLDER} and TRIALS_FOLDER not in found:
        raise UserError(f"{folder}: is not empty and holds no fine-tuning run; choose another --output")


def identity(config: FinetuneConfig, inputs: Mapping[str, str]) -> str:
    """A fingerprint of all that decides what a trial comes to, its seed and point of the grid aside."""
    tree = {key: value for key, value in to_dict(config).items() if key not in _FREE}
    return hashlib.sha256(json.dumps([tree, dict(inputs)], default=str, sort_keys=True).encode()).hexdigest()


def _check_same(config: FinetuneConfig, inputs: Mapping[str, str], folder: Path) -> None:
    changed = {
        key: values
        for key, values in differences(to_dict(load(folder / CONFIG_FILE, saved=True)), to_dict(config)).items()
        if not any(key == free or key.startswith(f"{free}.") for free in _FREE)
    }
    if changed:
        lines = "\n".join(f"  {key}: was {old}, is {new}" for key, (old, new) in changed.items())
        raise UserError(f"{folder}: holds a run of another configuration:\n{lines}\nChoose another --output.")
    others = differences(read_inputs(folder), dict(inputs))
    if others:
        raise UserError(
            f"{folder}: holds a run that learnt from something else under the same name: {', '.join(others)} changed "
            "since. Choose another --output."
        )


def read_inputs(folder: Path) -> dict[str, str]:
    """The fingerprints of what a run learnt from.  Raises UserError when they cannot be read."""
    return read_json(folder / ORIGIN_FILE, {"inputs": (dict,)}, "Choose another --output.")["inputs"]


def inputs_of(encoder: str, splits: Mapping[str, Prepared | Split], config: FinetuneConfig) -> dict[str, str]:
    """Fingerprints of what a run learns from: the encoder's, those of each split's rows and of what they name, of the
    task's own files, and of the plug-ins' code.

    They have the names of keys of a configuration.
    """
    task = config.task
    rows = {f"data.{name}": _of_rows(split.rows, task) for name, split in splits.items()}
    files = {f"task.{field}": file_sha256(file) for field, file in task.learns_from.items()}
    code = {f"plugins.{name}": digest for name, digest in plugin_sources(config.plugins).items()}
    return {"model": encoder, **rows, **files, **code}


def encoder_fingerprint(ernie: ErnieModel) -> str:
    """A fingerprint of an encoder's shape, dropout, weights and tokenizer."""
    tokenizer = ernie.tokenizer.fingerprint if ernie.tokenizer else ""
    digest = hashlib.sha256(json.dumps([tokenizer, to_dict(ernie.config)]).encode())
    for name, values in sorted(arrays(ernie).items()):
        digest.update(name.encode() + values.tobytes())
    return digest.hexdigest()


def _of_rows(rows: Sequence[Row], task: FinetuneTask) -> str:
    digest = hashlib.sha256()
    for row in rows:
        digest.update(json.dumps(row, default=_written).encode() + task.named_by(row) + b"\n")
    return digest.hexdigest()


def _written(cell: object) -> str:
    """What stands for a cell that JSON does not know, such as the bytes of a sound."""
    if isinstance(cell, np.ndarray):
        cell = cell.tobytes()
    return hashlib.sha256(cell).hexdigest() if isinstance(cell, bytes) else str(cell)


def keep_model(model: FinetunedModel, trial: str, folder: Path) -> None:
    """Put the model of a trial into its place, whole or not at all."""
    place = folder / MODEL_FOLDER
    filled = beside(place)
    model.save(filled)
    (filled / _TRIAL_FILE).write_text(f"{trial}\n", encoding="utf-8")
    put(filled, place)


def kept_trial(folder: Path) -> str:
    """The name of the trial whose model the folder keeps, "" when it keeps none."""
    file = folder / MODEL_FOLDER / _TRIAL_FILE
    return file.read_text(encoding="utf-8").strip() if file.is_file() else ""


def precision_of(folder: Path, asked: WantedForInference | None) -> WantedForInference:
    """In which products are computed where a run's model is asked: as was asked for, or fp32 if it has learnt so.

    Other precisions may not be those of the machine that asks.
    """
    if asked is not None or not (folder / CONFIG_FILE).is_file():
        return asked or "auto"
    return "fp32" if (read(folder / CONFIG_FILE).get("train") or {}).get("precision") == "fp32" else "auto"


def read_run(folder: Path) -> FinetuneConfig:
    """The configuration of an existing run.  Raises UserError when the folder is none."""
    check_there(folder)
    if not (folder / CONFIG_FILE).is_file() or not (folder / MODEL_FOLDER / TASK_FILE).is_file():
        raise UserError(f"{folder}: is not the folder of a finished fine-tuning run")
    return replace(load(folder / CONFIG_FILE, saved=True), output=folder)
