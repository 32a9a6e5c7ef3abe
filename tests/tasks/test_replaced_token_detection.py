"""Replaced-token detection: what is replaced by what, how it is labeled, and what the generator learns from."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import pytest
from paddle import Tensor
from support.helpers import document, numbered, perturbed

from ernie.data.batch import Packed, pack
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.generator import narrowed
from pretrain.model import MultiTaskModel
from tasks.pretraining.replaced_token_detection import ReplacedTokenDetection

TOKENIZER = numbered(60)
TEXT = document([14] * 300, vocab_size=60)
NAME = "replaced_token_detection"


def batch_of(task: ReplacedTokenDetection, most: int = 1000, epoch: int = 0) -> Packed:
    """A batch of samples of the text, named as in an epoch."""
    samples = list(task.samples([TEXT], TOKENIZER, np.random.default_rng(0)))[:most]
    return pack(samples, np.stack([np.full(len(samples), epoch), np.arange(len(samples)), np.zeros(len(samples))], 1))


def model_of(task: ReplacedTokenDetection) -> MultiTaskModel:
    paddle.seed(0)
    shape = EncoderConfig(60, 32, 2, 4, 64, dropout=0.0, attention_dropout=0.0, max_positions=128)
    ernie = ErnieModel(shape)
    ernie.tokenizer = TOKENIZER
    return MultiTaskModel(ernie, {NAME: task})


def replaced(model: MultiTaskModel, batch: Packed) -> tuple[Packed, list[np.ndarray]]:
    """The batch as the encoder sees it, and the ids that the generator saw."""
    seen: list[np.ndarray] = []

    def embed(given: Packed) -> Tensor:
        seen.append(given.ids)
        return model.ernie.embedding(given.ids, given.segments, given.layout.positions, 0)

    prepared, _ = model.tasks[NAME].prepare(model.heads[NAME], batch, embed)
    return prepared, seen


def chosen_in(batch: Packed) -> np.ndarray:
    labels = batch.labels["label"]
    assert labels.positions is not None
    return labels.positions[labels.values == 1]


def test_samples_are_the_original_text_with_the_tokens_to_replace_labeled() -> None:
    samples = list(ReplacedTokenDetection(mask_rate=0.3).samples([TEXT], TOKENIZER, np.random.default_rng(0)))
    assert (np.concatenate([sample.ids[1:-1] for sample in samples]) == TEXT.ids).all()
    labels = np.concatenate([np.asarray(sample.labels["label"])[1:-1] for sample in samples])
    assert set(labels.tolist()) == {0, 1}
    assert labels.mean() == pytest.approx(0.3, abs=0.01)


def test_only_chosen_tokens_are_replaced_and_a_sample_that_hits_the_original_is_labeled_original() -> None:
    task = ReplacedTokenDetection()
    model, batch = model_of(task), batch_of(task)
    words = model.heads[NAME].generator.words
    words.bias.set_value(paddle.to_tensor(np.where(np.arange(60) == 7, 50.0, 0.0).astype(np.float32)))
    found, _ = replaced(model, batch)
    chosen = chosen_in(batch)
    others = np.setdiff1d(np.arange(len(batch.ids)), chosen)
    assert (found.ids[chosen] == 7).all()
    assert (found.ids[others] == batch.ids[others]).all()
    labels = found.labels["label"]
    assert labels.positions is not None
    assert (labels.values == (found.ids != batch.ids)[labels.positions]).all()
    assert 0 < labels.values.sum() < len(chosen)  # some of them were 7 before
    assert found.targets == batch.targets


def test_replacements_are_drawn_from_the_generator_s_distribution() -> None:
    task = ReplacedTokenDetection(mask_rate=0.9)
    model, batch = model_of(task), batch_of(task)
    words = model.heads[NAME].generator.words
    frequencies = np.arange(1, 61) / np.arange(1, 61).sum()
    words.initialize_bias(frequencies)
    words.norm.weight.set_value(paddle.zeros_like(words.norm.weight))  # the logits are the bias
    found, _ = replaced(model, batch)
    drawn = found.ids[chosen_in(batch)]
    counts = np.bincount(drawn, minlength=60)
    expected = frequencies * len(drawn)
    assert ((counts - expected) ** 2 / expected).sum() < 100  # chi-squared of 59 degrees: 1 in 1,500 exceeds it


def test_chance_depends_on_the_names_of_the_samples_alone() -> None:
    task = ReplacedTokenDetection()
    model, batch, later = model_of(task), batch_of(task), batch_of(task, epoch=1)
    first, _ = replaced(model, batch)
    paddle.seed(5)
    assert (replaced(model, batch)[0].ids == first.ids).all()
    assert (later.ids == batch.ids).all()
    assert (replaced(model, later)[0].ids != first.ids).any()


def test_what_is_drawn_for_a_sample_does_not_depend_on_the_others_of_its_batch() -> None:
    task = ReplacedTokenDetection()
    model, batch = model_of(task), batch_of(task, most=6)
    together, _ = replaced(model, batch)
    samples = list(task.samples([TEXT], TOKENIZER, np.random.default_rng(0)))
    for n in range(6):
        alone, _ = replaced(model, pack([samples[n]], batch.samples[n : n + 1]))
        start, stop = batch.layout.offsets[n : n + 2]
        assert (alone.ids == together.ids[start:stop]).all()


def test_two_entries_that_share_a_head_hide_as_much_as_each_says_and_have_one_generator() -> None:
    first = ReplacedTokenDetection(mask_rate=0.5, mask_replace_prob=0.2)
    second = replace(first, mask_replace_prob=0.9, head_of=NAME)
    model, batch = model_of(first), batch_of(first)
    seen: list[np.ndarray] = []

    def embed(given: Packed) -> Tensor:
        seen.append(given.ids)
        return model.ernie.embedding(given.ids, given.segments, given.layout.positions, 0)

    for task in (first, second):
        task.prepare(model.heads[NAME], batch, embed)
    hidden = [(ids[chosen_in(batch)] == TOKENIZER.mask_id).mean() for ids in seen]
    assert hidden == pytest.approx([0.2, 0.9], abs=0.04)


@pytest.mark.parametrize("share", [0.85, 0.4, 1.0])
def test_a_share_of_the_chosen_tokens_is_hidden_from_the_generator(share: float) -> None:
    task = ReplacedTokenDetection(mask_rate=0.5, mask_replace_prob=share)
    batch = batch_of(task)
    _, [seen] = replaced(model_of(task), batch)
    chosen = chosen_in(batch)
    hidden = seen[chosen] == TOKENIZER.mask_id
    assert hidden.mean() == pytest.approx(share, abs=0.04)
    assert (seen[chosen][~hidden] == batch.ids[chosen][~hidden]).all()
    assert (np.delete(seen, chosen) == np.delete(batch.ids, chosen)).all()


def test_the_loss_is_the_classifier_s_plus_the_generator_s_divided_by_the_weight() -> None:
    task = ReplacedTokenDetection(weight=5.0, mask_replace_prob=1.0)
    model, batch = model_of(task), batch_of(task, most=4)
    perturbed(model)
    total, count = (loss := model.loss(NAME, batch)).total, loss.count
    prepared, [masked] = replaced(model, batch)
    hidden_TD = model.ernie.encode_packed(prepared, 0)
    labels, chosen = prepared.labels["label"], chosen_in(batch)
    classifier = cross_entropy(model.heads[NAME](hidden_TD, labels.positions), labels.values)
    generator = model.heads[NAME].generator
    x = generator.project(model.ernie.embedding(masked, batch.segments, batch.layout.positions, 0))
    for layer in generator.layers:
        x = layer(x, batch.layout)
    words = cross_entropy(generator.words(x, chosen), batch.ids[chosen])
    assert float(total) / count == pytest.approx(classifier.mean() + words.mean() / 5.0, rel=1e-4)


def cross_entropy(logits: Tensor, labels: np.ndarray) -> np.ndarray:
    """The cross entropy of each label, in float64."""
    values = logits.numpy().astype(np.float64)
    return np.log(np.exp(values).sum(1)) - values[np.arange(len(labels)), labels]


def test_the_generator_shares_the_encoder_s_embeddings_and_the_classifier_teaches_it_nothing() -> None:
    task = ReplacedTokenDetection()
    model, batch = model_of(task), batch_of(task, most=4)
    head = model.heads[NAME]
    names = [name for name, _ in head.named_parameters()]
    assert not [name for name in names if "embedding" in name]
    prepared, added = task.prepare(
        head, batch, lambda given: model.ernie.embedding(given.ids, given.segments, given.layout.positions, 0)
    )
    hidden_TD = model.ernie.encode_packed(prepared, 0)
    task.loss(head, hidden_TD, prepared).total.backward()
    assert all(parameter.grad is None for parameter in head.generator.parameters())
    model.clear_gradients()
    assert added is not None
    added.backward()
    assert float(model.ernie.embedding.token.weight.grad.abs().sum()) > 0
    assert float(model.ernie.encoder.layers[0].q.weight.grad.abs().sum()) == 0


def test_a_generator_has_whole_heads_of_the_encoder_s_width() -> None:
    shape = EncoderConfig(hidden_size=512, heads=8, intermediate_size=2048, layers=4)
    narrow = narrowed(shape, 0.25)
    assert (narrow.hidden_size, narrow.heads, narrow.intermediate_size, narrow.layers) == (128, 2, 512, 4)
    assert narrowed(shape, 0.01).heads == 1
    assert narrowed(shape, 1.0) == shape


@pytest.mark.parametrize("fields", [{"generator_width": 0.0}, {"weight": 0.0}, {"mask_replace_prob": 1.1}])
def test_fields_out_of_range_are_rejected(fields: dict[str, Any]) -> None:
    with pytest.raises(UserError, match=next(iter(fields))):
        replace(ReplacedTokenDetection(), **fields)
