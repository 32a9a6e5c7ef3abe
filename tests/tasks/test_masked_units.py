"""The choice of masked units: a rate that changes as the run goes on, and rare words that are chosen more often."""

from __future__ import annotations

import pickle
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from support.helpers import document, numbered

from ernie.data.batch import Packed, pack
from ernie.data.document import Document
from ernie.errors import UserError
from tasks.masked_units import MaskedUnits
from tasks.pretraining.knowledge_masking import KnowledgeMasking
from tasks.pretraining.replaced_token_detection import ReplacedTokenDetection

TOKENIZER = numbered()
TEXT = document([14] * 1000)


def batch_of(task: MaskedUnits, text: Document = TEXT, seed: int = 0) -> Packed:
    return pack(list(task.samples([text], TOKENIZER, np.random.default_rng(seed))))


def masked(batch: Packed) -> np.ndarray:
    """The positions of what is masked or replaced."""
    positions = batch.labels["label"].positions
    assert positions is not None
    return positions


def replaced(batch: Packed) -> np.ndarray:
    values, positions = batch.labels["label"]
    assert positions is not None
    return positions[values == 1]


def test_a_rate_goes_from_the_initial_one_to_the_final_one() -> None:
    task = KnowledgeMasking(initial_mask_rate=0.3, mask_rate=0.15)
    batch = batch_of(task)
    for progress, rate in ((0.0, 0.3), (0.5, 0.225), (1.0, 0.15)):
        found = len(masked(task.at(batch, progress))) / len(TEXT.ids)
        assert found == pytest.approx(rate, rel=0.04)


def test_a_rate_may_also_rise() -> None:
    task = KnowledgeMasking(initial_mask_rate=0.1, mask_rate=0.4)
    batch = batch_of(task)
    found = [len(masked(task.at(batch, progress))) / len(TEXT.ids) for progress in (0.0, 1.0)]
    assert found == pytest.approx([0.1, 0.4], rel=0.04)


def test_a_falling_rate_shows_the_original_tokens_of_whole_units_and_keeps_the_others() -> None:
    task = KnowledgeMasking(initial_mask_rate=0.5, mask_rate=0.1, units=("word",))
    batch = batch_of(task)
    later = task.at(batch, 0.8)
    originals = np.full(len(batch.ids), -1)
    originals[masked(batch)] = batch.labels["label"].values
    kept = np.isin(masked(batch), masked(later))
    assert 0 < kept.sum() < len(kept)
    assert set(masked(later)) <= set(masked(batch))
    shown = masked(batch)[~kept]
    assert (later.ids[shown] == originals[shown]).all()
    others = np.setdiff1d(np.arange(len(batch.ids)), shown)
    assert (later.ids[others] == batch.ids[others]).all()
    starts = [sample[0] for sample in np.split(np.arange(len(batch.ids)), batch.layout.offsets[1:-1])]
    is_masked = np.zeros(len(batch.ids), bool)
    is_masked[masked(later)] = True
    inner = np.setdiff1d(np.arange(len(batch.ids)), [*starts, *(batch.layout.offsets[1:] - 1)])
    continues = (TEXT.flags & 1) != 0  # Flag.CONTINUES_WORD
    for token, at in zip(np.flatnonzero(continues), inner[continues], strict=True):
        if token and at - 1 in inner:
            assert is_masked[at] == is_masked[at - 1]


def test_every_sample_keeps_a_target_at_any_rate() -> None:
    task = KnowledgeMasking(initial_mask_rate=0.9, mask_rate=0.001, max_len=10)
    batch = task.at(batch_of(task), 1.0)
    assert set(batch.layout.sequences_of(masked(batch))) == set(range(batch.layout.sequences))


def test_in_replaced_token_detection_fewer_tokens_are_replaced_and_all_keep_a_label() -> None:
    task = ReplacedTokenDetection(initial_mask_rate=0.3, mask_rate=0.15)
    batch = batch_of(task)
    later = task.at(batch, 1.0)
    assert len(replaced(batch)) / len(TEXT.ids) == pytest.approx(0.3, rel=0.04)
    assert len(replaced(later)) / len(TEXT.ids) == pytest.approx(0.15, rel=0.04)
    assert set(replaced(later)) < set(replaced(batch))
    assert later.targets == batch.targets
    assert (later.ids == batch.ids).all()


def words(counts: Sequence[int]) -> Document:
    """A text of single-token words with so many occurrences of w5, w6, ..."""
    ids = np.repeat(np.arange(5, 5 + len(counts)), counts)
    return replace(document([len(ids)]), ids=ids, flags=np.zeros(len(ids), np.uint8))


def test_units_are_drawn_by_the_frequency_to_the_power_of_minus_rarity() -> None:
    corpus, text = [words([900, 90, 10])], words([1, 1, 1])
    task = KnowledgeMasking(
        units=("token",), mask_rate=0.01, mask_replace_prob=0.0, random_replace_prob=0.0, rarity=0.5
    )
    fitted = task.fitted(corpus, TOKENIZER)
    drawn = [batch_of(fitted, text, seed).labels["label"].values for seed in range(3000)]
    found = np.bincount(np.concatenate(drawn) - 5, minlength=3)
    weights = np.array([901, 91, 11]) ** -0.5  # with add-one smoothing
    expected = 3000 * weights / weights.sum()
    assert ((found - expected) ** 2 / expected).sum() < 16  # chi-squared of 2 degrees: 1 in 3,000 exceeds it


def test_rarity_keeps_the_rate_and_is_the_mean_over_the_tokens_of_a_unit() -> None:
    task = KnowledgeMasking(rarity=0.5).fitted([words([900, 90, 10]), TEXT], TOKENIZER)
    assert len(masked(batch_of(task))) / len(TEXT.ids) == pytest.approx(0.15, rel=0.04)


def test_a_fitted_task_is_the_same_in_another_process() -> None:
    task = KnowledgeMasking(rarity=0.5).fitted([words([900, 90, 10])], TOKENIZER)
    copied = pickle.loads(pickle.dumps(task))
    assert (batch_of(copied).ids == batch_of(task).ids).all()
    assert (batch_of(KnowledgeMasking()).ids != batch_of(task).ids).any()


@pytest.mark.parametrize("kind", [KnowledgeMasking, ReplacedTokenDetection])
def test_held_out_text_is_measured_without_either(kind: type[MaskedUnits]) -> None:
    task = kind(initial_mask_rate=0.3, rarity=0.5)
    assert task.measured == kind().measured


@pytest.mark.parametrize("fields", [{"initial_mask_rate": 1.0}, {"rarity": -0.1}, {"rarity": 1.5}])
def test_fields_out_of_range_are_rejected(fields: dict[str, float]) -> None:
    with pytest.raises(UserError, match=next(iter(fields))):
        KnowledgeMasking(**fields)  # type: ignore[arg-type]
