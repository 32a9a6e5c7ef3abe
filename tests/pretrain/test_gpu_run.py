"""Runs of the command line on a GPU that a CPU plays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.fake_gpu import fake_gpu
from support.pretraining import outcome, pretrain

from ernie.train.log import read_records
from ernie.train.trainer import Trainer

SHORT = [
    *("--set", "schedule={steps_per_task: 2, tasks: [knowledge_masking, capitalization]}", "--set", "tasks={}"),
    *("--set", "save.every=1", "--set", "probe.batches=1"),
    *("--set", "train.precision=fp16", "--set", "train.micro_batches=2"),
]


class Killed(BaseException):
    """Simulates the end of the process."""


def killed_at(step: int, config: Path, output: Path, *more: str) -> None:
    """Run the command and interrupt it before a step."""
    take = Trainer.step

    def until(self: Trainer, number: int, *args: Any) -> Any:
        if number == step:
            raise Killed
        return take(self, number, *args)

    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(Trainer, "step", until)
        pretrain(config, output, *more)


def test_a_killed_run_on_a_gpu_resumes_bit_for_bit(config: Path, tmp_path: Path) -> None:
    with fake_gpu() as device:
        assert pretrain(config, tmp_path / "whole", *SHORT) == 0
        killed_at(2, config, tmp_path / "run", *SHORT)
        assert pretrain(config, tmp_path / "run", *SHORT) == 0
        assert device.launches["flash_attn_unpadded"]
    assert len(read_records(tmp_path / "run", "step")) == 4
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
