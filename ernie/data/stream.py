"""A stream of packed batches of one task: endless, seeded, and resumed in constant time.

Items (documents, or rows of a file) are visited in an order drawn anew each epoch.  A *block* is a run of items in
that order; its batches are a pure function of (seed, task, epoch, block).  The whole state of a stream is which block
and which batch in it comes next.  Blocks are made ahead of time, by a thread or by processes: how many changes
nothing but the speed.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from multiprocessing import get_context
from typing import Any, Protocol

import numpy as np

from ernie.data import order
from ernie.data.batch import Packed, pack, plan
from ernie.data.document import Sample
from ernie.errors import UserError, about
from ernie.runtime import begin_worker
from ernie.text.tokenizer import Tokenizer

BATCHES_PER_BLOCK = 16  # at least
MIXED = 2**18  # tokens
_MOST_ITEMS = 1024  # that are looked through for as many tokens
_PROBE = 48  # items looked at to learn how many samples an item of this corpus gives
_AHEAD = 2  # blocks made ahead of time


class SampleTask(Protocol):
    """What a stream needs of a task."""

    @property
    def window(self) -> int: ...

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]: ...

    def check_sample(self, sample: Sample) -> None: ...


class TooLittleText(UserError):
    """A task finds nothing to make samples of."""


@dataclass(frozen=True)
class Source:
    """What the batches of a task are made from; picklable, since workers hold a copy.

    `items` is anything with a length and an index, such as a corpus split.  A block has at least `mixed` tokens, unless
    samples are rare: so that batches that follow one another are of many documents.
    """

    name: str
    task: SampleTask
    items: Sequence[Any]
    tokenizer: Tokenizer
    seed: int
    budget: int
    mixed: int = MIXED

    def named_samples(self, epoch: int, first: int, last: int) -> Iterator[tuple[tuple[int, int, int], Sample]]:
        """The samples of the items at places [first, last) of an epoch's order, each with its name.

        Raises UserError for one that its task cannot learn from.
        """
        size = len(self.items)
        window = self.task.window
        places = np.arange(first, last + window - 1) % size
        indices = order.permute(places, size, order.key(self.seed, self.name, epoch))
        for k in range(last - first):
            index = int(indices[k])
            rng = order.generator(self.seed, self.name, epoch, index)
            items = [self.items[int(i)] for i in indices[k : k + window]]
            with self._told(index):
                samples = self._made(items, rng)
            for number, sample in enumerate(samples):
                yield (epoch, index, number), sample

    def _made(self, items: Sequence[Any], rng: np.random.Generator) -> list[Sample]:
        """What the task makes of a window of items.  Raises UserError for what it cannot learn from."""
        made = self.task.samples(items, self.tokenizer, rng)
        if not isinstance(made, Iterable):
            raise UserError(f"its `samples` returns a {type(made).__name__}; expected it to yield samples")
        samples = list(made)
        for sample in samples:
            if not isinstance(sample, Sample):
                raise UserError(
                    f"its `samples` yields a {type(sample).__name__}; expected a Sample, as `single` and `pair` make"
                )
            self._check_input(sample)
            self.task.check_sample(sample)
        return samples

    def _check_input(self, sample: Sample) -> None:
        """What the encoder is given: an id and a segment a token."""
        for what, values in (("ids", sample.ids), ("segments", sample.segments)):
            if not isinstance(values, np.ndarray):
                raise UserError(f"the {what} of a sample are a {type(values).__name__}; expected a NumPy array")
            if values.dtype.kind not in "iu":
                raise UserError(f"the {what} of a sample are of the type {values.dtype}; expected whole numbers")
        ids = sample.ids
        if ids.ndim != 1 or not ids.size or ids.shape != sample.segments.shape:
            raise UserError(
                f"a sample has ids of the shape {ids.shape} and segments of {sample.segments.shape}; expected one of "
                "each for every token, of which there is at least one"
            )
        size = self.tokenizer.vocab_size
        if not 0 <= ids.min() <= ids.max() < size:
            odd = ids.min() if ids.min() < 0 else ids.max()
            raise UserError(f"an id of a sample is {odd}, and the vocabulary has {size:,} tokens, from 0 on")

    def _check_alike(self, samples: Sequence[Sample]) -> None:
        """Raise UserError when not all samples have the same labels: a batch would lack some."""
        kinds = sorted({", ".join(sorted(sample.labels)) or "none" for sample in samples})
        if len(kinds) > 1:
            told = "; some ".join(kinds)
            raise UserError(f"task '{self.name}': its samples do not all have the same labels: some have {told}")

    @contextmanager
    def _told(self, index: int) -> Iterator[None]:
        """Errors say which task it is, and which item its samples were made from."""
        try:
            with about(f"task '{self.name}', item {index} of its documents"):
                yield
        except UserError:
            raise
        except Exception as error:
            raise RuntimeError(f"task '{self.name}' failed at item {index} of its documents: {error!r}") from error

    def batches(self, epoch: int, first: int, last: int) -> list[Packed]:
        """The batches of one block."""
        names, samples = [], []
        for name, sample in self.named_samples(epoch, first, last):
            names.append(name)
            samples.append(sample)
        if not samples:
            return []
        self._check_alike(samples)
        rng = order.generator(self.seed, self.name, epoch, f"block {first}")
        name_array = np.asarray(names, dtype=np.int64)
        chosen = plan([len(sample) for sample in samples], self.budget, rng)
        return [pack([samples[i] for i in batch], name_array[batch]) for batch in chosen]

    def items_per_block(self) -> int:
        """How many items make a block, at least BATCHES_PER_BLOCK batches, judged by a look at the first ones.

        Raises TooLittleText when no item of the source gives a sample.
        """
        size = len(self.items)
        if size < self.task.window:
            raise TooLittleText(
                f"task '{self.name}' needs at least {self.task.window} documents, or rows of a file of its own, "
                f"and there {'is' if size == 1 else 'are'} {size}. Add some, or take the task out of the schedule."
            )
        looked, tokens = 0, 0
        while tokens == 0 and looked < size:
            last = min(size, max(_PROBE, 2 * looked))
            tokens = sum(len(sample) for _, sample in self.named_samples(0, looked, last))
            looked = last
        if tokens == 0:
            raise TooLittleText(
                f"task '{self.name}' finds nothing to learn from in this corpus: none of its {size} documents gives a "
                f"sample (see 'ernie tasks {self.name}' for what it needs). Add such text, or take the task out of "
                "the schedule."
            )
        items_per_token = looked / tokens
        least = math.ceil(BATCHES_PER_BLOCK * self.budget * items_per_token)
        mixed = min(math.ceil(self.mixed * items_per_token), _MOST_ITEMS)
        return max(1, min(size, max(least, mixed)))


@dataclass
class Position:
    """Where a stream stands: the next batch is number `batch` of block `block`; `drawn` were taken before it.

    `digest` is a rolling hash of the names of all samples taken, in order.
    """

    epoch: int = 0
    block: int = 0
    batch: int = 0
    drawn: int = 0
    digest: str = ""


class Feed:
    """Makes blocks of several sources ahead of time: in a thread, or in `processes` worker processes."""

    def __init__(self, sources: Sequence[Source], processes: int = 0):
        self._sources = {source.name: source for source in sources}
        self._executor: Executor
        if processes:
            # Spawned, not forked: the parent has Paddle's threads, which do not survive a fork.
            self._executor = ProcessPoolExecutor(
                processes, get_context("spawn"), initializer=_adopt, initargs=(self._sources,)
            )
            self._make = _make_adopted
        else:
            self._executor = ThreadPoolExecutor(1, thread_name_prefix="feed")
            self._make = self._make_here

    def stream(self, name: str) -> Stream:
        """The stream of one source, at its beginning."""

        def submit(epoch: int, first: int, last: int) -> Future[list[Packed]]:
            return self._executor.submit(self._make, name, epoch, first, last)

        return Stream(self._sources[name], submit)

    def close(self) -> None:
        """Stop the workers; blocks still being made are dropped."""
        self._executor.shutdown(wait=True, cancel_futures=True)

    def _make_here(self, name: str, epoch: int, first: int, last: int) -> list[Packed]:
        return self._sources[name].batches(epoch, first, last)


_adopted: dict[str, Source] = {}  # a worker process's copy of the sources


def _adopt(sources: dict[str, Source]) -> None:
    begin_worker()
    _adopted.update(sources)


def _make_adopted(name: str, epoch: int, first: int, last: int) -> list[Packed]:
    return _adopted[name].batches(epoch, first, last)


class Stream:
    """Endless batches of one source.  `position` is the whole state; Feed.stream makes one."""

    def __init__(self, source: Source, submit: Callable[[int, int, int], Future[list[Packed]]]):
        self.source = source
        self.position = Position()
        self._submit = submit
        self._per_block = source.items_per_block()
        self._blocks = math.ceil(len(source.items) / self._per_block)
        self._ahead: deque[tuple[tuple[int, int], Future[list[Packed]]]] = deque()

    def __next__(self) -> Packed:
        """The next batch, which counts as taken."""
        while True:
            batches = self._current()
            if self.position.batch < len(batches):
                break
            self._advance()
        batch = batches[self.position.batch]
        self.position.batch += 1
        self.position.drawn += 1
        self.position.digest = roll(self.position.digest, batch)
        return batch

    def state(self) -> dict[str, Any]:
        """The position as plain data."""
        return asdict(self.position)

    def seek(self, state: dict[str, Any]) -> None:
        """Continue from a `state()`, at once: nothing before it is made again but the block it lies in."""
        self.position = Position(**state)
        self._cancel()

    def _current(self) -> list[Packed]:
        """The batches of the block that the position lies in."""
        want = (self.position.epoch, self.position.block)
        if self._ahead and self._ahead[0][0] != want:
            self._cancel()
        try:
            self._make_ahead(want)
            return self._ahead[0][1].result()
        except BrokenProcessPool:
            raise UserError(
                "a worker process that makes batches was killed, perhaps for want of memory. Run the same command "
                "again to go on from the last checkpoint, with fewer of them (--set data.workers=0 makes batches in "
                "a thread)."
            ) from None

    def _make_ahead(self, want: tuple[int, int]) -> None:
        upcoming = want if not self._ahead else self._following(self._ahead[-1][0])
        while len(self._ahead) < _AHEAD:
            epoch, block = upcoming
            first = block * self._per_block
            last = min(len(self.source.items), first + self._per_block)
            self._ahead.append((upcoming, self._submit(epoch, first, last)))
            upcoming = self._following(upcoming)

    def _following(self, block: tuple[int, int]) -> tuple[int, int]:
        epoch, number = block
        return (epoch, number + 1) if number + 1 < self._blocks else (epoch + 1, 0)

    def _advance(self) -> None:
        self._ahead.popleft()
        self.position.epoch, self.position.block = self._following((self.position.epoch, self.position.block))
        self.position.batch = 0

    def _cancel(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()


def roll(digest: str, batch: Packed) -> str:
    """The rolling hash after one more batch: depends on every sample's name and on their order."""
    content = digest.encode() + np.ascontiguousarray(batch.samples).tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()
