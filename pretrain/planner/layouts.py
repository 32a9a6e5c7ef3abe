"""All layouts of a number of devices that a model and a step allow."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product

from ernie.errors import UserError
from ernie.parallel.layout import ParallelConfig
from pretrain.planner.cost import Work

MOST_PIECES = 4  # of a stage


def layouts(devices: int, work: Work) -> Iterator[ParallelConfig]:
    """Every layout of so many devices that divides what it has to."""
    for degrees in _factors(devices, 4):
        for stage, pieces, sequence, recompute in product(
            (1, 2, 3), range(1, MOST_PIECES + 1), (False, True), (False, True)
        ):
            found = layout(degrees, stage, pieces, sequence, recompute, work)
            if found is not None:
                yield found


def layout(
    degrees: tuple[int, ...], stage: int, pieces: int, sequence: bool, recompute: bool, work: Work
) -> ParallelConfig | None:
    """The layout of these degrees of data, tensor, pipeline and sharding; None when it is none, or another's twin."""
    data, tensor, pipeline, sharding = degrees
    if stage > 1 and sharding == 1:
        return None
    try:
        found = ParallelConfig(
            data,
            tensor,
            pipeline,
            sharding,
            sharding_stage=stage,
            virtual_stages=pieces,
            sequence=sequence,
            recompute=recompute,
        )
        found.check(work.sizes)
    except UserError:
        return None
    return found


def _factors(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """All ways to write a number as a product of so many."""
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factors(number // first, count - 1):
                yield (first, *rest)
