"""Pipeline parallelism: each process has some of the layers, and micro-batches pass from one to the next.

Uses fleet's own pipeline and schedules: one forward, one backward (1F1B), or interleaved with several pieces per
process (Narayanan et al., 2021, arXiv 2104.04473, section 2.2).  Only hidden states are communicated: every process
creates the batches itself, and so knows their layouts and labels.

Legend: T packed tokens, D width.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
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

_SHARED_KEY = "tokens"


class Staged(Protocol):
    """A model that can be split into stages: an encoder, and losses computed from its hidden states."""

    ernie: ErnieModel

    def task_embedding(self, name: str) -> int:
        """Return the id of a task's task embedding."""

    def encoder_input(self, name: str, batch: Packed) -> tuple[Packed, Mask | None]:
        """Return the encoder's input for a task's batch, and its attention mask, if any."""

    def head_loss(self, name: str, hidden_TD: Tensor, batch: Packed) -> Loss:
        """Compute the loss of a task's batch from the encoder's hidden states."""


class Pipeline:
    """This process's stage of a pipelined model.  It exchanges messages with other stages inside `waiting(name)`."""

    def __init__(
        self,
        model: Staged,
        topology: Any,
        strategy: Any,
        layout: ParallelConfig,
        waiting: Callable[[str], AbstractContextManager[None]],
    ):
        self._model, self._layout = model, layout
        self._step = StepInputs()
        self._losses: list[tuple[str, Tensor]] = []
        recomputes = model.ernie.encoder.recompute
        layers = model.ernie.encoder.layers
        pieces: list[Any] = [
            SharedLayerDesc(_SHARED_KEY, _TokenEmbedding, self._embed, "weight", model.ernie.embedding.token),
            *(_Piece(layer, number, self._step, recomputes) for number, layer in enumerate(layers, 1)),
            SharedLayerDesc(_SHARED_KEY, _TokenEmbedding, self._trim, "weight", model.ernie.embedding.token),
        ]
        self._embedding_matrix = model.ernie.embedding.token.weight
        self._loss_counter, self._embed_counter, self._trim_counter = (InputCounter(self._step) for _ in range(3))
        self._is_first = topology.is_first_stage
        self._interleaved = layout.virtual_stages > 1
        stages = PipelineLayer(
            pieces, topology=topology.topology(), loss_fn=self._loss, **_segments(layout, len(pieces))
        )
        starts, ends = (
            (stages._start_poss, stages._end_poss) if self._interleaved else ([stages._start_pos], [stages._end_pos])
        )
        own = {index - 1 for start, end in zip(starts, ends, strict=True) for index in range(start, end)}
        _keep_only(model, own, self._is_first, topology.is_last_stage)
        self._fleet_pipeline = (PipelineParallelWithInterleave if self._interleaved else PipelineParallel)(
            stages, topology, strategy
        )
        mark_messages(self._fleet_pipeline._p2p_helper, waiting)

    def backward(self, step: Sequence[MicroBatch]) -> list[tuple[str, Tensor]]:
        """Run forward and backward of all micro-batches; on the last stage, return each one's task and summed loss."""
        if not step:
            return []
        # Fleet's interleaved schedule needs two rounds of micro-batches: repeat the last one with a loss factor of 0.
        missing = max(0, 2 * self._layout.pipeline - len(step)) if self._interleaved else 0
        inputs = [_Input(micro, *self._model.encoder_input(micro.task, micro.batch)) for micro in step]
        idle = inputs[-1]._replace(micro=step[-1]._replace(factor=0.0))
        self._step.begin([*inputs, *[idle] * missing], self._rows(inputs))
        self._losses.clear()
        if self._fleet_pipeline.accumulate_steps != len(self._step):
            self._fleet_pipeline.accumulate_steps = len(self._step)
            self._fleet_pipeline._init_user_hooks()  # they depend on the number of micro-batches
        self._fleet_pipeline.set_virtual_pipeline_rank(0)
        if self._interleaved:
            self._fleet_pipeline._p2p_helper.clear_meta_cache()  # the shapes of the messages change with every step
        self._fleet_pipeline.forward_backward_pipeline(_dummy_data(), None)
        return self._losses[: len(step)]

    def _rows(self, step: Sequence[_Input]) -> int:
        """Return the number of rows to send if all messages of a step must have one shape, else 0."""
        if not self._interleaved:
            return 0
        tokens = max(inputs.batch.layout.tokens for inputs in step)
        return -(-tokens // self._layout.tensor) if self._layout.sequence else tokens

    def counts(self, parameter: Tensor) -> bool:
        """Whether this stage counts a parameter: the embedding matrix, which two stages have, counts at the first."""
        return self._is_first or parameter is not self._embedding_matrix

    def _embed(self, shared: _TokenEmbedding, _: Tensor) -> Tensor:
        micro, batch, _ = self._embed_counter.next()
        micro.seed(0)
        embedding, task = self._model.ernie.embedding, self._model.task_embedding(micro.task)
        return self._step.pad(embedding(batch.ids, batch.segments, batch.layout.positions, task))

    def _trim(self, _: _TokenEmbedding, hidden_TD: Tensor) -> Tensor:
        return hidden_TD[: self._trim_counter.next().batch.layout.tokens]

    def _loss(self, hidden_TD: Tensor, _: object) -> Tensor:
        micro = self._loss_counter.next().micro
        micro.seed(-1)
        loss = self._model.head_loss(micro.task, hidden_TD, micro.batch)
        self._losses.append((micro.task, loss.total.detach()))
        return loss.total * (micro.factor * len(self._step))  # fleet divides by the number of micro-batches


def mark_messages(helper: Any, waiting: Callable[[str], AbstractContextManager[None]]) -> None:
    """Make all messages of fleet's `helper` pass inside `waiting(name)`: on a GPU, too, it waits for their shapes."""

    def marked(name: str, exchange: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            with waiting(name):
                return exchange(*args, **kwargs)

        return call

    for name in dir(helper):
        if name.startswith(("send_", "recv_")):
            setattr(helper, name, marked(name, getattr(helper, name)))


class _Input(NamedTuple):
    """A micro-batch, and the encoder's input and attention mask."""

    micro: MicroBatch
    batch: Packed
    mask: Mask | None


class StepInputs:
    """The micro-batches of a step, and the number of rows of each message; 0 for as many as the micro-batch has."""

    def __init__(self) -> None:
        self.number = 0  # of steps that have begun
        self._micro_batches: list[_Input] = []
        self._rows = 0

    def begin(self, micro_batches: list[_Input], rows: int) -> None:
        """Begin a step of these micro-batches, whose messages have so many rows."""
        self._micro_batches, self._rows = micro_batches, rows
        self.number += 1

    def __len__(self) -> int:
        return len(self._micro_batches)

    def __getitem__(self, number: int) -> _Input:
        return self._micro_batches[number]

    def pad(self, x_TD: Tensor) -> Tensor:
        """Pad with zero rows up to the number of rows of a message."""
        missing = self._rows - x_TD.shape[0]
        return paddle.concat([x_TD, paddle.zeros([missing, x_TD.shape[1]], x_TD.dtype)]) if missing > 0 else x_TD


class InputCounter:
    """Cycles through the micro-batches of a step."""

    def __init__(self, step: StepInputs):
        self._step, self._calls, self._number = step, 0, 0

    def next(self) -> _Input:
        """Return the next micro-batch of the step, after the last one the first again."""
        if self._number != self._step.number or self._calls == len(self._step):
            self._calls, self._number = 0, self._step.number
        self._calls += 1
        return self._step[self._calls - 1]


class _Piece(nn.Layer):
    """A layer of the encoder, which is called for the micro-batches in order."""

    def __init__(self, layer: nn.Layer, number: int, step: StepInputs, recomputes: bool):
        super().__init__()
        self.layer = layer
        self._number, self._recomputes = number, recomputes
        self._step, self._counter = step, InputCounter(step)

    def forward(self, x_TD: Tensor) -> Tensor:
        micro, batch, mask = self._counter.next()
        micro.seed(self._number)
        arguments = (x_TD[: self.layer.rows(batch.layout)], batch.layout, None, mask)
        return self._step.pad(recompute(self.layer, *arguments) if self._recomputes else self.layer(*arguments))


class _TokenEmbedding(nn.Layer):
    """The token embedding matrix, shared by the first stage and the masked-token head on the last one."""

    def __init__(self, embedding: nn.Layer):
        super().__init__()
        self.weight = embedding.weight


def _segments(layout: ParallelConfig, pieces: int) -> dict[str, Any]:
    """Return fleet's arguments for splitting the pieces of a model; the first and the last are not encoder layers."""
    if layout.virtual_stages > 1:
        return {"num_virtual_pipeline_stages": layout.virtual_stages, "seg_method": f"layer:{_Piece.__name__}"}
    return {"seg_method": [*layout.stage_starts(pieces - 2), pieces]}


def _dummy_data() -> Iterator[tuple[Tensor, None]]:
    """Yield placeholders for the data loader that fleet expects."""
    while True:
        yield paddle.zeros([1]), None


def _keep_only(model: Any, layers: set[int], first: bool, last: bool) -> None:
    """Remove from a model all but the parts of this stage, which keep their names."""
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
