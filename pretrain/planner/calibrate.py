"""Measure the rates and sizes of this machine with concurrent processes, as in a run.

The measurements are:

- all-reduces of a small and of a large tensor,
- forward and backward passes of few and of many layers, with few and with many tokens,
- an update,
- the activations that a layer keeps,
- the extra cost of layers that tensor parallelism splits, and of weights that stage 3 of sharding sends.

In each of these layouts, and in a pipeline, a small model also takes some steps with batches of many sizes, as in real
runs.  The memory beyond the analytic model's prediction becomes the base memory of a process.  Where processes measure
different times, the slowest one counts.
"""

from __future__ import annotations

import copy
import gc
import json
import math
import os
import shutil
import signal
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from threading import Thread
from typing import Any

import numpy as np
import paddle
from paddle import Tensor
from paddle.base import core
from paddle.distributed import ReduceOp, all_reduce

from ernie import runtime
from ernie.data.batch import Labels, Layout, Packed
from ernie.errors import UserError
from ernie.kernels.cpu.pool import bytes_in_use
from ernie.kernels.precision import Level, Precision, is_all_low, is_low, precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.losses import Loss
from ernie.parallel.collectives import any_rank, max_of_ranks
from ernie.parallel.launch import launch, ranks
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.mesh import Mesh
from ernie.parallel.micro_batch import MicroBatch
from ernie.train.adam_config import AdamConfig
from ernie.train.trainer import Trainer
from pretrain.model import MultiTaskModel
from pretrain.planner.cost import MASKED, TENSORS, Work, cost
from pretrain.planner.machine import Link, Machine, measured_with
from pretrain.planner.score import peak_memory
from tasks.pretraining.knowledge_masking import KnowledgeMasking

SMALL, LARGE = 1 << 12, 1 << 22  # elements of an all-reduced tensor
FEW, MANY = 1, 3  # layers
PART = 4  # the smaller micro-batch has 1 / PART of the tokens
_VOCABULARY = 1000  # of the measured models: small, since only layers are to be measured
_LAYERS, _SPLIT, _SHARDED, _PIPELINE = "layers", "split layers", "sharded weights", "pipeline"
_BASES = {_LAYERS: "base", _SPLIT: "split_base", _SHARDED: "sharded_base", _PIPELINE: "pipeline_base"}
_REPEATS = 12
_ROW = 50  # small all-reduces in a row
_SIGNALLED = 128  # a higher exit status: of a process that a signal has ended
_STEPS = 24  # of the small model whose memory is measured


def calibrate(work: Work, processes: int, choice: Precision, level: Level = "O1") -> Machine:
    """Measure this machine for the layers of `work` with `processes` processes: at least two, at most one per device.

    On a CPU, each core counts as a device.  Raises UserError when a measuring process fails, KeyboardInterrupt when a
    signal asks them to end.
    """
    count = max(2, min(processes, _devices()))
    case = {"shape": asdict(work.shape), "tokens": work.tokens, "length": work.length}
    case |= {"precision": choice, "level": level}
    folder = Path(tempfile.mkdtemp(prefix="ernie-calibrate-"))  # kept after a failure: it has the processes' messages
    file = folder / "machine.json"
    for part in _parts(work.shape, count):
        status = launch([part, json.dumps(case), str(file)], count, folder, module=__name__)
        if status >= _SIGNALLED:
            shutil.rmtree(folder)
            raise KeyboardInterrupt(status - _SIGNALLED)
        if status or not file.is_file():
            raise UserError("this machine could not be measured, for the reason above")
    machine = Machine.read(file)
    shutil.rmtree(folder)
    if not machine.at_once:
        return machine
    small = replace(work, shape=replace(work.shape, vocab_size=_VOCABULARY))
    with precision(choice, level):
        return replace(machine, alone=_Throughput(small, Mesh()).total)


def _parts(shape: EncoderConfig, processes: int) -> dict[str, ParallelConfig]:
    """The parts of the measurement, each run by its own processes, and their layouts."""
    parts = {
        _LAYERS: ParallelConfig(processes),
        _SHARDED: ParallelConfig(1, sharding=processes, sharding_stage=3),
        _PIPELINE: ParallelConfig(1, pipeline=processes, stages=(2,) * processes),
    }
    if not (shape.heads % processes or shape.intermediate_size % processes):
        parts[_SPLIT] = ParallelConfig(1, tensor=processes)
    return parts


def main(arguments: Sequence[str]) -> None:
    """Run one of the measuring processes; the first one writes the result."""
    _end_promptly()
    part, case, file = arguments[0], json.loads(arguments[1]), Path(arguments[2])
    shape, count = EncoderConfig(**case["shape"]), ranks()
    mesh = Mesh.connect(_parts(shape, count)[part])
    length = min(case["length"], case["tokens"])
    whole = replace(shape, layers=2 * count, vocab_size=-(-shape.vocab_size // count) * count)
    small = Work(whole, 2 * count, case["tokens"], length)
    work = Work(replace(shape, vocab_size=_VOCABULARY * count), 1, case["tokens"], length)
    with mesh.watch, precision(case["precision"], case["level"]):
        peak = _rehearsed_peak(small, mesh)  # first, before anything else takes memory
        if part == _LAYERS:
            machine = _measure(work, measured_with(shape, case["precision"], case["level"]), mesh)
        else:
            machine = Machine.read(file)
            machine = _with_split(machine, work, mesh) if part == _SPLIT else machine
            machine = _with_sharding(machine, work, mesh) if part == _SHARDED else machine
        no_base: dict[str, Any] = dict.fromkeys(_BASES.values(), 0.0)
        predicted = cost(small, mesh.layout, replace(machine, memory=math.inf, **no_base))
        assert predicted is not None
        base: dict[str, Any] = {_BASES[part]: max(0.0, peak - predicted.memory)}
        machine = replace(machine, **base)
        if mesh.is_first:
            machine.write(file)


def _end_promptly() -> None:
    """Let a SIGTERM end this process at once: it has nothing to save, and the others would take a slower one for dead.

    A handler in Python runs only between Paddle's operators, but a thread can act while they compute.
    """
    received, sent = os.pipe()
    os.set_blocking(sent, False)
    signal.set_wakeup_fd(sent)
    signal.signal(signal.SIGTERM, lambda *_: None)

    def end() -> None:
        os.read(received, 1)
        os._exit(_SIGNALLED + signal.SIGTERM)

    Thread(target=end, daemon=True, name="end").start()


def _rehearsed_peak(work: Work, mesh: Mesh) -> float:
    """The peak bytes of a process over some steps of a small model, in batches of at least half the tokens."""
    model = MultiTaskModel(ErnieModel(work.shape), {"": KnowledgeMasking()})
    # As in a run, which evaluates and saves the full model.
    full_model = copy.deepcopy(model) if mesh.splits_model and mesh.is_first else None
    model.train()
    trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=5, seed=0, mesh=mesh)
    sizes = np.random.default_rng(0).integers(work.tokens // 2, work.tokens + 1, (_STEPS, work.micro_batches))
    for step, tokens in enumerate(sizes.tolist()):
        trainer.step(step, [("", _batch(size, work, masked=True)) for size in tokens], model.loss, 1e-4)
    peak = max_of_ranks(mesh, peak_memory())
    del full_model
    return peak


def _measure(work: Work, name: str, mesh: Mesh) -> Machine:
    link = _link(mesh)
    rate = _Throughput(work, mesh)
    few, many = rate.few, rate.many
    kept = (many.kept(work.tokens) - few.kept(work.tokens)) / (MANY - FEW) / (work.tokens * work.shape.hidden_size)
    on_cpu = paddle.get_device() == "cpu"
    updates = many.weights / many.update_seconds()
    return Machine(
        name=name,
        products=rate.products,
        memory=float(runtime.total_memory()) / (mesh.layout.processes if on_cpu else 1),
        near=link,
        far=link,
        per_node=_devices(),
        updates=updates,
        overhead=rate.overhead,
        value=2 if is_all_low() else 4,
        copies=2 if is_low() else 0,
        kept=kept,
        replicated_activations=kept * Machine.replicated_activations / Machine.kept,
        at_once=mesh.layout.processes if on_cpu else 0,
    )


class _Throughput:
    """The FLOP/s of a layer's passes, and the fixed seconds that each pass takes besides."""

    def __init__(self, work: Work, mesh: Mesh):
        self.few, self.many = (_Bench(replace(work, shape=replace(work.shape, layers=n)), mesh) for n in (FEW, MANY))
        large, small = (
            (self.many.seconds(tokens) - self.few.seconds(tokens)) / (MANY - FEW) / 3
            for tokens in (work.tokens, work.tokens // PART)
        )
        flops = work.layer_flops
        self.products = flops * (1 - 1 / PART) / max(large - small, 0.1 * large)
        self.overhead = max(0.0, large - flops / self.products)
        self.total = flops / large  # FLOP/s, overhead included


def _with_split(machine: Machine, work: Work, mesh: Mesh) -> Machine:
    """The machine with the cost of layers that tensor parallelism splits among all processes."""
    few, many = (_Bench(replace(work, shape=replace(work.shape, layers=layers)), mesh, True) for layers in (FEW, MANY))
    ranks, elements = mesh.layout.tensor, work.tokens * work.shape.hidden_size
    seconds = (many.seconds(work.tokens) - few.seconds(work.tokens)) / (MANY - FEW)
    sums = 4 * machine.near.sum_seconds(elements * machine.value, ranks)
    extra = (seconds - sums) / 3 - work.layer_flops / ranks / machine.products - machine.overhead
    kept = (many.kept(work.tokens) - few.kept(work.tokens)) / (MANY - FEW) / elements
    replicated = machine.replicated_activations / machine.kept
    return replace(
        machine,
        split=max(0.0, extra) / work.tokens,
        split_kept=kept / (replicated + (1 - replicated) / ranks),
    )


def _with_sharding(machine: Machine, work: Work, mesh: Mesh) -> Machine:
    """The machine with the cost per tensor whose weights stage 3 of sharding fetches or whose gradient it sends."""
    work = replace(work, shape=replace(work.shape, layers=MANY))
    apart, sharded = (_Bench(work, mesh, together) for together in (False, True))
    rings = 3 / 2 * machine.near.sum_seconds(4 * work.layer_weights / TENSORS, mesh.layout.sharding)
    extra = (sharded.seconds(work.tokens) - apart.seconds(work.tokens)) / (MANY * TENSORS) - rings
    return replace(machine, per_tensor_latency=max(0.0, extra / 3))


def _devices() -> int:
    """The number of devices of this machine, or of its cores on a CPU."""
    return runtime.cores() if paddle.get_device() == "cpu" else int(paddle.device.cuda.device_count())


def _link(mesh: Mesh) -> Link:
    """Bandwidth and latency by the formula of `Link.sum_seconds`, from the times of a small and a large all-reduce.

    Small all-reduces run in a row, each of a value just computed, as in a step: their mean includes the time that the
    processes wait for each other.
    """
    ranks = mesh.layout.processes
    large, small = paddle.ones([LARGE]), paddle.ones([SMALL])

    def row() -> None:
        for _ in range(_ROW):
            all_reduce(paddle.tanh(small), ReduceOp.SUM)

    large_seconds = _seconds(lambda: all_reduce(large, ReduceOp.SUM), mesh, together=True)
    small_seconds = _seconds(row, mesh, together=True) / _ROW
    sent = 2 * (ranks - 1) / ranks  # times the size, by each rank
    bandwidth = sent * 4 * (LARGE - SMALL) / max(large_seconds - small_seconds, 1e-9)
    return Link(bandwidth, max(0.0, small_seconds - sent * 4 * SMALL / bandwidth) / (2 * (ranks - 1)))


class _Bench:
    """A model measured by each process for itself at the same time, or `together` in the layout of `mesh`."""

    def __init__(self, work: Work, mesh: Mesh, together: bool = False):
        self._work, self._mesh, self._together = work, mesh, together
        self._own = mesh if together else Mesh()
        self._model = MultiTaskModel(ErnieModel(work.shape), {})
        self._model.train()
        self._trainer = Trainer(self._model, AdamConfig(), clip=1.0, max_bad_steps=5, seed=0, mesh=self._own)
        parameters = self._model.parameters()
        self.weights = sum(math.prod(parameter.shape) for parameter in parameters)

    def seconds(self, tokens: int) -> float:
        """Seconds of a forward and a backward pass."""
        step = dict.fromkeys(range(self._own.layout.replicas), MicroBatch("", self._batch(tokens), 1.0, 0))

        def run() -> None:
            self._trainer.distributed.backward([""] * len(step), step, self._loss)
            self._trainer.optimizer.clear()

        return _seconds(run, self._mesh, together=self._together)

    def update_seconds(self) -> float:
        """Seconds of an optimizer step over all weights."""

        def set_gradients() -> None:
            for parameter in self._model.parameters():
                parameter.grad = paddle.ones_like(parameter)

        return _seconds(lambda: self._trainer.optimizer.step(1e-6), self._mesh, set_gradients)

    def kept(self, tokens: int) -> int:
        """Bytes of activations that are kept after the forward pass."""
        gc.collect()
        before = _allocated()
        hidden_TD = self._forward(self._batch(tokens))
        kept = _allocated() - before
        hidden_TD.sum().backward()
        self._trainer.optimizer.clear()
        return kept

    def _loss(self, task: str, batch: Packed) -> Loss:
        return Loss(self._forward(batch).sum(), batch.targets, None, batch.ids)

    def _forward(self, batch: Packed) -> Tensor:
        return self._model.ernie.encode_packed(batch, 0)

    def _batch(self, tokens: int) -> Packed:
        return _batch(tokens, self._work)


def _batch(tokens: int, work: Work, masked: bool = False) -> Packed:
    """A batch of `tokens` tokens, the last sequence shorter, with one target or, if `masked`, the usual fraction."""
    length = min(int(work.length), tokens)
    layout = Layout.of_lengths([length] * (tokens // length) + [tokens % length] * (tokens % length > 0))
    ids = np.random.default_rng(0).integers(0, min(_VOCABULARY, work.shape.vocab_size), layout.tokens)
    positions = np.arange(0, tokens, round(1 / MASKED)) if masked else np.zeros(1, np.int64)
    samples = np.zeros((layout.sequences, 3), np.int64)
    return Packed(ids, np.zeros_like(ids), layout, {"label": Labels(ids[positions], positions)}, samples)


def _allocated() -> int:
    if paddle.get_device() == "cpu":
        return int(core.host_memory_stat_current_value("Allocated", 0)) + bytes_in_use()
    return int(paddle.device.cuda.memory_allocated())


def _seconds(
    run: Callable[[], object], mesh: Mesh, before: Callable[[], None] = lambda: None, *, together: bool = False
) -> float:
    """The shortest of several runs, each started by all processes at once, in seconds of the slowest process.

    Other load on the machine can only add to it.  For work that processes do `together` it is the median instead, since
    waiting for each other is part of that work.
    """
    before()
    run()
    times = []
    for _ in range(_REPEATS):
        before()
        any_rank(mesh, False)
        start = time.perf_counter()
        run()
        if paddle.get_device() != "cpu":
            paddle.device.synchronize()
        times.append(time.perf_counter() - start)
    return float(max_of_ranks(mesh, statistics.median(times) if together else min(times)))


if __name__ == "__main__":
    main(sys.argv[1:])
