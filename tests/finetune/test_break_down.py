"""Training whose loss, gradients or outputs become non-finite ends with a clear error and loses no finished work."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import numpy as np
import pytest
from support.toys import TOYS, tiny_encoder

from ernie.cli import main
from ernie.data.batch import Packed
from ernie.errors import Remark, TrainingFailed, UserError
from ernie.model.losses import Loss
from finetune.config import TrainConfig
from finetune.prepare import Prepared
from finetune.train.loop import finetune
from inference.task_model import TaskModel
from tasks.downstream.classify import Classify

if TYPE_CHECKING:
    from paddle import Tensor


@pytest.mark.parametrize("epochs", [1, 5])
def test_an_excessive_learning_rate_is_an_error_with_step_and_causes_and_exit_status_1(
    work: Path, capsys: pytest.CaptureFixture[str], epochs: int
) -> None:
    words = ["--set", "train.lr.peak=1e30", "--set", f"train.epochs={epochs}", "--output", "run"]
    assert main(["finetune", "task.yaml", *words]) == 1
    captured = capsys.readouterr()
    assert "ernie: error: seed=0: step 16: the model's outputs or weights are not finite." in captured.err
    assert "a learning rate that is too high (train.lr.peak is 1e+30)" in captured.err
    assert captured.out == ""
    assert not (work / "run" / "model").exists()


def test_check_reports_non_finite_outputs_too(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["check", "task.yaml", "--set", "train.lr.peak=1e30"]) == 1
    assert "ernie: error: step 1: the model's outputs or weights are not finite." in capsys.readouterr().err


def test_finished_trials_of_a_grid_are_kept_when_another_one_diverges(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["finetune", "task.yaml", "--set", "train.epochs=1", "--output", "run"]
    assert main([*words, "--set", "grid={peak: [1e-3, 1e30]}"]) == 1
    assert "ernie: error: peak=1e+30,seed=0: step 16" in capsys.readouterr().err
    assert main([*words, "--set", "grid={peak: [1e-3]}"]) == 0
    assert "peak=0.001,seed=0: was done before" in capsys.readouterr().err


@dataclass(frozen=True, kw_only=True)
class Diverging(Classify):
    """A classifier whose loss is finite for a given number of batches, then NaN."""

    finite_batches: ClassVar[int] = 0

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        loss = super().loss(logits, batch)
        type(self).finite_batches -= 1
        return (
            loss if type(self).finite_batches >= 0 else Loss(loss.total * float("nan"), loss.count, None, loss.labels)
        )


@dataclass(frozen=True, kw_only=True)
class Flickering(Diverging):
    """A classifier whose loss is finite for every third batch only."""

    batches: ClassVar[int] = 0

    def loss(self, logits: Tensor, batch: Packed) -> Loss:
        type(self).batches += 1
        type(self).finite_batches = int(type(self).batches % 3 == 0)
        return super().loss(logits, batch)


def diverged_after(batches: int, kind: type[Diverging] = Diverging) -> tuple[TaskModel, list[int]]:
    """Fine-tune for 4 epochs of 8 steps with a loss that becomes NaN; return the model and the evaluated steps."""
    toy = TOYS["classify"]
    assert isinstance(toy.task, Classify)
    kind.finite_batches = batches
    task = kind(text=toy.task.text, label=toy.task.label, labels=toy.task.labels, max_len=32)
    encoder = tiny_encoder()
    assert encoder.tokenizer is not None
    rows = toy.rows(64)
    examples = [task.training_example(row, encoder.tokenizer) for row in rows]
    split = Prepared("train", rows, examples, labeled=True)
    model, evaluations = finetune(encoder, task, split, split, TrainConfig(epochs=4, batch=8))
    return model, [evaluation.step for evaluation in evaluations]


def test_the_best_model_before_divergence_is_kept_with_a_remark() -> None:
    with pytest.warns(Remark, match=r"step 24: the loss or gradient of every step was not finite\. Training ended"):
        model, steps = diverged_after(16)
    assert steps == [8, 16]
    assert all(np.isfinite(value.numpy()).all() for value in model.state_dict().values())


def test_divergence_before_any_evaluation_is_an_error() -> None:
    with pytest.raises(UserError, match="step 8: the loss or gradient of every step was not finite"):
        diverged_after(0)


def test_training_most_of_whose_steps_were_skipped_is_an_error() -> None:
    with pytest.raises(TrainingFailed, match="22 of 32 steps were skipped, because their loss or gradient was"):
        diverged_after(0, Flickering)


def test_weights_that_no_row_of_dev_shows_to_be_broken_end_training() -> None:
    """The best model before is kept, as when the outputs are not finite."""
    toy = TOYS["classify"]
    encoder = tiny_encoder()
    table = encoder.embedding.token.weight
    values = table.numpy()
    values[-1] = np.nan  # a token that no text has
    table.set_value(values)
    assert encoder.tokenizer is not None
    rows = toy.rows(16)
    split = Prepared("train", rows, [toy.task.training_example(row, encoder.tokenizer) for row in rows], labeled=True)
    with pytest.raises(TrainingFailed, match="outputs or weights are not finite"):
        finetune(encoder, toy.task, split, split, TrainConfig(epochs=1, batch=8))


def test_a_model_with_nan_weights_makes_no_predictions(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model = TaskModel.load(work / "done")
    bias = model.head.out.bias
    bias.set_value(bias * float("nan"))
    with pytest.raises(UserError, match="the model's outputs are not finite"):
        list(model.predict(["a good film"]))
