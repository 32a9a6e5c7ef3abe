"""Streams of packed batches of one task: endless, seeded, and resumable in constant time.

Items (documents, or rows of a file) are visited in a new random order each epoch.  A *block* is a run of consecutive
items in that order; its batches are a pure function of (seed, task, epoch, block).  The state of a stream is just the
block and the batch in it that come next.  Blocks are prefetched by a thread or by worker processes; their number
affects nothing but speed.

With several *data shards* (`data_shards`), batch n of the stream comes from shard n % data_shards, and the blocks of
all epochs are dealt to the shards in turn.  Processes that split the batches make only the shards that they need.  The
batches are the same.
"""

from __future__ import annotations

import hashlib
import math
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from functools import cached_property, partial
from typing import Any, Protocol

import numpy as np

from ernie.data import seeded_rng
from ernie.data.batch import Packed, pack, plan
from ernie.data.document import Sample
from ernie.data.order import Everywhere, Order, order_of
from ernie.data.shards import Split, Subset
from ernie.data.workers import Pending, Workers
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer

BATCHES_PER_BLOCK = 16  # minimum
SHUFFLE_BUFFER_TOKENS = 2**18  # tokens per block, minimum
_SHUFFLED_ITEMS = 1024  # items per block at most, where an item gives less than a sample
_PROBE = 48  # items sampled to estimate the number of tokens per item
_AHEAD = 2  # blocks to prefetch
_ADVICE = (  # after a worker process was killed
    "Run the same command again to resume from the last checkpoint, with fewer workers: with --set data.workers=0 a "
    "thread makes the batches."
)


class SampleTask(Protocol):
    """The part of a task's interface that streams use."""

    @property
    def window(self) -> int: ...

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]: ...

    def check_sample(self, sample: Sample) -> None: ...


class TooLittleText(UserError):
    """Raised when a task gets no samples from its data."""


@dataclass(frozen=True)
class Source:
    """The data and settings of one task's batches; picklable, since workers hold a copy.

    `items` is any sequence, such as a corpus split.  A block has at least `shuffle_buffer_tokens` unless samples are
    rare, so that consecutive batches mix many documents.  With `shuffle_shards`, only the documents of so many shards
    of a split are shuffled together.
    """

    name: str
    task: SampleTask
    items: Sequence[Any]
    tokenizer: Tokenizer
    seed: int
    micro_batch_tokens: int
    shuffle_buffer_tokens: int = SHUFFLE_BUFFER_TOKENS
    shuffle_shards: int = 0

    @cached_property
    def order(self) -> Order:
        """The order of the items in each epoch."""
        if isinstance(self.items, Split):
            return order_of(self.items.documents_of_shards, self.shuffle_shards)
        return Everywhere(len(self.items))

    def named_samples(self, epoch: int, first: int, last: int) -> Iterator[tuple[tuple[int, int, int], Sample]]:
        """Yield (epoch, item, number) and sample for the items at positions [first, last) of an epoch's order.

        Raises UserError for a sample that its task cannot be trained on.
        """
        size = len(self.items)
        window = self.task.window
        positions = np.arange(first, last + window - 1) % size
        key = seeded_rng.key(self.seed, self.name, epoch)
        if isinstance(self.items, Split):
            self.items.expect(self.order.shards(positions, key))
        indices = self.order.indices(positions, key)
        for k in range(last - first):
            index = int(indices[k])
            rng = seeded_rng.generator(self.seed, self.name, epoch, index)
            items = [self.items[int(i)] for i in indices[k : k + window]]
            with self._error_context(index):
                samples = self._make_samples(items, rng)
            for number, sample in enumerate(samples):
                yield (epoch, index, number), sample

    def samples_of(self, epoch: int, index: int) -> list[Sample]:
        """Return the samples of an item in an epoch, in the order of their numbers."""
        key = seeded_rng.key(self.seed, self.name, epoch)
        position = int(self.order.positions_of(np.array([index]), key)[0])
        return [sample for _, sample in self.named_samples(epoch, position, position + 1)]

    def _make_samples(self, items: Sequence[Any], rng: np.random.Generator) -> list[Sample]:
        """Return the task's samples from a window of items, checked.  Raises UserError for an invalid one."""
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
        """Check the encoder input: one id and one segment per token."""
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
            invalid = ids.min() if ids.min() < 0 else ids.max()
            raise UserError(f"an id of a sample is {invalid}, but the vocabulary has {size:,} tokens, numbered from 0")

    def _check_labels_match(self, samples: Sequence[Sample]) -> None:
        """Raise UserError unless all samples have the same label names, as batching requires."""
        label_sets = sorted({", ".join(sorted(sample.labels)) or "none" for sample in samples})
        if len(label_sets) > 1:
            listed = "; some ".join(label_sets)
            raise UserError(f"task '{self.name}': its samples do not all have the same labels: some have {listed}")

    @contextmanager
    def _error_context(self, index: int) -> Iterator[None]:
        """Prefix errors with the task and the item that the samples were made from."""
        try:
            yield
        except UserError as error:
            raise UserError(f"task '{self.name}', {self.place(index)}: {error}") from None
        except Exception as error:
            raise RuntimeError(f"task '{self.name}' failed at {self.place(index)}: {error!r}") from error

    def place(self, index: int) -> str:
        """Name an item in a message, a document of a corpus with its file and line."""
        place = f" ({self.items.source(index)})" if isinstance(self.items, Split | Subset) else ""
        return f"item {index} of its documents{place}"

    def batches(self, epoch: int, first: int, last: int) -> list[Packed]:
        """Return the batches of the block of items [first, last)."""
        names, samples = [], []
        for name, sample in self.named_samples(epoch, first, last):
            names.append(name)
            samples.append(sample)
        if not samples:
            return []
        self._check_labels_match(samples)
        rng = seeded_rng.generator(self.seed, self.name, epoch, f"block {first}")
        name_array = np.asarray(names, dtype=np.int64)
        planned = plan([len(sample) for sample in samples], self.micro_batch_tokens, rng)
        return [pack([samples[i] for i in batch], name_array[batch], self.seed) for batch in planned]

    def items_per_block(self, data_shards: int = 1) -> int:
        """Estimate from the first items how many make a block of at least BATCHES_PER_BLOCK batches.

        Consecutive batches come from the blocks of all shards, which together have `shuffle_buffer_tokens`.  Raises
        TooLittleText when no item of the source gives a sample.
        """
        size = len(self.items)
        if size < self.task.window:
            raise TooLittleText(
                f"task '{self.name}' needs at least {self.task.window} documents, or rows of a file of its own, "
                f"and there {'is' if size == 1 else 'are'} {size}. Add some, or take the task out of the schedule."
            )
        probed, tokens, samples = 0, 0, 0
        while tokens == 0 and probed < size:
            last = min(size, max(_PROBE, 2 * probed))
            sizes = [len(sample) for _, sample in self.named_samples(0, probed, last)]
            tokens, samples = sum(sizes), len(sizes)
            probed = last
        if tokens == 0:
            raise TooLittleText(
                f"task '{self.name}' finds nothing to learn from in this corpus: none of its {size} documents gives a "
                f"sample (see 'ernie tasks {self.name}' for what it needs). Add such text, or take the task out of "
                "the schedule."
            )
        items_per_token = probed / tokens
        least = math.ceil(BATCHES_PER_BLOCK * self.micro_batch_tokens * items_per_token)
        mixed = math.ceil(self.shuffle_buffer_tokens / data_shards * items_per_token)
        if samples < probed:
            mixed = min(mixed, _SHUFFLED_ITEMS)
        return max(1, min(size, max(least, mixed)))


@dataclass
class Position:
    """The position in a data shard: next comes batch number `batch` of block `block`, after `drawn` batches in all.

    `digest` is a rolling hash of the names of all samples taken so far, in order.
    """

    epoch: int = 0
    block: int = 0
    batch: int = 0
    drawn: int = 0
    digest: str = ""


class Feed:
    """Prefetches blocks of several sources in a thread, or in `processes` worker processes."""

    def __init__(self, sources: Sequence[Source], processes: int = 0):
        self._sources = {source.name: source for source in sources}
        self._workers = Workers(processes, _ADVICE, partial(_keep_sources, self._sources))

    def stream(self, name: str, data_shards: int = 1, own: Sequence[int] | None = None) -> Stream:
        """Return a stream of one source, at its start.  `own` lists the data shards to make, by default all."""
        source = self._sources[name]
        # A process has the sources already; a thread is given this one.
        make = partial(_make_in_worker, name) if self._workers.processes else source.batches

        def submit(epoch: int, first: int, last: int) -> Pending[list[Packed]]:
            return self._workers.submit(make, epoch, first, last)

        return Stream(source, submit, data_shards, own)

    def close(self) -> None:
        """Stop the workers; blocks in progress are dropped."""
        self._workers.close()


_worker_sources: dict[str, Source] = {}  # a worker process's copy of the sources


def _keep_sources(sources: dict[str, Source]) -> None:
    _worker_sources.update(sources)


def _make_in_worker(name: str, epoch: int, first: int, last: int) -> list[Packed]:
    return _worker_sources[name].batches(epoch, first, last)


class Stream:
    """Endless batches of one source, created by Feed.stream.

    The next batch is None if it is in a shard that this process does not make.
    """

    def __init__(
        self,
        source: Source,
        submit: Callable[[int, int, int], Pending[list[Packed]]],
        data_shards: int = 1,
        own: Sequence[int] | None = None,
    ):
        self.source = source
        per_block = source.items_per_block(data_shards)
        made = range(data_shards) if own is None else own
        self._shards = [
            _DataShard(source, submit, per_block, shard, data_shards) if shard in made else None
            for shard in range(data_shards)
        ]
        self.drawn = 0  # batches, in all data shards

    def __next__(self) -> Packed | None:
        """Return the next batch."""
        shard = self._shards[self.drawn % len(self._shards)]
        self.drawn += 1
        return None if shard is None else next(shard)

    @property
    def epoch(self) -> int:
        """The number of epochs that all data shards of this process have finished."""
        return min(shard.position.epoch for shard in self._own)

    @property
    def checksum(self) -> int:
        """A 32-bit checksum of the names of all samples that this process took: the sum of its shards' checksums."""
        return sum(int(shard.position.digest[:8] or "0", 16) for shard in self._own) % 2**32

    @property
    def _own(self) -> list[_DataShard]:
        return [shard for shard in self._shards if shard is not None]

    def state(self) -> dict[str, Any]:
        """Return the position as plain data: that of a single shard, or of several, None for those of others."""
        if len(self._shards) == 1:
            return asdict(self._own[0].position)
        return {
            "drawn": self.drawn,
            "lanes": [None if shard is None else asdict(shard.position) for shard in self._shards],
        }

    def seek(self, state: dict[str, Any]) -> None:
        """Continue from a `state()` in constant time: only the blocks that it points into are made again."""
        self.drawn = state["drawn"]
        for shard, position in zip(self._shards, state.get("lanes", [state]), strict=True):
            if shard is not None:
                shard.seek(Position(**position))


def merged_states(states: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return the state of a stream from those of all processes, each with the positions of its own data shards."""
    if "lanes" not in states[0]:
        return states[0]
    data_shards = [
        next(filter(None, positions)) for positions in zip(*(state["lanes"] for state in states), strict=True)
    ]
    return {**states[0], "lanes": data_shards}


class _DataShard:
    """One shard of a stream.  `position` is its entire state."""

    def __init__(
        self,
        source: Source,
        submit: Callable[[int, int, int], Pending[list[Packed]]],
        per_block: int,
        shard: int,
        data_shards: int,
    ):
        self._submit = submit
        self._size, self._per_block, self._data_shards = len(source.items), per_block, data_shards
        self._blocks = math.ceil(self._size / per_block)
        epoch, block = divmod(shard, self._blocks)
        self.position = Position(epoch, block)
        self._ahead: deque[tuple[tuple[int, int], Pending[list[Packed]]]] = deque()

    def __next__(self) -> Packed:
        """Return the next batch and advance the position."""
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

    def seek(self, position: Position) -> None:
        """Continue from a position."""
        self.position = position
        self._cancel()

    def _current(self) -> list[Packed]:
        """Return the batches of the block at the current position."""
        block = (self.position.epoch, self.position.block)
        if self._ahead and self._ahead[0][0] != block:
            self._cancel()
        self._prefetch(block)
        return self._ahead[0][1].result()

    def _prefetch(self, current: tuple[int, int]) -> None:
        upcoming = current if not self._ahead else self._next_block(self._ahead[-1][0])
        while len(self._ahead) < _AHEAD:
            epoch, block = upcoming
            first = block * self._per_block
            last = min(self._size, first + self._per_block)
            self._ahead.append((upcoming, self._submit(epoch, first, last)))
            upcoming = self._next_block(upcoming)

    def _next_block(self, block: tuple[int, int]) -> tuple[int, int]:
        epoch, number = block
        epochs, number = divmod(number + self._data_shards, self._blocks)
        return epoch + epochs, number

    def _advance(self) -> None:
        self._ahead.popleft()
        self.position.epoch, self.position.block = self._next_block((self.position.epoch, self.position.block))
        self.position.batch = 0

    def _cancel(self) -> None:
        for _, future in self._ahead:
            future.cancel()
        self._ahead.clear()


def roll(digest: str, batch: Packed) -> str:
    """Update the rolling hash with one more batch: it depends on every sample's name and their order."""
    content = digest.encode() + np.ascontiguousarray(batch.samples).tobytes()
    return hashlib.blake2b(content, digest_size=16).hexdigest()
