"""Which checkpoint is the best one."""

from __future__ import annotations

from pathlib import Path

from made_up_run import score

from ernie.train.checkpoint import Checkpoints
from pretrain.run import overall


def test_of_perplexities_the_lowest_is_kept(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1, keep_best=True)
    for step, value in ((1, 8.0), (2, 4.0), (3, 9.0), (4, 6.0)):
        checkpoints.save(step, lambda folder: (folder / "state").touch(), overall([score(value, name="perplexity")]))
    assert checkpoints.steps() == [2, 4]


def test_a_measurement_of_fewer_tasks_is_not_the_better_for_it() -> None:
    easy, hard = score(0.9), score(0.4)
    assert overall([easy]) < overall([easy, hard])


def test_metrics_of_both_directions_join_in_one_figure() -> None:
    assert overall([score(0.5), score(4.0, name="perplexity")]) == 0.75


def test_a_run_whose_schedule_became_longer_is_not_best_where_it_knew_fewer_tasks(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1, keep_best=True)
    for step, found in ((1, [score(1.0)]), (2, [score(0.8), score(0.4)]), (3, [score(0.7), score(0.4)])):
        checkpoints.save(step, lambda folder: (folder / "state").touch(), overall(found))
    assert checkpoints.steps() == [2, 3]
