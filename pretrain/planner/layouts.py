"""The search space: all layouts of a number of devices that a model and a step allow."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import permutations, product
from typing import NamedTuple

from ernie.errors import UserError
from ernie.parallel.layout import ParallelConfig
from pretrain.planner.cost import Work

MOST_PIECES = 4  # interleaved pieces in a pipeline stage
DEGREES = 4  # data, tensor, pipeline and sharding


class Candidate(NamedTuple):
    """A step and a layout for it."""

    work: Work
    layout: ParallelConfig


class Decision(NamedTuple):
    """The choices that make up a candidate; `group` is the index of its step among the works of the space."""

    degrees: tuple[int, ...]
    stage: int
    pieces: int
    sequence: bool
    recompute: bool
    group: int


class Space:
    """The layouts of `devices` devices for a step; `works` are the ways to cut the step into micro-batches."""

    def __init__(self, devices: int, works: Sequence[Work]):
        self.degrees = list(_factors(devices, DEGREES))
        self.works = works
        self._primes = [prime for prime in range(2, devices + 1) if devices % prime == 0 and _is_prime(prime)]
        self._choices: dict[str, Sequence[int]] = {
            "stage": (1, 2, 3),
            "pieces": range(1, MOST_PIECES + 1),
            "sequence": (False, True),
            "recompute": (False, True),
            "group": range(len(works)),
        }

    def __iter__(self) -> Iterator[Candidate]:
        for degrees in self.degrees:
            for rest in product(*self._choices.values()):
                decision = Decision(degrees, *rest)  # type: ignore[arg-type]
                candidate = self.candidate(decision) if decision == _normalized(decision) else None
                if candidate is not None:
                    yield candidate

    def draw(self, integer: Callable[[int], int]) -> Decision:
        """Sample a decision at random; `integer(n)` returns a random integer below n."""
        rest = [choices[integer(len(choices))] for choices in self._choices.values()]
        return _normalized(Decision(self.degrees[integer(len(self.degrees))], *rest))  # type: ignore[arg-type]

    def moves(self, decision: Decision) -> Iterator[tuple[str, Decision]]:
        """The decisions that differ from `decision` in one choice, each with the name of that kind of move."""
        for giver, taker in permutations(range(DEGREES), 2):
            for prime in self._primes:
                if decision.degrees[giver] % prime == 0:
                    degrees = list(decision.degrees)
                    degrees[giver] //= prime
                    degrees[taker] *= prime
                    yield f"{giver} to {taker}", _normalized(decision._replace(degrees=tuple(degrees)))
        for name, choices in self._choices.items():
            before = getattr(decision, name)
            for choice in choices:
                if choice != before:
                    # Groups are ordered by micro-batch size, so that one direction may be better than the other.
                    kind = f"{name} {'up' if choice > before else 'down'}" if name == "group" else f"{name} {choice}"
                    yield kind, _normalized(decision._replace(**{name: choice}))  # type: ignore[arg-type]

    def candidate(self, decision: Decision) -> Candidate | None:
        """The candidate of a decision; None when it is not a valid layout."""
        data, tensor, pipeline, sharding = decision.degrees
        work = self.works[decision.group]
        try:
            layout = ParallelConfig(
                data,
                tensor,
                pipeline,
                sharding,
                sharding_stage=decision.stage,
                virtual_stages=decision.pieces,
                sequence=decision.sequence,
                recompute=decision.recompute,
            )
            layout.check(work.sizes)
        except UserError:
            return None
        return Candidate(work, layout)


def regrouped(work: Work) -> list[Work]:
    """The step cut into up to 8 times as many or as few micro-batches, none shorter than a sequence."""
    works = []
    for power in range(-3, 4):
        count, tokens = work.micro_batches * 2.0**power, work.tokens / 2.0**power
        if count % work.data_shards == 0 and tokens.is_integer() and tokens >= work.length:
            works.append(replace(work, micro_batches=int(count), tokens=int(tokens)))
    return works


def _normalized(decision: Decision) -> Decision:
    """The decision with choices that have no effect at these degrees reset to their defaults."""
    _, tensor, pipeline, sharding = decision.degrees
    return decision._replace(
        stage=decision.stage if sharding > 1 else 1,
        pieces=decision.pieces if pipeline > 2 else 1,
        sequence=decision.sequence and tensor > 1,
    )


def _is_prime(number: int) -> bool:
    return all(number % divisor for divisor in range(2, number))


def _factors(number: int, count: int) -> Iterator[tuple[int, ...]]:
    """All ways to write `number` as an ordered product of `count` factors."""
    if count == 1:
        yield (number,)
        return
    for first in range(1, number + 1):
        if number % first == 0:
            for rest in _factors(number // first, count - 1):
                yield (first, *rest)
