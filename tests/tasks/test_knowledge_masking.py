"""Knowledge masking: how much is hidden, what counts as one unit, and what stands in its place."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from helpers import document, numbered
from hypothesis import given
from hypothesis import strategies as st

from ernie.data.document import IGNORE, Document, Flag, Sample
from ernie.errors import UserError
from tasks.objectives.knowledge_masking import KnowledgeMasking

TOKENIZER = numbered()
UNITS = [("token",), ("word",), ("phrase",), ("entity",), ("word", "phrase", "entity"), ("token", "entity")]
every_choice_of_units = pytest.mark.parametrize("units", UNITS)


def masked(text: Document, seed: int = 0, **fields: object) -> list[Sample]:
    task = KnowledgeMasking(**fields)  # type: ignore[arg-type]
    return list(task.samples([text], TOKENIZER, np.random.default_rng(seed)))


def inner(samples: list[Sample]) -> tuple[np.ndarray, np.ndarray]:
    """Ids and labels of all samples without their special tokens, one after the other."""
    ids = np.concatenate([sample.ids[1:-1] for sample in samples])
    return ids, np.concatenate([np.asarray(sample.labels["label"])[1:-1] for sample in samples])


def within(count: int, total: int, share: float, deviations: float = 5) -> bool:
    """Whether `count` of `total` is a plausible draw of probability `share`."""
    return abs(count - share * total) <= deviations * np.sqrt(share * (1 - share) * total) + 1


@every_choice_of_units
@pytest.mark.parametrize("max_len", [64, 128])
def test_the_share_is_right_in_the_mean_whatever_the_units_and_the_length(units: tuple[str, ...], max_len: int) -> None:
    _, labels = inner(masked(document([14] * 3000), units=units, max_len=max_len))
    assert (labels != IGNORE).mean() == pytest.approx(0.15, rel=0.04)


@every_choice_of_units
def test_of_the_hidden_tokens_eight_tenths_are_masked_one_random_one_kept(units: tuple[str, ...]) -> None:
    text = document([20] * 5000)
    ids, labels = inner(masked(text, units=units))
    hidden = labels != IGNORE
    total = int(hidden.sum())
    # One draw decides for a unit of about 1.5 tokens: deviations are wider than those of single tokens.
    assert within(int((ids[hidden] == TOKENIZER.mask_id).sum()), total, 0.8, deviations=8)
    assert within(int((ids[hidden] == labels[hidden]).sum()), total, 0.1, deviations=8)


def test_the_shares_are_configurable() -> None:
    ids, labels = inner(masked(document([20] * 3000), share=0.4, mask=0.0, random=1.0))
    hidden = labels != IGNORE
    assert within(int(hidden.sum()), len(ids), 0.4)
    assert not (ids == TOKENIZER.mask_id).any()
    drawn = ids[hidden]
    assert (drawn == labels[hidden]).mean() < 0.005  # one in a thousand by chance
    assert not np.isin(drawn, list(TOKENIZER.special_ids)).any()
    assert len(np.unique(drawn)) > 900  # of 995 ordinary tokens


@pytest.mark.parametrize(("mask", "random"), [(0.5, 0.2), (0.2, 0.7), (0.0, 0.0)])
def test_so_are_those_of_what_stands_in_a_token_s_place(mask: float, random: float) -> None:
    ids, labels = inner(masked(document([20] * 400), units=("token",), share=0.4, mask=mask, random=random))
    hidden = labels != IGNORE
    total, same = int(hidden.sum()), int((ids[hidden] == labels[hidden]).sum())
    assert within(int((ids[hidden] == TOKENIZER.mask_id).sum()), total, mask)
    assert within(same, total, 1 - mask - random + random / len(TOKENIZER.ordinary_ids))


def test_labels_are_the_tokens_themselves_and_all_else_stays_as_it_was() -> None:
    text = document([20] * 50)
    ids, labels = inner(masked(text))
    hidden = labels != IGNORE
    assert labels[hidden].tolist() == text.ids[hidden].tolist()
    assert ids[~hidden].tolist() == text.ids[~hidden].tolist()


def test_the_input_shows_a_hidden_token_only_where_it_is_meant_to_be_kept() -> None:
    ids, labels = inner(masked(document([20] * 500), mask=1.0, random=0.0))
    assert (ids[labels != IGNORE] == TOKENIZER.mask_id).all()


def test_where_it_is_measured_all_that_is_to_be_told_is_hidden() -> None:
    task = KnowledgeMasking(units=("token",), share=0.3, max_len=22)
    rng = np.random.default_rng(0)
    ids, labels = inner(list(task.measured.samples([document([20] * 500)], TOKENIZER, rng)))
    assert (ids[labels != IGNORE] == TOKENIZER.mask_id).all()
    assert within(int((labels != IGNORE).sum()), labels.size, 0.3, deviations=8)


@given(st.sampled_from(UNITS), st.integers(min_value=0, max_value=10**6))
def test_a_unit_is_hidden_as_a_whole_or_not_at_all_and_in_one_way(units: tuple[str, ...], seed: int) -> None:
    text = document([9, 14, 3, 20, 11] * 3, seed=seed)
    ids, labels = inner(masked(text, seed, units=units, max_len=42))
    continues = np.zeros(len(ids), bool)
    for unit, flag in (
        ("word", Flag.CONTINUES_WORD),
        ("phrase", Flag.CONTINUES_PHRASE),
        ("entity", Flag.CONTINUES_ENTITY),
    ):
        if unit in units:
            continues |= (text.flags & flag) != 0
    starts = np.cumsum([0, *(len(s) - 2 for s in masked(text, seed, units=units, max_len=42))])
    for i in np.flatnonzero(continues):
        if i not in starts:
            assert (labels[i] != IGNORE) == (labels[i - 1] != IGNORE)
            assert (ids[i] == TOKENIZER.mask_id) == (ids[i - 1] == TOKENIZER.mask_id)


def test_every_sample_has_a_target_also_of_one_token() -> None:
    for length in range(1, 8):
        for seed in range(20):
            (sample,) = masked(document([length], seed=seed), seed)
            assert (np.asarray(sample.labels["label"]) != IGNORE).any()


def test_every_token_has_the_same_chance_to_be_hidden() -> None:
    text = document([60], seed=3)
    counts = sum(
        (inner(masked(text, seed, units=("token",)))[1] != IGNORE).astype(int)  # type: ignore[misc]
        for seed in range(2000)
    )
    assert all(within(int(count), 2000, 0.15) for count in counts)  # type: ignore[union-attr]


def test_a_head_begins_at_the_share_that_each_token_has_of_the_text_none_of_them_zero() -> None:
    texts = [document([30], seed=seed, vocab_size=12) for seed in range(9)]
    counts = np.bincount(np.concatenate([text.ids for text in texts]), minlength=20) + 1
    given: list[np.ndarray] = []
    head = SimpleNamespace(bias=np.zeros(20), initialize_bias=given.append)
    KnowledgeMasking().initialize(head, texts)  # type: ignore[arg-type]
    np.testing.assert_allclose(given, [counts / counts.sum()])


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"units": ()}, "units: name at least one"),
        ({"share": 0.0}, "share: expected a number between 0 and 1, found 0.0"),
        ({"share": 1.0}, "share: expected a number between 0 and 1"),
        ({"mask": 0.8, "random": 0.3}, "mask and random: expected shares of at most 1 in sum, found 0.8 + 0.3"),
        ({"mask": -0.1}, "mask and random"),
    ],
)
def test_impossible_shares_are_a_sentence(fields: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        KnowledgeMasking(**fields)
    assert str(caught.value).startswith(message)
