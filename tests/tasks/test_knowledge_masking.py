"""Knowledge masking: how many tokens are selected, what counts as a unit, and what replaces it."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.helpers import document, numbered

from ernie.data.document import IGNORE, Document, Flag, Sample
from ernie.errors import UserError
from tasks.pretraining.knowledge_masking import KnowledgeMasking

TOKENIZER = numbered()
UNITS = [("token",), ("word",), ("phrase",), ("entity",), ("word", "phrase", "entity"), ("token", "entity")]
every_set_of_units = pytest.mark.parametrize("units", UNITS)


def masked(text: Document, seed: int = 0, **fields: object) -> list[Sample]:
    task = KnowledgeMasking(**fields)  # type: ignore[arg-type]
    return list(task.samples([text], TOKENIZER, np.random.default_rng(seed)))


def inner(samples: list[Sample]) -> tuple[np.ndarray, np.ndarray]:
    """Concatenated ids and labels of all samples, without special tokens."""
    ids = np.concatenate([sample.ids[1:-1] for sample in samples])
    return ids, np.concatenate([np.asarray(sample.labels["label"])[1:-1] for sample in samples])


def within(count: int, total: int, share: float, deviations: float = 5) -> bool:
    """Whether `count` successes in `total` trials are plausible for the probability `share`."""
    return abs(count - share * total) <= deviations * np.sqrt(share * (1 - share) * total) + 1


@every_set_of_units
@pytest.mark.parametrize("max_len", [64, 128])
def test_the_share_is_right_on_average_for_any_units_and_length(units: tuple[str, ...], max_len: int) -> None:
    _, labels = inner(masked(document([14] * 3000), units=units, max_len=max_len))
    assert (labels != IGNORE).mean() == pytest.approx(0.15, rel=0.04)


@every_set_of_units
def test_of_the_selected_tokens_80_percent_are_masked_10_random_10_kept(units: tuple[str, ...]) -> None:
    text = document([20] * 5000)
    ids, labels = inner(masked(text, units=units))
    selected = labels != IGNORE
    total = int(selected.sum())
    # One draw decides for a unit of about 1.5 tokens, so deviations are larger than for single tokens.
    assert within(int((ids[selected] == TOKENIZER.mask_id).sum()), total, 0.8, deviations=8)
    assert within(int((ids[selected] == labels[selected]).sum()), total, 0.1, deviations=8)


def test_the_shares_are_configurable() -> None:
    ids, labels = inner(masked(document([20] * 3000), mask_rate=0.4, mask_replace_prob=0.0, random_replace_prob=1.0))
    selected = labels != IGNORE
    assert within(int(selected.sum()), len(ids), 0.4)
    assert not (ids == TOKENIZER.mask_id).any()
    replaced = ids[selected]
    assert (replaced == labels[selected]).mean() < 0.005  # one in a thousand by chance
    assert not np.isin(replaced, list(TOKENIZER.special_ids)).any()
    assert len(np.unique(replaced)) > 900  # of 995 ordinary tokens


@pytest.mark.parametrize(("mask", "random"), [(0.5, 0.2), (0.2, 0.7), (0.0, 0.0)])
def test_the_probabilities_of_replacements_are_configurable(mask: float, random: float) -> None:
    ids, labels = inner(
        masked(
            document([20] * 400), units=("token",), mask_rate=0.4, mask_replace_prob=mask, random_replace_prob=random
        )
    )
    selected = labels != IGNORE
    total, same = int(selected.sum()), int((ids[selected] == labels[selected]).sum())
    assert within(int((ids[selected] == TOKENIZER.mask_id).sum()), total, mask)
    assert within(same, total, 1 - mask - random + random / len(TOKENIZER.ordinary_ids))


def test_labels_are_the_original_tokens_and_all_others_are_unchanged() -> None:
    text = document([20] * 50)
    ids, labels = inner(masked(text))
    selected = labels != IGNORE
    assert labels[selected].tolist() == text.ids[selected].tolist()
    assert ids[~selected].tolist() == text.ids[~selected].tolist()


def test_with_mask_1_every_selected_token_is_masked() -> None:
    ids, labels = inner(masked(document([20] * 500), mask_replace_prob=1.0, random_replace_prob=0.0))
    assert (ids[labels != IGNORE] == TOKENIZER.mask_id).all()


def test_for_evaluation_every_selected_token_is_masked() -> None:
    task = KnowledgeMasking(units=("token",), mask_rate=0.3, max_len=22)
    rng = np.random.default_rng(0)
    ids, labels = inner(list(task.measured.samples([document([20] * 500)], TOKENIZER, rng)))
    assert (ids[labels != IGNORE] == TOKENIZER.mask_id).all()
    assert within(int((labels != IGNORE).sum()), labels.size, 0.3, deviations=8)


@given(st.sampled_from(UNITS), st.integers(min_value=0, max_value=10**6))
def test_a_unit_is_selected_and_replaced_as_a_whole_or_not_at_all(units: tuple[str, ...], seed: int) -> None:
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


def test_every_sample_has_a_target_even_with_one_token() -> None:
    for length in range(1, 8):
        for seed in range(20):
            (sample,) = masked(document([length], seed=seed), seed)
            assert (np.asarray(sample.labels["label"]) != IGNORE).any()


@every_set_of_units
def test_special_and_unknown_tokens_are_never_targets(units: tuple[str, ...]) -> None:
    text = document([14] * 300)
    special = np.random.default_rng(1).random(len(text.ids)) < 0.1
    text.ids[special] = np.random.default_rng(2).choice(sorted(TOKENIZER.special_ids), size=int(special.sum()))
    ids, labels = inner(masked(text, units=units, max_len=64))
    assert not np.isin(labels, sorted(TOKENIZER.special_ids)).any()
    assert (labels != IGNORE).mean() > 0.05
    np.testing.assert_array_equal(ids[special], text.ids[special])


def test_a_text_of_only_unknown_tokens_gives_no_sample() -> None:
    text = document([5])
    text.ids[:] = TOKENIZER.unk_id
    assert masked(text) == []


def test_every_token_is_equally_likely_to_be_selected() -> None:
    text = document([60], seed=3)
    counts = sum(
        (inner(masked(text, seed, units=("token",)))[1] != IGNORE).astype(int)  # type: ignore[misc]
        for seed in range(2000)
    )
    assert all(within(int(count), 2000, 0.15) for count in counts)  # type: ignore[union-attr]


def test_the_head_bias_is_initialized_to_smoothed_token_frequencies() -> None:
    texts = [document([30], seed=seed, vocab_size=12) for seed in range(9)]
    counts = np.bincount(np.concatenate([text.ids for text in texts]), minlength=20) + 1
    received: list[np.ndarray] = []
    head = SimpleNamespace(bias=np.zeros(20), initialize_bias=received.append)
    KnowledgeMasking().initialize(head, texts)  # type: ignore[arg-type]
    np.testing.assert_allclose(received, [counts / counts.sum()])


_SUM = "mask_replace_prob and random_replace_prob: expected probabilities of at most 1 in sum, found 0.8 + 0.3"


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"units": ()}, "units: name at least one"),
        ({"mask_rate": 0.0}, "mask_rate: expected a number between 0 and 1, found 0.0"),
        ({"mask_rate": 1.0}, "mask_rate: expected a number between 0 and 1"),
        (
            {"mask_replace_prob": 0.8, "random_replace_prob": 0.3},
            _SUM,
        ),
        ({"mask_replace_prob": -0.1}, "mask_replace_prob and random_replace_prob: expected"),
    ],
)
def test_impossible_rates_raise_an_error(fields: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        KnowledgeMasking(**fields)
    assert str(caught.value).startswith(message)
