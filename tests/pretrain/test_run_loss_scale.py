"""Checkpoints of an fp16 run contain its loss scale.  Testing this does not need a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from ernie.data.shards import Corpus
from ernie.train.log import Log
from ernie.train.loss_scale import LossScale
from pretrain.config import load
from pretrain.run import Run


@contextmanager
def open_run(config: Path, folder: Path, precision: str, checkpoint: Path | None = None) -> Iterator[Run]:
    found = load(config)
    found = replace(found, train=replace(found.train, precision=precision))  # type: ignore[arg-type]
    folder.mkdir(exist_ok=True)
    run = Run(found, folder, Corpus.open(found.corpus), Log(folder, 1, quiet=True), checkpoint=checkpoint)
    try:
        yield run
    finally:
        run.close()
        run.log.close()


def test_an_fp16_run_resumes_with_its_loss_scale_and_skipped_steps(config: Path, tmp_path: Path) -> None:
    with open_run(config, tmp_path / "run", "fp16") as run:
        run.trainer.loss_scale = LossScale(value=512.0, steps=7)
        run.skipped, run.trainer.bad_steps = 5, 2
        run.save()
        checkpoint = run.checkpoints.latest()
    assert checkpoint is not None
    with open_run(config, tmp_path / "run", "fp16") as fresh:
        assert fresh.trainer.loss_scale == LossScale()
    with open_run(config, tmp_path / "run", "fp16", checkpoint) as resumed:
        assert resumed.trainer.loss_scale == LossScale(value=512.0, steps=7)
        assert (resumed.skipped, resumed.trainer.bad_steps) == (5, 2)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_other_precisions_have_no_loss_scale(config: Path, tmp_path: Path, precision: str) -> None:
    with open_run(config, tmp_path / "run", precision) as run:
        assert run.trainer.loss_scale is None
