"""Checkpoints of a run on a GPU, played by a CPU, are written while training goes on."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.fake_gpu import fake_gpu

from ernie.data.shards import Corpus
from ernie.errors import NotFinite, Remark, TrainingFailed
from ernie.model.weights import arrays
from ernie.train.checkpoint import Background
from ernie.train.log import Log
from pretrain import run as run_module
from pretrain.config import load
from pretrain.run import Run


class Gate:
    """Holds back whoever writes the state of a trainer, until it is opened; may then fail."""

    def __init__(self, error: Exception | None = None) -> None:
        self.open, self.error = threading.Event(), error

    def __call__(self, *args: Any, write: Any = run_module.write_state) -> None:
        assert self.open.wait(30)
        if self.error is not None:
            raise self.error
        write(*args)


@pytest.fixture
def run(config: Path, tmp_path: Path) -> Iterator[Run]:
    found = load(config)
    with fake_gpu():
        made = Run(found, tmp_path, Corpus.open(found.corpus), Log(tmp_path, 1, quiet=True))
        yield made
        made.close()
        made.log.close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_checkpoint_holds_the_state_from_which_training_has_gone_on(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    run.save(wait=True)
    wanted = contents(run.checkpoints.path(0))
    gate = Gate()
    monkeypatch.setattr(run_module, "write_state", gate)
    run.save(wait=False)
    for parameter in run.model.parameters():
        parameter.set_value(np.zeros(parameter.shape, np.float32))
    run.skipped = 7
    run.check_saved()  # nothing has failed
    gate.open.set()
    run.save(wait=False)  # waits for the one before
    assert not any(values.any() for values in arrays(run.model).values())
    assert wanted.keys() >= {"manifest.json", "state.json", "heads.safetensors", "optimizer.safetensors"}
    assert contents(run.checkpoints.path(0)) == wanted


def test_a_checkpoint_that_cannot_be_written_ends_the_run_at_its_next_step(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(NotFinite("'weight' holds NaN"))
    monkeypatch.setattr(run_module, "write_state", gate)
    run.save(wait=False)
    run.step = 5
    gate.open.set()
    with pytest.raises(TrainingFailed, match=r"after step 0: 'weight' holds NaN\. There is no checkpoint yet"):
        while True:
            run.check_saved()
    assert not list(run.checkpoints.folder.iterdir())


def test_a_run_that_ends_says_that_its_last_checkpoint_was_not_written(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate = Gate(OSError("no such disk"))
    monkeypatch.setattr(run_module, "write_state", gate)
    run.save(wait=False)
    gate.open.set()
    with pytest.warns(Remark, match="a checkpoint was not written: no such disk"):
        run.close()


def test_things_in_the_background_are_done_one_after_the_other() -> None:
    background, order = Background(), []
    for number in range(3):
        background.start(lambda number=number: order.append(number))
    background.wait()
    assert order == [0, 1, 2]
