"""A simulated server: jobs arrive, and an engine that takes a known time computes what the dispatcher gives it."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from serving.cost import CostModel
from serving.dispatcher import Batch, Dispatcher, Job, Lane, Refused, TooLarge

FIXED, PER_TOKEN = 0.008, 0.00006  # seconds: a BERT-base in bf16 on a few cores


@dataclass(frozen=True)
class Item:
    """An input of so many tokens."""

    tokens: int


def lane(name: str = "model", fixed: float = FIXED, per_token: float = PER_TOKEN) -> Lane:
    """A lane whose cost is known exactly."""
    return Lane(name, CostModel([(tokens, fixed + per_token * tokens) for tokens in (8, 64, 512, 4096)]))


def job(work: Lane, tokens: Iterable[int], arrived: float, timeout: float, **settings: object) -> Job:
    """A job of items with so many tokens."""
    return Job(work, [Item(n) for n in tokens], arrived, arrived + timeout, **settings)  # type: ignore[arg-type]


@dataclass
class Simulated:
    """What a simulation saw: when each job was answered, and which jobs were refused or expired."""

    answered: dict[Job, float] = field(default_factory=dict)
    refused: dict[Job, float] = field(default_factory=dict)  # with the time after which to ask again
    too_large: list[Job] = field(default_factory=list)
    expired: list[Job] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    @property
    def in_time(self) -> list[Job]:
        """The jobs that were answered before their deadlines."""
        return [each for each, when in self.answered.items() if when <= each.deadline + 1e-9]


def simulate(
    jobs: Iterable[Job],
    dispatcher: Dispatcher | None = None,
    seconds: Callable[[Batch], float] | None = None,
) -> Simulated:
    """Run jobs through a dispatcher and one engine, in simulated time, until nothing is left."""
    dispatcher, found = dispatcher or Dispatcher(), Simulated()
    takes = seconds or (lambda batch: batch.lane.cost.seconds(batch.tokens))
    order = count()
    arrivals = [(each.arrived, next(order), each) for each in jobs]
    heapq.heapify(arrivals)
    left = {each: len(each.items) for _, _, each in arrivals}
    now = 0.0
    while True:
        batch, expired = dispatcher.take(now)
        found.expired += expired
        end = now if batch is None else now + takes(batch)
        if batch is None and not arrivals:
            return found
        if batch is None:
            end = max(now, arrivals[0][0])
        while arrivals and arrivals[0][0] <= end:  # they arrive while the batch is computed
            when, _, each = heapq.heappop(arrivals)
            try:
                dispatcher.submit(each, max(when, now))
            except Refused as error:
                found.refused[each] = error.retry_after
            except TooLarge:
                found.too_large.append(each)
        now = end
        if batch is not None:
            dispatcher.finished(batch, now)
            found.batches.append(batch)
            for each, _ in batch.items:
                left[each] -= 1
                if not left[each]:
                    found.answered[each] = now
