"""What this machine can do, measured by processes that work at the same time, as those of a run do.

Measured are: the sum of a small and of a large tensor over the processes; forward and backward of a few layers with
few and with many tokens; an update; what a layer keeps for its backward pass; what is different about layers that are
split, and about weights that are handed over, as stage 3 of sharding does.  In each of these ways, and in a pipeline, a
small model takes some steps, with batches of many sizes as real ones have: what memory that takes, and the formula does
not know of, every process is said to need besides.  What two processes measure differently, the slower one says.
"""

from __future__ import annotations

import copy
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
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.base import core
from paddle.distributed import ReduceOp, all_reduce

from ernie import runtime
from ernie.data.batch import Labels, Layout, Packed
from ernie.errors import UserError
from ernie.kernels.cpu.room import taken
from ernie.kernels.precision import Level, Precision, computing, is_all_low, is_low
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
from pretrain.planner.cost import MASKED, TENSORS, Work, cost
from pretrain.planner.machine import Link, Machine, measured_with
from pretrain.planner.score import most_memory
from tasks.objectives.knowledge_masking import KnowledgeMasking

SMALL, LARGE = 1 << 12, 1 << 22  # numbers of a tensor that is summed
FEW, MANY = 1, 3  # layers
PART = 4  # the tokens of a micro-batch are divided by this for the smaller one
_VOCABULARY = 1000  # of the models that are measured: a table is no layer
_LAYERS, _SPLIT, _HANDED, _PIPED = "layers", "split layers", "handing over", "pipeline"
_BASES = {_LAYERS: "base", _SPLIT: "split_base", _HANDED: "handed_base", _PIPED: "piped_base"}
_REPEATS = 12
_ROW = 50  # small sums, one after the other
_STEPS = 24  # of a small model


def calibrate(work: Work, processes: int, precision: Precision, level: Level = "O1") -> Machine:
    """Measure this machine with so many processes, at most one a core but two at least, for a step's layers.

    Raises UserError when the processes cannot do it.
    """
    count = max(2, min(processes, _devices()))
    case = {"shape": asdict(work.shape), "tokens": work.tokens, "length": work.length}
    case |= {"precision": precision, "level": level}
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
    with computing(precision, level):
        return replace(machine, alone=_Rate(few, World()).whole)


def _parts(shape: EncoderConfig, processes: int) -> dict[str, ParallelConfig]:
    """What is measured, each by processes of its own, and their layout."""
    parts = {
        _LAYERS: ParallelConfig(processes),
        _HANDED: ParallelConfig(1, sharding=processes, sharding_stage=3),
        _PIPED: ParallelConfig(1, pipeline=processes, stages=(2,) * processes),
    }
    if not (shape.heads % processes or shape.intermediate_size % processes):
        parts[_SPLIT] = ParallelConfig(1, tensor=processes)
    return parts


def main(words: Sequence[str]) -> None:
    """One of the processes; the first one writes what was found."""
    part, case, file = words[0], json.loads(words[1]), Path(words[2])
    shape, count = EncoderConfig(**case["shape"]), ranks()
    world = World.start(_parts(shape, count)[part])
    length = min(case["length"], case["tokens"])
    whole = replace(shape, layers=2 * count, vocab_size=-(-shape.vocab_size // count) * count)
    small = Work(whole, 2 * count, case["tokens"], length)
    work = Work(replace(shape, vocab_size=_VOCABULARY * count), 1, case["tokens"], length)
    with world.together(), computing(case["precision"], case["level"]):
        taken = _rehearsed(small, world)  # first, before anything else takes memory
        if part == _LAYERS:
            found = _measure(work, measured_with(shape, case["precision"], case["level"]), world)
        else:
            found = Machine.read(file)
            found = _with_split(found, work, world) if part == _SPLIT else found
            found = _with_handing_over(found, work, world) if part == _HANDED else found
        without: dict[str, Any] = dict.fromkeys(_BASES.values(), 0.0)
        formula = cost(small, world.layout, replace(found, memory=math.inf, **without))
        assert formula is not None
        base: dict[str, Any] = {_BASES[part]: max(0.0, taken - formula.memory)}
        found = replace(found, **base)
        if world.is_first:
            found.write(file)


def _rehearsed(work: Work, world: World) -> float:
    """The most bytes that a process takes in some steps of a small model, its batches of at least half the tokens."""
    model = MultiTaskModel(ErnieModel(work.shape), {"": KnowledgeMasking()})
    whole = copy.deepcopy(model) if world.splits and world.is_first else None  # as a run has it, to measure and save
    model.train()
    world.split(model)
    trainer = Trainer(model, AdamConfig(), clip=1.0, patience=5, seed=0, world=world)
    sizes = np.random.default_rng(0).integers(work.tokens // 2, work.tokens + 1, (_STEPS, work.micro_batches))
    for step, tokens in enumerate(sizes.tolist()):
        trainer.step(step, [("", _batch(size, work, masked=True)) for size in tokens], model.loss, 1e-4)
    found = world.largest(most_memory())
    del whole
    return found


def _measure(work: Work, name: str, world: World) -> Machine:
    link = _link(world)
    rate = _Rate(work, world)
    few, many = rate.few, rate.many
    kept = (many.kept(work.tokens) - few.kept(work.tokens)) / (MANY - FEW) / (work.tokens * work.shape.hidden_size)
    on_cpu = paddle.get_device() == "cpu"
    updates = many.weights / many.update_seconds()
    return Machine(
        name=name,
        products=rate.products,
        memory=float(runtime.total_memory()) / (world.layout.processes if on_cpu else 1),
        near=link,
        far=link,
        per_node=_devices(),
        updates=updates,
        overhead=rate.overhead,
        value=2 if is_all_low() else 4,
        copies=2 if is_low() else 0,
        kept=kept,
        kept_alike=kept * Machine.kept_alike / Machine.kept,
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
    )


def _with_handing_over(machine: Machine, work: Work, world: World) -> Machine:
    """The same with what a tensor takes that is fetched for a pass, or whose gradient is handed over, by itself."""
    work = replace(work, shape=replace(work.shape, layers=MANY))
    apart, together = (_Bench(work, world, one) for one in (False, True))
    rings = 3 / 2 * machine.near.sum_seconds(4 * work.layer_weights / TENSORS, world.layout.sharding)
    besides = (together.seconds(work.tokens) - apart.seconds(work.tokens)) / (MANY * TENSORS) - rings
    return replace(machine, handed=max(0.0, besides / 3))


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

    def seconds(self, tokens: int) -> float:
        """Of forward and backward."""
        step = [MicroBatch("", self._batch(tokens), 1.0, 0)] * self._own.layout.replicas
        parameters = list(self._trainer.optimizer.parameters.values())

        def run() -> None:
            for _ in self._own.backward(step, self._loss, parameters):
                pass
            self._trainer.optimizer.clear()

        return _seconds(run, self._world, together=self._together)

    def update_seconds(self) -> float:
        """Of an update of all weights."""

        def give_gradients() -> None:
            for parameter in self._model.parameters():
                parameter.grad = paddle.ones_like(parameter)

        return _seconds(lambda: self._trainer.optimizer.step(1e-6), self._world, give_gradients)

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
        return _batch(tokens, self._work)


def _batch(tokens: int, work: Work, masked: bool = False) -> Packed:
    """Sequences of so many tokens, the last one of what is left; one token is to be predicted, or the usual share."""
    length = min(int(work.length), tokens)
    layout = Layout.of_lengths([length] * (tokens // length) + [tokens % length] * (tokens % length > 0))
    ids = np.random.default_rng(0).integers(0, min(_VOCABULARY, work.shape.vocab_size), layout.tokens)
    places = np.arange(0, tokens, round(1 / MASKED)) if masked else np.zeros(1, np.int64)
    samples = np.zeros((layout.sequences, 3), np.int64)
    return Packed(ids, np.zeros_like(ids), layout, {"label": Labels(ids[places], places)}, samples)


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
