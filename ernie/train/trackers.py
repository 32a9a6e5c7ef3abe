"""Trackers of experiments, which get the numbers of a run beside its own `metrics.jsonl`.

`tensorboard` writes files that TensorBoard shows.  `mlflow` and `wandb` (Weights & Biases) find their server, project
and key by their own variables, such as MLFLOW_TRACKING_URI and WANDB_PROJECT.  A tracker that fails or is slow does not
stop a run: its numbers are sent from a thread, and what it did not take is counted and said.
"""

from __future__ import annotations

import json
import logging
import netrc
import os
import re
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Protocol
from urllib.parse import urlsplit

from ernie.atomic import put_text
from ernie.data.remote import without_secrets
from ernie.errors import UserError
from ernie.formatting import plural

RECORD = "trackers.json"  # in the folder of a run: the numbers that trackers know it by
_PATIENCE = 30.0  # seconds at the end of a run for what is not sent yet
_MLFLOW_PATIENCE = {"MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2", "MLFLOW_HTTP_REQUEST_TIMEOUT": "10"}
_PROJECT = "ernie"
_LONGEST = 500  # characters of a setting: MLflow's limit in older versions
_Say = Callable[[str], None]


@dataclass(frozen=True)
class TrackedRun:
    """A run as trackers show it: its `name`, the `group` of runs that it belongs to, and its `settings`, a tree."""

    name: str
    group: str = ""
    settings: Mapping[str, Any] = field(default_factory=dict)
    trackers: tuple[str, ...] = ()


class Tracked(Protocol):
    """A configuration that names trackers."""

    @property
    def tensorboard(self) -> bool:
        """Whether files for TensorBoard are written."""

    @property
    def mlflow(self) -> bool:
        """Whether MLflow gets the numbers."""

    @property
    def wandb(self) -> bool:
        """Whether Weights & Biases gets the numbers."""


class Tracker(Protocol):
    """Takes the numbers of one run."""

    where: str  # a sentence about where they are to be seen, or ""

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        """Take the numbers of a step, some of which may not be finite."""

    def close(self, finished: bool) -> None:
        """End the run: it has `finished`, or is to be resumed."""


class TrackerSender:
    """Sends the numbers of a run to a tracker, from a thread of its own."""

    def __init__(self, name: str, tracker: Tracker, say: _Say) -> None:
        self._name, self._tracker, self._say = name, tracker, say
        self._queue: SimpleQueue[tuple[Mapping[str, float], int] | bool] = SimpleQueue()
        self._given = self._taken = 0
        self._failed = False
        self._thread = Thread(target=self._send, name=f"tracker {name}", daemon=True)
        self._thread.start()

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        """Give the numbers of a step, and return at once."""
        self._given += 1
        self._queue.put((numbers, step))

    def close(self, finished: bool, patience: float = _PATIENCE) -> None:
        """Wait until all is sent, for at most so many seconds, and say how many records the tracker lacks."""
        self._queue.put(finished)
        self._thread.join(patience)
        if missing := self._given - self._taken:
            reason = "" if self._failed else f", which has not answered for {patience:g} s"
            lost = f"{plural(missing, 'record')} did not reach it{reason}"
            self._say(f"note: {self._name}: {lost}; metrics.jsonl has all")

    def _send(self) -> None:
        while True:
            item = self._queue.get()
            try:
                if isinstance(item, bool):
                    self._tracker.close(item)
                    return
                self._tracker.add(*item)
            except Exception as error:  # of other libraries, servers and networks, which must not end a run
                self._failed = True
                self._say(f"note: {self._name}: takes no more numbers: {_short(error)}")
                return
            self._taken += 1


def tracked_by(config: Tracked) -> tuple[str, ...]:
    """Return the names of the trackers that a configuration asks for."""
    return tuple(name for name in TRACKERS if getattr(config, name))


def check_trackers(config: Tracked) -> None:
    """Raise UserError if a tracker is not installed."""
    for name in tracked_by(config):
        _imported(name)


def open_trackers(run: TrackedRun, folder: Path, resume_at: int, say: _Say) -> list[TrackerSender]:
    """Begin a run, or go on with it, in all its trackers, and say where it is to be seen.

    Raises UserError if a tracker is not installed or cannot be reached.
    """
    senders = []
    for name in run.trackers:
        tracker = TRACKERS[name](run, folder, resume_at)
        if tracker.where:
            say(f"{name}: {tracker.where}")
        senders.append(TrackerSender(name, tracker, say))
    return senders


class TensorBoard:
    """Files in the folder `tensorboard` of the run."""

    where = ""

    def __init__(self, run: TrackedRun, folder: Path, resume_at: int) -> None:
        purged = resume_at or None  # later steps are trained again
        self._writer = _imported("tensorboard").SummaryWriter(str(folder / "tensorboard"), purge_step=purged)

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        """Write the numbers of a step."""
        for name, value in numbers.items():
            self._writer.add_scalar(name, value, step)

    def close(self, finished: bool) -> None:
        """Close the files."""
        self._writer.close()


class MLflow:
    """A run of MLflow, in the experiment MLFLOW_EXPERIMENT_NAME, or else one with this library's name."""

    def __init__(self, run: TrackedRun, folder: Path, resume_at: int) -> None:
        for name, value in _MLFLOW_PATIENCE.items():
            os.environ.setdefault(name, value)
        mlflow = _imported("mlflow")
        for name in ("mlflow", "alembic"):  # which report each table of a new database
            logging.getLogger(name).setLevel(logging.WARNING)
        self._entities, self._error = mlflow.entities, mlflow.exceptions.MlflowException
        self._client = mlflow.MlflowClient()
        place = without_secrets(str(self._client.tracking_uri))
        try:
            self._run, self._is_new = self._begin(run, _known(folder).get("mlflow"))
        except Exception as error:  # MLflow's own, and those of its libraries for databases and HTTP
            raise UserError(
                f"mlflow: no run can be started at {place}: {_short(error)} MLFLOW_TRACKING_URI says where it is"
            ) from None
        _remember(folder, "mlflow", self._run)
        self.where = f"{'' if self._is_new else 'goes on with '}run {self._run} ({run.name}) at {place}"

    def _begin(self, run: TrackedRun, known: str | None) -> tuple[str, bool]:
        if known is not None:
            with suppress(self._error):  # a run that is no longer there
                self._client.update_run(known, status="RUNNING")
                return known, False
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", _PROJECT)
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment is not None else self._client.create_experiment(name)
        tags = {"group": run.group} if run.group else {}
        found = self._client.create_run(number, run_name=run.name, tags=tags).info.run_id
        params = [self._entities.Param(_name(key), text[:_LONGEST]) for key, text in _flat(run.settings).items()]
        for first in range(0, len(params), 100):  # the most that one request may have
            self._client.log_batch(found, params=params[first : first + 100])
        return found, True

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        """Send the numbers of a step, in one request."""
        now = int(1000 * time.time())
        metrics = [self._entities.Metric(_name(key), value, now, step) for key, value in numbers.items()]
        self._client.log_batch(self._run, metrics=metrics)

    def close(self, finished: bool) -> None:
        """Mark the run as finished, or as killed."""
        self._client.set_terminated(self._run, "FINISHED" if finished else "KILLED")


class WandB:
    """A run of Weights & Biases, in the project WANDB_PROJECT, or else one with this library's name.

    Without a key, and without WANDB_MODE, it is kept in the run's folder, to be sent later.
    """

    def __init__(self, run: TrackedRun, folder: Path, resume_at: int) -> None:
        wandb = _imported("wandb")
        offline = "WANDB_MODE" not in os.environ and not _has_key()
        options = {"mode": "offline"} if offline else {}
        try:
            self._run = wandb.init(
                dir=str(folder),
                id=_known(folder).get("wandb"),
                resume="allow",
                project=os.environ.get("WANDB_PROJECT", _PROJECT),
                name=run.name,
                group=run.group or None,
                config=dict(run.settings),
                reinit="create_new",
                settings=wandb.Settings(silent=True, console="off"),
                **options,
            )
        except Exception as error:  # wandb's own, and those of its network
            raise UserError(f"wandb: no run can be started: {_short(error)}") from None
        self._run.define_metric("step")
        self._run.define_metric("*", step_metric="step")  # a resumed run repeats steps, which its own numbers may not
        _remember(folder, "wandb", self._run.id)
        place = Path(self._run.dir).parent
        self.where = f"kept in {place}; `wandb sync {place}` sends it" if offline else str(self._run.url or place)

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        """Give the numbers of a step to wandb's own process."""
        self._run.log({**numbers, "step": step})

    def close(self, finished: bool) -> None:
        """End the run, as failed if it has not finished."""
        self._run.finish(exit_code=0 if finished else 1)


TRACKERS: dict[str, Callable[[TrackedRun, Path, int], Tracker]] = {
    "tensorboard": TensorBoard,
    "mlflow": MLflow,
    "wandb": WandB,
}


def numbers_of(values: Mapping[str, Any], prefix: str = "") -> dict[str, float]:
    """Return the numbers in a tree, under their paths joined by `/`."""
    found: dict[str, float] = {}
    for key, value in values.items():
        if isinstance(value, Mapping):
            found |= numbers_of(value, f"{prefix}{key}/")
        elif isinstance(value, (int, float)) and not isinstance(value, bool):
            found[f"{prefix}{key}"] = float(value)
    return found


def _imported(name: str) -> Any:
    """The module that a tracker needs."""
    try:
        if name == "tensorboard":
            import tensorboardX

            return tensorboardX
        if name == "mlflow":
            import mlflow

            return mlflow
        import wandb
    except ImportError:
        package, extra = {"tensorboard": ("tensorboardX", "tracking")}.get(name, (name, name))
        raise UserError(f"{name}: needs {package}: pip install 'ernie-continual[{extra}]'") from None
    return wandb


def _has_key() -> bool:
    """Whether a key for Weights & Biases is known, by its variable or by what `wandb login` wrote."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlsplit(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    with suppress(OSError, netrc.NetrcParseError):
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    return False


def _known(folder: Path) -> dict[str, str]:
    """The numbers of the run in a folder by which trackers know it."""
    with suppress(OSError, ValueError):
        found = json.loads((folder / RECORD).read_text(encoding="utf-8"))
        if isinstance(found, dict):
            return {key: value for key, value in found.items() if isinstance(value, str)}
    return {}


def _remember(folder: Path, name: str, number: str) -> None:
    put_text(folder / RECORD, json.dumps({**_known(folder), name: number}) + "\n")


def _flat(settings: Mapping[str, Any], prefix: str = "") -> dict[str, str]:
    """The settings in a tree as text, under their paths joined by dots."""
    found: dict[str, str] = {}
    for key, value in settings.items():
        if isinstance(value, Mapping):
            found |= _flat(value, f"{prefix}{key}.")
        else:
            found[f"{prefix}{key}"] = "null" if value is None else str(value)
    return found


def _name(text: str) -> str:
    """A name without the characters that MLflow refuses."""
    return re.sub(r"[^\w\-. /]", "_", text)


def _short(error: Exception) -> str:
    """The first line of an error's message, as a sentence."""
    line = next(iter(str(error).strip().splitlines()), type(error).__name__)
    return without_secrets(line if len(line) <= 300 else f"{line[:300]}...").rstrip(".") + "."
