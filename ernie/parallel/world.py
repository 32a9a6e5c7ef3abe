"""The processes of a run: this one's place among them, and the collectives between them."""

from __future__ import annotations

import io
import logging
import re
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
from ernie.errors import PortTaken
from ernie.kernels.adamw import sum_of_squares
from ernie.model.weights import check_names, set_weight
from ernie.parallel import gloo
from ernie.parallel.grad_reduce import sum_gradients
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.micro_batch import MicroBatch, backward
from ernie.parallel.tensor_shard import full_shape, is_split, local_part
from ernie.parallel.watch import Watch, host

if TYPE_CHECKING:
    from ernie.model.losses import Loss
    from ernie.parallel.pipeline import Pipeline, Staged
    from ernie.parallel.sharding import Sharding

T = TypeVar("T")


class World:
    """This process among those of a layout.  `World()` is a single process, for which all collectives are no-ops."""

    def __init__(self, layout: ParallelConfig | None = None, topology: Any = None, watch: Watch | None = None) -> None:
        self.layout = layout or ParallelConfig()
        self.rank = 0 if topology is None else int(topology.get_global_rank())
        self._topology, self._watch = topology, watch
        self._all: Any = None if topology is None else get_group()
        # The groups with which this process shares a step's micro-batches (data: the full training state each;
        # shards: a shard of it each), the layers (stages), and each layer (tensor); None for a group of one.
        self._data: Any = topology.get_data_parallel_group() if self.layout.degree("data") > 1 else None
        self._shards: Any = topology.get_sharding_parallel_group() if self.layout.sharding > 1 else None
        self._stages: Any = topology.get_pipe_parallel_group() if self.layout.pipeline > 1 else None
        self._tensor: Any = topology.get_model_parallel_group() if self.layout.tensor > 1 else None
        self._sharding: Sharding | None = None
        self._pipeline: Pipeline | None = None

    @classmethod
    def start(cls, layout: ParallelConfig) -> World:
        """Connect to the other processes, which Paddle's launcher has started; on CPUs over Gloo.

        Raises UserError if their number is not that of the layout, PortTaken if they cannot find one another.
        """
        layout = layout.over(get_world_size())
        if layout.processes == 1:
            return cls(layout)
        gloo.disable_libuv_store()
        watch = Watch(_store(), get_rank(), layout.processes, layout.timeout, host())
        gloo.install(layout.timeout, watch.waiting)
        with _quietly():
            strategy = fleet.DistributedStrategy()
        interleaved = layout.virtual_stages > 1
        strategy.pipeline_configs = {
            "enable_partial_send_recv": False,
            "p2p_cache_shape": interleaved,
            "accumulate_steps": 2 * layout.pipeline,  # the minimum that fleet accepts at the start
        }
        strategy.hybrid_configs = {
            "dp_degree": layout.degree("data"),
            "mp_degree": layout.tensor,
            "pp_degree": layout.pipeline,
            "sharding_degree": layout.sharding,
            "order": ["dp", "pp", "sharding", "sep", "mp"],
        }
        # Micro-batches differ in their number of tokens.
        strategy.hybrid_configs["pp_configs"].enable_dynamic_shape = not interleaved
        with _quietly():
            fleet.init(is_collective=True, strategy=strategy, log_level="ERROR")
        return cls(layout, fleet.get_hybrid_communicate_group(), watch)

    @property
    def is_first(self) -> bool:
        """Whether this is rank 0, which logs and writes files for all processes."""
        return self.rank == 0

    @property
    def splits(self) -> bool:
        """Whether each process holds only a part of the model."""
        return self._tensor is not None or self._stages is not None or self._slices_weights

    @property
    def _slices_weights(self) -> bool:
        return self._shards is not None and self.layout.sharding_stage == 3

    def at(self, step: int | None = None, task: str | None = None, doing: str | None = None) -> None:
        """Record what this process is doing, for the error message should it fail or hang there."""
        if self._watch is not None:
            self._watch.at(step=step, task=task, doing=doing)

    @contextmanager
    def together(self) -> Iterator[None]:
        """Inside, an error in one process ends all of them with one message; at the end the first awaits the others."""
        try:
            yield
        except Exception as error:
            if self._watch is not None:
                self._watch.failed(error)
            raise
        finally:  # also after a signal that ends all of them
            if self._watch is not None:
                self._watch.close()

    def on_rank0(self, doing: str, compute: Callable[[], T]) -> T:
        """Compute something on the first process only and broadcast it; the others wait, however long it takes."""
        if self._watch is None:
            return compute()
        result: list[Any] = [None]
        with self._watch.doing(doing if self.is_first else f"waiting for rank 0, {doing}"):
            if self.is_first:
                result[0] = compute()
                self._watch.pass_on()
            else:
                self._watch.wait_for_first()
            broadcast_object_list(result, src=0)
        return result[0]

    def any(self, flag: bool) -> bool:
        """Whether `flag` is true in any process."""
        return bool(self.max(flag))

    def differing(self, value: str) -> list[int]:
        """Return the ranks whose `value` differs from that of the first one."""
        values = self.of_all_processes(value)
        return [rank for rank, other in enumerate(values) if other != values[0]]

    def of_all_processes(self, value: T) -> list[T]:
        """Return the `value` of every process, by rank.  A collective call."""
        if self._watch is None:
            return [value]
        values: list[T] = []
        all_gather_object(values, value)
        return values

    def split(self, model: Staged) -> None:
        """Reduce a model, which every process has created identically, to this process's part of it, in place."""
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
        """Copy the weights of a distributed model into the first process's `whole`.  A collective call."""
        own = whole.state_dict() if self.is_first else {}
        gathered = set()
        for name, values in self.gathered({name: (part, part) for name, part in model.named_parameters()}):
            gathered.add(name)
            if name in own:
                set_weight(own[name], values)
        if self.is_first:
            check_names(own, gathered, "the processes")

    def gathered(self, own: Mapping[str, tuple[Tensor | None, Tensor]]) -> Iterator[tuple[str, np.ndarray]]:
        """Gather named tensors from all processes, yielding full arrays by name on the first process.

        `own` maps each name to this process's values (None if another process keeps them) and the parameter that they
        belong to.  Every process has to exhaust the iterator; all but the first get nothing, and hold at most one
        tensor besides their own.
        """
        place = self.layout.place(self.rank)
        if place["data"]:  # a copy of what others have
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
        shapes = {name: full_shape(of, self.layout.tensor) for name, (_, of) in own.items()}
        all_gather_object(stages, shapes, group=self._stages)
        for turn in zip_longest(*stages):  # alternating between the stages, so that none waits long for another
            for stage, name in enumerate(turn):
                if name is None:
                    continue
                if stage == self._stages.rank:
                    whole = self.whole(*own[name])
                if stage and name in stages[0]:  # the embedding matrix, which two stages have
                    continue
                if stage != self._stages.rank:
                    whole = paddle.empty(stages[stage][name])
                if stage:
                    broadcast(whole, src=self._stages.ranks[stage], group=self._stages)
                if self.is_first:
                    yield name, whole.numpy()

    def whole(self, values: Tensor | None, of: Tensor) -> Tensor:
        """Return the full values of a parameter, or of its moment, within a pipeline stage.  A collective call of it.

        A moment comes from the process that keeps it; the others may pass None.
        """
        if self._sharding is not None:
            values = self._sharding.whole(values, of)
        assert values is not None
        values = values.detach()
        if not is_split(of):
            return values
        parts: list[Tensor] = []
        all_gather(parts, values, group=self._tensor)
        return paddle.concat(parts, axis=of.split_axis)

    def of_all_stages(self, own: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Merge the named arrays of all pipeline stages.  A collective call."""
        if self._stages is None:
            return own
        stages: list[dict[str, np.ndarray]] = []
        all_gather_object(stages, own, group=self._stages)
        return {name: values for stage in reversed(stages) for name, values in stage.items()}

    def part(self, values: np.ndarray, of: Tensor) -> np.ndarray:
        """Return this process's part of the full values of a parameter's moment."""
        if self._sharding is not None:
            values = self._sharding.part(values, of)
        return local_part(values, of, self._tensor.rank) if is_split(of) else values

    def values(self, parameter: Tensor) -> Tensor:
        """Return the tensor, with its gradient, that this process updates of a parameter that it owns."""
        return parameter if self._sharding is None else self._sharding.values(parameter)

    def clear(self) -> None:
        """Called after the gradients have been cleared."""
        if self._sharding is not None:
            self._sharding.clear()

    def owns(self, parameter: Tensor) -> bool:
        """Whether this process keeps and updates the moments of a parameter."""
        return self._sharding is None or bool(self._sharding.owned([parameter]))

    def max_each(self, numbers: Sequence[int]) -> list[int]:
        """Return the elementwise maximum over the processes that share the optimizer's state."""
        return list(map(int, _reduced(numbers, [self._shards], ReduceOp.MAX)))

    def max(self, value: float) -> float:
        """Return the maximum of `value` over all processes."""
        return _reduced([value], [self._all], ReduceOp.MAX)[0]

    def begin(self, layer: nn.Layer, parameters: Sequence[Tensor]) -> None:
        """Set up sharding, which assigns each trained parameter to the process that updates it."""
        if self._shards is None:
            return
        from ernie.parallel.sharding import GradientSharding, StateSharding, WeightSharding

        if self.layout.sharding_stage == 1:
            self._sharding = StateSharding(parameters, self._topology)
        else:
            kind = GradientSharding if self.layout.sharding_stage == 2 else WeightSharding
            with _quietly():
                self._sharding = kind(layer, parameters, self._topology)
            runtime.release_free_memory()  # fleet has copied all weights into new buffers and freed the old ones

    def share(self, items: Sequence[T]) -> list[T]:
        """Return this process's share of the items, which are dealt to the replicas round-robin."""
        place = self.layout.place(self.rank)
        return list(items[place["data"] * self.layout.sharding + place["sharding"] :: self.layout.replicas])

    def backward(
        self,
        tasks: Sequence[str | None],
        made: Mapping[int, MicroBatch],
        loss: Callable[[str, Packed], Loss],
        parameters: Sequence[Tensor],
    ) -> Iterator[tuple[str, float]]:
        """Run forward and backward of this process's micro-batches, yielding each one's task and summed loss.

        `tasks` lists the task of every micro-batch of the step, None for those without targets.  `made` holds by number
        those that this process has, its own among them.  In a pipeline only the last stage knows the losses.
        `parameters` are those that get gradients.
        """
        replicas = self.layout.replicas
        with_targets = {number: micro for number, micro in made.items() if tasks[number] is not None}
        numbers = enumerate(self.share(range(len(tasks))))
        own = {turn: with_targets[number] for turn, number in numbers if number in with_targets}
        self.at(task=", ".join(dict.fromkeys(micro.task for micro in own.values())), doing="forward and backward")
        if self._pipeline is not None:
            yield from self._pipeline.backward(list(own.values()))
            return
        for turn in range(-(-len(tasks) // replicas)):
            present = [task for task in tasks[turn * replicas :][:replicas] if task is not None]
            if not present:
                continue
            if self._sharding is not None:
                self._sharding.begin(len(present) == replicas and len(set(present)) == 1)
            if turn in own:
                self.at(task=own[turn].task)
                yield own[turn].task, backward(own[turn], loss)
            elif self._slices_weights:  # the others need this process's slices
                idle = next(iter([*with_targets.values(), *made.values()]))
                backward(idle._replace(factor=0.0), loss)
            if self._sharding is not None:
                self._sharding.end(parameters)

    def sum(self, values: Sequence[float]) -> list[float]:
        """Return the elementwise sum over all replicas and over the stages of a pipeline."""
        return _reduced(values, [self._data, self._shards, self._stages])

    def sum_of_replicas(self, values: Sequence[float]) -> list[float]:
        """Return the elementwise sum over all replicas."""
        return _reduced(values, [self._data, self._shards])

    @paddle.no_grad()
    def sum_gradients(self, parameters: Sequence[Tensor]) -> None:
        """Sum each parameter's gradient over all replicas, also where only some of them have one."""
        if self.layout.sequence:
            parts = [p for p in parameters if p.grad is not None and is_sequence_parallel_parameter(p)]
            sum_gradients(parts, self._tensor)
        if self.layout.replicas == 1:
            return
        present = _reduced([p.grad is not None for p in parameters], [self._data, self._shards], ReduceOp.MAX)
        learning = [p for p, is_present in zip(parameters, present, strict=True) if is_present]
        if self._sharding is not None:
            self._sharding.sum_gradients(learning)
            return
        for parameter in learning:
            if parameter.grad is None:
                parameter.grad = paddle.zeros_like(parameter)
        sum_gradients(learning, self._data)

    def gradient_norm(self, parameters: Sequence[Tensor]) -> float:
        """Return the global L2 norm of all gradients; not finite if any of them is not."""
        if self._sharding is not None:
            parameters = self._sharding.owned(parameters)
        if self._pipeline is not None:
            parameters = [parameter for parameter in parameters if self._pipeline.counts(parameter)]
        whole, parts = (
            sum_of_squares(
                [
                    gradient
                    for parameter in parameters
                    if is_split(parameter) is split and (gradient := self.values(parameter).grad) is not None
                ]
            )
            for split in (False, True)
        )
        [parts] = _reduced([parts], [self._tensor])
        return float(_reduced([whole + parts], [self._shards, self._stages])[0] ** 0.5)

    def update(self, parameters: Sequence[Tensor], update: Callable[[Sequence[Tensor]], None]) -> None:
        """Call `update` on the parameters that have gradients, each in the process that keeps its optimizer state."""
        if self._sharding is not None:
            self._sharding.step(update)
        else:
            update([parameter for parameter in parameters if parameter.grad is not None])


def _store() -> Any:
    """Return the store through which the processes find one another.  Raises PortTaken in the one that serves it."""
    try:
        return core.create_or_get_global_tcp_store()
    except ValueError as error:
        found = re.search(r"Bind network on \S+:(\d+) failed", str(error))
        if found is None:
            raise
        raise PortTaken(
            f"port {found[1]}, which was free when the processes were started, is in use by another program now; run "
            "the command again"
        ) from None


@contextmanager
def _quietly() -> Iterator[None]:
    """Suppress fleet's log output and warnings; errors are still raised."""
    warnings.filterwarnings("ignore", category=UserWarning, module=r"paddle\.distributed\.")  # permanently
    log_util.set_log_level("ERROR")
    disabled = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        with redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(disabled)


def _reduced(values: Sequence[float], groups: Sequence[Any], op: Any = ReduceOp.SUM) -> list[float]:
    """All-reduce numbers over the groups that are not None, one group after the other."""
    if not values or not any(group is not None for group in groups):  # Gloo fails on an empty tensor
        return list(values)
    total = paddle.to_tensor(np.array(values, np.float64))
    for group in groups:
        if group is not None:
            all_reduce(total, op, group=group)
    return [float(value) for value in total.numpy()]
