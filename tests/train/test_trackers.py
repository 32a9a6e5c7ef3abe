"""Trackers of experiments get the numbers of a run, and never stop it."""

from __future__ import annotations

import json
import re
import sys
import time
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from ernie.errors import UserError
from ernie.train.log import METRICS_FILE, Log
from ernie.train.trackers import RECORD, TRACKERS, TrackedRun, TrackerSender, open_trackers

SETTINGS = {"train": {"lr": {"peak": 1e-3}}, "plugins": (), "model": None}


def ran(folder: Path, *trackers: str, steps: int = 2, first: int = 0) -> None:
    """A run with a record a step."""
    tracked = TrackedRun("reviews/seed=0", group="reviews", settings=SETTINGS, trackers=trackers)
    log = Log(folder, 4, resume_at=first, quiet=True, tracked=tracked)
    for step in range(first, first + steps):
        log.record("step", step, loss={"red": 1.5 + step}, task="red", skipped=False)
        log.progress(step)
    log.close()


def test_tensorboard_gets_every_number(tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    ran(tmp_path, "tensorboard", steps=1)
    (events,) = (tmp_path / "tensorboard").iterdir()
    assert b"step/loss/red" in events.read_bytes()
    assert json.loads((tmp_path / METRICS_FILE).read_text())["loss"] == {"red": 1.5}


@pytest.fixture(scope="module")
def database(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The address of a database in a file, in the place of a server; making its tables takes seconds."""
    pytest.importorskip("mlflow")
    return f"sqlite:///{tmp_path_factory.mktemp('mlflow') / 'mlflow.db'}"


@pytest.fixture
def runs(database: str, monkeypatch: pytest.MonkeyPatch) -> Callable[[], list[Any]]:
    """The runs in an experiment of MLflow that is the test's own, when called."""
    import mlflow

    name = uuid.uuid4().hex
    monkeypatch.setenv("MLFLOW_TRACKING_URI", database)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", name)
    client = mlflow.MlflowClient(database)
    return lambda: list(client.search_runs([client.get_experiment_by_name(name).experiment_id]))


def test_mlflow_gets_the_settings_and_every_number_and_a_resumed_run_goes_on_there(
    runs: Callable[[], list[Any]], database: str, tmp_path: Path
) -> None:
    import mlflow

    ran(tmp_path, "mlflow", steps=3)
    (found,) = runs()
    assert (found.info.run_name, found.info.status) == ("reviews/seed=0", "KILLED")  # after 3 of its 4 steps
    assert found.data.params == {"train.lr.peak": "0.001", "plugins": "()", "model": "null"}
    assert found.data.tags["group"] == "reviews"
    ran(tmp_path, "mlflow", first=2)
    (found,) = runs()
    assert found.info.status == "FINISHED"
    values = mlflow.MlflowClient(database).get_metric_history(found.info.run_id, "step/loss/red")
    assert sorted((value.step, value.value) for value in values) == [(0, 1.5), (1, 2.5), (2, 3.5), (2, 3.5), (3, 4.5)]


def test_a_run_that_mlflow_has_lost_is_begun_anew(runs: Callable[[], list[Any]], tmp_path: Path) -> None:
    (tmp_path / RECORD).write_text('{"mlflow": "0123456789abcdef0123456789abcdef"}')
    ran(tmp_path, "mlflow", steps=4)
    (found,) = runs()
    assert json.loads((tmp_path / RECORD).read_text()) == {"mlflow": found.info.run_id}


def test_names_that_mlflow_refuses_are_spelled_with_underscores(runs: Callable[[], list[Any]], tmp_path: Path) -> None:
    log = Log(tmp_path, 1, quiet=True, tracked=TrackedRun("run", trackers=("mlflow",)))
    log.record("step", 0, loss={"蓝(2)": 2.0}, rate=float("nan"))
    log.close()
    (found,) = runs()
    assert found.data.metrics["step/loss/蓝_2_"] == 2


def test_a_server_that_cannot_be_reached_is_an_error_before_training(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("mlflow")
    monkeypatch.setenv("MLFLOW_TRACKING_URI", "http://anna:key@127.0.0.1:9")
    monkeypatch.setenv("MLFLOW_HTTP_REQUEST_MAX_RETRIES", "0")
    with pytest.raises(
        UserError, match=r"^mlflow: no run can be started at http://anna:\.\.\.@127\.0\.0\.1:9: "
    ) as error:
        ran(tmp_path, "mlflow")
    assert "key@" not in str(error.value)


def test_without_a_key_wandb_keeps_the_run_to_be_sent_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("wandb")
    for name in ("WANDB_API_KEY", "WANDB_MODE", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "none"))
    tracked = TrackedRun("reviews/seed=0", settings=SETTINGS, trackers=("wandb",))
    log = Log(tmp_path, 1, tracked=tracked)
    log.record("step", 0, loss={"red": 1.5})
    log.progress(0)
    log.close()
    found = re.search(r"wandb: kept in (\S+); `wandb sync \1` sends it", capfd.readouterr().err)
    assert found is not None
    (kept,) = Path(found[1]).glob("run-*.wandb")
    assert kept.stem == f"run-{json.loads((tmp_path / RECORD).read_text())['wandb']}"
    end = time.monotonic() + 30
    while b"step/loss/red" not in kept.read_bytes():  # wandb's own process writes it
        assert time.monotonic() < end
        time.sleep(0.1)
    assert b"peak" in kept.read_bytes()


class Slow:
    """A tracker that takes a record only when it is let."""

    where = "in a drawer"

    def __init__(self) -> None:
        self.let, self.taken = Event(), list[int]()

    def add(self, numbers: Mapping[str, float], step: int) -> None:
        assert self.let.wait(30)
        self.taken.append(step)

    def close(self, finished: bool) -> None:
        self.taken.append(-1)


def test_a_slow_tracker_does_not_hold_up_a_run() -> None:
    said: list[str] = []
    tracker = Slow()
    sender = TrackerSender("slow", tracker, said.append)
    began = time.monotonic()
    for step in range(1000):
        sender.add({"loss": 1.0}, step)
    assert time.monotonic() - began < 10
    sender.close(True, patience=0.1)
    (sentence,) = said
    assert sentence == (
        "note: slow: 1,000 records did not reach it, which has not answered for 0.1 s; metrics.jsonl has all"
    )
    tracker.let.set()


def test_what_is_not_sent_yet_is_waited_for_at_the_end() -> None:
    tracker = Slow()
    sender = TrackerSender("slow", tracker, pytest.fail)
    for step in range(3):
        sender.add({"loss": 1.0}, step)
    tracker.let.set()
    sender.close(True)
    assert tracker.taken == [0, 1, 2, -1]


def test_a_tracker_that_fails_is_given_up_and_its_missing_records_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    class Failing(Slow):
        def __init__(self, *_: object) -> None:
            super().__init__()

        def add(self, numbers: Mapping[str, float], step: int) -> None:
            if step == 2:
                raise ConnectionError("http://anna:key@127.0.0.1 is gone\nat line 1")

    monkeypatch.setitem(TRACKERS, "failing", Failing)
    log = Log(tmp_path, 5, tracked=TrackedRun("run", trackers=("failing",)))
    for step in range(5):
        log.record("step", step, loss=1.0)
    log.close()
    said = capsys.readouterr().err
    assert "failing: in a drawer" in said
    assert "note: failing: takes no more numbers: http://anna:...@127.0.0.1 is gone." in said
    assert "note: failing: 3 records did not reach it; metrics.jsonl has all" in said
    assert len((tmp_path / METRICS_FILE).read_text().splitlines()) == 5


def test_a_tracker_that_is_not_installed_is_an_error_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UserError, match=r"^wandb: needs wandb: pip install 'ernie-continual\[wandb\]'$"):
        open_trackers(TrackedRun("run", trackers=("wandb",)), tmp_path, 0, print)
