"""Early stopping: which evaluation of a training is the best one, and when no better one is waited for."""

from __future__ import annotations

from collections.abc import Sequence

from ernie.metrics import LOWER_IS_BETTER
from finetune.train.trial_checkpoint import Evaluation
from tasks.downstream.base import FinetuneTask

_ERROR_RATES = ("wer", "cer")


def best_of(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> int:
    """Return the index of the best evaluation by the task's deciding score; ties go to the first.

    At an error rate of 1, when no word is right, ties go to the last: recognizers predict nothing for some time.
    """
    sign = -1 if task.scored_by[0] in LOWER_IS_BETTER else 1
    first = max(range(len(evaluations)), key=lambda i: (sign * evaluations[i].headline, -i))
    best = evaluations[first].headline
    if not _is_unlearned(task, best):
        return first
    return max(i for i, evaluation in enumerate(evaluations) if evaluation.headline == best)


def unlearned(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> str | None:
    """Return a remark if no word was right when training ended, else None."""
    if not evaluations or not _is_unlearned(task, evaluations[-1].headline):
        return None
    name, score = task.scored_by[0], evaluations[-1].headline
    why = "More is written than is said" if score > 1 else "Recognizers begin with empty transcripts for some time"
    return (
        f"the last {name} on dev is {score:.2f}: nothing is recognized yet. {why}; train longer (train.epochs), or "
        "with a higher learning rate (train.lr.peak)"
    )


def evaluations_since_best(task: FinetuneTask, evaluations: Sequence[Evaluation]) -> int:
    """Return how many evaluations there were after the best one."""
    return len(evaluations) - 1 - best_of(task, evaluations)


def is_out_of_patience(task: FinetuneTask, evaluations: Sequence[Evaluation], patience: int) -> bool:
    """Return whether the last `patience` evaluations brought no improvement."""
    return bool(patience and evaluations) and evaluations_since_best(task, evaluations) >= patience


def _is_unlearned(task: FinetuneTask, score: float) -> bool:
    return task.scored_by[0] in _ERROR_RATES and score >= 1
