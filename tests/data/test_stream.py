"""Streams: endless, independent of the worker processes, and resumable from anywhere as if never stopped."""

from __future__ import annotations

import json
import multiprocessing
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import numbered

from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.data.stream import Feed, Position, Source, Stream, merged_states, roll
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer


class Unchecked:
    """A task that accepts every sample."""

    def check_sample(self, sample: Sample) -> None:
        pass


@dataclass(frozen=True)
class Pieces(Unchecked):
    """A task: each item is a number and gives item % 4 samples, whose first token is the item."""

    window: int = 1

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        for _ in range(items[0] % 4):
            ids = np.concatenate((items, rng.integers(5, 900, size=int(rng.integers(3, 12)))))
            yield Sample(ids, np.zeros(len(ids), np.int64), {"label": int(rng.integers(3))})


@dataclass(frozen=True)
class RandomTokens(Unchecked):
    """A task: each item gives one sample, made of the items of its window and three random numbers."""

    window: int = 1

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        ids = np.concatenate((items, rng.integers(5, 900, size=3)))
        yield Sample(ids, np.zeros(len(ids), np.int64), {"label": 0})


@dataclass(frozen=True)
class SparseTask(Unchecked):
    """A task that finds no samples, except in one item."""

    only_item: int = -1
    window: ClassVar[int] = 1

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        if items[0] == self.only_item:
            yield Sample(np.arange(9), np.zeros(9, np.int64), {"label": 0})


def source(items: int = 200, **changes: Any) -> Source:
    """Return a source whose blocks are small."""
    default = Source(
        "pieces", Pieces(), range(items), numbered(), seed=3, micro_batch_tokens=24, shuffle_buffer_tokens=0
    )
    return replace(default, **changes)


def on_request(src: Source, requested: list[tuple[int, int]] | None = None) -> Callable[..., Future[list[Packed]]]:
    """Return a function that makes blocks without a feed, and notes each one's epoch and first item in `requested`."""

    def submit(epoch: int, first: int, last: int) -> Future[list[Packed]]:
        if requested is not None:
            requested.append((epoch, first))
        done: Future[list[Packed]] = Future()
        done.set_result(src.batches(epoch, first, last))
        return done

    return submit


def stream(src: Source, *data_shards: Any) -> Stream:
    return Stream(src, on_request(src), *data_shards)


def take(count: int, batches: Stream) -> list[Packed]:
    taken = [next(batches) for _ in range(count)]
    assert not any(batch is None for batch in taken)
    return taken  # type: ignore[return-value]


def same(first: Packed, second: Packed) -> bool:
    return (
        np.array_equal(first.ids, second.ids)
        and np.array_equal(first.layout.offsets, second.layout.offsets)
        and np.array_equal(first.samples, second.samples)
        and np.array_equal(first.labels["label"].values, second.labels["label"].values)
    )


def epoch_of(batches: Stream, epoch: int) -> list[Packed]:
    """Return the batches of an epoch from a stream that is at its first batch."""
    found = []
    while True:
        [batch] = take(1, batches)
        if batch.samples[0, 0] != epoch:
            return found
        found.append(batch)


# ------------------------------------------------------------------------------------------------ contents


@pytest.mark.parametrize("items", [1, 2, 7, 200])
def test_every_sample_of_an_epoch_appears_exactly_once(items: int) -> None:
    src = source(items + 1)
    names = np.concatenate([batch.samples for batch in epoch_of(stream(src), 0)])
    expected = {(0, item, number) for item in range(items + 1) for number in range(item % 4)}
    assert sorted(map(tuple, names.tolist())) == sorted(expected)


def test_a_sample_is_named_after_the_item_it_was_made_from() -> None:
    for batch in take(30, stream(source())):
        assert batch.ids[batch.layout.starts].tolist() == batch.samples[:, 1].tolist()


def test_no_batch_exceeds_the_budget() -> None:
    assert max(batch.layout.tokens for batch in take(100, stream(source()))) <= 24


def test_epochs_hold_the_same_items_in_another_order_with_other_random_numbers() -> None:
    batches = stream(source())
    first = take(len(epoch_of(stream(source()), 0)), batches)
    second = epoch_of(batches, 1)
    orders = [np.concatenate([batch.samples[:, 1] for batch in epoch]).tolist() for epoch in (first, second)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    lengths = [sum(batch.layout.tokens for batch in epoch) for epoch in (first, second)]
    assert lengths[0] != lengths[1]


@pytest.mark.parametrize("window", [2, 3])
def test_a_window_holds_distinct_items_also_at_the_end_of_an_epoch(window: int) -> None:
    for seed in range(9):
        src = source(7, task=RandomTokens(window), seed=seed)
        windows = [sample.ids[:window].tolist() for _, sample in src.named_samples(0, 0, 7)]
        assert sorted(items[0] for items in windows) == list(range(7))
        assert all(len(set(items)) == window for items in windows)


def test_every_item_has_its_own_random_numbers_whatever_else_is_in_its_block() -> None:
    sources = [source(30, task=RandomTokens(), **changes) for changes in ({}, {"seed": 4}, {"name": "other"})]
    drawn = [draws(src.named_samples(epoch, 0, 30)) for src in sources for epoch in range(3)]
    assert len({numbers for found in drawn for numbers in found.values()}) == 30 * len(drawn)
    parts = (sources[0].named_samples(2, *part) for part in ((0, 11), (11, 12), (12, 30)))
    assert {name: numbers for part in parts for name, numbers in draws(part).items()} == drawn[2]


def draws(named: Iterator[tuple[tuple[int, int, int], Sample]]) -> dict[tuple[int, int, int], tuple[int, ...]]:
    """Return the random numbers of each `RandomTokens` sample by its name."""
    return {name: tuple(sample.ids[-3:].tolist()) for name, sample in named}


def test_samples_are_shuffled_differently_in_each_block_epoch_task_and_run() -> None:
    def shuffled(src: Source, epoch: int, first: int) -> tuple[int, ...]:
        """Return the order of a block's samples, as positions in the order of its items."""
        places = {name: place for place, (name, _) in enumerate(src.named_samples(epoch, first, first + 30))}
        batches = src.batches(epoch, first, first + 30)
        return tuple(places[tuple(name)] for batch in batches for name in batch.samples.tolist())

    src = source(90, task=RandomTokens())
    orders = [shuffled(src, 0, 0), shuffled(src, 0, 30), shuffled(src, 1, 0)]
    orders += [shuffled(replace(src, **changes), 0, 0) for changes in ({"seed": 4}, {"name": "other"})]
    assert all(sorted(order) == list(range(30)) for order in orders)
    assert len(set(orders)) == len(orders)


@pytest.mark.parametrize(
    ("items", "shuffle_buffer_tokens", "expected"),
    [
        (5000, 0, 128),  # 16 batches of 32 tokens, at 4 tokens per item
        (5000, 600, 150),
        (5000, 8000, 2000),
        (5000, 10**6, 5000),
        (100, 0, 100),
    ],
)
def test_a_block_has_sixteen_batches_and_at_least_the_tokens_to_be_mixed(
    items: int, shuffle_buffer_tokens: int, expected: int
) -> None:
    src = source(
        items,
        task=RandomTokens(),
        tokenizer=numbered(5000),
        micro_batch_tokens=32,
        shuffle_buffer_tokens=shuffle_buffer_tokens,
    )
    assert src.items_per_block() == expected


def test_where_samples_are_rare_a_block_has_a_thousand_items_at_most() -> None:
    @dataclass(frozen=True)
    class Rare(Unchecked):
        window: int = 1

        def samples(self, items: Sequence[int], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
            if items[0] % 2:
                yield Sample(np.full(8, items[0]), np.zeros(8, np.int64), {"label": 0})

    assert (
        source(
            5000, task=Rare(), tokenizer=numbered(5000), micro_batch_tokens=32, shuffle_buffer_tokens=10**6
        ).items_per_block()
        == 1024
    )


def test_consecutive_batches_come_from_many_documents() -> None:
    @dataclass(frozen=True)
    class Books(Unchecked):
        window: int = 1

        def samples(self, items: Sequence[int], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
            for _ in range(200):
                yield Sample(np.full(24, items[0]), np.zeros(24, np.int64), {"label": 0})

    books = source(1000, task=Books(), micro_batch_tokens=96)

    def distinct_documents(src: Source) -> int:
        return len(np.unique(np.concatenate([batch.samples[:, 1] for batch in take(16, stream(src))])))

    assert distinct_documents(books) == 1  # 64 samples of the same 4,800 tokens
    assert distinct_documents(replace(books, shuffle_buffer_tokens=100 * 4_800)) > 35  # of 100 books


# ------------------------------------------------------------------------------------------------- workers


def test_worker_processes_do_not_change_the_batches() -> None:
    here, there = Feed([source()]), Feed([source()], processes=2)
    try:
        serial, parallel = here.stream("pieces"), there.stream("pieces")
        for here_taken, there_taken in zip(take(60, serial), take(60, parallel), strict=True):
            assert same(here_taken, there_taken)
        assert serial.state() == parallel.state()
    finally:
        here.close()
        there.close()


def test_an_error_in_a_task_is_raised_where_a_batch_is_requested() -> None:
    feed = Feed([replace(source(), items=[1, 2, 3, 5] * 50)])
    batches = feed.stream("pieces")
    batches.source.items[:] = ["not a number"] * 200  # type: ignore[index]
    with pytest.raises(RuntimeError, match=r"task 'pieces' failed at item \d+ of its documents: TypeError") as found:
        next(batches)
    assert isinstance(found.value.__cause__, TypeError)
    feed.close()


# -------------------------------------------------------------------------------------------------- resume


@settings(max_examples=40)
@given(st.integers(min_value=0, max_value=150), st.integers(min_value=0, max_value=60))
def test_a_resumed_stream_equals_an_uninterrupted_one(taken: int, more: int) -> None:
    whole = stream(source(50))
    for _ in range(taken):
        next(whole)
    state = json.loads(json.dumps(whole.state()))  # as a checkpoint keeps it
    resumed = stream(source(50))
    for _ in range(more):  # wherever it was before
        next(resumed)
    resumed.seek(state)
    for continued, restored in zip(take(40, whole), take(40, resumed), strict=True):
        assert same(continued, restored)
    assert whole.state() == resumed.state()


def test_the_state_stays_small_however_far_the_stream_is() -> None:
    batches = stream(source(50))
    for _ in range(300):
        next(batches)
    state = batches.state()
    assert len(json.dumps(state)) < 150
    assert state["drawn"] == 300
    assert state["epoch"] > 3


def test_seeking_makes_only_the_blocks_from_there_on() -> None:
    src = source(5000, tokenizer=numbered(5000))
    requested: list[tuple[int, int]] = []
    batches = Stream(src, on_request(src, requested))
    batches.seek({"epoch": 700, "block": 5, "batch": 2, "drawn": 10**6, "digest": "ab"})
    next(batches)
    assert batches.drawn == batches.state()["drawn"] == 10**6 + 1
    assert [epoch for epoch, _ in requested] == [700, 700]
    assert requested[0][1] > 0


# --------------------------------------------------------------------------------------------- data shards


@settings(max_examples=40, deadline=None)
@given(items=st.integers(2, 200), data_shards=st.integers(1, 7), rounds=st.integers(1, 60))
def test_data_shards_together_visit_every_sample_of_an_epoch_once(items: int, data_shards: int, rounds: int) -> None:
    batches = stream(source(items), data_shards)
    names = np.concatenate([batch.samples for batch in take(data_shards * rounds, batches)])
    assert len(np.unique(names, axis=0)) == len(names)
    for epoch in range(batches.epoch):
        expected = [(epoch, item, number) for item in range(items) for number in range(item % 4)]
        assert sorted(map(tuple, names[names[:, 0] == epoch].tolist())) == expected


@settings(max_examples=30, deadline=None)
@given(items=st.integers(2, 200), per_process=st.integers(1, 3), processes=st.integers(1, 4), rounds=st.integers(1, 30))
def test_processes_that_share_the_data_shards_get_the_batches_of_one_process(
    items: int, per_process: int, processes: int, rounds: int
) -> None:
    data_shards = per_process * processes
    whole = stream(source(items), data_shards)
    parts = [stream(source(items), data_shards, range(data_shards)[process::processes]) for process in range(processes)]
    for number, expected in enumerate(take(data_shards * rounds, whole)):
        made = [next(part) for part in parts]
        own = made.pop(number % processes)
        assert own is not None
        assert same(own, expected)
        assert made == [None] * (processes - 1)
    assert sum(part.checksum for part in parts) % 2**32 == whole.checksum
    assert merged_states([part.state() for part in parts]) == whole.state()


@settings(max_examples=16, deadline=None)
@given(before=st.sampled_from([1, 2, 3, 6]), after=st.sampled_from([1, 2, 3, 6]), rounds=st.integers(0, 20))
def test_other_numbers_of_processes_continue_from_each_others_states(before: int, after: int, rounds: int) -> None:
    parts = [stream(source(90), 6, range(6)[process::before]) for process in range(before)]
    for _ in range(6 * rounds):
        for part in parts:
            next(part)
    state = json.loads(json.dumps(merged_states([part.state() for part in parts])))
    whole = stream(source(90), 6)
    take(6 * rounds, whole)
    resumed = [stream(source(90), 6, range(6)[process::after]) for process in range(after)]
    for part in resumed:
        part.seek(state)
    for number, expected in enumerate(take(30, whole)):
        own = [next(part) for part in resumed][number % after]
        assert own is not None
        assert same(own, expected)


def test_a_process_makes_only_the_blocks_of_its_own_data_shards() -> None:
    src = source(5000, tokenizer=numbered(5000))
    blocks: list[set[tuple[int, int]]] = []
    for own in (range(4), range(0, 4, 2), range(1, 4, 2)):
        requested: list[tuple[int, int]] = []
        batches = Stream(src, on_request(src, requested), 4, own)
        for _ in range(400):
            next(batches)
        blocks.append(set(requested))
    assert blocks[1] | blocks[2] == blocks[0]
    assert not blocks[1] & blocks[2]


def test_the_blocks_of_all_data_shards_together_have_the_tokens_to_be_mixed() -> None:
    src = source(5000, task=RandomTokens(), tokenizer=numbered(5000), micro_batch_tokens=32, shuffle_buffer_tokens=2400)
    assert [src.items_per_block(data_shards) for data_shards in (1, 2, 4, 8)] == [
        600,
        300,
        150,
        128,
    ]  # at least 16 batches


# -------------------------------------------------------------------------------------------------- digest


def test_the_digest_differs_between_any_two_histories() -> None:
    def digest(src: Source, taken: int) -> str:
        batches = stream(src)
        for _ in range(taken):
            next(batches)
        return batches.state()["digest"]

    digests = [
        digest(source(), 10),
        digest(source(), 11),
        digest(source(items=201), 10),
        digest(source(seed=4), 10),
        digest(source(micro_batch_tokens=25), 10),
        digest(source(name="other"), 10),
    ]
    assert len(set(digests)) == len(digests)
    assert digest(source(), 10) == digests[0]


def test_the_digest_depends_on_all_batches_and_their_order() -> None:
    (first,), (second,) = (take(1, stream(source(seed=seed))) for seed in (1, 2))
    assert roll(roll("", first), second) != roll(roll("", second), first)
    assert roll(roll("", first), second) != roll(roll("", second), second) != roll("", second)
    assert Position().digest == ""


# ----------------------------------------------------------------------------------------- nothing to learn


def test_a_task_without_samples_raises_a_clear_error() -> None:
    with pytest.raises(UserError, match=r"task 'quiet' finds nothing to learn from .* none of its 200 documents"):
        stream(source(name="quiet", task=SparseTask()))


def test_a_single_document_with_samples_among_many_is_found() -> None:
    batches = stream(source(5000, task=SparseTask(only_item=4321)))
    assert [batch.samples[0].tolist() for batch in take(3, batches)] == [[epoch, 4321, 0] for epoch in range(3)]


def test_too_few_documents_for_a_window_raise_a_clear_error() -> None:
    with pytest.raises(UserError, match=r"task 'pieces' needs at least 3 documents, or rows .* and there are 2"):
        stream(source(2, task=Pieces(window=3)))
    with pytest.raises(UserError, match=r"needs at least 1 documents, or rows .* and there are 0"):
        stream(source(0))


@pytest.mark.parametrize("processes", [1, 3])
def test_a_killed_worker_raises_a_clear_error_and_the_others_end(processes: int) -> None:
    src = source()
    feed = Feed([src], processes=processes)
    stream = feed.stream(src.name)
    next(stream)
    workers = multiprocessing.active_children()
    workers[0].kill()
    workers[0].join()
    with pytest.raises(UserError, match=r"a worker process was killed.*data\.workers=0"):
        for _ in range(100):
            next(stream)
    feed.close()
    assert not any(worker.is_alive() for worker in workers)
