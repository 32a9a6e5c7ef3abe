"""How a run is spread over processes, and whether that can be.  Imports no Paddle: configurations are checked by it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, fields

from ernie.errors import UserError

AXES = ("data", "pipeline", "sharding", "tensor")  # in the order in which fleet numbers the ranks, the last the fastest


@dataclass(frozen=True)
class Sizes:
    """What a layout has to divide: of a model its layers, heads, widths and vocabulary; of a step its micro-batches."""

    layers: int
    heads: int
    inner: int
    vocabulary: int
    micro_batches: int


@dataclass(frozen=True)
class ParallelConfig:
    """How a run is spread over processes; as many as the product of `data`, `tensor`, `pipeline` and `sharding`.

    `data` and `sharding` share out a step's micro-batches; with `sharding` each process also keeps only its part of
    the optimizer's state (`sharding_stage` 1), of the gradients too (2), of the weights too (3) (Rajbhandari et al.,
    2020, arXiv 1910.02054).  `tensor` shares out each layer's heads, inner width and vocabulary (Shoeybi et al., 2019,
    arXiv 1909.08053), with `sequence` also the tokens between its products (Korthikanti et al., 2022, arXiv
    2205.05198).  `pipeline` shares out the layers, each process having `virtual_stages` pieces of them (Narayanan et
    al., 2021, arXiv 2104.04473).  `recompute` computes layers a second time instead of keeping what is inside them.
    When a process has said nothing for `timeout` seconds the others stop.
    """

    data: int = 1
    tensor: int = 1
    pipeline: int = 1
    sharding: int = 1
    sharding_stage: int = 1
    virtual_stages: int = 1
    sequence: bool = False
    recompute: bool = False
    timeout: float = 120.0

    def __post_init__(self) -> None:
        for name in (*AXES, "virtual_stages"):
            if getattr(self, name) < 1:
                raise UserError(f"{name}: expected at least 1, found {getattr(self, name)}")
        if self.sharding_stage not in (1, 2, 3):
            raise UserError(f"sharding_stage: expected 1, 2 or 3, found {self.sharding_stage}")
        if self.timeout <= 0:
            raise UserError(f"timeout: expected seconds above 0, found {self.timeout:g}")
        if self.sequence and self.tensor == 1:
            raise UserError("sequence: shares out tokens among the processes of `tensor`, of which there is one")
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
        """How many processes it takes."""
        return math.prod(getattr(self, axis) for axis in AXES)

    @property
    def replicas(self) -> int:
        """Among how many processes a step's micro-batches are shared out."""
        return self.data * self.sharding

    def place(self, rank: int) -> dict[str, int]:
        """Where a rank stands on each axis."""
        found = {}
        for axis in reversed(AXES):
            rank, found[axis] = divmod(rank, getattr(self, axis))
        return {axis: found[axis] for axis in AXES}

    def described(self) -> str:
        """The degrees that are not 1, as `data 2 x tensor 2`."""
        degrees = [f"{item.name} {getattr(self, item.name)}" for item in fields(self) if item.name in AXES]
        return " x ".join(name for name in degrees if not name.endswith(" 1")) or "one process"

    def check(self, sizes: Sizes) -> None:
        """Raise UserError with every reason why this model and step cannot be run in this layout."""
        reasons = list(self._reasons(sizes))
        if reasons:
            raise UserError("\n".join(f"parallel: {reason}" for reason in reasons))

    def check_processes(self, processes: int) -> None:
        """Raise UserError unless the layout is one of this many processes."""
        if self.processes != processes:
            product = " x ".join(f"{axis} {getattr(self, axis)}" for axis in AXES)
            raise UserError(f"parallel: {product} = {self.processes} processes, but there are {processes}")

    def _reasons(self, sizes: Sizes) -> Iterator[str]:
        pieces = self.pipeline * self.virtual_stages
        for value, what, parts, by in (
            (sizes.heads, "heads", self.tensor, "tensor"),
            (sizes.inner, "inner width", self.tensor, "tensor"),
            (sizes.vocabulary, "vocabulary", self.tensor, "tensor"),
            (sizes.micro_batches, "micro-batches of a step", self.replicas, "data x sharding"),
        ):
            if value % parts:
                yield f"{what}: {value:,} / {by} {parts} = {value / parts:.2f}, which is no whole number"
        if sizes.layers < pieces:
            yield f"layers: {sizes.layers} are too few for {pieces} pieces (pipeline x virtual_stages)"
        each = sizes.micro_batches // self.replicas
        if self.virtual_stages > 1 and each % self.pipeline:
            yield (
                f"micro-batches: {each} for each pipeline / pipeline {self.pipeline} = {each / self.pipeline:.2f}; "
                "with virtual_stages that has to be a whole number"
            )
