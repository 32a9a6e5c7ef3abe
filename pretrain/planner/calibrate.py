"""What this machine can do, measured by processes that work at the same time, as those of a run do.

Measured are: the sum of a small and of a large tensor over the processes; forward and backward of a few layers with
few and with many tokens; an update; what a layer keeps for its backward pass; what a process takes besides, after
batches of many sizes, for each of which products have code of their own.  All of it is measured again, by other
processes, of layers that are split, and the time of a step where weights are handed over, as stage 3 of sharding does.
What two processes measure differently, the slower one says.
"""

from __future__ import annotations

import gc
import json
import math
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path

import numpy as np
import paddle
from paddle import Tensor
from paddle.base import core
from paddle.distributed import ReduceOp, all_reduce

from ernie import runtime
from ernie.data.batch import Labels, Layout, Packed
from ernie.errors import UserError
from ernie.kernels.cpu.room import taken
from ernie.kernels.precision import Precision, computing, is_low
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.parallel.launch import launch, ranks
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.micro_batch import MicroBatch
from ernie.parallel.world import World
from ernie.train.settings import AdamConfig
from ernie.train.trainer import Trainer
from pretrain.model import MultiTaskModel
from pretrain.planner.cost import TENSORS, Work
from pretrain.planner.machine import Link, Machine, measured_with

SMALL, LARGE = 1 << 12, 1 << 22  # numbers of a tensor that is summed
FEW, MANY = 1, 3  # layers
PART = 4  # the tokens of a micro-batch are divided by this for the smaller one
_VOCABULARY = 1000  # of the models that are measured: a table is no layer
_LAYERS, _SPLIT, _HANDED = "layers", "split layers", "handing over"
_REPEATS = 12
_ROW = 50  # small sums, one after the other
_SIZES, _LONGEST = 48, 1024  # batches of that many sizes, of at most so many tokens and at least half of them


def calibrate(work: Work, processes: int, precision: Precision) -> Machine:
    """Measure this machine with so many processes, at most one a core but two at least, for a step's layers.

    Raises UserError when the processes cannot do it.
    """
    count = max(2, min(processes, _devices()))
    case = {"shape": asdict(work.shape), "tokens": work.tokens, "length": work.length, "precision": precision}
    with tempfile.TemporaryDirectory(prefix="ernie-calibrate-") as folder:
        file = Path(folder) / "machine.json"
        for part in _parts(work.shape, count):
            words = [part, json.dumps(case), str(file)]
            if launch(words, count, Path(folder), module=__name__) or not file.is_file():
                raise UserError("this machine could not be measured; why is said above")
        machine = Machine.read(file)
    if not machine.at_once:
        return machine
    few = replace(work, shape=replace(work.shape, vocab_size=_VOCABULARY))
    with computing(precision):
        return replace(machine, alone=_Rate(few, World()).whole)


def _parts(shape: EncoderConfig, processes: int) -> dict[str, ParallelConfig]:
    """What is measured, each by processes of its own, and their layout."""
    parts = {_LAYERS: ParallelConfig(processes), _HANDED: ParallelConfig(1, sharding=processes, sharding_stage=3)}
    if not (shape.heads % processes or shape.intermediate_size % processes):
        parts[_SPLIT] = ParallelConfig(1, tensor=processes)
    return parts


def main(words: Sequence[str]) -> None:
    """One of the processes; the first one writes what was found."""
    part, case, file = words[0], json.loads(words[1]), Path(words[2])
    shape, count = EncoderConfig(**case["shape"]), ranks()
    world = World.start(_parts(shape, count)[part])
    shape = replace(shape, vocab_size=_VOCABULARY * count)
    work = Work(shape, 1, case["tokens"], min(case["length"], case["tokens"]))
    with world.together(), computing(case["precision"]):
        if part == _LAYERS:
            found = _measure(work, case["precision"], world)
        else:
            found = (_with_split if part == _SPLIT else _with_handing_over)(Machine.read(file), work, world)
        if world.is_first:
            found.write(file)


def _measure(work: Work, precision: str, world: World) -> Machine:
    link = _link(world)
    rate = _Rate(work, world)
    few, many = rate.few, rate.many
    kept = (many.kept(work.tokens) - few.kept(work.tokens)) / (MANY - FEW) / (work.tokens * work.shape.hidden_size)
    on_cpu = paddle.get_device() == "cpu"
    updates = many.weights / many.update_seconds()
    base = many.besides(kept) - few.state
    return Machine(
        name=measured_with(work.shape, precision),
        products=rate.products,
        memory=float(runtime.total_memory()) / (world.layout.processes if on_cpu else 1),
        near=link,
        far=link,
        per_node=_devices(),
        updates=updates,
        overhead=rate.overhead,
        value=2 if is_low() and not on_cpu else 4,
        copies=2 if is_low() else 0,
        kept=kept,
        kept_alike=kept * Machine.kept_alike / Machine.kept,
        base=float(base),
        at_once=world.layout.processes if on_cpu else 0,
    )


class _Rate:
    """The products a second of a layer's passes, and the seconds that each pass takes besides."""

    def __init__(self, work: Work, world: World):
        self.few, self.many = (_Bench(replace(work, shape=replace(work.shape, layers=n)), world) for n in (FEW, MANY))
        long, short = (
            (self.many.seconds(tokens) - self.few.seconds(tokens)) / (MANY - FEW) / 3
            for tokens in (work.tokens, work.tokens // PART)
        )
        flops = work.layer_flops
        self.products = flops * (1 - 1 / PART) / max(long - short, 0.1 * long)
        self.overhead = max(0.0, long - flops / self.products)
        self.whole = flops / long  # a second, overhead included


def _with_split(machine: Machine, work: Work, world: World) -> Machine:
    """The same with what a layer takes that is split among all processes."""
    few, many = (_Bench(replace(work, shape=replace(work.shape, layers=layers)), world, True) for layers in (FEW, MANY))
    ranks, elements = world.layout.tensor, work.tokens * work.shape.hidden_size
    seconds = (many.seconds(work.tokens) - few.seconds(work.tokens)) / (MANY - FEW)
    sums = 4 * machine.near.sum_seconds(elements * machine.value, ranks)
    besides = (seconds - sums) / 3 - work.layer_flops / ranks / machine.products - machine.overhead
    kept = (many.kept(work.tokens) - few.kept(work.tokens)) / (MANY - FEW) / elements
    alike = machine.kept_alike / machine.kept
    return replace(
        machine,
        split=max(0.0, besides) / work.tokens,
        split_kept=kept / (alike + (1 - alike) / ranks),
        split_base=many.besides(kept) - few.state,
    )


def _with_handing_over(machine: Machine, work: Work, world: World) -> Machine:
    """The same with what a tensor takes that is fetched for a pass, or whose gradient is handed over, by itself."""
    work = replace(work, shape=replace(work.shape, layers=MANY))
    together = _Bench(work, world, True)
    handed = together.seconds(work.tokens)
    base = together.besides(together.kept(work.tokens) / (MANY * work.tokens * work.shape.hidden_size))
    apart = _Bench(work, world)
    rings = 3 / 2 * machine.near.sum_seconds(4 * work.layer_weights / TENSORS, world.layout.sharding)
    besides = (handed - apart.seconds(work.tokens)) / (MANY * TENSORS) - rings
    return replace(machine, handed=max(0.0, besides / 3), handed_base=base)


def _devices() -> int:
    """The devices of this machine that processes can have for themselves."""
    return runtime.cores() if paddle.get_device() == "cpu" else int(paddle.device.cuda.device_count())


def _link(world: World) -> Link:
    """From the times of a small and of a large sum, which are those of `Link.sum_seconds`.

    Small ones come in a row, each of what has just been computed, as they do in a step: their mean holds what the
    processes wait for each other.
    """
    ranks = world.layout.processes
    large, few = paddle.ones([LARGE]), paddle.ones([SMALL])

    def row() -> None:
        for _ in range(_ROW):
            all_reduce(paddle.tanh(few), ReduceOp.SUM)

    long = _seconds(lambda: all_reduce(large, ReduceOp.SUM), world, together=True)
    short = _seconds(row, world, together=True) / _ROW
    share = 2 * (ranks - 1) / ranks
    bandwidth = share * 4 * (LARGE - SMALL) / max(long - short, 1e-9)
    return Link(bandwidth, max(0.0, short - share * 4 * SMALL / bandwidth) / (2 * (ranks - 1)))


class _Bench:
    """A model to be measured in this process while the others measure theirs, or with them, by their layout."""

    def __init__(self, work: Work, world: World, together: bool = False):
        self._work, self._world, self._together = work, world, together
        self._own = world if together else World()
        self._model = MultiTaskModel(ErnieModel(work.shape), {})
        self._model.train()
        self._own.split(self._model)
        self._trainer = Trainer(self._model, AdamConfig(), clip=1.0, patience=5, seed=0, world=self._own)
        parameters = self._model.parameters()
        self.weights = sum(math.prod(parameter.shape) for parameter in parameters)
        self.state = 16 * self.weights + (2 * self.weights if is_low() else 0)

    def seconds(self, tokens: int) -> float:
        """Of forward and backward."""
        return _seconds(lambda: self._pass(tokens), self._world, together=self._together)

    def _pass(self, tokens: int) -> None:
        step = [MicroBatch("", self._batch(tokens), 1.0, 0)] * self._own.layout.replicas
        for _ in self._own.backward(step, self._loss, list(self._trainer.optimizer.parameters.values())):
            pass
        self._trainer.optimizer.clear()

    def update_seconds(self) -> float:
        """Of an update of all weights."""

        def give_gradients() -> None:
            for parameter in self._model.parameters():
                parameter.grad = paddle.ones_like(parameter)

        return _seconds(lambda: self._trainer.optimizer.step(1e-6), self._world, give_gradients)

    def besides(self, kept: float) -> float:
        """Bytes that the process takes besides this model and what its layers keep for each element, see `Machine`."""
        most = min(self._work.tokens, _LONGEST)
        for size in range(_SIZES):
            self._pass(most - size * most // (2 * _SIZES))
        return float(
            self._world.largest(runtime.memory())
            - self.state
            - kept * self._work.shape.layers * self._work.tokens * self._work.shape.hidden_size
        )

    def kept(self, tokens: int) -> int:
        """Bytes that are kept after the forward pass."""
        gc.collect()
        before = _allocated()
        hidden_TD = self._forward(self._batch(tokens))
        found = _allocated() - before
        hidden_TD.sum().backward()
        self._trainer.optimizer.clear()
        return found

    def _loss(self, task: str, batch: Packed) -> Loss:
        return Loss(self._forward(batch).sum(), batch.targets, None, batch.ids)

    def _forward(self, batch: Packed) -> Tensor:
        return self._model.ernie.encode_packed(batch, 0)

    def _batch(self, tokens: int) -> Packed:
        length = min(int(self._work.length), tokens)
        layout = Layout.of_lengths([length] * (tokens // length) + [tokens % length] * (tokens % length > 0))
        ids = np.random.default_rng(0).integers(0, _VOCABULARY, layout.tokens)
        samples = np.zeros((layout.sequences, 3), np.int64)
        return Packed(ids, np.zeros_like(ids), layout, {"label": Labels(ids[:1], np.zeros(1, np.int64))}, samples)


def _allocated() -> int:
    if paddle.get_device() == "cpu":
        return int(core.host_memory_stat_current_value("Allocated", 0)) + taken()
    return int(paddle.device.cuda.memory_allocated())


def _seconds(
    run: Callable[[], object], world: World, before: Callable[[], None] = lambda: None, *, together: bool = False
) -> float:
    """The shortest time of several, each begun by all processes at once; that of the slowest process.

    What else the machine does meanwhile only adds to it.  Of what the processes do together the median tells more:
    waiting for each other belongs to it.
    """
    before()
    run()
    times = []
    for _ in range(_REPEATS):
        before()
        world.any(False)
        began = time.perf_counter()
        run()
        if paddle.get_device() != "cpu":
            paddle.device.synchronize()
        times.append(time.perf_counter() - began)
    return float(world.largest(statistics.median(times) if together else min(times)))


if __name__ == "__main__":
    main(sys.argv[1:])
