"""The processes of a run: who they are, and what they add up."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.base import core
from paddle.distributed import (
    ReduceOp,
    all_gather,
    all_gather_object,
    all_reduce,
    broadcast,
    broadcast_object_list,
    fleet,
    get_group,
    get_rank,
    get_world_size,
)
from paddle.distributed.fleet.utils import log_util
from paddle.distributed.fleet.utils.sequence_parallel_utils import is_sequence_parallel_parameter

from ernie import runtime
from ernie.data.batch import Packed
from ernie.kernels.adamw import sum_of_squares
from ernie.model.weights import check_names, set_weight
from ernie.parallel import gloo
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.micro_batch import MicroBatch, backward
from ernie.parallel.parts import cut, is_part, whole_shape
from ernie.parallel.sums import sum_gradients
from ernie.parallel.watch import Watch, host

if TYPE_CHECKING:
    from ernie.model.losses import Loss
    from ernie.parallel.pipeline import Pipeline, Staged
    from ernie.parallel.sharding import Sharding

T = TypeVar("T")


class World:
    """This process among those of a layout.  `World()` is one process by itself, which adds up nothing."""

    def __init__(self, layout: ParallelConfig | None = None, topology: Any = None, watch: Watch | None = None) -> None:
        self.layout = layout or ParallelConfig()
        self.rank = 0 if topology is None else int(topology.get_global_rank())
        self._topology, self._watch = topology, watch
        self._all: Any = None if topology is None else get_group()
        # Those with whom this process shares a step's micro-batches (holding all of a model's state, or a shard), the
        # layers, and each layer; None where it is alone.
        self._data: Any = topology.get_data_parallel_group() if self.layout.degree("data") > 1 else None
        self._shards: Any = topology.get_sharding_parallel_group() if self.layout.sharding > 1 else None
        self._stages: Any = topology.get_pipe_parallel_group() if self.layout.pipeline > 1 else None
        self._tensor: Any = topology.get_model_parallel_group() if self.layout.tensor > 1 else None
        self._sharding: Sharding | None = None
        self._pipeline: Pipeline | None = None

    @classmethod
    def start(cls, layout: ParallelConfig) -> World:
        """Meet the other processes, which Paddle's launcher has started; on CPUs over Gloo.

        Raises UserError where there are not as many as the layout has.
        """
        layout = layout.over(get_world_size())
        if layout.processes == 1:
            return cls(layout)
        gloo.use_lasting_store()
        watch = Watch(core.create_or_get_global_tcp_store(), get_rank(), layout.processes, layout.timeout, host())
        gloo.install(layout.timeout, watch.waiting)
        with _in_silence():
            strategy = fleet.DistributedStrategy()
        interleaved = layout.virtual_stages > 1
        strategy.pipeline_configs = {
            "enable_partial_send_recv": False,
            "p2p_cache_shape": interleaved,
            "accumulate_steps": 2 * layout.pipeline,  # the least that fleet takes for a start
        }
        strategy.hybrid_configs = {
            "dp_degree": layout.degree("data"),
            "mp_degree": layout.tensor,
            "pp_degree": layout.pipeline,
            "sharding_degree": layout.sharding,
            "order": ["dp", "pp", "sharding", "sep", "mp"],
        }
        # A micro-batch has as many tokens as it has.
        strategy.hybrid_configs["pp_configs"].enable_dynamic_shape = not interleaved
        with _in_silence():
            fleet.init(is_collective=True, strategy=strategy, log_level="ERROR")
        return cls(layout, fleet.get_hybrid_communicate_group(), watch)

    @property
    def is_first(self) -> bool:
        """Whether this is the process that speaks and writes for all."""
        return self.rank == 0

    @property
    def splits(self) -> bool:
        """Whether a process has only a part of the model."""
        return self._tensor is not None or self._stages is not None or self._slices

    @property
    def _slices(self) -> bool:
        return self._shards is not None and self.layout.sharding_stage == 3

    def at(self, step: int | None = None, task: str | None = None, doing: str | None = None) -> None:
        """Say where this process stands, for the message should it stop there."""
        if self._watch is not None:
            self._watch.at(step=step, task=task, doing=doing)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Inside, an error in one process ends all of them, with one message; at the end each waits for none."""
        try:
            yield
        except Exception as error:
            if self._watch is not None:
                self._watch.failed(error)
            raise
        finally:  # also when a signal ends all of them
            if self._watch is not None:
                self._watch.close()

    def by_first(self, doing: str, compute: Callable[[], T]) -> T:
        """What the first process alone computes; all others wait for it, however long it takes, and are told."""
        if self._watch is None:
            return compute()
        self.at(doing=doing if self.is_first else f"waiting for rank 0, {doing}")
        found: list[Any] = [None]
        if self.is_first:
            found[0] = compute()
            self._watch.pass_on()
        else:
            self._watch.wait_for_first()
        broadcast_object_list(found, src=0)
        return found[0]

    def any(self, flag: bool) -> bool:
        """Whether it is so in any process."""
        return bool(self.largest(flag))

    def differing(self, value: str) -> list[int]:
        """The ranks that say something else than the first one."""
        if self._watch is None:
            return []
        said: list[str] = []
        all_gather_object(said, value)
        return [rank for rank, other in enumerate(said) if other != said[0]]

    def split(self, model: Staged) -> None:
        """Leave of a model, which every process has made alike, what is this one's, in place."""
        if self.layout.recompute:
            model.ernie.gradient_checkpointing_enable()
        if self._tensor is not None:
            from ernie.parallel.tensor import split

            split(model, self._tensor, self.layout.sequence)
        if self._stages is not None:
            from ernie.parallel.pipeline import Pipeline

            self._pipeline = Pipeline(model, self._topology, fleet.fleet._user_defined_strategy, self.layout)

    @paddle.no_grad()
    def gather(self, whole: nn.Layer, model: nn.Layer) -> None:
        """Give the first process's `whole` what the processes have of the model; every process has to ask."""
        own = whole.state_dict() if self.is_first else {}
        given = set()
        for name, values in self.gathered({name: (part, part) for name, part in model.named_parameters()}):
            given.add(name)
            if name in own:
                set_weight(own[name], values)
        if self.is_first:
            check_names(own, given, "the processes")

    def gathered(self, own: Mapping[str, tuple[Tensor | None, Tensor]]) -> Iterator[tuple[str, np.ndarray]]:
        """What the processes have by name, as one process would have it: in the first one, tensor by tensor.

        `own` are values, None where another process keeps them, and the parameters that they belong to.  Every process
        has to go through it; others than the first get nothing, and hold no more than one tensor besides their own.
        """
        place = self.layout.place(self.rank)
        if place["data"]:  # it has what others have
            return
        if self._stages is not None and place["sharding"] == place["tensor"] == 0:
            yield from self._gathered_from_stages(own)
            return
        for name, (values, of) in own.items():
            whole = self.whole(values, of)
            if self.is_first:
                yield name, whole.numpy()

    def _gathered_from_stages(
        self, own: Mapping[str, tuple[Tensor | None, Tensor]]
    ) -> Iterator[tuple[str, np.ndarray]]:
        stages: list[dict[str, list[int]]] = []
        shapes = {name: whole_shape(of, self.layout.tensor) for name, (_, of) in own.items()}
        all_gather_object(stages, shapes, group=self._stages)
        for turn in zip_longest(*stages):  # the stages in turns, so that none waits long for another
            for stage, name in enumerate(turn):
                if name is None:
                    continue
                if stage == self._stages.rank:
                    whole = self.whole(*own[name])
                if stage and name in stages[0]:  # the table, which two stages have
                    continue
                if stage != self._stages.rank:
                    whole = paddle.empty(stages[stage][name])
                if stage:
                    broadcast(whole, src=self._stages.ranks[stage], group=self._stages)
                if self.is_first:
                    yield name, whole.numpy()

    def whole(self, values: Tensor | None, of: Tensor) -> Tensor:
        """What belongs to a parameter, itself or a moment, whole within a stage; every process of it has to ask.

        A moment is taken from the process that keeps it; the others may give None.
        """
        if self._sharding is not None:
            values = self._sharding.whole(values, of)
        assert values is not None
        values = values.detach()
        if not is_part(of):
            return values
        parts: list[Tensor] = []
        all_gather(parts, values, group=self._tensor)
        return paddle.concat(parts, axis=of.split_axis)

    def of_all_stages(self, own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """What the stages of a pipeline have by name, together; every process has to ask."""
        if self._stages is None:
            return own
        found: list[dict[str, np.ndarray]] = []
        all_gather_object(found, own, group=self._stages)
        return {name: values for stage in reversed(found) for name, values in stage.items()}

    def part(self, values: np.ndarray, of: Tensor) -> np.ndarray:
        """What of a parameter's whole values is this process's."""
        if self._sharding is not None:
            values = self._sharding.part(values, of)
        return cut(values, of, self._tensor.rank) if is_part(of) else values

    def values(self, parameter: Tensor) -> Tensor:
        """What this process has and updates of a parameter that it keeps, with its gradient."""
        return parameter if self._sharding is None else self._sharding.values(parameter)

    def clear(self) -> None:
        """The gradients are forgotten."""
        if self._sharding is not None:
            self._sharding.clear()

    def keeps(self, parameter: Tensor) -> bool:
        """Whether this process keeps the moments of a parameter."""
        return self._sharding is None or bool(self._sharding.owned([parameter]))

    def most(self, numbers: Sequence[int]) -> list[int]:
        """The largest of each number that any process has."""
        return list(map(int, _reduced(numbers, [self._shards], ReduceOp.MAX)))

    def largest(self, value: float) -> float:
        """The largest of what the processes say."""
        return _reduced([value], [self._all], ReduceOp.MAX)[0]

    def begin(self, layer: nn.Layer, parameters: Sequence[Tensor]) -> None:
        """Share out the parameters that are to be trained among those who update them."""
        if self._shards is None:
            return
        from ernie.parallel.sharding import GradientSharding, StateSharding, WeightSharding

        if self.layout.sharding_stage == 1:
            self._sharding = StateSharding(parameters, self._topology)
        else:
            kind = GradientSharding if self.layout.sharding_stage == 2 else WeightSharding
            with _in_silence():
                self._sharding = kind(layer, parameters, self._topology)
            runtime.let_go()  # fleet lays all weights out anew, and then frees where they were

    def share(self, items: Sequence[T]) -> list[T]:
        """The items that fall to this process, one for each in turn; all replicas together have each once."""
        place = self.layout.place(self.rank)
        return list(items[place["data"] * self.layout.sharding + place["sharding"] :: self.layout.replicas])

    def backward(
        self, step: Sequence[MicroBatch], loss: Callable[[str, Packed], Loss], parameters: Sequence[Tensor]
    ) -> Iterator[tuple[str, float]]:
        """Forward and backward of this process's share of a step: each one's task and summed loss, where it is known.

        `parameters` are those that get gradients.
        """
        own = self.share(step)
        self.at(task=", ".join(dict.fromkeys(micro.task for micro in own)), doing="forward and backward")
        if self._pipeline is not None:
            yield from self._pipeline.backward(own)
            return
        for first in range(0, len(step), self.layout.replicas):
            turn = step[first : first + self.layout.replicas]
            if self._sharding is not None:
                self._sharding.begin(len(turn) == self.layout.replicas and len({micro.task for micro in turn}) == 1)
            for micro in own[first // self.layout.replicas :][:1]:
                self.at(task=micro.task)
                yield micro.task, backward(micro, loss)
            if self._slices and len(own) <= first // self.layout.replicas:
                backward(step[-1]._replace(factor=0.0), loss)  # for the others' sake, who need this process's slices
            if self._sharding is not None:
                self._sharding.end(parameters)

    def sum(self, values: Sequence[float]) -> list[float]:
        """The sums of numbers over all replicas, and over the stages of a pipeline."""
        return _reduced(values, [self._data, self._shards, self._stages])

    @paddle.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Add up each parameter's gradient over all replicas; where only others have one, this process gets it too."""
        if self.layout.sequence:
            parts = [p for p in parameters if p.grad is not None and is_sequence_parallel_parameter(p)]
            sum_gradients(parts, self._tensor)
        if self.layout.replicas == 1:
            return
        present = _reduced([p.grad is not None for p in parameters], [self._data, self._shards], ReduceOp.MAX)
        learning = [p for p, there in zip(parameters, present, strict=True) if there]
        if self._sharding is not None:
            self._sharding.sum_gradients(learning)
            return
        for parameter in learning:
            if parameter.grad is None:
                parameter.grad = paddle.zeros_like(parameter)
        sum_gradients(learning, self._data)

    def gradient_norm(self, parameters: Sequence[Tensor]) -> float:
        """The L2 norm of all gradients together; not finite when any of them is not."""
        if self._sharding is not None:
            parameters = self._sharding.owned(parameters)
        if self._pipeline is not None:
            parameters = [parameter for parameter in parameters if self._pipeline.counts(parameter)]
        whole, parts = (
            sum_of_squares(
                [
                    gradient
                    for parameter in parameters
                    if is_part(parameter) is spread and (gradient := self.values(parameter).grad) is not None
                ]
            )
            for spread in (False, True)
        )
        [parts] = _reduced([parts], [self._tensor])
        return float(_reduced([whole + parts], [self._shards, self._stages])[0] ** 0.5)

    def update(self, parameters: Sequence[Tensor], update: Callable[[Sequence[Tensor]], None]) -> None:
        """Have `update` change the parameters that have gradients, each in the process that keeps its state."""
        if self._sharding is not None:
            self._sharding.step(update)
        else:
            update([parameter for parameter in parameters if parameter.grad is not None])


@contextmanager
def _in_silence() -> Iterator[None]:
    """Without what fleet tells of itself; errors are raised all the same."""
    warnings.filterwarnings("ignore", category=UserWarning, module=r"paddle\.distributed\.")  # all along
    log_util.set_log_level("ERROR")
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)


def _reduced(values: Sequence[float], groups: Sequence[Any], op: Any = ReduceOp.SUM) -> list[float]:
    """Numbers put together over the groups that there are, one group after the other."""
    if not values or not any(group is not None for group in groups):  # Gloo fails to reduce nothing
        return list(values)
    total = paddle.to_tensor(np.array(values, np.float64))
    for group in groups:
        if group is not None:
            all_reduce(total, op, group=group)
    return [float(value) for value in total.numpy()]
