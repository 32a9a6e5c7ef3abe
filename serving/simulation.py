"""A simulated server: jobs arrive, and an engine of known speed computes what the dispatcher gives it.

It says what the dispatcher's policy reaches at best, without a network, an event loop or a noisy machine.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import count

from serving.dispatcher import Batch, Dispatcher, Job, Refused, TooLarge


@dataclass(frozen=True)
class Item:
    """An input of so many tokens."""

    tokens: int


@dataclass
class Simulated:
    """What happened to each job: when it was answered, or whether it was refused or has expired."""

    answered: dict[Job, float] = field(default_factory=dict)
    refused: dict[Job, float] = field(default_factory=dict)  # with the time after which to ask again
    too_large: list[Job] = field(default_factory=list)
    expired: list[Job] = field(default_factory=list)
    batches: list[Batch] = field(default_factory=list)

    @property
    def in_time(self) -> list[Job]:
        """The jobs that were answered before their deadlines."""
        return [job for job, when in self.answered.items() if when <= job.deadline + 1e-9]

    @property
    def latencies(self) -> list[float]:
        """The seconds from arrival to answer, ascending."""
        return sorted(when - job.arrived for job, when in self.answered.items())


def simulate(
    jobs: Iterable[Job],
    dispatcher: Dispatcher | None = None,
    seconds: Callable[[Batch], float] | None = None,
) -> Simulated:
    """Run jobs through a dispatcher and an engine, in simulated time, until nothing is left.

    A batch takes as long as the cost model of its lane says, or `seconds` of it.
    """
    dispatcher, found = dispatcher or Dispatcher(), Simulated()
    takes = seconds or (lambda batch: batch.lane.cost.seconds(batch.tokens))
    order = count()
    arrivals = [(job.arrived, next(order), job) for job in jobs]
    heapq.heapify(arrivals)
    left = {job: len(job.items) for _, _, job in arrivals}
    now = 0.0
    while True:
        batch, expired = dispatcher.take(now)
        found.expired += expired
        if batch is None and not arrivals:
            return found
        end = max(now, arrivals[0][0]) if batch is None else now + takes(batch)
        while arrivals and arrivals[0][0] <= end:  # they arrive while the batch is computed
            when, _, job = heapq.heappop(arrivals)
            try:
                dispatcher.submit(job, max(when, now))
            except Refused as error:
                found.refused[job] = error.retry_after
            except TooLarge:
                found.too_large.append(job)
        now = end
        if batch is not None:
            dispatcher.finished(batch, now)
            found.batches.append(batch)
            for job, _ in batch.items:
                left[job] -= 1
                if not left[job]:
                    found.answered[job] = now
