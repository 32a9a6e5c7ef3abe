"""Which requests are computed next, together: batch dispatch under a latency bound.

As soon as the engine is free, whatever is ready becomes the next batch (the eager policy of Amodei et al., 2016, arXiv
1512.02595, section 7): more load makes larger batches by itself, and no timer delays anyone.  Batches are ragged, so
their size counts in tokens.  The earliest deadline goes first, and no batch is so long that the tightest deadline is
missed.  A request that cannot be answered in time is refused when it arrives, and costs nothing (Gujarati et al., 2020,
Clockwork).

Nothing here runs in a thread, reads a clock or computes: all times are arguments, in seconds of one monotonic clock.
"""

from __future__ import annotations

import math
from bisect import insort
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from serving.cost import CostModel

_EFFICIENCY = 0.97  # of a lane's throughput, which its largest batches reach
_BULK_EFFICIENCY = 0.8  # the same for batches of bulk jobs while interactive jobs come, which may have to wait for one
_LEAST_EFFICIENCY = 0.5  # of batches that short timeouts would make shorter still
_CYCLE = 0.45  # of the tightest timeout: who comes just after a batch began waits for it, and is in the next one
_TIMEOUT_MEMORY = 5.0  # seconds for which a timeout counts, at least
_TRIED = 64  # of so many batches of steps, one may be longer: costs that are taken for too high would stay so
_TRIAL = 1.5  # how much longer
_LEAST_CUT = 0.25  # of the largest batch: to cut it further for one step's deadline would make others late
_CUT_BATCHES = 4  # how many batches more there are before an answer than if deadlines cut none
_PROMISED = 0.97  # of a request's time, in which its answer has to be expected: it is to be written, too
_ROOM_MEMORY = 0.25  # of the time of a job that was refused: for so long, room is left for others as large
_MOST_ROOM = 0.18  # of a job's time, that is left for larger ones: whoever asks for too much crowds nobody out
_RARELY = 0.01  # the share of the engine's time below which interactive jobs do not come
_LEAST_RATE = 0.05  # the share of the engine that is left for a class, however busy the sessions are
_SOON = 1.0  # seconds: steps that are due later, of sound that is to be played later, let most requests go first
_SHARE_MEMORY = 2.0  # seconds over which the shares of the engine's time are averaged
_FAIR_FROM = 0.5  # of a request's time: when waiting takes more, clients with more than their share are refused


class Refused(Exception):
    """A request that could not be answered in time; after `retry_after` seconds it could, if nothing else came.

    `kind` is the reason in a word: busy, share, promised, or preparing.
    """

    def __init__(self, reason: str, retry_after: float, kind: str = "busy"):
        super().__init__(reason)
        self.retry_after, self.kind = retry_after, kind


class TooLarge(Exception):
    """A request that could not be answered in time even if there were no other."""


class Sized(Protocol):
    """What a job consists of: anything with a size in tokens."""

    @property
    def tokens(self) -> int:
        """The number of tokens to compute."""


@dataclass(eq=False)
class Lane:
    """What can be computed together: the inputs of one operation of one model.

    `most_tokens` is the largest batch; one input may be larger.
    """

    name: str
    cost: CostModel
    limit: int = 1 << 30
    queues: tuple[list[Job], list[Job]] = field(default_factory=lambda: ([], []))  # by class, in order of deadlines
    tokens: list[int] = field(default_factory=lambda: [0, 0])  # that wait, by class
    batches: int = 1  # that were taken, and one

    def most_tokens(self, efficiency: float = _EFFICIENCY, seconds: float = math.inf) -> int:
        """Return the largest batch, but for one with a single input, that is worth its time and takes no longer.

        However short the time is, a batch may be so large that its fixed cost is half of it.
        """
        most = self.cost.tokens_for(efficiency)
        if seconds != math.inf:
            most = min(most, max(self.cost.tokens_within(seconds), self.cost.tokens_for(_LEAST_EFFICIENCY)))
        return max(1, min(most, self.limit))

    def least_seconds(self, tokens: int) -> float:
        """Return the time by which so many tokens make full batches longer."""
        return self.cost.tail * self.cost.per_token * tokens


@dataclass(eq=False)
class Job:
    """A request in a lane: its items, which are answered as one, and when they have to be.

    A `bulk` job waits for interactive ones.  A `step` is one of a session that was admitted before: it is never refused
    and never expires.  `work` names what it is counted as, by default its lane.
    """

    lane: Lane
    items: Sequence[Sized]
    arrived: float
    deadline: float
    bulk: bool = False
    client: str = ""
    step: bool = False
    work: str = ""
    cancelled: bool = False
    timeout: float = 0.0  # how long it may take from its arrival, by default to its deadline
    taken: int = 0  # items that are or were in a batch
    queued: bool = False
    tokens_left: int = field(init=False)  # that are in no batch yet

    def __post_init__(self) -> None:
        self.tokens_left = sum(item.tokens for item in self.items)
        self.timeout = self.timeout or self.deadline - self.arrived
        self.work = self.work or self.lane.name

    @property
    def next_tokens(self) -> int:
        """The size of the next item."""
        return self.items[self.taken].tokens


@dataclass(frozen=True)
class Batch:
    """Items to compute together: each is one of a job, by its index."""

    lane: Lane
    items: Sequence[tuple[Job, int]]
    tokens: int
    started: float


class Dispatcher:
    """The queue of a server's only engine; `bulk_share` of its time is for bulk jobs while any of them wait.

    A job's items may be computed in several batches.
    """

    def __init__(self, bulk_share: float = 0.1):
        self._bulk_share = bulk_share
        self._lanes: dict[Lane, None] = {}  # those in which jobs wait
        self._busy_until = 0.0  # when the running batch is expected to end
        self._credit = 0.0  # seconds that bulk jobs have been kept from
        self._shares = _Shares()
        self._timeouts = _TightestTimeout()
        self._refused = (_LargestRefused(), _LargestRefused())  # interactive and bulk
        self._clients: Counter[str] = Counter()  # tokens that wait

    @property
    def tokens(self) -> int:
        """The number of tokens that wait."""
        return sum(sum(lane.tokens) for lane in self._lanes)

    @property
    def jobs(self) -> int:
        """The number of jobs of which anything waits."""
        return sum(len(queue) for lane in self._lanes for queue in lane.queues)

    def submit(self, job: Job, now: float) -> None:
        """Let a job wait for its turn.  Raises Refused or TooLarge if it cannot be answered before its deadline.

        A job that was cancelled before is forgotten.
        """
        if job.cancelled:
            return
        if not job.step:
            self._admit(job, now)
        if not job.bulk and job.timeout > 0:
            self._timeouts.add(now, job.timeout)
        job.queued = True
        self._lanes[job.lane] = None
        insort(job.lane.queues[job.bulk], job, key=_deadline)
        self._count(job, job.tokens_left)

    def wait(self, job: Job, now: float) -> float:
        """Return after how many seconds a job that arrives now is expected to be answered."""
        if self._busy_until <= now and not self._lanes:  # it starts at once
            return self._own_seconds(job)
        ahead = max(0.0, self._busy_until - now) + self._seconds_before(job) + _CUT_BATCHES * job.lane.cost.fixed
        return ahead / self._rate(job, now)

    def cancel(self, job: Job) -> None:
        """Forget a job; nothing of it that is not in a batch yet will be computed."""
        job.cancelled = True
        self._drop(job)

    def take(self, now: float) -> tuple[Batch | None, list[Job]]:
        """Return the next batch, None if nothing waits, and the jobs that have expired meanwhile.

        The caller computes it at once and reports it by `finished`.
        """
        expired = [job for job in self._waiting() if not job.step and self._is_hopeless(job, now)]
        for job in expired:
            self._drop(job)
        head = self._head()
        if head is None:
            self._credit = 0.0
            return None, expired
        items = self._fill(head, now)
        tokens = sum(job.items[i].tokens for job, i in items)
        self._busy_until = now + head.lane.cost.surely(tokens)
        head.lane.batches += 1
        return Batch(head.lane, items, tokens, now), expired

    def finished(self, batch: Batch, now: float, succeeded: bool = True) -> None:
        """Learn how long a batch took."""
        seconds = now - batch.started
        if succeeded:
            batch.lane.cost.observe(batch.tokens, seconds)
        self._busy_until = now
        steps = sum(job.items[i].tokens for job, i in batch.items if job.step)
        later = sum(job.items[i].tokens for job, i in batch.items if job.step and job.deadline > batch.started + _SOON)
        bulk = sum(job.items[i].tokens for job, i in batch.items if job.bulk)
        per_token = seconds / max(1, batch.tokens)
        self._shares.add(now, per_token * (steps - later), per_token * later, per_token * (batch.tokens - steps - bulk))
        if any(lane.queues[True] for lane in self._lanes):
            self._credit += self._bulk_share * seconds
        self._credit = max(0.0, self._credit - per_token * bulk)

    def _admit(self, job: Job, now: float) -> None:
        given = job.deadline - now
        own = self._own_seconds(job)
        if own > given:
            raise TooLarge(
                f"this takes about {own:.2g} s here, which is longer than its timeout of {given:.2g} s: ask for less "
                "at once, or with a longer timeout"
            )
        needed, refused = self.wait(job, now), self._refused[job.bulk]
        # Under overload, small jobs would otherwise take all room as soon as there is some, and large ones none.
        room = max(0.0, min(refused.seconds(now), _MOST_ROOM * given) - own) if needed > own else 0.0
        if needed + room > max(own, _PROMISED * given):
            refused.add(now, own, now + _ROOM_MEMORY * given)
            raise Refused(
                f"an answer would take about {needed + room:.2g} s now, its timeout is {given:.2g} s",
                needed + room - _PROMISED * given,
            )
        if needed > _FAIR_FROM * given and self._exceeds_share(job):
            raise Refused("this client already waits for more than its share", needed - _FAIR_FROM * given, "share")
        self._check_later(job, now)

    def _own_seconds(self, job: Job) -> float:
        """Return how long a job takes on average if there is no other."""
        batches = min(len(job.items), math.ceil(job.tokens_left / self._most_tokens(job.lane)))
        return job.lane.cost.fixed * batches + job.lane.cost.per_token * job.tokens_left

    def _check_later(self, job: Job, now: float) -> None:
        """Raise Refused if a job would make another late that was admitted before."""
        rate, added = self._rate(job, now), job.lane.least_seconds(job.tokens_left)
        work = self._all_seconds(job.bulk, job.lane)
        for later in self._later(job):
            needed, given = max(0.0, self._busy_until - now) + work / rate, later.deadline - now
            if not later.step and needed <= given < needed + added / rate:
                raise Refused("an answer would make another one late that was promised before", added, "promised")
            work -= later.lane.least_seconds(later.tokens_left)

    def _exceeds_share(self, job: Job) -> bool:
        others = len(self._clients) - (job.client in self._clients)
        return others > 0 and self._clients[job.client] > self._clients.total() / (others + 1)

    def _rate(self, job: Job, now: float) -> float:
        """Return the share of the engine's time that works for the jobs before this one, and for it."""
        soon, later, interactive = self._shares.at(now)
        if job.bulk:
            return max(self._bulk_share, _LEAST_RATE, 1 - soon - later - interactive)
        promised = self._bulk_share if any(lane.tokens[True] for lane in self._lanes) else 0.0
        before = soon if job.deadline <= now + _SOON else soon + later
        return max(_LEAST_RATE, 1 - before - promised)

    def _seconds_before(self, job: Job) -> float:
        """Return the time of all work up to a job, itself included."""
        work = self._all_seconds(job.bulk, job.lane, 0 if job.queued else job.tokens_left)
        return work - sum(later.lane.least_seconds(later.tokens_left) for later in self._later(job))

    def _all_seconds(self, bulk: bool, lane: Lane, added: int = 0) -> float:
        """Return the time of all jobs of a class that wait, and of tokens added to a lane; bulk jobs wait for all."""
        total = 0.0
        for other in {**self._lanes, lane: None}:
            tokens = other.tokens[bulk] + (other.tokens[False] if bulk else 0) + (added if other is lane else 0)
            total += self._seconds(other, tokens)
        return total

    def _most_tokens(self, lane: Lane, efficiency: float = _EFFICIENCY) -> int:
        """Return the largest batch that does not make those late who come while it is computed."""
        return lane.most_tokens(efficiency, _CYCLE * self._timeouts.tightest)

    def _seconds(self, lane: Lane, tokens: int) -> float:
        """Return how long so many tokens take, in batches as large as may be."""
        batches = math.ceil(tokens / self._most_tokens(lane))
        return lane.cost.at_most(lane.cost.fixed * batches + lane.cost.per_token * tokens) if batches else 0.0

    def _later(self, job: Job) -> Iterator[Job]:
        """Yield the waiting jobs of the same class with later deadlines."""
        for lane in self._lanes:
            for other in reversed(lane.queues[job.bulk]):
                if other.deadline <= job.deadline:
                    break
                yield other

    def _waiting(self) -> Iterator[Job]:
        for lane in self._lanes:
            for queue in lane.queues:
                yield from queue

    def _is_hopeless(self, job: Job, now: float) -> bool:
        return now + job.lane.cost.seconds(job.tokens_left) > job.deadline

    def _head(self) -> Job | None:
        """Return the job that is next: of interactive ones, unless bulk jobs have waited for their share."""
        heads = [
            min((lane.queues[bulk][0] for lane in self._lanes if lane.queues[bulk]), key=_deadline, default=None)
            for bulk in (False, True)
        ]
        interactive, bulk = heads
        if interactive is None or bulk is None:
            return interactive or bulk
        least = bulk.lane.cost.seconds(bulk.items[bulk.taken].tokens)
        return bulk if self._credit >= least else interactive

    def _fill(self, head: Job, now: float) -> list[tuple[Job, int]]:
        """Take the head's items, and as many of other jobs in its lane as no deadline forbids."""
        lane, items = head.lane, list[tuple[Job, int]]()
        room = self._budget(head, now)
        bulk_room = room if self._shares.at(now)[2] < _RARELY else min(room, self._most_tokens(lane, _BULK_EFFICIENCY))
        self._take_from(head, bulk_room if head.bulk else room, items)
        for is_bulk, queue in enumerate(lane.queues):
            used = sum(job.items[i].tokens for job, i in items)
            while queue and (left := (bulk_room if is_bulk else room) - used) > 0:
                job, before = queue[0], len(items)
                self._take_from(job, left, items)
                used += sum(own.items[i].tokens for own, i in items[before:])
                if job.queued:  # its next item does not fit, and no other overtakes it
                    break
        return items

    def _take_from(self, job: Job, room: int, items: list[tuple[Job, int]]) -> None:
        """Take the items of one job that have room, at least one if they are the first of a batch."""
        while job.queued and (job.next_tokens <= room or not items):
            tokens = job.next_tokens
            items.append((job, job.taken))
            room -= tokens
            job.taken += 1
            self._count(job, -tokens)
            job.tokens_left -= tokens
            if job.taken == len(job.items):
                self._remove(job)

    def _budget(self, head: Job, now: float) -> int:
        """Return the tokens of the largest batch after which the first job of each queue is still in time.

        A deadline that no batch would keep does not count, nor does that of a step which only a small batch would keep:
        nobody promised it, and small batches make all that follow late.
        """
        lane = head.lane
        budget = most = self._most_tokens(lane)
        if head.step and not lane.batches % _TRIED:
            budget = lane.most_tokens(_EFFICIENCY, _TRIAL * _CYCLE * self._timeouts.tightest)
        for other in self._lanes:
            for queue in other.queues:
                if queue:
                    first = queue[0]
                    own = 0.0 if other is lane else other.cost.surely(first.next_tokens)
                    within = lane.cost.tokens_within(first.deadline - now - own)
                    least = _LEAST_CUT * most if first.step else lane.cost.tokens_for(_LEAST_EFFICIENCY)
                    if within >= least:
                        budget = min(budget, within)
        return budget

    def _count(self, job: Job, tokens: int) -> None:
        """Count tokens that begin to wait, or, if negative, no longer wait."""
        job.lane.tokens[job.bulk] += tokens
        self._clients[job.client] += tokens
        if not self._clients[job.client]:
            del self._clients[job.client]

    def _drop(self, job: Job) -> None:
        if job.queued:
            self._count(job, -job.tokens_left)
            self._remove(job)

    def _remove(self, job: Job) -> None:
        job.queued = False
        job.lane.queues[job.bulk].remove(job)
        if not any(job.lane.queues):
            del self._lanes[job.lane]


class _LargestRefused:
    """The time that the largest job takes of those that were refused lately."""

    def __init__(self) -> None:
        self._seconds, self._until = 0.0, -math.inf

    def add(self, now: float, seconds: float, until: float) -> None:
        """Take note of a refused job, until some time."""
        if seconds >= self.seconds(now):
            self._seconds, self._until = seconds, until

    def seconds(self, now: float) -> float:
        """Return that time, 0 if there was no such job."""
        return self._seconds if now <= self._until else 0.0


class _TightestTimeout:
    """The shortest timeout of the jobs that came lately."""

    def __init__(self) -> None:
        self._current = self._before = math.inf
        self._since = 0.0

    def add(self, now: float, timeout: float) -> None:
        """Take note of a timeout."""
        if now - self._since > _TIMEOUT_MEMORY:
            self._before = self._current if now - self._since <= 2 * _TIMEOUT_MEMORY else math.inf
            self._current, self._since = math.inf, now
        self._current = min(self._current, timeout)

    @property
    def tightest(self) -> float:
        """The shortest one, infinite if there was none."""
        return min(self._current, self._before)


class _Shares:
    """The shares of the engine's recent time that went into steps due soon, into steps due later, and into requests.

    Requests are interactive ones.
    """

    def __init__(self) -> None:
        self._shares: tuple[float, ...] = (0.0, 0.0, 0.0)
        self._since = 0.0

    def add(self, now: float, soon: float, later: float, interactive: float) -> None:
        """Count seconds that ended now, of both kinds of steps and of interactive jobs."""
        before, used = self.at(now), (soon, later, interactive)
        self._shares = tuple(share + own / _SHARE_MEMORY for share, own in zip(before, used, strict=True))
        self._since = now

    def at(self, now: float) -> tuple[float, ...]:
        """Return the three shares, which fade while nothing is computed."""
        faded = math.exp(-max(0.0, now - self._since) / _SHARE_MEMORY)
        return tuple(share * faded for share in self._shares)


def _deadline(job: Job) -> float:
    return job.deadline
