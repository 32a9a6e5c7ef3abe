"""Selection of the best checkpoint."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from support.made_up_run import score

from ernie.train.checkpoint import Checkpoints
from pretrain.run import overall


def test_the_lowest_perplexity_is_the_best(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1, keep_best=True)
    for step, value in ((1, 8.0), (2, 4.0), (3, 9.0), (4, 6.0)):
        checkpoints.save(step, lambda folder: (folder / "state").touch(), overall([score(value, name="perplexity")]))
    assert checkpoints.steps() == [2, 4]


def test_a_score_that_is_not_finite_is_none_and_never_the_best(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1, keep_best=True)
    for step, value in ((1, float("nan")), (2, 0.9), (3, 0.5)):
        checkpoints.save(step, lambda folder: (folder / "state").touch(), overall([replace(score(0.5), value=value)]))
    assert checkpoints.steps() == [2, 3]


def test_measuring_fewer_tasks_does_not_score_higher() -> None:
    easy, hard = score(0.9), score(0.4)
    fewer, more = overall([easy]), overall([easy, hard])
    assert fewer is not None and more is not None and fewer < more


def test_metrics_of_both_directions_combine_into_one_score() -> None:
    assert overall([score(0.5), score(4.0, name="perplexity")]) == 0.75


def test_after_extending_a_schedule_earlier_checkpoints_with_fewer_tasks_are_not_best(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1, keep_best=True)
    for step, found in ((1, [score(1.0)]), (2, [score(0.8), score(0.4)]), (3, [score(0.7), score(0.4)])):
        checkpoints.save(step, lambda folder: (folder / "state").touch(), overall(found))
    assert checkpoints.steps() == [2, 3]
