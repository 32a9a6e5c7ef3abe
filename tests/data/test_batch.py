"""Packing: every sample appears once, no batch exceeds its budget, and every index is right."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.data.batch import Labels, Layout, pack, plan, plan_by_length
from ernie.data.document import IGNORE, Sample
from ernie.errors import UserError

lengths = st.lists(st.integers(min_value=1, max_value=40), min_size=1, max_size=60)
seeds = st.integers(min_value=0, max_value=2**32)


def sample(length: int, seed: int = 0) -> Sample:
    """A sample of random ids and segments, with a sequence label and token labels."""
    rng = np.random.default_rng((length, seed))
    token_labels = np.where(rng.random(length) < 0.4, rng.integers(9, size=length), IGNORE)
    labels: dict[str, int | np.ndarray] = {"sequence": int(rng.integers(5)), "token": token_labels}
    return Sample(rng.integers(100, size=length), rng.integers(2, size=length), labels)


def tokens(batches: list[np.ndarray], sizes: list[int]) -> list[int]:
    return [int(np.asarray(sizes)[batch].sum()) for batch in batches]


# ---------------------------------------------------------------------------------------------------- plan


@given(lengths, st.integers(min_value=40, max_value=200), seeds)
def test_each_sample_is_in_exactly_one_batch_and_no_batch_exceeds_its_budget(
    sizes: list[int], budget: int, seed: int
) -> None:
    batches = plan(sizes, budget, np.random.default_rng(seed))
    assert sorted(np.concatenate(batches).tolist()) == list(range(len(sizes)))
    assert max(tokens(batches, sizes)) <= budget


@given(lengths, st.integers(min_value=40, max_value=200), seeds)
def test_a_plan_is_a_pure_function_of_lengths_budget_and_generator(sizes: list[int], budget: int, seed: int) -> None:
    first, second = (plan(sizes, budget, np.random.default_rng(seed)) for _ in range(2))
    assert [batch.tolist() for batch in first] == [batch.tolist() for batch in second]


@given(lengths, st.integers(min_value=40, max_value=200), seeds)
def test_no_batch_is_a_small_remainder(sizes: list[int], budget: int, seed: int) -> None:
    """All but two batches were closed by a sample that did not fit; those two share their tokens evenly, up to one
    sample."""
    found = sorted(tokens(plan(sizes, budget, np.random.default_rng(seed)), sizes))
    longest = max(sizes)
    assert all(held > budget - longest for held in found[2:])
    if len(found) > 1:
        assert found[0] > (budget - longest) / 2 - longest


def test_batches_of_equal_samples_are_full_but_for_the_last_two() -> None:
    batches = plan([10] * 33, 100, np.random.default_rng(0))
    assert sorted(map(len, batches)) == [6, 7, 10, 10]


@pytest.mark.parametrize(
    ("sizes", "held"),
    [
        ([10] * 12, {(60, 60)}),
        ([95, 20], {(20, 95)}),
        ([10, 90, 40], {(40, 100), (50, 90)}),  # where 90 comes second, it must share a batch with 10
    ],
)
def test_two_batches_are_as_even_as_the_budget_allows(sizes: list[int], held: set[tuple[int, int]]) -> None:
    plans = [plan(sizes, 100, np.random.default_rng(seed)) for seed in range(60)]
    assert {tuple(sorted(tokens(batches, sizes))) for batches in plans} == held


def test_different_generators_give_different_batches() -> None:
    found = {tuple(plan([10] * 40, 100, np.random.default_rng(seed))[0].tolist()) for seed in range(20)}
    assert len(found) == 20


def test_the_smaller_batches_do_not_always_come_last() -> None:
    plans = [plan([10] * 33, 100, np.random.default_rng(seed)) for seed in range(60)]
    places = [frozenset(i for i, batch in enumerate(batches) if len(batch) < 10) for batches in plans]
    assert len(set(places)) == 6  # each pair of four


@given(lengths, st.integers(min_value=1, max_value=200))
def test_batches_by_length_hold_neighbors_in_length_and_each_sample_once(sizes: list[int], budget: int) -> None:
    batches = plan_by_length(sizes, budget)
    order = np.concatenate(batches)
    assert sorted(order.tolist()) == list(range(len(sizes)))
    assert (np.diff(np.asarray(sizes)[order]) <= 0).all()
    assert all(len(batch) == 1 or count <= budget for batch, count in zip(batches, tokens(batches, sizes), strict=True))


@pytest.mark.parametrize("offsets", [[], [1, 3], [0, 5, 3], [0, -1], [[0, 1]]])
def test_offsets_that_do_not_rise_from_0_are_refused(offsets: list[int]) -> None:
    with pytest.raises(UserError, match="offsets of a layout: expected numbers that rise from 0"):
        Layout(np.array(offsets, np.int64))


def test_no_samples_make_no_batches() -> None:
    assert plan([], 100, np.random.default_rng(0)) == []
    assert plan_by_length([], 100) == []


def test_a_budget_beyond_all_integers_takes_everything_at_once() -> None:
    assert [batch.tolist() for batch in plan_by_length([2, 3], 10**400)] == [[1, 0]]


# -------------------------------------------------------------------------------------------------- layout


@given(lengths)
def test_a_layout_gives_the_sequence_and_position_of_every_token(sizes: list[int]) -> None:
    layout = Layout.of_lengths(sizes)
    assert layout.sequences == len(sizes)
    assert layout.tokens == sum(sizes)
    assert layout.longest == max(sizes)
    assert layout.lengths.tolist() == sizes
    places = [(n, i) for n, size in enumerate(sizes) for i in range(size)]
    assert layout.positions.tolist() == [i for _, i in places]
    assert layout.slots.tolist() == [n * max(sizes) + i for n, i in places]
    assert layout.starts.tolist() == [t for t, (_, i) in enumerate(places) if i == 0]
    assert layout.sequences_of(np.arange(sum(sizes))).tolist() == [n for n, _ in places]
    assert layout.sequences_of(None).tolist() == list(range(len(sizes)))
    assert layout.followed_by(Layout.of_lengths(sizes[::-1])).lengths.tolist() == [
        first + second for first, second in zip(sizes, sizes[::-1], strict=True)
    ]
    assert layout.is_rectangular == (len(set(sizes)) == 1)


# ---------------------------------------------------------------------------------------------------- pack


@given(lengths, seeds)
def test_a_packed_batch_holds_every_sample_unchanged(sizes: list[int], seed: int) -> None:
    samples = [sample(size, seed + i) for i, size in enumerate(sizes)]
    batch = pack(samples)
    for i, original in enumerate(samples):
        start, stop = batch.layout.offsets[i : i + 2]
        assert batch.ids[start:stop].tolist() == original.ids.tolist()
        assert batch.segments[start:stop].tolist() == original.segments.tolist()
    assert batch.padding == pytest.approx(1 - sum(sizes) / (len(sizes) * max(sizes)))


@given(lengths, seeds)
def test_labels_point_at_the_tokens_and_sequences_they_belong_to(sizes: list[int], seed: int) -> None:
    samples = [sample(size, seed + i) for i, size in enumerate(sizes)]
    batch = pack(samples)
    assert batch.labels["sequence"].positions is None
    assert batch.labels["sequence"].values.tolist() == [original.labels["sequence"] for original in samples]
    unpacked = np.full(batch.layout.tokens, IGNORE)
    token_labels = batch.labels["token"]
    unpacked[token_labels.positions] = token_labels.values
    assert unpacked.tolist() == np.concatenate([original.labels["token"] for original in samples]).tolist()
    assert batch.targets == len(samples) + len(token_labels.values)


def test_samples_keep_their_names() -> None:
    names = np.array([[0, 4, 0], [0, 4, 1]])
    assert pack([sample(3), sample(4)], names).samples.tolist() == names.tolist()


def test_labels_are_int64_whatever_type_the_task_gave() -> None:
    ids, segments = np.arange(3, dtype=np.uint16), np.zeros(3, np.uint8)
    batch = pack([Sample(ids, segments, {"label": np.array([IGNORE, 2, 1], np.int8)})])
    assert batch.labels["label"] == Labels(*(pytest.approx(np.array(expected)) for expected in ([2, 1], [1, 2])))
    assert {batch.ids.dtype, batch.segments.dtype, batch.labels["label"].values.dtype} == {np.dtype(np.int64)}


def test_a_zero_dimensional_array_is_one_label_per_sequence() -> None:
    ids = np.arange(3)
    labels = pack([Sample(ids, ids, {"label": np.array(4)}), Sample(ids, ids, {"label": 5})]).labels["label"]
    assert (labels.values.tolist(), labels.positions) == ([4, 5], None)


def test_unlabeled_sequences_are_left_out_and_numbers_and_rows_of_labels_are_kept_whole() -> None:
    ids = np.arange(3)

    def packed(*labels: object) -> Labels:
        return pack([Sample(ids, ids, {"label": label}) for label in labels]).labels["label"]  # type: ignore[dict-item]

    some = packed(2, IGNORE, 0)
    assert (some.values.tolist(), some.positions.tolist()) == ([2, 0], [0, 2])  # type: ignore[union-attr]
    numbers = packed(0.5, -1.0, 2.0)  # among numbers, IGNORE is an ordinary value
    assert (numbers.values.tolist(), numbers.positions, numbers.values.dtype) == ([0.5, -1.0, 2.0], None, np.float32)
    rows = packed(np.array([[1, 0, 1]]), np.array([[0, 0, 1]]))
    assert (rows.values.tolist(), rows.positions) == ([[1, 0, 1], [0, 0, 1]], None)


def test_decoder_inputs_and_targets_are_shifted_by_one() -> None:
    sources = [np.array([5, 6]), np.array([7, 8, 9])]
    targets = [np.array([1, 10, 11, 2]), np.array([1, 12, 2])]
    samples = [
        Sample(source, np.zeros_like(source), decoder_ids=target)
        for source, target in zip(sources, targets, strict=True)
    ]
    packed = pack(samples)
    assert packed.decoder_tokens is not None
    assert packed.decoder_tokens.ids.tolist() == [1, 10, 11, 1, 12]
    assert packed.decoder_tokens.next.tolist() == [10, 11, 2, 12, 2]
    assert packed.decoder_tokens.layout.lengths.tolist() == [3, 2]
    assert (packed.targets, packed.layout.tokens, [sample.size for sample in samples]) == (5, 5, [5, 5])
    assert pack([Sample(sources[0], sources[0])]).decoder_tokens is None
