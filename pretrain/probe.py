"""Measuring objectives on held-out documents."""

from __future__ import annotations

from functools import partial

from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.data.stream import Source, TooLittleText
from ernie.errors import UserError, about
from ernie.metrics import Score
from ernie.train.evaluate import evaluate
from pretrain.config import PretrainConfig
from pretrain.feeds import sources
from pretrain.model import MultiTaskModel


class Probe:
    """A fixed set of held-out batches for each objective: the same at every measurement of a run.

    Raises UserError when an objective has nothing to be measured on.
    """

    def __init__(self, config: PretrainConfig, corpus: Corpus):
        self._batches: dict[str, list[Packed]] = {}
        for source in sources(config, corpus, held_out=True):
            with about("held-out documents"):
                try:
                    self._batches[source.name] = first_batches(source, config.probe.batches)
                except TooLittleText as error:
                    raise UserError(f"{error} Or hold out more when the corpus is built (held_out: 0.05).") from None

    def measure(self, model: MultiTaskModel, name: str) -> dict[str, Score]:
        """The objective's metrics, by name, the headline first."""
        return evaluate(model, partial(model.loss, name), self._batches[name], model.objectives[name].metrics)


def first_batches(source: Source, wanted: int) -> list[Packed]:
    """The first batches of a source's first epoch: as many as are wanted, or as there are."""
    per_block = source.items_per_block()
    found: list[Packed] = []
    for first in range(0, len(source.items), per_block):
        found += source.batches(0, first, min(len(source.items), first + per_block))
        if len(found) >= wanted:
            break
    return found[:wanted]
