"""The runs that a learning curve needs: nested shares of a corpus by widths of the encoder."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from ernie.data.shards import Corpus
from ernie.errors import UserError
from pretrain.config import PretrainConfig
from pretrain.feeds import learnt
from pretrain.planner.cost import work_planned

HEAD = 64  # the width of an attention head


class Rung(NamedTuple):
    """A run: the share of the text, the encoder's width, and the folder."""

    share: float
    width: int
    folder: Path

    def overrides(self) -> Iterator[str]:
        """What its configuration changes of the one that is given."""
        yield f"data.share={self.share}"
        yield f"model.hidden_size={self.width}"
        yield f"model.intermediate_size={4 * self.width}"
        yield f"model.heads={max(1, self.width // HEAD)}"


def ladder(folder: Path, shards: int, widths: Sequence[int], whole: float = 1.0) -> list[Rung]:
    """So many shares, each twice as large as the one before, by widths; the smallest share first.

    The largest is the share `whole` of the corpus.
    Raises UserError when these are too few to predict from, or a width has no whole number of heads.
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
    """What each run takes, and all of them, as a table, its head first.

    A small share has to be passed over so often that it is known by heart: then its error is that of the share.
    """
    rows = [["run", "text, tokens", "million weights", "steps", "passes over the text", "petaflop"]]
    everything = 0.0
    for rung, config in zip(rungs, configs, strict=True):
        work, text = work_planned(config), learnt(config, Corpus.open(config.corpus)).tokens
        steps = sum(sum(stage.values()) for stage in config.schedule.table)
        everything += steps * work.flops
        passes, petaflop = steps * work.all_tokens / text, steps * work.flops / 1e15
        weights = work.weights / 1e6
        rows.append(
            [rung.folder.name, f"{text:,}", f"{weights:,.2f}", f"{steps:,}", f"{passes:,.1f}", f"{petaflop:,.3g}"]
        )
    return [*rows, ["all", "", "", "", "", f"{everything / 1e15:,.3g}"]]
