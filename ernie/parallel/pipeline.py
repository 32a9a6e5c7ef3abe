"""Pipeline parallelism: each process has some of the layers, and micro-batches pass from one to the next.

Fleet's own pipeline in its own order, one forward and one backward at a time, or with several pieces a process that
take turns (Narayanan et al., 2021, arXiv 2104.04473, section 2.2).  Only vectors travel: every process makes the
batches itself, and so knows their layouts and labels.

Legend: T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple, Protocol

import paddle
from paddle import Tensor, nn
from paddle.distributed.fleet.meta_parallel import PipelineLayer, SharedLayerDesc
from paddle.distributed.fleet.meta_parallel.pipeline_parallel import PipelineParallel, PipelineParallelWithInterleave
from paddle.distributed.fleet.utils import recompute

from ernie.data.batch import Packed
from ernie.kernels.mask import Mask
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.micro_batch import MicroBatch

_TABLE = "tokens"


class Staged(Protocol):
    """A model that can be taken apart: an encoder, and what is made of its vectors."""

    ernie: ErnieModel

    def task_embedding(self, name: str) -> int:
        """The task embedding of a task."""

    def sees(self, name: str, batch: Packed) -> tuple[Packed, Mask | None]:
        """What the encoder sees of a task's batch, and how much of its sequence each token does."""

    def judge(self, name: str, hidden_TD: Tensor, batch: Packed) -> Loss:
        """The loss of a task's batch, from the encoder's vectors."""


class Pipeline:
    """This process's stage of a model."""

    def __init__(self, model: Staged, topology: Any, strategy: Any, layout: ParallelConfig):
        self._model, self._layout = model, layout
        self._step = _Step()
        self._losses: list[tuple[str, float]] = []
        again = model.ernie.encoder.recompute
        layers = model.ernie.encoder.layers
        pieces: list[Any] = [
            SharedLayerDesc(_TABLE, _Table, self._embedded, "weight", model.ernie.embedding.token),
            *(_Piece(layer, number, self._step, again) for number, layer in enumerate(layers, 1)),
            SharedLayerDesc(_TABLE, _Table, self._ended, "weight", model.ernie.embedding.token),
        ]
        self._table = model.ernie.embedding.token.weight
        self._judged, self._begun, self._over = (_Counter(self._step) for _ in range(3))
        self._is_first = topology.is_first_stage
        self._interleaved = layout.virtual_stages > 1
        stages = PipelineLayer(pieces, topology=topology.topology(), loss_fn=self._loss, **_cuts(layout, len(pieces)))
        starts, ends = (
            (stages._start_poss, stages._end_poss) if self._interleaved else ([stages._start_pos], [stages._end_pos])
        )
        own = {place - 1 for start, end in zip(starts, ends, strict=True) for place in range(start, end)}
        _keep_only(model, own, self._is_first, topology.is_last_stage)
        self._fleets = (PipelineParallelWithInterleave if self._interleaved else PipelineParallel)(
            stages, topology, strategy
        )

    def backward(self, step: Sequence[MicroBatch]) -> list[tuple[str, float]]:
        """Forward and backward of all micro-batches; on the last stage each one's task and summed loss."""
        if not step:
            return []
        # Fleet wants two rounds of micro-batches for pieces that take turns: some are computed again, for nothing.
        missing = max(0, 2 * self._layout.pipeline - len(step)) if self._interleaved else 0
        seen = [_Seen(micro, *self._model.sees(micro.task, micro.batch)) for micro in step]
        idle = seen[-1]._replace(micro=step[-1]._replace(factor=0.0))
        self._step.begin([*seen, *[idle] * missing], self._rows(seen))
        self._losses.clear()
        if self._fleets.accumulate_steps != len(self._step):
            self._fleets.accumulate_steps = len(self._step)
            self._fleets._init_user_hooks()  # as many as there are micro-batches
        self._fleets.set_virtual_pipeline_rank(0)
        if self._interleaved:
            self._fleets._p2p_helper.clear_meta_cache()  # what travels has other shapes in every step
        self._fleets.forward_backward_pipeline(_nothing(), None)
        return self._losses[: len(step)]

    def _rows(self, step: Sequence[_Seen]) -> int:
        """How many rows travel where all that travels in a step has to have one shape, else 0."""
        if not self._interleaved:
            return 0
        tokens = max(seen.batch.layout.tokens for seen in step)
        return -(-tokens // self._layout.tensor) if self._layout.sequence else tokens

    def counts(self, parameter: Tensor) -> bool:
        """Whether a parameter is counted at this stage: the table, which two stages have, at the first."""
        return self._is_first or parameter is not self._table

    def _embedded(self, table: _Table, _: Tensor) -> Tensor:
        micro, batch, _ = self._begun.next()
        micro.seed(0)
        embedding, task = self._model.ernie.embedding, self._model.task_embedding(micro.task)
        return self._step.filled(embedding(batch.ids, batch.segments, batch.layout.positions, task))

    def _ended(self, _: _Table, hidden_TD: Tensor) -> Tensor:
        return hidden_TD[: self._over.next().batch.layout.tokens]

    def _loss(self, hidden_TD: Tensor, _: object) -> Tensor:
        micro = self._judged.next().micro
        micro.seed(-1)
        found = self._model.judge(micro.task, hidden_TD, micro.batch)
        self._losses.append((micro.task, float(found.total)))
        return found.total * (micro.factor * len(self._step))  # fleet divides by their number


class _Seen(NamedTuple):
    """A micro-batch, and what the encoder sees of it."""

    micro: MicroBatch
    batch: Packed
    mask: Mask | None


class _Step:
    """The micro-batches of a step, and how many rows travel, 0 for as many as each has."""

    def __init__(self) -> None:
        self._micro_batches: list[_Seen] = []
        self._rows = 0

    def begin(self, micro_batches: list[_Seen], rows: int) -> None:
        self._micro_batches, self._rows = micro_batches, rows

    def __len__(self) -> int:
        return len(self._micro_batches)

    def __getitem__(self, number: int) -> _Seen:
        return self._micro_batches[number]

    def filled(self, x_TD: Tensor) -> Tensor:
        """With rows of zeros up to as many as travel."""
        missing = self._rows - x_TD.shape[0]
        return paddle.concat([x_TD, paddle.zeros([missing, x_TD.shape[1]], x_TD.dtype)]) if missing > 0 else x_TD


class _Counter:
    """The micro-batches of a step, one after the other, over and over."""

    def __init__(self, step: _Step):
        self._step, self._calls = step, 0

    def next(self) -> _Seen:
        if self._calls >= len(self._step):
            self._calls = 0
        self._calls += 1
        return self._step[self._calls - 1]


class _Piece(nn.Layer):
    """A layer of the encoder, which sees the micro-batches in their order."""

    def __init__(self, layer: nn.Layer, number: int, step: _Step, again: bool):
        super().__init__()
        self.layer = layer
        self._number, self._again = number, again
        self._step, self._counter = step, _Counter(step)

    def forward(self, x_TD: Tensor) -> Tensor:
        micro, batch, mask = self._counter.next()
        micro.seed(self._number)
        given = (x_TD[: self.layer.rows(batch.layout)], batch.layout, None, mask)
        return self._step.filled(recompute(self.layer, *given) if self._again else self.layer(*given))


class _Table(nn.Layer):
    """The token table, which the first stage reads and the last one's masked-token head multiplies with."""

    def __init__(self, table: nn.Layer):
        super().__init__()
        self.weight = table.weight


def _cuts(layout: ParallelConfig, pieces: int) -> dict[str, Any]:
    """How fleet cuts the pieces of a model, the first and the last of which are no layers."""
    if layout.virtual_stages > 1:
        return {"num_virtual_pipeline_stages": layout.virtual_stages, "seg_method": f"layer:{_Piece.__name__}"}
    return {"seg_method": [*layout.begins(pieces - 2), pieces]}


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
