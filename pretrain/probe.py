"""Measuring objectives on held-out documents."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F

from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.metrics import Score, score
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
            try:
                per_block = source.items_per_block()
            except UserError as error:
                raise UserError(
                    f"held-out documents: {error} Or hold out more when the corpus is built (held_out: 0.05)."
                ) from None
            self._batches[source.name] = self._take(source, per_block, config.probe.batches)

    @staticmethod
    def _take(source, per_block: int, wanted: int) -> list[Packed]:  # type: ignore[no-untyped-def]
        found: list[Packed] = []
        for first in range(0, len(source.items), per_block):
            found += source.batches(0, first, min(len(source.items), first + per_block))
            if len(found) >= wanted:
                break
        return found[:wanted]

    @paddle.no_grad()
    def measure(self, model: MultiTaskModel, name: str) -> dict[str, Score]:
        """The objective's metrics, by name, the headline first."""
        model.eval()
        predicted, labels, losses = [], [], []
        for batch in self._batches[name]:
            result = model.loss(name, batch)
            predicted.append(result.logits.argmax(-1).numpy())
            labels.append(result.labels)
            each = F.cross_entropy(result.logits, paddle.to_tensor(result.labels), reduction="none")
            losses.append(each.numpy().reshape(-1))
        joined = [np.concatenate(parts) for parts in (predicted, labels, losses)]
        return {metric: score(metric, *joined) for metric in model.objectives[name].metrics}
