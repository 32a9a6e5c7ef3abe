"""Streams: endless, the same whatever makes their batches, and resumed from anywhere as if never stopped."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import numpy as np
import pytest
from helpers import numbered
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.data.stream import Feed, Position, Source, Stream, roll
from ernie.errors import UserError
from ernie.text.tokenizer import Tokenizer


class Unchecked:
    """A task to which all samples are good."""

    def check_sample(self, sample: Sample) -> None:
        pass


@dataclass(frozen=True)
class Pieces(Unchecked):
    """A task: each item, a number, gives as many samples as its last digit says; their first token is the item."""

    window: int = 1

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        for _ in range(items[0] % 4):
            ids = np.concatenate((items, rng.integers(5, 900, size=int(rng.integers(3, 12)))))
            yield Sample(ids, np.zeros(len(ids), np.int64), {"label": int(rng.integers(3))})


@dataclass(frozen=True)
class Drawing(Unchecked):
    """A task: each item gives one sample, of its window's items and three random numbers."""

    window: int = 1

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        ids = np.concatenate((items, rng.integers(5, 900, size=3)))
        yield Sample(ids, np.zeros(len(ids), np.int64), {"label": 0})


@dataclass(frozen=True)
class Silent(Unchecked):
    """A task that finds nothing, but in one item."""

    speaks_at: int = -1
    window: ClassVar[int] = 1

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        if items[0] == self.speaks_at:
            yield Sample(np.arange(9), np.zeros(9, np.int64), {"label": 0})


def source(items: int = 200, **changes: Any) -> Source:
    """A source whose blocks are small."""
    plain = Source("pieces", Pieces(), range(items), numbered(), seed=3, budget=24, mixed=0)
    return replace(plain, **changes)


def stream(of: Source) -> Stream:
    """A stream whose blocks are made when they are asked for, without a feed."""

    def submit(epoch: int, first: int, last: int) -> Future[list[Packed]]:
        done: Future[list[Packed]] = Future()
        done.set_result(of.batches(epoch, first, last))
        return done

    return Stream(of, submit)


def take(count: int, batches: Stream) -> list[Packed]:
    return [next(batches) for _ in range(count)]


def same(one: Packed, other: Packed) -> bool:
    return (
        np.array_equal(one.ids, other.ids)
        and np.array_equal(one.layout.offsets, other.layout.offsets)
        and np.array_equal(one.samples, other.samples)
        and np.array_equal(one.labels["label"].values, other.labels["label"].values)
    )


def epoch_of(batches: Stream, epoch: int) -> list[Packed]:
    """The batches of an epoch, for a stream that stands at its first."""
    found = []
    while True:
        batch = next(batches)
        if batch.samples[0, 0] != epoch:
            return found
        found.append(batch)


# ------------------------------------------------------------------------------------------------ contents


@pytest.mark.parametrize("items", [1, 2, 7, 200])
def test_every_sample_of_an_epoch_comes_exactly_once(items: int) -> None:
    of = source(items + 1)
    names = np.concatenate([batch.samples for batch in epoch_of(stream(of), 0)])
    expected = {(0, item, number) for item in range(items + 1) for number in range(item % 4)}
    assert sorted(map(tuple, names.tolist())) == sorted(expected)


def test_a_sample_is_named_after_the_item_it_was_made_from() -> None:
    for batch in take(30, stream(source())):
        assert batch.ids[batch.layout.starts].tolist() == batch.samples[:, 1].tolist()


def test_no_batch_exceeds_the_budget() -> None:
    assert max(batch.layout.tokens for batch in take(100, stream(source()))) <= 24


def test_epochs_hold_the_same_items_in_another_order_with_other_random_numbers() -> None:
    batches = stream(source())
    first = [next(batches) for _ in range(len(epoch_of(stream(source()), 0)))]
    second = epoch_of(batches, 1)
    orders = [np.concatenate([batch.samples[:, 1] for batch in epoch]).tolist() for epoch in (first, second)]
    assert orders[0] != orders[1]
    assert sorted(orders[0]) == sorted(orders[1])
    lengths = [sum(batch.layout.tokens for batch in epoch) for epoch in (first, second)]
    assert lengths[0] != lengths[1]


@pytest.mark.parametrize("window", [2, 3])
def test_the_window_holds_strangers_also_at_the_end_of_an_epoch(window: int) -> None:
    for seed in range(9):
        of = source(7, task=Drawing(window), seed=seed)
        windows = [sample.ids[:window].tolist() for _, sample in of.named_samples(0, 0, 7)]
        assert sorted(items[0] for items in windows) == list(range(7))
        assert all(len(set(items)) == window for items in windows)


def test_every_item_has_random_numbers_of_its_own_whatever_else_is_made_with_it() -> None:
    sources = [source(30, task=Drawing(), **changes) for changes in ({}, {"seed": 4}, {"name": "other"})]
    drawn = [draws(of.named_samples(epoch, 0, 30)) for of in sources for epoch in range(3)]
    assert len({numbers for found in drawn for numbers in found.values()}) == 30 * len(drawn)
    parts = (sources[0].named_samples(2, *part) for part in ((0, 11), (11, 12), (12, 30)))
    assert {name: numbers for part in parts for name, numbers in draws(part).items()} == drawn[2]


def draws(named: Iterator[tuple[tuple[int, int, int], Sample]]) -> dict[tuple[int, int, int], tuple[int, ...]]:
    """What each sample of a task Drawing drew, by its name."""
    return {name: tuple(sample.ids[-3:].tolist()) for name, sample in named}


def test_samples_are_mixed_in_another_way_in_each_block_epoch_task_and_run() -> None:
    def mixed(of: Source, epoch: int, first: int) -> tuple[int, ...]:
        """Which of a block's samples, in the order of its items, comes when."""
        places = {name: place for place, (name, _) in enumerate(of.named_samples(epoch, first, first + 30))}
        batches = of.batches(epoch, first, first + 30)
        return tuple(places[tuple(name)] for batch in batches for name in batch.samples.tolist())

    of = source(90, task=Drawing())
    ways = [mixed(of, 0, 0), mixed(of, 0, 30), mixed(of, 1, 0)]
    ways += [mixed(replace(of, **changes), 0, 0) for changes in ({"seed": 4}, {"name": "other"})]
    assert all(sorted(way) == list(range(30)) for way in ways)
    assert len(set(ways)) == len(ways)


@pytest.mark.parametrize(
    ("items", "mixed", "expected"),
    [
        (5000, 0, 128),  # 16 batches of 32 tokens, and an item gives 4 tokens
        (5000, 600, 150),
        (5000, 10**6, 1024),  # no more are looked through, however many tokens are to be mixed
        (100, 0, 100),
    ],
)
def test_a_block_has_sixteen_batches_and_as_many_tokens_as_are_to_be_mixed(
    items: int, mixed: int, expected: int
) -> None:
    of = source(items, task=Drawing(), tokenizer=numbered(5000), budget=32, mixed=mixed)
    assert of.items_per_block() == expected


def test_batches_that_follow_one_another_are_of_many_documents() -> None:
    @dataclass(frozen=True)
    class Books(Unchecked):
        window: int = 1

        def samples(self, items: Sequence[int], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
            for _ in range(200):
                yield Sample(np.full(24, items[0]), np.zeros(24, np.int64), {"label": 0})

    books = source(1000, task=Books(), budget=96)

    def different(of: Source) -> int:
        return len(np.unique(np.concatenate([batch.samples[:, 1] for batch in take(16, stream(of))])))

    assert different(books) == 1  # 64 samples of the same 4,800 tokens
    assert different(replace(books, mixed=100 * 4_800)) > 35  # of 100 books


# --------------------------------------------------------------------------------------- who makes batches


def test_worker_processes_change_nothing() -> None:
    here, there = Feed([source()]), Feed([source()], processes=2)
    try:
        one, other = here.stream("pieces"), there.stream("pieces")
        for _ in range(60):
            assert same(next(one), next(other))
        assert one.state() == other.state()
    finally:
        here.close()
        there.close()


def test_an_error_in_a_task_reaches_whoever_asks_for_a_batch() -> None:
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
def test_a_resumed_stream_equals_one_that_never_stopped(taken: int, more: int) -> None:
    whole = stream(source(50))
    for _ in range(taken):
        next(whole)
    state = json.loads(json.dumps(whole.state()))  # as a checkpoint keeps it
    resumed = stream(source(50))
    for _ in range(more):  # wherever it stood before
        next(resumed)
    resumed.seek(state)
    for _ in range(40):
        assert same(next(whole), next(resumed))
    assert whole.state() == resumed.state()


def test_the_state_is_a_few_numbers_however_far_the_stream_is() -> None:
    batches = stream(source(50))
    for _ in range(300):
        next(batches)
    state = batches.state()
    assert len(json.dumps(state)) < 150
    assert state["drawn"] == 300
    assert state["epoch"] > 3


def test_seeking_makes_only_the_blocks_from_there_on() -> None:
    of = source(5000, tokenizer=numbered(5000))
    asked: list[tuple[int, int]] = []

    def submit(epoch: int, first: int, last: int) -> Future[list[Packed]]:
        asked.append((epoch, first))
        done: Future[list[Packed]] = Future()
        done.set_result(of.batches(epoch, first, last))
        return done

    batches = Stream(of, submit)
    batches.seek({"epoch": 700, "block": 5, "batch": 2, "drawn": 10**6, "digest": "ab"})
    next(batches)
    assert batches.position.drawn == 10**6 + 1
    assert [epoch for epoch, _ in asked] == [700, 700]
    assert asked[0][1] > 0


# -------------------------------------------------------------------------------------------------- digest


def test_the_digest_tells_any_two_histories_apart() -> None:
    def digest(of: Source, taken: int) -> str:
        batches = stream(of)
        for _ in range(taken):
            next(batches)
        return batches.state()["digest"]

    different = [
        digest(source(), 10),
        digest(source(), 11),
        digest(source(items=201), 10),
        digest(source(seed=4), 10),
        digest(source(budget=25), 10),
        digest(source(name="other"), 10),
    ]
    assert len(set(different)) == len(different)
    assert digest(source(), 10) == different[0]


def test_the_digest_depends_on_all_batches_and_their_order() -> None:
    first, second = (next(stream(source(seed=seed))) for seed in (1, 2))
    assert roll(roll("", first), second) != roll(roll("", second), first)
    assert roll(roll("", first), second) != roll(roll("", second), second) != roll("", second)
    assert Position().digest == ""


# ----------------------------------------------------------------------------------------- nothing to learn


def test_a_task_without_samples_is_a_sentence() -> None:
    with pytest.raises(UserError, match=r"task 'quiet' finds nothing to learn from .* none of its 200 documents"):
        stream(source(name="quiet", task=Silent()))


def test_a_single_document_with_samples_among_many_is_found() -> None:
    batches = stream(source(5000, task=Silent(speaks_at=4321)))
    assert [next(batches).samples[0].tolist() for _ in range(3)] == [[epoch, 4321, 0] for epoch in range(3)]


def test_too_few_documents_for_a_window_are_a_sentence() -> None:
    with pytest.raises(UserError, match=r"task 'pieces' needs at least 3 documents, or rows .* and there are 2"):
        stream(source(2, task=Pieces(window=3)))
    with pytest.raises(UserError, match=r"needs at least 1 documents, or rows .* and there are 0"):
        stream(source(0))


@pytest.mark.parametrize("processes", [1, 3])
def test_a_killed_worker_is_a_sentence_and_the_others_end(processes: int) -> None:
    made = source()
    feed = Feed([made], processes=processes)
    stream = feed.stream(made.name)
    next(stream)
    assert isinstance(feed._executor, ProcessPoolExecutor)
    workers = list(feed._executor._processes.values())
    workers[0].kill()
    workers[0].join()
    with pytest.raises(UserError, match="a worker process that makes batches was killed"):
        for _ in range(100):
            next(stream)
    feed.close()
    assert not any(worker.is_alive() for worker in workers)
