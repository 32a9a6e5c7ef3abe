"""How long a step takes in a layout, and how much memory a process needs: an analytic model.

What is counted: the products of all layers and of the masked-token head (a backward pass is two forward ones), the
sums of tensor parallelism, the messages and waiting of a pipeline, the sum of the gradients and the optimizer's pass
over the weights.  Nothing of this overlaps, as it does not in this library.

Legend: T tokens of a micro-batch, D width, F inner width, V vocabulary, n micro-batches of a pipeline in a step.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property

from ernie.data.shards import Corpus
from ernie.model.config import EncoderConfig
from ernie.parallel.layout import ParallelConfig, Sizes
from pretrain.config import PretrainConfig
from pretrain.planner.chain import Piece, best_partition, partition
from pretrain.planner.machine import Machine

MASKED = 0.15  # of the tokens are predicted
_WEIGHT, _MOMENTS = 4, 8  # bytes
TENSORS = 16  # of a layer


@dataclass(frozen=True)
class Work:
    """A step: `micro_batches` of so many `tokens`, in sequences of `length` on average; so many sets of `moments`."""

    shape: EncoderConfig
    micro_batches: int
    tokens: int
    length: float
    moments: int = 1

    @property
    def sizes(self) -> Sizes:
        """What a layout has to divide."""
        return Sizes.of(self.shape, self.micro_batches)

    @property
    def all_tokens(self) -> int:
        """The tokens of a step."""
        return self.micro_batches * self.tokens

    @cached_property
    def layer_flops(self) -> float:
        """Operations of a micro-batch's forward pass through a layer: products with weights, and attention's two."""
        T, D, F = self.tokens, self.shape.hidden_size, self.shape.intermediate_size
        return 2.0 * T * (4 * D * D + 2 * D * F) + 4.0 * T * self.length * D

    @cached_property
    def head_flops(self) -> float:
        """Those of the masked-token head."""
        D, V = self.shape.hidden_size, self.shape.vocab_size
        return 2.0 * MASKED * self.tokens * (D * D + D * V)

    @property
    def flops(self) -> float:
        """Operations of a step: a backward pass is two forward ones."""
        return 3 * self.micro_batches * (self.shape.layers * self.layer_flops + self.head_flops)

    @property
    def layer_weights(self) -> int:
        """The weights of a layer."""
        D, F = self.shape.hidden_size, self.shape.intermediate_size
        return 4 * (D * D + D) + 2 * D * F + F + D + 4 * D

    @property
    def table_weights(self) -> int:
        """The weights of the token table, which are shared out by tensor parallelism."""
        return self.shape.vocab_size * self.shape.hidden_size

    @property
    def other_weights(self) -> int:
        """The weights of the other embeddings and of a head."""
        shape, D = self.shape, self.shape.hidden_size
        return (shape.max_positions + shape.segments + shape.task_vocab_size) * D + 2 * D * D

    @property
    def weights(self) -> int:
        """All weights."""
        return self.shape.layers * self.layer_weights + self.table_weights + self.other_weights


def work_of(config: PretrainConfig, shape: EncoderConfig, length: float | None = None) -> Work:
    """A step of a run, in sequences of this length (left out: as long as they may be)."""
    moments = len(config.schedule.task_names) if config.train.moments == "each_task" else 1
    return Work(shape, config.train.micro_batches, config.data.batch_tokens, length or config.data.max_len, moments)


def work_planned(config: PretrainConfig, length: float | None = None) -> Work:
    """A step of a run that is yet to begin, in sequences of this length (left out: as long as they may be).

    The vocabulary is the corpus's where there is one, else that of the preset; of a model to start from the shape is
    its own.
    """
    built = (config.corpus / "corpus.json").is_file()
    vocab_size = Corpus.open(config.corpus).tokenizer.vocab_size if built else None
    return work_of(config, config.model.shape(vocab_size), length)


@dataclass(frozen=True)
class Cost:
    """What a layout costs: `seconds` of a step, by what they are spent on; `memory` of the process that needs most.

    `stages` are the layers of each stage of a pipeline.
    """

    work: Work
    layout: ParallelConfig
    spent: dict[str, float]
    memory: float
    stages: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """The time of a step."""
        return sum(self.spent.values())


def cost(work: Work, layout: ParallelConfig, machine: Machine) -> Cost | None:
    """What a layout costs; None when a process would not have memory enough.

    A pipeline has the stages that the layout says, else the best ones.
    """
    model = _Model(work, layout, machine)
    if layout.virtual_stages > 1:
        return model.interleaved()
    return model.one_by_one()


@dataclass(frozen=True)
class _Model:
    work: Work
    layout: ParallelConfig
    machine: Machine

    @property
    def micro_batches(self) -> int:
        """Those of each pipeline."""
        return self.work.micro_batches // self.layout.replicas

    @cached_property
    def vectors(self) -> float:
        """The bytes of a micro-batch's vectors."""
        return float(self.work.tokens * self.work.shape.hidden_size * self.machine.value)

    @cached_property
    def crowd(self) -> float:
        """How many times longer than the machine says it takes when all processes are at work."""
        return self.machine.crowd(self.layout.processes)

    @cached_property
    def products(self) -> float:
        """The rate of products of a process: fewer of them have more threads each, more of them may wait in turns."""
        if not self.spread:
            return self.machine.products
        alone = self.machine.alone or self.machine.products * self.machine.at_once
        return self.machine.products + self.spread * (alone - self.machine.products)

    @cached_property
    def spread(self) -> float:
        """How far a process has all processors for itself: from 0, where there is one for each, to 1."""
        return (1 / self.crowd - 1) / (self.machine.at_once - 1) if self.crowd < 1 else 0.0

    @cached_property
    def layer_products(self) -> float:
        passes = 4 if self.layout.recompute else 3
        besides = self.machine.overhead * (1 - self.spread)
        if self.layout.tensor > 1:
            besides += self.machine.split * self.work.tokens
        return passes * (self.work.layer_flops / self.layout.tensor / self.products + besides)

    @cached_property
    def head_products(self) -> float:
        return 3 * self.work.head_flops / self.layout.tensor / self.products

    @cached_property
    def tensor_sums(self) -> float:
        """Seconds of a layer's sums: two in the forward pass, two in the backward pass (Shoeybi et al., section 3)."""
        link = self.machine.link(self.layout.tensor)
        sums = 6 if self.layout.recompute else 4
        return sums * max(1.0, self.crowd) * link.sum_seconds(self.vectors, self.layout.tensor)

    @cached_property
    def message(self) -> float:
        """Seconds to hand a micro-batch to the next stage, and its gradient back."""
        if self.layout.pipeline == 1:
            return 0.0
        size = self.vectors / (self.layout.tensor if self.layout.sequence else 1)
        span = self.layout.tensor * self.layout.sharding * 2
        return 2 * self.machine.link(span).send_seconds(size)

    @cached_property
    def kept(self) -> float:
        """Bytes that a layer keeps of a micro-batch."""
        elements, t = self.vectors / self.machine.value, self.layout.tensor
        if self.layout.recompute:
            return self.machine.value * elements / (t if self.layout.sequence else 1)
        kept = self.machine.split_kept or self.machine.kept if t > 1 else self.machine.kept
        alike = kept * self.machine.kept_alike / self.machine.kept
        return elements * (alike / (t if self.layout.sequence else 1) + (kept - alike) / t)

    @property
    def base(self) -> float:
        """Bytes that a process takes besides."""
        machine, layout = self.machine, self.layout
        found = [machine.split_base * (layout.tensor > 1), machine.handed_base * (layout.sharding_stage > 2)]
        return max(*found, machine.piped_base * (layout.pipeline > 1)) or machine.base

    @property
    def whole(self) -> float:
        """The bytes of all weights."""
        return float(_WEIGHT * self.work.weights)

    @property
    def gathered(self) -> float:
        """Those of the whole model that the first process has besides its part, to measure and to save."""
        layout = self.layout
        return self.whole if layout.tensor > 1 or layout.pipeline > 1 or layout.sharding_stage > 2 else 0.0

    def state(self, weights: float, *, of_layers: bool = False) -> float:
        """Bytes for weights: themselves, their copies, gradients and the optimizer's moments."""
        shards, stage = self.layout.sharding, self.layout.sharding_stage
        values = (_WEIGHT + self.machine.copies) / (shards if stage > 2 and of_layers else 1)
        gradients = _WEIGHT / (shards if stage > 1 else 1)
        return weights * (values + gradients + _MOMENTS * self.work.moments / shards)

    def pieces(self) -> list[Piece]:
        """Embedding, layers and head, as pieces of a chain."""
        t = self.layout.tensor
        table, other = self.state(self.work.table_weights / t), self.state(self.work.other_weights)
        link = self.machine.link(t)
        embedding = 3 * _WEIGHT * self.vectors / self.machine.value  # sum, normal and result
        scores = _WEIGHT * MASKED * self.work.tokens * self.work.shape.vocab_size / t
        first = Piece(2 * link.sum_seconds(self.vectors, t), table + other / 2, embedding, self.message)
        layer = Piece(
            self.layer_products + self.tensor_sums,
            self.state(self.work.layer_weights / t, of_layers=True),
            self.kept,
            self.message,
        )
        end = other / 2 + (table if self.layout.pipeline > 1 else 0.0)
        last = Piece(self.head_products, end, scores, self.message)
        return [first, *[layer] * self.work.shape.layers, last]

    def one_by_one(self) -> Cost | None:
        pieces, stages = self.pieces(), self.layout.pipeline
        free = self.machine.memory - self.base - self.gathered
        if self.layout.stages:
            found = partition(pieces, self.layout.begins(self.work.shape.layers), self.micro_batches, free)
        else:
            found = best_partition(pieces, stages, self.micro_batches, free)
        if found is None:
            return None
        sizes = found.sizes(len(pieces))
        layers = [size - (k == 0) - (k == stages - 1) for k, size in enumerate(sizes)]
        chosen = replace(self, layout=replace(self.layout, stages=tuple(layers) if stages > 1 else ()))
        return chosen._cost(tuple(layers), found.seconds, self._memory(pieces, found.starts))

    def interleaved(self) -> Cost | None:
        """Equal pieces that take turns: the waiting is divided by their number, the messages are as many times more."""
        stages, v, n = self.layout.pipeline, self.layout.virtual_stages, self.micro_batches
        pieces = self.pieces()
        each = self.work.shape.layers // stages
        longest = each * pieces[1].seconds + max(pieces[0].seconds, pieces[-1].seconds) + v * self.message
        first = pieces[0].state + each * pieces[1].state
        held = stages * v + stages - 1  # passes on their way in the first stage, each of a v-th of its layers
        memory = self.base + self.gathered + first + min(held, n * v) * each / v * self.kept
        if memory > self.machine.memory:
            return None
        return self._cost((each,) * stages, (n + (stages - 1) / v) * longest, memory)

    def _memory(self, pieces: list[Piece], starts: tuple[int, ...]) -> float:
        most = 0.0
        for stage, (start, end) in enumerate(zip(starts, (*starts[1:], len(pieces)), strict=True)):
            held = min(self.micro_batches, len(starts) - stage)
            own = sum(piece.state + held * piece.kept for piece in pieces[start:end])
            most = max(most, own + (self.gathered if stage == 0 else 0.0))
        return self.base + max(most, self.whole + self.gathered)  # all begin with the whole model

    def _cost(self, layers: tuple[int, ...], seconds: float, memory: float) -> Cost:
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
        crowded = all_work / self.machine.at_once if self.machine.at_once else 0.0
        spent["crowded processors"] = max(0.0, crowded - seconds)
        weights = self._weights(layers, t)
        spent["gradient sums"] = self._gradient_sums(weights)
        spent["update"] = self.crowd * weights / self.layout.sharding / self.machine.updates
        return Cost(self.work, self.layout, spent, memory, layers)

    def _weights(self, layers: tuple[int, ...], tensor: int) -> float:
        """Those of the stage with most of them."""
        return max(layers) * self.work.layer_weights / tensor + self._ends(tensor)

    def _ends(self, tensor: int) -> float:
        return self.work.table_weights / tensor + self.work.other_weights

    def _gradient_sums(self, weights: float) -> float:
        layout, size = self.layout, _WEIGHT * weights
        below = layout.tensor * layout.sharding
        shards = self._shard_sums(size, below)
        span = below * layout.pipeline * layout.degree("data")
        data = self.machine.link(span).sum_seconds(size / layout.sharding, layout.degree("data"))
        tied = 0.0
        if layout.pipeline > 1:
            table = _WEIGHT * self.work.table_weights / layout.tensor
            tied = self.machine.link(below * layout.pipeline).sum_seconds(table, 2)
        return max(1.0, self.crowd) * (shards + data + tied)

    def _shard_sums(self, size: float, span: int) -> float:
        """Seconds to hand gradients to those who update, and weights back: each is half of a ring's sum.

        From stage 2 on gradients are handed over after every micro-batch, tensor by tensor; with stage 3 the layers'
        weights are fetched for every forward and every backward pass.
        """
        ranks, stage = self.layout.sharding, self.layout.sharding_stage
        link, tensors = self.machine.link(span), TENSORS * self.work.shape.layers

        def half(size: float, messages: int) -> float:
            more = (messages - 1) * link.sum_seconds(0, ranks)
            return (link.sum_seconds(size, ranks) + more) / 2 + (messages > 1) * messages * self.machine.handed

        if stage == 1:
            return 2 * half(size, 1)
        layers = _WEIGHT * self.work.shape.layers * self.work.layer_weights
        gradients = self.micro_batches * half(size, tensors)
        if stage == 2:
            return gradients + half(size, 1)
        return gradients + 2 * self.micro_batches * half(layers, tensors) + half(size - layers, 1)
