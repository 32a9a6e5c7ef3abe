"""Runs whose masking depends on the step and on the corpus resume bit for bit and can be replayed."""

from __future__ import annotations

import shutil
from pathlib import Path

from support.pretraining import outcome, pretrain

from ernie.cli import main

MASKING = "tasks.knowledge_masking={initial_mask_rate: 0.5, mask_rate: 0.1, rarity: 0.5}"


def test_a_run_resumes_bit_for_bit_with_any_workers(config: Path, tmp_path: Path) -> None:
    whole, run = tmp_path / "whole", tmp_path / "run"
    options = ("--set", MASKING, "--set", "save.keep_last=9")
    assert pretrain(config, whole, *options) == 0
    shutil.copytree(whole, run)
    for path in (run / "checkpoints").iterdir():
        if path.name > "step-00000005":
            shutil.rmtree(path)
    shutil.rmtree(run / "model")
    assert pretrain(config, run, *options, "--set", "data.workers=1") == 0
    assert outcome(run) == outcome(whole)
    assert main(["verify", str(whole), "--quiet"]) == 0
    assert main(["replay", str(whole), "--step", "7", "--quiet"]) == 0
