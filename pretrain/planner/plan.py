"""The layouts of a number of devices in the order of their speed, with the reasons why others are behind."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from ernie.errors import UserError
from ernie.parallel.layout import ParallelConfig
from pretrain.planner.cost import Cost, Work, cost
from pretrain.planner.layouts import Space, regrouped
from pretrain.planner.machine import Machine
from pretrain.planner.search import Price, exhaustive, learned

FEW, BUDGET = 2000, 400  # layouts that are all tried; of more, a policy tries so many
_NAMES = {
    "products": "products",
    "tensor sums": "sums of tensor parallelism",
    "pipeline": "messages and waiting of the pipeline",
    "crowded processors": "more processes than processors",
    "gradient sums": "sums of gradients",
    "update": "updates",
}


@dataclass(frozen=True)
class Plan:
    """The layouts that were tried and fit, the fastest first; how many there are, and whether all were tried."""

    work: Work
    machine: Machine
    found: list[Cost]
    layouts: int
    all_tried: bool

    @property
    def best(self) -> Cost:
        """The fastest layout."""
        return self.found[0]

    def reason(self, other: Cost) -> str:
        """Why another layout is behind the best one: on what it spends most of the difference."""
        behind = other.seconds / self.best.seconds - 1
        if behind < 5e-4:
            return "as fast" if other.memory >= self.best.memory else "as fast, in less memory"
        more = {name: other.spent[name] - self.best.spent[name] for name in other.spent}
        name = max(more, key=more.__getitem__)
        return f"{behind:.1%} slower: {in_seconds(more[name])} more for {_NAMES[name]}"

    def notable(self, count: int) -> list[Cost]:
        """The best few, one for each set of degrees."""
        first: dict[str, Cost] = {}
        for one in self.found:
            first.setdefault(one.layout.described(), one)
        return list(first.values())[:count]

    def table(self, count: int = 8) -> list[list[str]]:
        """The best few as a table, its head first."""
        rows = [["layout", "micro-batches", "step", "tokens/s", "memory", "layers", "why not"]]
        for one in self.notable(count):
            why = "" if one is self.best else self.reason(one)
            stages = "" if len(one.stages) == 1 else " ".join(map(str, one.stages))
            speed = f"{self.work.all_tokens / one.seconds:,.0f}"
            step = f"{one.work.micro_batches} x {one.work.tokens:,}"
            seconds, memory = in_seconds(one.seconds), in_bytes(one.memory)
            rows.append([described(one.layout), step, seconds, speed, memory, stages, why])
        return rows

    def spent(self) -> str:
        """What the time of the best one goes to."""
        shares = {name: seconds / self.best.seconds for name, seconds in self.best.spent.items()}
        return ", ".join(f"{share:.0%} {_NAMES[name]}" for name, share in shares.items() if share >= 0.005)


def make_plan(work: Work, devices: int, machine: Machine, *, regroup: bool = False) -> Plan:
    """The plan for so many devices; `regroup`: the step may be cut into other micro-batches.

    Raises UserError with what is in the way when no layout is possible.
    """
    space = Space(devices, regrouped(work) if regroup else [work])
    candidates = list(space)
    if not candidates:
        sizes = work.sizes
        raise UserError(
            f"no layout of {devices} devices divides {sizes.heads} heads, an inner width of {sizes.inner:,}, a "
            f"vocabulary of {sizes.vocabulary:,}, {sizes.layers} layers and {sizes.micro_batches} micro-batches of a "
            "step; more micro-batches (train.micro_batches) leave the most freedom"
        )
    few = len(candidates) <= FEW
    found = exhaustive(candidates, _price(machine)) if few else learned(space, _price(machine), BUDGET)
    if not found and not few:
        found = exhaustive(candidates, _price(machine))
    if not found:
        needs = min(one.memory for one in exhaustive(candidates, _price(replace(machine, memory=math.inf))))
        raise UserError(
            f"none of {len(candidates):,} layouts of {devices} devices fits into {in_bytes(machine.memory)}: the "
            f"smallest needs {in_bytes(needs)}; smaller micro-batches (data.batch_tokens) need less"
        )
    return Plan(work, machine, found, len(candidates), few)


def _price(machine: Machine) -> Price:
    return lambda candidate: cost(candidate.work, candidate.layout, machine)


def described(layout: ParallelConfig) -> str:
    """A layout in words."""
    more = [f"stage {layout.sharding_stage}"] * (layout.sharding_stage > 1)
    more += [f"{layout.virtual_stages} pieces a stage"] * (layout.virtual_stages > 1)
    more += [name for name in ("sequence", "recompute") if getattr(layout, name)]
    return ", ".join([layout.described(), *more])


def block(found: Cost, work: Work) -> str:
    """The layout as the block of a configuration; with the step's micro-batches, where they are not those of `work`."""
    default, layout = ParallelConfig(), found.layout
    given = {item.name: getattr(layout, item.name) for item in fields(layout)}
    given["stages"] = list(layout.stages) or ()
    lines = [f"  {name}: {str(value).lower()}" for name, value in given.items() if value != getattr(default, name)]
    if found.work != work:
        lines.append(f"train: {{micro_batches: {found.work.micro_batches}}}")
        lines.append(f"data: {{batch_tokens: {found.work.tokens}}}")
    return "\n".join(["parallel:", *lines])


def assumptions(work: Work, machine: Machine) -> Sequence[str]:
    """What the figures stand on."""
    return [
        f"{machine.name}: {machine.products / 1e12:,.3g} TFLOP/s in layers, {in_bytes(machine.memory)}, "
        f"{in_bytes(machine.near.bandwidth)}/s within a node of {machine.per_node}, "
        f"{in_bytes(machine.far.bandwidth)}/s between nodes",
        f"a step of {work.micro_batches} micro-batches of {work.tokens:,} tokens, in sequences of {work.length:,.0f}",
        "communication does not overlap with computation; making batches and measuring take no time",
    ]


def in_seconds(value: float) -> str:
    """A time as people write it."""
    return f"{value:.2f} s" if value >= 1 else f"{1000 * value:.1f} ms"


def in_bytes(value: float) -> str:
    """A size as people write it."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 1000:
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
