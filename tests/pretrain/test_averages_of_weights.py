"""Pretraining with moving averages of the weights: what is measured, saved and resumed."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from support.pretraining import outcome, pretrain

from ernie.model.weights import read_arrays
from ernie.train.log import read_records

OPTIONS = ("--set", "train.ema=0.9", "--set", "save.keep_last=9")


@pytest.fixture(scope="module")
def averaged(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the run of `finished`, with averages."""
    folder = tmp_path_factory.mktemp("averaged") / "run"
    assert pretrain(config, folder, *OPTIONS) == 0
    return folder


def test_the_model_is_that_of_the_averages_and_checkpoints_hold_the_weights(averaged: Path) -> None:
    checkpoint = averaged / "checkpoints" / "step-00000024"
    state, weights = (
        read_arrays(checkpoint / "optimizer.safetensors"),
        read_arrays(checkpoint / "model/model.safetensors"),
    )
    model, name = read_arrays(averaged / "model/model.safetensors"), "encoder.layers.0.q.weight"
    assert (model[name] == state[f"ernie.{name}/average"]).all()
    assert np.abs(model[name] - weights[name]).max() > 1e-5


def test_training_does_not_see_the_averages_and_measurements_do(averaged: Path, finished: tuple[Path, Path]) -> None:
    losses, scores = (
        [[record[key] for record in read_records(run, kind)] for run in (averaged, finished[1])]
        for kind, key in (("step", "loss"), ("probe", "scores"))
    )
    assert losses[0] == losses[1]
    assert scores[0] != scores[1]


def test_a_run_with_averages_resumes_bit_for_bit(config: Path, averaged: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    shutil.copytree(averaged, run)
    for path in (run / "checkpoints").iterdir():
        if path.name > "step-00000010":
            shutil.rmtree(path)
    shutil.rmtree(run / "model")
    assert pretrain(config, run, *OPTIONS) == 0
    assert outcome(run) == outcome(averaged)
    name = "model/model.safetensors"
    assert (run / name).read_bytes() == (averaged / name).read_bytes()
