"""Pipeline parallelism: each process has some of the layers, and micro-batches pass from one to the next.

Fleet's own pipeline in its own order, one forward and one backward at a time (Narayanan et al., 2021, arXiv 2104.04473,
section 2.2).  Only vectors travel: every process makes the batches itself, and so knows their layouts and labels.

Legend: T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Protocol

import paddle
from paddle import Tensor, nn
from paddle.distributed.fleet.meta_parallel import PipelineLayer, SharedLayerDesc
from paddle.distributed.fleet.meta_parallel.pipeline_parallel import PipelineParallel

from ernie.data.batch import Packed
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.parallel.micro_batch import MicroBatch

_TABLE = "tokens"


class Staged(Protocol):
    """A model that can be taken apart: an encoder, and what is made of its vectors."""

    ernie: ErnieModel

    def task_id(self, name: str) -> int:
        """The task embedding of a task."""

    def judge(self, name: str, hidden_TD: Tensor, batch: Packed) -> Loss:
        """The loss of a task's batch, from the encoder's vectors."""


class Pipeline:
    """This process's stage of a model."""

    def __init__(self, model: Staged, topology: Any, strategy: Any):
        self._model = model
        self._step: list[MicroBatch] = []
        self._losses: list[tuple[str, float]] = []
        layers = model.ernie.encoder.layers
        pieces: list[Any] = [
            SharedLayerDesc(_TABLE, _Table, self._embedded, "weight", model.ernie.embedding.token),
            *(_Piece(layer, number, self._step) for number, layer in enumerate(layers, 1)),
            SharedLayerDesc(_TABLE, _Table, _passed_on, "weight", model.ernie.embedding.token),
        ]
        self._table = model.ernie.embedding.token.weight
        self._judged = _Counter(self._step)
        self._begun = _Counter(self._step)
        stages = PipelineLayer(pieces, topology=topology.topology(), loss_fn=self._loss)
        self._is_first = topology.is_first_stage
        own = set(range(stages._start_pos - 1, stages._end_pos - 1))
        _keep_only(model, own, self._is_first, topology.is_last_stage)
        self._fleets = PipelineParallel(stages, topology, strategy)

    def backward(self, step: Sequence[MicroBatch]) -> list[tuple[str, float]]:
        """Forward and backward of all micro-batches; on the last stage each one's task and summed loss."""
        self._step[:] = step
        self._losses.clear()
        if self._fleets.accumulate_steps != len(step):
            self._fleets.accumulate_steps = len(step)
            self._fleets._init_user_hooks()  # as many as there are micro-batches
        self._fleets.set_virtual_pipeline_rank(0)
        self._fleets.forward_backward_pipeline(_nothing())
        return list(self._losses)

    def counts(self, parameter: Tensor) -> bool:
        """Whether a parameter is counted at this stage: the table, which two stages have, at the first."""
        return self._is_first or parameter is not self._table

    def _embedded(self, table: _Table, _: Tensor) -> Tensor:
        micro = self._begun.next()
        micro.seed(0)
        batch = micro.batch
        embedding, task = self._model.ernie.embedding, self._model.task_id(micro.task)
        return embedding(batch.ids, batch.segments, batch.layout.positions, task)

    def _loss(self, hidden_TD: Tensor, _: object) -> Tensor:
        micro = self._judged.next()
        micro.seed(-1)
        found = self._model.judge(micro.task, hidden_TD, micro.batch)
        self._losses.append((micro.task, float(found.total)))
        return found.total * (micro.factor * len(self._step))  # fleet divides by their number


class _Counter:
    """The micro-batches of a step, one after the other, over and over."""

    def __init__(self, step: list[MicroBatch]):
        self._step, self._calls = step, 0

    def next(self) -> MicroBatch:
        if self._calls >= len(self._step):
            self._calls = 0
        self._calls += 1
        return self._step[self._calls - 1]


class _Piece(nn.Layer):
    """A layer of the encoder, which sees the micro-batches in their order."""

    def __init__(self, layer: nn.Layer, number: int, step: list[MicroBatch]):
        super().__init__()
        self.layer = layer
        self._number, self._counter = number, _Counter(step)

    def forward(self, x_TD: Tensor) -> Tensor:
        micro = self._counter.next()
        micro.seed(self._number)
        return self.layer(x_TD, micro.batch.layout)


class _Table(nn.Layer):
    """The token table, which the first stage reads and the last one's masked-token head multiplies with."""

    def __init__(self, table: nn.Layer):
        super().__init__()
        self.weight = table.weight


def _passed_on(_: _Table, hidden_TD: Tensor) -> Tensor:
    return hidden_TD


def _nothing() -> Iterator[tuple[Tensor, None]]:
    """What fleet takes for data."""
    while True:
        yield paddle.zeros([1]), None


def _keep_only(model: Any, layers: set[int], first: bool, last: bool) -> None:
    """Leave of a model the parts of this stage, under their own names."""
    ernie = model.ernie
    for number in range(len(ernie.encoder.layers)):
        if number not in layers:
            del ernie.encoder.layers._sub_layers[str(number)]
    if not first:
        kept = {"token"} if last else set()
        for name in set(ernie.embedding._sub_layers) - kept:
            ernie.embedding._sub_layers[name] = None
    if not last:
        for name in set(model._sub_layers) - {"ernie"}:
            model._sub_layers[name] = None
        ernie._sub_layers["pooler"] = None
