"""An analytic model of the time of a step and the memory of a process in a layout.

The model counts the matmuls of all layers and of the masked-token head, where a backward pass costs two forward passes.
It counts the all-reduces of tensor parallelism, and the messages and idle time of a pipeline.  It counts the gradient
all-reduce, and the optimizer's pass over the weights.  None of these overlap, as they do not overlap in this library.

Legend: T tokens of a micro-batch, D width, F inner width, V vocabulary, n micro-batches of a pipeline in a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ernie.data.shards import Corpus
from ernie.model.config import EncoderConfig
from ernie.parallel.layout import MESSAGE, ParallelConfig, Sizes
from pretrain.config import PretrainConfig
from pretrain.planner.chain import Piece, best_partition, partition
from pretrain.planner.machine import Machine

MASKED = 0.15  # the fraction of tokens that is predicted
_WEIGHT, _MOMENTS = 4, 8  # bytes for each weight
TENSORS = 16  # parameter tensors in a layer


@dataclass(frozen=True)
class Work:
    """A step: `micro_batches` of `tokens` each, in sequences of `length` tokens on average.

    `moments` counts the sets of optimizer moments: 1, or one for each task; `averages` says whether the weights have
    moving averages (`train.ema`); `data_shards` are those of the run.
    `prepares` is that of Sizes; the generator of such a task is not counted.
    """

    shape: EncoderConfig
    micro_batches: int
    tokens: int
    length: float
    moments: int = 1
    data_shards: int = 1
    prepares: bool = False
    averages: bool = False

    @property
    def sizes(self) -> Sizes:
        """The sizes that a layout has to divide."""
        return Sizes.of(self.shape, self.micro_batches, self.data_shards, self.prepares)

    @property
    def all_tokens(self) -> int:
        """The number of tokens in a step."""
        return self.micro_batches * self.tokens

    @cached_property
    def layer_flops(self) -> float:
        """FLOPs of a micro-batch's forward pass through a layer: matmuls with weights, and the two of attention."""
        T, D, F = self.tokens, self.shape.hidden_size, self.shape.intermediate_size
        return 2.0 * T * (4 * D * D + 2 * D * F) + 4.0 * T * self.length * D

    @cached_property
    def head_flops(self) -> float:
        """FLOPs of a micro-batch's forward pass through the masked-token head."""
        D, V = self.shape.hidden_size, self.shape.vocab_size
        return 2.0 * MASKED * self.tokens * (D * D + D * V)

    @property
    def flops(self) -> float:
        """FLOPs of a step; a backward pass costs two forward passes."""
        return 3 * self.micro_batches * (self.shape.layers * self.layer_flops + self.head_flops)

    @property
    def layer_weights(self) -> int:
        """The number of weights in a layer."""
        D, F = self.shape.hidden_size, self.shape.intermediate_size
        return 4 * (D * D + D) + 2 * D * F + F + D + 4 * D

    @property
    def embedding_weights(self) -> int:
        """The number of weights in the token embedding matrix, which tensor parallelism splits."""
        return self.shape.vocab_size * self.shape.hidden_size

    @property
    def other_weights(self) -> int:
        """The number of weights in the other embeddings and in a head."""
        shape, D = self.shape, self.shape.hidden_size
        return (shape.max_positions + shape.segments + shape.task_vocab_size) * D + 2 * D * D

    @property
    def weights(self) -> int:
        """The number of all weights."""
        return self.shape.layers * self.layer_weights + self.embedding_weights + self.other_weights


def work_of(config: PretrainConfig, shape: EncoderConfig, length: float | None = None) -> Work:
    """A step of a run, in sequences of `length` tokens on average (default: `data.max_len`)."""
    moments = len(config.schedule.task_names) if config.train.moments == "each_task" else 1
    train, data = config.train, config.data
    step = train.micro_batches, data.micro_batch_tokens, length or data.max_len
    return Work(shape, *step, moments, data.data_shards, config.prepares, train.ema > 0)


def work_planned(config: PretrainConfig, length: float | None = None) -> Work:
    """A step of a run that has not started, in sequences of `length` tokens on average (default: `data.max_len`).

    The vocabulary size is that of the corpus if it exists, else that of the preset; with `model.start_from` the shape
    is that of the model to start from.
    """
    built = (config.corpus / "corpus.json").is_file()
    vocab_size = Corpus.open(config.corpus).tokenizer.vocab_size if built else None
    return work_of(config, config.model.shape(vocab_size), length)


@dataclass(frozen=True)
class Cost:
    """The cost of a layout: the seconds of a step by what they are `spent` on, and the peak `memory` in bytes.

    `memory` is that of the process that needs most; `stages` are the numbers of layers of the pipeline stages.
    """

    work: Work
    layout: ParallelConfig
    spent: dict[str, float]
    memory: float
    stages: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """The duration of a step."""
        return sum(self.spent.values())


def cost(work: Work, layout: ParallelConfig, machine: Machine) -> Cost | None:
    """The cost of a layout; None when a process would run out of memory.

    A pipeline is cut into the stages that the layout gives, otherwise into the fastest ones.
    """
    model = _Model(work, layout, machine)
    found = model.interleaved() if layout.virtual_stages > 1 else model.contiguous()
    return found if found and found.memory <= machine.memory else None


@dataclass(frozen=True)
class _Model:
    work: Work
    layout: ParallelConfig
    machine: Machine

    @property
    def micro_batches(self) -> int:
        """The micro-batches of a step that each pipeline processes."""
        return self.work.micro_batches // self.layout.replicas

    @cached_property
    def vectors(self) -> float:
        """The bytes of a micro-batch's hidden states (T, D)."""
        return float(self.work.tokens * self.work.shape.hidden_size * self.machine.value)

    @cached_property
    def contention(self) -> float:
        """The slowdown against the machine's rates when all processes compute at the same time."""
        return self.machine.contention(self.layout.processes)

    @cached_property
    def products(self) -> float:
        """The FLOP/s of a process.  Fewer processes have more threads each; more of them may have to take turns."""
        if not self.spread:
            return self.machine.products
        alone = self.machine.alone or self.machine.products * self.machine.at_once
        return self.machine.products + self.spread * (alone - self.machine.products)

    @cached_property
    def spread(self) -> float:
        """How far one process has all processors to itself: from 0, with as many processes as measured, to 1, alone."""
        return (1 / self.contention - 1) / (self.machine.at_once - 1) if self.contention < 1 else 0.0

    @cached_property
    def layer_products(self) -> float:
        passes = 4 if self.layout.recompute else 3
        overhead = self.machine.overhead * (1 - self.spread)
        if self.layout.tensor > 1:
            overhead += self.machine.split * self.work.tokens
        return passes * (self.work.layer_flops / self.layout.tensor / self.products + overhead)

    @cached_property
    def head_products(self) -> float:
        return 3 * self.work.head_flops / self.layout.tensor / self.products

    @cached_property
    def tensor_sums(self) -> float:
        """Seconds of a layer's all-reduces: two forward, two backward (Shoeybi et al., section 3)."""
        link = self.machine.link(self.layout.tensor)
        sums = 6 if self.layout.recompute else 4
        return sums * max(1.0, self.contention) * link.sum_seconds(self.vectors, self.layout.tensor)

    @cached_property
    def message(self) -> float:
        """Seconds to send a micro-batch to the next stage, and its gradient back."""
        if self.layout.pipeline == 1:
            return 0.0
        size = self.vectors / (self.layout.tensor if self.layout.sequence else 1)
        span = self.layout.tensor * self.layout.sharding * 2
        return 2 * self.machine.link(span).send_seconds(size)

    @cached_property
    def kept(self) -> float:
        """Bytes of activations that a layer keeps for a micro-batch."""
        elements, t = self.vectors / self.machine.value, self.layout.tensor
        if self.layout.recompute:
            return self.machine.value * elements / (t if self.layout.sequence else 1)
        kept = self.machine.split_kept or self.machine.kept if t > 1 else self.machine.kept
        replicated = kept * self.machine.replicated_activations / self.machine.kept
        return elements * (replicated / (t if self.layout.sequence else 1) + (kept - replicated) / t)

    @property
    def base(self) -> float:
        """Bytes that a process takes besides model state and activations."""
        machine, layout = self.machine, self.layout
        bases = [machine.split_base * (layout.tensor > 1), machine.sharded_base * (layout.sharding_stage > 2)]
        return max(*bases, machine.pipeline_base * (layout.pipeline > 1)) or machine.base

    @property
    def whole(self) -> float:
        """The bytes of all weights, unsplit."""
        return float(_WEIGHT * self.work.weights)

    @property
    def gathered(self) -> float:
        """The bytes of the unsplit model, which the first process holds besides its part to evaluate and save it."""
        layout = self.layout
        return self.whole if layout.tensor > 1 or layout.pipeline > 1 or layout.sharding_stage > 2 else 0.0

    def state(self, weights: float, *, of_layers: bool = False) -> float:
        """Bytes for `weights` weights: values, low-precision copies, gradients and the optimizer's moments."""
        shards, stage = self.layout.sharding, self.layout.sharding_stage
        values = (_WEIGHT + self.machine.copies) / (shards if stage > 2 and of_layers else 1)
        gradients = _WEIGHT / (shards if stage > 1 else 1)
        kept = _MOMENTS * self.work.moments + _WEIGHT * self.work.averages
        return weights * (values + gradients + kept / shards)

    def pieces(self) -> list[Piece]:
        """Embedding, layers and head as the pieces of a chain."""
        t = self.layout.tensor
        matrix, other = self.state(self.work.embedding_weights / t), self.state(self.work.other_weights)
        link = self.machine.link(t)
        embedding = 3 * _WEIGHT * self.vectors / self.machine.value  # sum, normalized and result
        logits = _WEIGHT * MASKED * self.work.tokens * self.work.shape.vocab_size / t
        first = Piece(2 * link.sum_seconds(self.vectors, t), matrix + other / 2, embedding, self.message)
        layer = Piece(
            self.layer_products + self.tensor_sums,
            self.state(self.work.layer_weights / t, of_layers=True),
            self.kept,
            self.message,
        )
        head = other / 2 + (matrix if self.layout.pipeline > 1 else 0.0)
        last = Piece(self.head_products, head, logits, self.message)
        return [first, *[layer] * self.work.shape.layers, last]

    def contiguous(self) -> Cost | None:
        """The cost where each process has one contiguous stage, in the order "one forward, one backward"."""
        pieces, stages = self.pieces(), self.layout.pipeline
        free = self.machine.memory - self.base - self.gathered
        if self.layout.stages:
            found = partition(pieces, self.layout.stage_starts(self.work.shape.layers), self.micro_batches, free)
        else:
            found = best_partition(pieces, stages, self.micro_batches, free)
        if found is None:
            return None
        sizes = found.sizes(len(pieces))
        layers = [size - (k == 0) - (k == stages - 1) for k, size in enumerate(sizes)]
        chosen = replace(self, layout=replace(self.layout, stages=tuple(layers) if stages > 1 else ()))
        return chosen._cost(tuple(layers), found.seconds, self._peak(pieces, found.starts))

    def interleaved(self) -> Cost:
        """The cost of equal interleaved pieces: their number divides the idle time and multiplies the messages."""
        stages, v, n = self.layout.pipeline, self.layout.virtual_stages, self.micro_batches
        pieces = self.pieces()
        each = self.work.shape.layers // stages
        longest = each * pieces[1].seconds + max(pieces[0].seconds, pieces[-1].seconds) + v * self.message
        first = pieces[0].state + each * pieces[1].state
        in_flight = stages * v + stages - 1  # passes in the first stage, each through a v-th of its layers
        own = first + min(in_flight, n * v) * each / v * self.kept
        return self._cost((each,) * stages, (n + (stages - 1) / v) * longest, self.gathered + own)

    def _peak(self, pieces: list[Piece], starts: tuple[int, ...]) -> float:
        """The bytes of model state and activations in the stage that needs most."""
        peak = 0.0
        for stage, (start, end) in enumerate(zip(starts, (*starts[1:], len(pieces)), strict=True)):
            in_flight = min(self.micro_batches, len(starts) - stage)
            own = sum(piece.state + in_flight * piece.kept for piece in pieces[start:end])
            peak = max(peak, own + (self.gathered if stage == 0 else 0.0))
        return peak

    def _cost(self, layers: tuple[int, ...], seconds: float, peak: float) -> Cost:
        n, t = self.micro_batches, self.layout.tensor
        busiest = max(layers)
        spent = {
            "products": n * (busiest * self.layer_products + self.head_products * (self.layout.pipeline == 1)),
            "tensor sums": n * busiest * self.tensor_sums,
        }
        spent["pipeline"] = max(0.0, seconds - sum(spent.values()))
        all_work = (
            n
            * self.layout.processes
            * (self.work.shape.layers * self.layer_products + self.head_products)
            / self.layout.pipeline
        )
        least = all_work / self.machine.at_once if self.machine.at_once else 0.0  # with all processors always busy
        spent["crowded processors"] = max(0.0, least - seconds)
        weights = self._weights(layers, t)
        spent["gradient sums"] = self._gradient_sums(weights)
        spent["update"] = self.contention * weights / self.layout.sharding / self.machine.updates
        memory = self.base + max(peak, self.whole + self.gathered)  # every process starts with the unsplit model
        return Cost(self.work, self.layout, spent, memory, layers)

    def _weights(self, layers: tuple[int, ...], tensor: int) -> float:
        """The number of weights in the largest stage."""
        return max(layers) * self.work.layer_weights / tensor + self._ends(tensor)

    def _ends(self, tensor: int) -> float:
        return self.work.embedding_weights / tensor + self.work.other_weights

    def _gradient_sums(self, weights: float) -> float:
        layout, size = self.layout, _WEIGHT * weights
        inner = layout.tensor * layout.sharding  # ranks that a sharding group spans
        shards = self._shard_sums(size, inner)
        span = inner * layout.pipeline * layout.degree("data")
        data = self.machine.link(span).sum_seconds(size / layout.sharding, layout.degree("data"))
        tied = 0.0
        if layout.pipeline > 1:
            embedding = _WEIGHT * self.work.embedding_weights / layout.tensor
            tied = self.machine.link(inner * layout.pipeline).sum_seconds(embedding, 2)
        return max(1.0, self.contention) * (shards + data - self._hidden(data, size) + tied)

    def _hidden(self, seconds: float, size: float) -> float:
        """The part of the sums over `data` that goes on beside the last backward pass of a step.

        The last of their messages waits for the end of the pass.  Processes that share processors sum after it.
        """
        layout = self.layout
        if self.machine.at_once or not layout.can_overlap or layout.overlap is False:
            return 0.0
        passes = 4 if layout.recompute else 3
        backward = (passes - 1) / passes * self.work.shape.layers * self.layer_products + 2 / 3 * self.head_products
        return min(seconds * max(0.0, 1 - MESSAGE / size), backward)

    def _shard_sums(self, size: float, span: int) -> float:
        """Seconds to reduce gradients to their owners and to send weights back: each is half of a ring all-reduce.

        From stage 2 on, gradients are reduced after every micro-batch, tensor by tensor; with stage 3 the layers'
        weights are fetched for every forward and every backward pass.
        """
        ranks, stage = self.layout.sharding, self.layout.sharding_stage
        link, tensors = self.machine.link(span), TENSORS * self.work.shape.layers

        def half(size: float, messages: int) -> float:
            latencies = (messages - 1) * link.sum_seconds(0, ranks)
            return (link.sum_seconds(size, ranks) + latencies) / 2 + (
                messages > 1
            ) * messages * self.machine.per_tensor_latency

        if stage == 1:
            return 2 * half(size, 1)
        layers = _WEIGHT * self.work.shape.layers * self.work.layer_weights
        gradients = self.micro_batches * half(size, tensors)
        if stage == 2:
            return gradients + half(size, 1)
        return gradients + 2 * self.micro_batches * half(layers, tensors) + half(size - layers, 1)
