"""Every shipped YAML file loads."""

from __future__ import annotations

from pathlib import Path

import pytest

from ernie.model.config import EncoderConfig
from pretrain.config import load
from pretrain.schedule import Schedule

ROOT = Path(__file__).resolve().parent.parent
CONFIGS = ROOT / "configs" / "pretrain"
FILES = sorted(file for folder in (CONFIGS, ROOT / "benchmarks" / "pretrain") for file in folder.rglob("*.yaml"))


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.relative_to(ROOT).as_posix())
def test_a_configuration_loads_and_its_schedule_builds(file: Path) -> None:
    config = load(file)
    schedule = Schedule(config.schedule, config.train.micro_batches)
    assert {name for slot in (schedule[0], schedule[len(schedule) - 1]) for name in slot.draws} <= set(config.tasks)
    assert max(task.length for task in config.tasks.values()) <= EncoderConfig.preset(config.model.preset).max_positions


def test_the_batch_of_the_paper_has_393216_tokens() -> None:
    config = load(CONFIGS / "ernie2-en.yaml")
    assert config.data.micro_batch_tokens * config.train.micro_batches == 393_216


def test_all_ablation_schedules_train_each_task_for_1000_steps() -> None:
    totals = []
    for method in ("continual", "sequential", "joint"):
        counts: dict[str, int] = {}
        for stage in load(CONFIGS / "ablation" / f"{method}.yaml").schedule.table:
            for task, steps in stage.items():
                counts[task] = counts.get(task, 0) + steps
        totals.append(counts)
    assert totals[0] == totals[1] == totals[2] == dict.fromkeys(totals[0], 1000)
