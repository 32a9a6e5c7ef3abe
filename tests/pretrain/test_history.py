"""Reading the log of a run."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from support.made_up_run import SEVEN, made_up_run

from ernie.errors import UserError
from pretrain.history import read_history


def test_each_loss_is_stored_at_its_step(tmp_path: Path) -> None:
    history = read_history(made_up_run(tmp_path / "run", SEVEN[:2], steps_per_task=6))
    present = np.array([np.isfinite(history.losses[task]) for task in SEVEN[:2]])
    assert present.sum(axis=0).tolist() == [1] * 12  # one task per step
    assert present.sum(axis=1).tolist() == [6, 6]
    assert np.flatnonzero(present[1])[0] == 4  # the second task arrives with stage 2


def test_skipped_steps_are_marked_and_have_neither_loss_nor_norm(tmp_path: Path) -> None:
    history = read_history(made_up_run(tmp_path / "run", SEVEN[:1], steps_per_task=8, skipped=(0, 5)))
    assert np.flatnonzero(history.skipped).tolist() == [0, 5]
    assert np.flatnonzero(np.isnan(history.gradient_norm)).tolist() == [0, 5]
    assert np.flatnonzero(np.isnan(history.losses[SEVEN[0]])).tolist() == [0, 5]


def test_the_headline_metric_is_a_tasks_first_score(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", SEVEN[:1], steps_per_task=8, probe_every=3)
    found = read_history(run).measured(SEVEN[0])
    assert [(m.step, m.ends_stage, m.score.name) for m in found] == [
        (2, False, "accuracy"),
        (5, False, "accuracy"),
        (7, True, "accuracy"),
    ]


def test_a_run_without_steps_has_an_empty_history(tmp_path: Path) -> None:
    history = read_history(made_up_run(tmp_path / "run", done=0))
    assert (history.done, history.losses, history.measurements) == (0, {}, [])


def test_a_line_truncated_by_a_kill_is_ignored(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", done=5)
    file = run / "metrics.jsonl"
    file.write_bytes(file.read_bytes()[:-20])
    assert read_history(run).done == 4


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (b'{"kind": "st\n', "metrics.jsonl:1: is not JSON"),
        (b"5\n", "metrics.jsonl:1: is not a record"),
        (b'{"step": 4}\n', "metrics.jsonl:1: is not a record"),
        (b"\xff\xfe\n", "metrics.jsonl: is not UTF-8 text"),
        (b'{"kind": "step", "step": 0}\n', "metrics.jsonl: step 0: stage: this key is missing"),
        (
            b'{"kind": "probe", "step": 0, "stage": 0, "ends_stage": true, "task": "a", "scores": {}}\n',
            "metrics.jsonl: probe 0: scores: is empty",
        ),
        (
            b'{"kind": "probe", "step": 0, "stage": 0, "ends_stage": true, "task": "a", "scores": {"f": {}}}\n',
            "scores.f.name: this key is missing",
        ),
    ],
)
def test_a_damaged_file_raises_an_error(damage: bytes, message: str, tmp_path: Path) -> None:
    run = made_up_run(tmp_path / "run", done=2)
    file = run / "metrics.jsonl"
    file.write_bytes(damage + file.read_bytes())
    with pytest.raises(UserError, match=message):
        read_history(run)
