"""A run in words: its state, the result in two sentences, and a table with one row per task."""

from __future__ import annotations

import numpy as np

from ernie.formatting import amount, duration, percent, plural
from pretrain.history import History
from pretrain.ledger import Ledger, beats_majority, best
from pretrain.schedule import Schedule

_LAST_SHARE, _LAST_LEAST, _LAST_MOST = 0.05, 8, 100  # of a task's last steps whose mean is reported as its loss
TASKS_NOTE = (
    "The metric is measured on held-out documents; majority is the score of the best constant answer. "
    f"The loss is the mean over the last {_LAST_SHARE:.0%} of the task's steps, {_LAST_LEAST} to {_LAST_MOST} of them."
)


def state(history: History, schedule: Schedule) -> str:
    """How far the run has come."""
    if history.done >= len(schedule):
        return "finished"
    return f"at step {history.done:,} of {len(schedule):,}"


def verdict(history: History, ledger: Ledger, schedule: Schedule) -> str:
    """Which tasks were learned, and which of them have been forgotten since."""
    last = {task: measurements[-1].score for task in schedule.tasks if (measurements := history.measured(task))}
    if not last:
        return "No task has been measured yet."
    guessing = [task for task, score in last.items() if not beats_majority(score)]
    exceptions = f", all but {_listed(guessing)}" if 0 < len(guessing) < len(last) else ""
    learned = (
        "Better on held-out documents than the best constant answer: "
        f"{len(last) - len(guessing)} of {plural(len(last), 'measured task')}{exceptions}."
    )
    if len(ledger.stages) < 2:
        return learned
    lost = [f"{task} ({percent(ledger.forgetting(task) or 0)})" for task in ledger.tasks if ledger.has_forgotten(task)]
    return f"{learned} Forgotten since, by more than chance explains: {_listed(lost) if lost else 'none'}."


def _listed(names: list[str]) -> str:
    return " and ".join([*([", ".join(names[:-1])] if names[:-1] else []), names[-1]])


def sentences(history: History) -> str:
    """What the run did and what it cost, in two sentences."""
    if not history.done:
        return "The run has not done a step yet."
    seconds = history.seconds.sum()
    stages = plural(int(history.stages[-1]) + 1, "stage")
    work = (
        f"{plural(history.done, 'step')} in {stages} read {amount(history.tokens.sum())} tokens in "
        f"{duration(seconds)} of training, at a median of {np.median(history.tokens / history.seconds):,.0f} tokens/s."
    )
    skipped = int(history.skipped.sum())
    cost = (
        f"{percent(history.waiting)} of that time went into waiting for data, besides the "
        f"{duration(history.waited[0])} until the first batch was made; padded batches would have been "
        f"{percent(history.padding.mean())} padding; "
        + (f"{plural(skipped, 'step')} were" if skipped > 1 else "1 step was" if skipped else "no step was")
        + " skipped for a loss or gradient that was not finite."
    )
    return f"{work} {cost}"


def task_rows(history: History, schedule: Schedule) -> list[list[str]]:
    """The table of tasks, header first: the last headline metric, what to compare it with, and the loss."""
    header = ["task", "metric", "last [95% interval]", "majority", "first", "best", "loss"]
    return [header, *(_task_row(history, task) for task in schedule.tasks)]


def _task_row(history: History, task: str) -> list[str]:
    loss = last_loss(history.losses[task]) if task in history.losses else float("nan")
    loss_text = f"{loss:.3f}" if np.isfinite(loss) else "–"
    scores = [measurement.score for measurement in history.measured(task)]
    if not scores:
        return [task, "–", "not measured yet", "–", "–", "–", loss_text]
    last = scores[-1]
    remark = "" if beats_majority(last) else " (not above majority)"
    interval = f"{last.value:.3f} [{last.low:.3f}, {last.high:.3f}]{remark}"
    others = (last.majority, scores[0].value, best(scores).value)
    return [task, last.name, interval, *(f"{value:.3f}" for value in others), loss_text]


def last_loss(losses: np.ndarray) -> float:
    """The mean of a task's last losses, as TASKS_NOTE defines it; NaN when it has none."""
    finite = losses[np.isfinite(losses)]
    if not len(finite):
        return float("nan")
    count = max(_LAST_LEAST, min(_LAST_MOST, int(_LAST_SHARE * len(finite))))
    return float(finite[-count:].mean())
