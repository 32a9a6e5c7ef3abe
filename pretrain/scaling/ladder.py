"""The grid of runs for a learning curve: nested fractions of a corpus times widths of the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.formatting import plural
from pretrain.config import PretrainConfig
from pretrain.feeds import training_split
from pretrain.planner.cost import work_planned
from pretrain.scaling.points import PERPLEXITY

HEAD = 64  # the width of an attention head


class Rung(NamedTuple):
    """A run: its fraction of the text, the encoder's width, and its folder."""

    fraction: float
    width: int
    folder: Path

    def overrides(self) -> Iterator[str]:
        """The overrides of the given configuration that make this run."""
        yield f"data.fraction={self.fraction}"
        yield f"model.hidden_size={self.width}"
        yield f"model.intermediate_size={4 * self.width}"
        yield f"model.heads={max(1, self.width // HEAD)}"


def ladder(folder: Path, fractions: int, widths: Sequence[int], largest: float = 1.0) -> list[Rung]:
    """Return the runs of that many `fractions` of the corpus times `widths`, the smallest fraction first.

    Each fraction is twice the one before, up to `largest`.  Raises UserError when there are too few fractions to
    predict from, or a width has no whole number of heads.
    """
    if fractions < 5:
        raise UserError(f"--fractions: {fractions} leave {fractions - 1} to fit a law of 3 numbers to; take at least 5")
    for width in widths:
        if width < 1 or (width > HEAD and width % HEAD):
            raise UserError(f"--widths: {width} is no multiple of {HEAD}, the width of an attention head")
    return [
        Rung(largest / parts, width, folder / f"1-of-{parts}-width-{width}")
        for parts in (2**power for power in reversed(range(fractions)))
        for width in sorted(set(widths))
    ]


class Cost(NamedTuple):
    """What a run costs: tokens of its text, weights, steps, passes of the measured task over the text, FLOPs."""

    run: str
    text: int
    weights: int
    steps: int
    passes: float
    flops: float


def costs(rungs: Sequence[Rung], configs: Sequence[PretrainConfig]) -> list[Cost]:
    """Return the cost of each run.  Raises UserError if none of their tasks is measured by perplexity."""
    found, texts = [], dict[float, int]()  # by fraction
    for rung, config in zip(rungs, configs, strict=True):
        if rung.fraction not in texts:
            texts[rung.fraction] = training_split(config, Corpus.open(config.corpus, config.data.cache_mb)).tokens
        work, text = work_planned(config), texts[rung.fraction]
        steps = sum(sum(stage.values()) for stage in config.schedule.table)
        task = _measured_task(config)
        measured = sum(stage.get(task, 0) for stage in config.schedule.table)
        passes, flops = measured * work.all_tokens / text, steps * work.flops
        found.append(Cost(rung.folder.name, text, work.weights, steps, passes, flops))
    return found


def _measured_task(config: PretrainConfig) -> str:
    """Return the task whose error counts; see `pretrain.scaling.points.read_run`."""
    for name in config.schedule.task_names:
        if PERPLEXITY in config.tasks[name].metrics:
            return name
    raise UserError(
        f"schedule: none of its tasks is measured by {PERPLEXITY}, whose logarithm is the error of a run; add "
        "knowledge_masking"
    )


def table(runs: Sequence[Cost]) -> list[list[str]]:
    """Return the cost of each run and of all of them as a table, header first.

    The epochs show whether a small fraction is read often enough that its error is limited by its text, not by its
    steps.
    """
    rows = [["run", "text, tokens", "million weights", "steps", "passes over the text", "petaflop"]]
    for run in runs:
        row = [f"{run.text:,}", f"{run.weights / 1e6:,.2f}", f"{run.steps:,}", f"{run.passes:,.2f}"]
        rows.append([run.run, *row, f"{run.flops / 1e15:,.3g}"])
    return [*rows, ["all", "", "", "", "", f"{sum(run.flops for run in runs) / 1e15:,.3g}"]]


def remarks(runs: Sequence[Cost]) -> Iterator[str]:
    """Yield a remark if runs would end before they have read all of their text, and if runs would have the same."""
    partial = sum(run.passes < 1 for run in runs)
    if partial:
        yield (
            f"{partial} of {plural(len(runs), 'run')} would not read all of their text, so that their errors would "
            "depend on the steps rather than on the text; more steps or smaller fractions (--fractions) give a law of "
            "the text"
        )
    same = len(runs) - len({(run.text, run.weights) for run in runs})
    if same:
        yield (
            f"{same} of {plural(len(runs), 'run')} would have the text of another one, for the corpus has too few "
            "documents for so many fractions; take fewer (--fractions)"
        )
