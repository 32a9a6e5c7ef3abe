"""The fine-tuning loop: train an encoder with a head on one downstream task, and return the best model."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ernie.model.ernie import ErnieModel
from ernie.parallel.mesh import Mesh
from ernie.train.trainer import StepReport, TrainingStopped
from finetune.config import TrainConfig
from finetune.prepare import Prepared
from finetune.train.model import TrainingModel
from finetune.train.teacher import Teacher
from finetune.train.training import Training
from finetune.train.trial_checkpoint import Evaluation, TrialCheckpoints
from tasks.downstream.base import FinetuneTask

Progress = Callable[[int, StepReport, float], None]  # step number, step report, tokens per second so far


def finetune(
    ernie: ErnieModel,
    task: FinetuneTask,
    train: Prepared,
    dev: Prepared,
    config: TrainConfig,
    seed: int = 0,
    progress: Progress | None = None,
    evaluated: Callable[[Evaluation], None] | None = None,
    mesh: Mesh | None = None,
    checkpoints: TrialCheckpoints | None = None,
    head: Path | None = None,
    teacher: Teacher | None = None,
    workers: int = 0,
) -> tuple[TrainingModel, list[Evaluation]]:
    """Train encoder and head on `train`; return them as of their best evaluation on `dev`, with all evaluations.

    The seed determines row order, dropout and the initial weights of the head, unless they are those of the file
    `head`.  The processes of `mesh` train together; the returned model is that of rank 0.  Training resumes from the
    latest of the `checkpoints` and writes new ones.  A `teacher` has read the rows of train.  So many `workers` read
    the sounds of coming steps (see FinetuneConfig).

    When the loss, gradients or outputs are no longer finite, the best model so far is returned, with a warning (a
    Remark).  Raises TrainingFailed if there is none yet, or if most steps were skipped.
    """
    with Training(
        ernie, task, train, dev, config, seed, mesh or Mesh(), checkpoints, head, teacher, workers
    ) as training:
        for number, step in training.remaining():
            try:
                report = training.step(number, step)
            except TrainingStopped as error:  # raised in all processes
                training.give_up(str(error))
                break
            if progress is not None:
                progress(number, report, training.pace)
            if step.scored:
                if problem := training.evaluate(step):
                    training.give_up(problem)
                    break
                if evaluated is not None:
                    evaluated(training.evaluations[-1])
            training.save_if_due(step)
            if step.scored and training.is_out_of_patience:
                break
    return training.best_model(), training.evaluations
