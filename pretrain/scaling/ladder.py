"""The grid of runs for a learning curve: nested shares of a corpus times widths of the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.report.words import plural
from pretrain.config import PretrainConfig
from pretrain.feeds import training_split
from pretrain.planner.cost import work_planned

HEAD = 64  # the width of an attention head


class Rung(NamedTuple):
    """A run: its share of the text, the encoder's width, and its folder."""

    share: float
    width: int
    folder: Path

    def overrides(self) -> Iterator[str]:
        """The overrides of the given configuration that make this run."""
        yield f"data.share={self.share}"
        yield f"model.hidden_size={self.width}"
        yield f"model.intermediate_size={4 * self.width}"
        yield f"model.heads={max(1, self.width // HEAD)}"


def ladder(folder: Path, shards: int, widths: Sequence[int], whole: float = 1.0) -> list[Rung]:
    """The runs of `shards` shares, each twice as large as the one before, times `widths`; smallest share first.

    The largest share is `whole`, a share of the corpus.
    Raises UserError when there are too few shares to predict from, or a width has no whole number of heads.
    """
    if shards < 5:
        raise UserError(f"--shards: {shards} leave {shards - 1} to fit a law of 3 numbers to; take at least 5")
    for width in widths:
        if width < 1 or (width > HEAD and width % HEAD):
            raise UserError(f"--widths: {width} is no multiple of {HEAD}, the width of an attention head")
    return [
        Rung(whole / parts, width, folder / f"1-of-{parts}-width-{width}")
        for parts in (2**power for power in reversed(range(shards)))
        for width in sorted(set(widths))
    ]


def costs(rungs: Sequence[Rung], configs: Sequence[PretrainConfig]) -> list[list[str]]:
    """The cost of each run and of all of them as a table, header first.

    The epochs show whether a small share is read often enough that its error is limited by its text, not by its steps.
    """
    rows = [["run", "text, tokens", "million weights", "steps", "passes over the text", "petaflop"]]
    total = 0.0  # FLOPs
    for rung, config in zip(rungs, configs, strict=True):
        work, text, steps = work_planned(config), _text(config), _steps(config)
        total += steps * work.flops
        row = [f"{text:,}", f"{work.weights / 1e6:,.2f}", f"{steps:,}", f"{_passes(config):,.2f}"]
        rows.append([rung.folder.name, *row, f"{steps * work.flops / 1e15:,.3g}"])
    return [*rows, ["all", "", "", "", "", f"{total / 1e15:,.3g}"]]


def remark(configs: Sequence[PretrainConfig]) -> str | None:
    """Return a remark if runs would end before they have read all of their text, else None."""
    partial = sum(_passes(config) < 1 for config in configs)
    if not partial:
        return None
    return (
        f"{partial} of {plural(len(configs), 'run')} would not read all of their text, so that their errors would "
        "depend on the steps rather than on the text; more steps or smaller shares (--shards) give a law of the text"
    )


def _passes(config: PretrainConfig) -> float:
    steps = _steps(config)
    return steps * config.train.micro_batches * config.data.batch_tokens / _text(config)


def _steps(config: PretrainConfig) -> int:
    return sum(sum(stage.values()) for stage in config.schedule.table)


def _text(config: PretrainConfig) -> int:
    """The number of tokens of the documents that a run trains on."""
    return training_split(config, Corpus.open(config.corpus)).tokens
