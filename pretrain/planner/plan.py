"""The layouts of a number of devices, fastest first, with the reason why each of the others is slower."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

from ernie.errors import UserError
from ernie.parallel.layout import ParallelConfig
from pretrain.planner.cost import Cost, Work, cost
from pretrain.planner.layouts import Space, regrouped
from pretrain.planner.machine import Machine
from pretrain.planner.search import Price, exhaustive_search, learned_search

FEW, BUDGET = 2000, 400  # up to FEW layouts are all tried; of more, a learned search tries BUDGET
# Tokens of batches that a worker makes in a second, by task (benchmarks/pretraining.py): at least, at most.
WORKER = 0.5e6, 2.5e6
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
    """The layouts that were tried and fit into memory, fastest first; `layouts` counts all there are, tried or not."""

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
        """Why another layout is slower than the best one: the item that accounts for most of the difference."""
        slowdown = other.seconds / self.best.seconds - 1
        if slowdown < 5e-4:
            return "as fast" if other.memory >= self.best.memory else "as fast, in less memory"
        extra = {name: other.spent[name] - self.best.spent[name] for name in other.spent}
        name = max(extra, key=extra.__getitem__)
        return f"{slowdown:.1%} slower: {in_seconds(extra[name])} more for {_NAMES[name]}"

    def notable(self, count: int) -> list[Cost]:
        """The best `count` layouts with distinct degrees."""
        fastest: dict[str, Cost] = {}
        for option in self.found:
            fastest.setdefault(option.layout.described(), option)
        return list(fastest.values())[:count]

    def table(self, count: int = 8) -> list[list[str]]:
        """The `notable` layouts as a table, header first."""
        rows = [["layout", "micro-batches", "step", "tokens/s", "memory", "layers", "why not"]]
        for option in self.notable(count):
            why = "" if option is self.best else self.reason(option)
            stages = "" if len(option.stages) == 1 else " ".join(map(str, option.stages))
            speed = f"{self.work.all_tokens / option.seconds:,.0f}"
            step = f"{option.work.micro_batches} x {option.work.tokens:,}"
            seconds, memory = in_seconds(option.seconds), in_bytes(option.memory)
            rows.append([described(option.layout), step, seconds, speed, memory, stages, why])
        return rows

    def spent(self) -> str:
        """How the step time of the best layout is divided, in percent."""
        fractions = {name: seconds / self.best.seconds for name, seconds in self.best.spent.items()}
        return ", ".join(f"{fraction:.0%} {_NAMES[name]}" for name, fraction in fractions.items() if fraction >= 0.005)

    def remark_on_data(self) -> str | None:
        """A remark if one worker may be too slow to make the batches of a process of the best layout."""
        replicas, data_shards = self.best.layout.replicas, self.best.work.data_shards
        total = self.best.work.all_tokens / self.best.seconds
        made = total if data_shards == 1 else total / replicas
        least, most = WORKER
        if made <= least:
            return None
        remark = (
            f"each process has to make batches of {made:,.0f} tokens a second, and a worker (data.workers) makes "
            f"{least / 1e6:g} to {most / 1e6:g} million"
        )
        if data_shards > 1 or replicas == 1:
            return remark
        return f"{remark}; with data.data_shards: {replicas} a process makes only its own, {total / replicas:,.0f}"


def make_plan(work: Work, devices: int, machine: Machine, *, regroup: bool = False) -> Plan:
    """Plan a step for `devices` devices; `regroup` also tries other micro-batch sizes with equal tokens per step.

    Raises UserError with the reason when no layout is possible.
    """
    space = Space(devices, regrouped(work) if regroup else [work])
    candidates = list(space)
    if not candidates:
        sizes = work.sizes
        data_shards = "" if sizes.data_shards == 1 else f" in {sizes.data_shards} data shards"
        raise UserError(
            f"no layout of {devices} devices divides {sizes.heads} heads, an inner width of {sizes.inner:,}, a "
            f"vocabulary of {sizes.vocabulary:,}, {sizes.layers} layers and {sizes.micro_batches} micro-batches of a "
            f"step{data_shards}; more micro-batches (train.micro_batches) leave the most freedom"
        )
    few = len(candidates) <= FEW
    found = exhaustive_search(candidates, _price(machine)) if few else learned_search(space, _price(machine), BUDGET)
    if not found and not few:
        found = exhaustive_search(candidates, _price(machine))
    if not found:
        unlimited = _price(replace(machine, memory=math.inf))
        needs = min(option.memory for option in exhaustive_search(candidates, unlimited))
        raise UserError(
            f"none of {len(candidates):,} layouts of {devices} devices fits into {in_bytes(machine.memory)}: the "
            f"smallest needs {in_bytes(needs)}; smaller micro-batches (data.micro_batch_tokens) need less"
        )
    return Plan(work, machine, found, len(candidates), few)


def _price(machine: Machine) -> Price:
    return lambda candidate: cost(candidate.work, candidate.layout, machine)


def described(layout: ParallelConfig) -> str:
    """A layout in words, with the options that are on."""
    options = [f"stage {layout.sharding_stage}"] * (layout.sharding_stage > 1)
    options += [f"{layout.virtual_stages} pieces a stage"] * (layout.virtual_stages > 1)
    options += [name for name in ("sequence", "recompute") if getattr(layout, name)]
    return ", ".join([layout.described(), *options])


def block(found: Cost, work: Work) -> str:
    """The layout as a block of the configuration, with the micro-batches of a step where they differ from `work`."""
    default, layout = ParallelConfig(), found.layout
    values = {item.name: getattr(layout, item.name) for item in fields(layout)}
    values["stages"] = list(layout.stages) or ()
    lines = [f"  {name}: {str(value).lower()}" for name, value in values.items() if value != getattr(default, name)]
    if found.work != work:
        lines.append(f"train: {{micro_batches: {found.work.micro_batches}}}")
        lines.append(f"data: {{micro_batch_tokens: {found.work.tokens}}}")
    return "\n".join(["parallel:", *lines])


def assumptions(work: Work, machine: Machine) -> Sequence[str]:
    """The assumptions behind the predictions."""
    overlap = "communication does not overlap with computation"
    if not machine.at_once:
        overlap += ", but for sums of gradients over `data` alone"
    batches = "micro-batch" if work.micro_batches == 1 else "micro-batches"
    return [
        f"{machine.name}: {machine.products / 1e12:,.3g} TFLOP/s in layers, {in_bytes(machine.memory)}, "
        f"{in_bytes(machine.near.bandwidth)}/s within a node of {machine.per_node}, "
        f"{in_bytes(machine.far.bandwidth)}/s between nodes",
        f"a step of {work.micro_batches} {batches} of {work.tokens:,} tokens, in sequences of {work.length:,.0f}",
        f"{overlap}; making batches and measuring take no time",
    ]


def in_seconds(value: float) -> str:
    """A duration in s, ms or microseconds."""
    if value >= 1:
        return f"{value:.2f} s"
    return f"{1e3 * value:.1f} ms" if value >= 1e-3 else f"{1e6 * value:.0f} µs"


def in_bytes(value: float) -> str:
    """A number of bytes with its unit, in powers of 1000."""
    for unit in ("B", "kB", "MB", "GB"):
        if value < 999.5:  # more would be rounded to 1e+03
            return f"{value:.3g} {unit}"
        value /= 1000
    return f"{value:.3g} TB"
