"""Checkpoints: what a resume needs, in folders that are written atomically, checksummed and pruned.

A checkpoint is a folder `step-00000100`.  It is written under a temporary name, flushed to disk and renamed, so that a
kill at any moment leaves the last complete checkpoint intact.

STEP/state.json              the progress of the run, and the trainer's counters
STEP/optimizer.safetensors   the optimizer's moments and step counts
STEP/manifest.json           the step, its score, and the checksum of every file

The weights are the caller's: pretraining writes an encoder and its heads, fine-tuning a model and its best one.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import threading
import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any

import numpy as np

from ernie.atomic import PARTIAL, disk_guard
from ernie.errors import Remark, UserError
from ernie.json_file import read_json
from ernie.sha256 import check_checksums, checksums_of
from ernie.train.loss_scale import KIND as LOSS_SCALE
from ernie.train.loss_scale import LossScale

if TYPE_CHECKING:
    from ernie.model.weights import StoredArray

MANIFEST, STATE, OPTIMIZER = "manifest.json", "state.json", "optimizer.safetensors"
_TRAINER_KEYS = {"bad_steps": int, "loss_scale?": (LOSS_SCALE, NoneType)}
_OLD = f".old{PARTIAL}"  # suffix of one that is being replaced by another of the same step
_TO_APPEAR = 20.0  # seconds: a network file system may show late what another machine has renamed
_NAME = re.compile(rf"step-(\d{{8}})(?:{re.escape(_OLD)})?")


@dataclass(frozen=True)
class TrainerState:
    """All that a `Trainer` needs to go on bit for bit, besides the weights.

    `optimizer` holds full arrays by name, on rank 0 only, or those of a file, which every process reads in parts.
    `bad_steps` counts the last steps that were not finite; `loss_scale` is that of fp16, else None.
    """

    optimizer: Mapping[str, np.ndarray | StoredArray]
    bad_steps: int
    loss_scale: LossScale | None


class Checkpoints:
    """The checkpoints of one run.

    Keeps the newest `keep_last` and, if `keep_best`, the one with the highest score.
    """

    def __init__(self, folder: Path, keep_last: int = 2, keep_best: bool = False):
        self.folder = folder
        self._keep_last = keep_last
        self._keep_best = keep_best

    def steps(self) -> list[int]:
        """Return the steps that have a checkpoint, oldest first."""
        if not self.folder.is_dir():
            return []
        return sorted({int(match[1]) for path in self.folder.iterdir() if (match := _NAME.fullmatch(path.name))})

    def path(self, step: int) -> Path:
        """Return the folder of a step's checkpoint."""
        path = self.folder / f"step-{step:08d}"
        replaced = path.with_name(path.name + _OLD)
        return replaced if replaced.exists() and not path.exists() else path

    def save(self, step: int, write: Callable[[Path], None], score: float | None = None) -> Path:
        """Have `write(folder)` fill a new checkpoint, move it into place, and delete the ones no longer kept.

        Raises UserError when the disk is full; the earlier checkpoints are then untouched.
        """
        for replaced in self.folder.glob(f"*{_OLD}"):  # by a process that was killed before its own was in place
            if not (place := replaced.with_name(replaced.name.removesuffix(_OLD))).exists():
                replaced.rename(place)
        target = self.path(step)
        partial = target.with_name(target.name + PARTIAL)
        for leftover in self.folder.glob(f"*{PARTIAL}"):  # left by a killed process
            shutil.rmtree(leftover, ignore_errors=True)
        partial.mkdir(parents=True)
        with disk_guard(self.folder, f"the checkpoint of step {step} was not written, the earlier ones are untouched"):
            try:
                write(partial)
                manifest = {"step": step, "score": score, "sha256": checksums_of(partial, _files(partial))}
                (partial / MANIFEST).write_text(json.dumps(manifest, indent=2) + "\n", encoding="utf-8")
                _flush(partial)
            except BaseException:
                shutil.rmtree(partial, ignore_errors=True)
                raise
        if target.exists():  # the same step written again, for instance after an earlier one was deleted
            replaced = target.rename(target.with_name(target.name + _OLD))
            partial.rename(target)
            shutil.rmtree(replaced, ignore_errors=True)
        else:
            partial.rename(target)
        _flush_folder(self.folder)
        self._prune()
        return target

    def latest(self) -> Path | None:
        """Return the newest checkpoint, or None.

        A folder named as one that holds no manifest is passed over with a warning (a Remark), if there is another.
        """
        paths = [self.path(step) for step in self.steps()]
        whole = [path for path in paths if (path / MANIFEST).exists()]
        for stray in paths[len(paths) - paths[::-1].index(whole[-1]) :] if whole else []:
            warnings.warn(f"{stray}: is passed over: it holds no {MANIFEST}, and is no checkpoint", Remark, 2)
        return next(iter([*reversed(whole), *reversed(paths)]), None)

    def _prune(self) -> None:
        steps = [step for step in self.steps() if (self.path(step) / MANIFEST).exists()]
        kept = set(steps[-self._keep_last :])
        if self._keep_best:
            scores = {step: read_manifest(self.path(step))["score"] for step in steps}
            scored = {step: value for step, value in scores.items() if value is not None}
            if scored:
                kept.add(max(scored, key=lambda step: (scored[step], step)))
        for step in steps:
            if step not in kept:
                # Renamed first: a half-deleted folder must not look like a checkpoint.
                doomed = self.path(step).rename(self.path(step).with_name(f"step-{step:08d}{PARTIAL}"))
                shutil.rmtree(doomed, ignore_errors=True)


class Background:
    """Does one thing at a time in a thread, while training goes on.

    What the thing raises is raised by the next call of any of the methods.  A process that ends waits for it.
    """

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None
        self._error: BaseException | None = None

    def start(self, act: Callable[[], object]) -> None:
        """Wait for the thing before, and start this one."""
        self.wait()
        self._thread = threading.Thread(target=self._run, args=(act,), name="background")
        self._thread.start()

    def check(self) -> None:
        """Raise what the thing has raised, if it has ended."""
        if self._thread is not None and not self._thread.is_alive():
            self.wait()

    def wait(self) -> None:
        """Wait for the thing to end."""
        if self._thread is not None:
            self._thread.join()
        self._thread, error, self._error = None, self._error, None
        if error is not None:
            raise error

    def _run(self, act: Callable[[], object]) -> None:
        try:
            act()
        except BaseException as error:
            self._error = error


def write_state(folder: Path, trainer: TrainerState, progress: Mapping[str, Any]) -> None:
    """Write the state of a trainer, and the run's own progress as plain data, to a checkpoint's folder."""
    from ernie.model.weights import save_arrays  # local, as it needs Paddle, which reports of a run do without

    record = {**progress, "bad_steps": trainer.bad_steps}
    if trainer.loss_scale is not None:
        record["loss_scale"] = trainer.loss_scale.as_dict()
    save_arrays({name: values[...] for name, values in trainer.optimizer.items()}, folder / OPTIMIZER)
    (folder / STATE).write_text(json.dumps(record, indent=2) + "\n", encoding="utf-8")


def read_progress(checkpoint: Path, keys: Mapping[str, Any], remedy: str) -> dict[str, Any]:
    """Read the progress that a run has written, without the arrays.  It has these keys (see `read_json`).

    Raises UserError with the `remedy` if it cannot be used.
    """
    return read_json(checkpoint / STATE, {**keys, **_TRAINER_KEYS}, remedy)


def read_trainer_state(checkpoint: Path, remedy: str) -> TrainerState:
    """Read the state of a trainer from a checkpoint.  Raises UserError with the `remedy` if it cannot be used."""
    from ernie.model.weights import StoredArrays  # local, as in `write_state`

    record = read_progress(checkpoint, {}, remedy)
    scale = record.get("loss_scale")  # null in checkpoints of earlier versions
    return TrainerState(
        StoredArrays(checkpoint / OPTIMIZER), record["bad_steps"], None if scale is None else LossScale.from_dict(scale)
    )


def read_manifest(path: Path) -> dict[str, Any]:
    """Read a checkpoint's manifest.  Raises UserError if it is missing or damaged."""
    if not (path / MANIFEST).exists():
        raise UserError(f"{path}: is not a checkpoint: it has no {MANIFEST}")
    keys = {"step": int, "score": (float, NoneType), "sha256": {str: str}}
    return read_json(path / MANIFEST, keys, remedy(path))


def remedy(path: Path) -> str:
    """Return advice on how to go on without a damaged checkpoint."""
    steps, step = Checkpoints(path.parent).steps(), _NAME.fullmatch(path.name)
    if step and steps and steps[0] < int(step[1]):
        return f"Delete the folder {path} and start the run again, which resumes from an earlier checkpoint."
    return f"There is no earlier checkpoint: delete the folder {path} to start the run from its beginning."


def await_visible(path: Path, rank: int) -> None:
    """Wait until the checkpoint that rank 0 resumes from is seen by this process, perhaps on another machine.

    Raises UserError after some seconds.
    """
    end = time.monotonic() + _TO_APPEAR
    while not (path / MANIFEST).exists():
        if time.monotonic() > end:
            raise UserError(
                f"{path}: rank 0 resumes from this checkpoint, and rank {rank} does not see it on its machine. Put the "
                "folder of the run on a disk that all machines share, or copy it to each"
            )
        with contextlib.suppress(OSError):
            list(path.parent.iterdir())  # has NFS ask its server what is new
        time.sleep(0.2)


def check(path: Path) -> None:
    """Verify a checkpoint against its checksums.  Raises UserError naming the first file that differs."""
    listed, damaged = read_manifest(path)["sha256"], f"the checkpoint is damaged. {remedy(path)}"
    check_checksums(path, listed, path / MANIFEST, damaged)
    for name in _files(path):
        if name not in listed and name != MANIFEST and name.endswith((".json", ".safetensors")):
            raise UserError(f"{path / name}: has no checksum in {MANIFEST}: {damaged}")


def _files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def _flush(folder: Path) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            with path.open("rb") as file:
                os.fsync(file.fileno())
        else:
            _flush_folder(path)
    _flush_folder(folder)


def _flush_folder(folder: Path) -> None:
    with contextlib.suppress(PermissionError):  # Windows cannot open a folder
        handle = os.open(folder, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
