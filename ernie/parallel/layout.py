"""How a run is distributed over processes, and validation of it.  Imports no Paddle: configurations use it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING

from ernie.errors import UserError

if TYPE_CHECKING:
    from ernie.model.config import EncoderConfig

AXES = ("data", "pipeline", "sharding", "tensor")  # as fleet numbers the ranks, the last axis varying fastest
MESSAGE = 1 << 25  # maximum bytes of a message of gradients, unless a single gradient has more
REPLICAS = ("data", "sharding")  # the axes along which processes split a step's micro-batches


@dataclass(frozen=True)
class Sizes:
    """What a layout has to divide: a model's layers, heads, inner width and vocabulary, and a step's micro-batches.

    Micro-batches are dealt from `data_shards`.  With one, every process makes all of them, and nothing is divided.
    `prepares` says that a task computes the encoder's input from weights: neither layers nor tokens can be divided.
    """

    layers: int
    heads: int
    inner: int
    vocabulary: int
    micro_batches: int
    data_shards: int = 1
    prepares: bool = False

    @classmethod
    def of(cls, shape: EncoderConfig, micro_batches: int, data_shards: int = 1, prepares: bool = False) -> Sizes:
        """Return the sizes of an encoder of this shape."""
        model = shape.layers, shape.heads, shape.intermediate_size, shape.vocab_size
        return cls(*model, micro_batches, data_shards, prepares)


@dataclass(frozen=True)
class ParallelConfig:
    """How a run is distributed over processes: `data` x `tensor` x `pipeline` x `sharding` of them.

    `data`, if left out, is the number of processes divided by the other degrees.  `data` and `sharding` split a step's
    micro-batches.  With `sharding` each process also keeps only its part of the optimizer state (`sharding_stage` 1),
    of the gradients too (2), or of the layers' weights too (3); see Rajbhandari et al. (2020, arXiv 1910.02054).
    `tensor` splits each layer's heads, inner width and vocabulary (Shoeybi et al., 2019, arXiv 1909.08053), with
    `sequence` also the tokens between its matrix products (Korthikanti et al., 2022, arXiv 2205.05198).  `pipeline`
    splits the layers, with `stages` layers for each process (by default as even as possible), or interleaved with
    `virtual_stages` pieces per process (Narayanan et al., 2021, arXiv 2104.04473).  `recompute` recomputes layers in
    the backward pass instead of storing their activations.  `overlap` sums the gradients of `data` while the backward
    pass goes on (Li et al., 2020, arXiv 2006.15704); if left out, on a GPU where it can be done: without `pipeline`,
    `sharding` and `sequence`.  All processes stop when one has been silent for `timeout`
    seconds, or has kept the others waiting that long.  On CPUs they stop after 30 seconds at the latest, Gloo's own
    limit in a collective.  `ports` are the first and the last port on which processes listen, by default any.
    """

    data: int | None = None
    tensor: int = 1
    pipeline: int = 1
    sharding: int = 1
    sharding_stage: int = 1
    stages: tuple[int, ...] = ()
    virtual_stages: int = 1
    sequence: bool = False
    recompute: bool = False
    overlap: bool | None = None
    timeout: float = 60.0
    ports: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in (*AXES, "virtual_stages"):
            if (degree := getattr(self, name)) is not None and degree < 1:
                raise UserError(f"{name}: expected at least 1, found {degree}")
        if self.sharding_stage not in (1, 2, 3):
            raise UserError(f"sharding_stage: expected 1, 2 or 3, found {self.sharding_stage}")
        if self.sharding_stage == 3 and self.recompute:
            raise UserError(
                "recompute: does not go with sharding_stage 3, which fetches the weights of each layer once"
            )
        if self.stages and len(self.stages) != self.pipeline:
            raise UserError(f"stages: {len(self.stages)} numbers of layers for a pipeline of {self.pipeline}")
        if self.stages and self.virtual_stages > 1:
            raise UserError("stages: does not go with virtual_stages, whose pieces have equal sizes")
        if any(layers < 0 for layers in self.stages):
            raise UserError(f"stages: expected numbers of layers, found {min(self.stages)}")
        if self.timeout <= 0:
            raise UserError(f"timeout: expected seconds above 0, found {self.timeout:g}")
        if self.ports and not (len(self.ports) == 2 and 1 <= self.ports[0] <= self.ports[1] <= 65535):
            raise UserError(
                f"ports: expected the first and the last of a range, such as [21000, 21199], found {[*self.ports]}"
            )
        if self.sequence and self.tensor == 1:
            raise UserError("sequence: splits tokens over the processes of `tensor`, which is 1")
        if self.overlap and not self.can_overlap:
            raise UserError("overlap: goes with `data` and `tensor` only, without `sequence`")
        if self.sharding_stage > 1 and self.sharding > 1 and self.tensor * self.pipeline > 1:
            raise UserError(
                f"sharding_stage: {self.sharding_stage} goes with `data` only; with `tensor` {self.tensor} and "
                f"`pipeline` {self.pipeline} the stage is 1"
            )
        if self.virtual_stages > 1 and self.pipeline < 3:
            raise UserError(
                f"virtual_stages: {self.virtual_stages} needs a pipeline of at least 3, this one has {self.pipeline}"
            )

    @property
    def processes(self) -> int:
        """The number of processes."""
        return math.prod(self.degree(axis) for axis in AXES)

    def degree(self, axis: str) -> int:
        """Return the number of processes along an axis."""
        return getattr(self, axis) or 1

    @property
    def shards_weights(self) -> bool:
        """Whether each process holds only a slice of the layers' weights (sharding, stage 3)."""
        return self.sharding > 1 and self.sharding_stage == 3

    @property
    def can_overlap(self) -> bool:
        """Whether gradients can be summed while the backward pass goes on."""
        return self.pipeline == self.sharding == 1 and not self.sequence

    @property
    def replicas(self) -> int:
        """The number of processes that a step's micro-batches are split among."""
        return self.degree("data") * self.sharding

    def place(self, rank: int) -> dict[str, int]:
        """Return a rank's index along each axis."""
        indices = {}
        for axis in reversed(AXES):
            rank, indices[axis] = divmod(rank, self.degree(axis))
        return {axis: indices[axis] for axis in AXES}

    def layers_per_stage(self, layers: int) -> tuple[int, ...]:
        """Return the number of layers of each process of a pipeline: `stages`, or as even as possible.

        A remainder goes to the middle stages, since the first and the last one also have the embeddings and heads.
        """
        if self.stages:
            return self.stages
        each, remainder = divmod(layers, self.pipeline)
        order = [*range(1, self.pipeline - 1), 0, self.pipeline - 1]
        return tuple(each + (stage in order[:remainder]) for stage in range(self.pipeline))

    def stage_starts(self, layers: int) -> tuple[int, ...]:
        """Return the index of each pipeline stage's first piece, among embeddings, layers and heads."""
        stages = self.layers_per_stage(layers)
        return (0, *(1 + sum(stages[:stage]) for stage in range(1, self.pipeline)))

    def described(self) -> str:
        """Return the degrees above 1 as text, such as `data 2 x tensor 2`."""
        degrees = [(item.name, self.degree(item.name)) for item in fields(self) if item.name in AXES]
        return " x ".join(f"{axis} {degree}" for axis, degree in degrees if degree > 1) or "one process"

    def check(self, sizes: Sizes) -> None:
        """Raise UserError with all reasons why this model and step cannot run in this layout."""
        reasons = list(self._reasons(sizes))
        if reasons:
            raise UserError("\n".join(f"parallel: {reason}" for reason in reasons))

    def over(self, processes: int) -> ParallelConfig:
        """Return the layout for this many processes, with `data` filled in.  Raises UserError if it does not fit."""
        layout = self if self.data is not None else replace(self, data=max(1, processes // self.processes))
        if layout.processes != processes:
            product = " x ".join(f"{axis} {layout.degree(axis)}" for axis in AXES)
            there = "is 1" if processes == 1 else f"are {processes}"
            raise UserError(
                f"parallel: {product} = {layout.processes} processes, but there {there}; --processes says how many to "
                "start on this machine"
            )
        return layout

    def _reasons(self, sizes: Sizes) -> Iterator[str]:
        pieces = self.pipeline * self.virtual_stages
        if sizes.prepares and (self.pipeline > 1 or self.sequence):
            yield (
                "a task of the run computes the encoder's input itself, as replaced_token_detection does: it does not "
                f"go with {'pipeline' if self.pipeline > 1 else 'sequence'}; take `data`, `sharding` or `tensor`"
            )
        for value, what, parts, by in (
            (sizes.heads, "heads", self.tensor, "tensor"),
            (sizes.inner, "inner width", self.tensor, "tensor"),
            (sizes.vocabulary, "vocabulary", self.tensor, "tensor"),
            (sizes.micro_batches, "micro-batches of a step", self.replicas, "data x sharding"),
            (sizes.data_shards, "data.data_shards", 1 if sizes.data_shards == 1 else self.replicas, "data x sharding"),
        ):
            if value % parts:
                yield (
                    f"{what}: {value:,} / {by} {parts} = {value / parts:.2f}, which is no whole number; "
                    f"{parts * math.ceil(value / parts):,} would do"
                )
        if self.stages and sum(self.stages) != sizes.layers:
            sums = f"{' + '.join(map(str, self.stages))} = {sum(self.stages)} layers"
            yield f"stages: {sums}, the model has {sizes.layers}"
        if sizes.layers < pieces and not self.stages:
            yield f"layers: {sizes.layers} are too few for {pieces} pieces (pipeline x virtual_stages)"
        elif self.virtual_stages > 1 and sizes.layers % pieces:
            yield f"layers: {sizes.layers} / (pipeline x virtual_stages) {pieces} = {sizes.layers / pieces:.2f}"
        each = sizes.micro_batches // self.replicas
        if self.virtual_stages > 1 and each < 2 * self.pipeline:
            yield (
                f"micro-batches: {each} for each pipeline are less than 2 x pipeline {self.pipeline}, which "
                "virtual_stages need"
            )
