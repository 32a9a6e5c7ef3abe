"""Initial attention: heads of the first layer attend to each token's neighbors, and to equal tokens."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie import ErnieModel
from ernie.model.config import PRESETS, EncoderConfig
from ernie.model.initialization import initialize, initialize_positions, neighbor_offsets

TOKENS = 50


def shapes(fewest: int) -> st.SearchStrategy[EncoderConfig]:
    """Encoders with at least so many heads."""
    return st.builds(shape, heads=st.integers(fewest, 6), width=st.integers(32, 70), tasks=st.sampled_from([0, 4]))


def shape(heads: int, width: int, tasks: int) -> EncoderConfig:
    return EncoderConfig(
        vocab_size=200,
        hidden_size=heads * width,
        heads=heads,
        layers=2,
        intermediate_size=32,
        max_positions=300,
        task_vocab_size=tasks,
        initializer_range=0.02 * math.sqrt(768 / (heads * width)),
    )


def attention_by_position(model: ErnieModel, head: int, first: int = 0, task: int = 0, layer: int = 0) -> np.ndarray:
    """The attention of random distinct tokens to each other, (T, T), from this first position on."""
    ids = np.random.default_rng(first).integers(model.config.vocab_size, size=TOKENS)
    return attention(model, head, ids, np.zeros(TOKENS, np.int64), first, task, layer)


def attention(
    model: ErnieModel, head: int, ids: np.ndarray, segments: np.ndarray, first: int = 0, task: int = 0, layer: int = 0
) -> np.ndarray:
    """The attention of these tokens to each other, (T, T)."""
    model.eval()
    x_TD = model.embedding(ids, segments, first + np.arange(len(ids)), task).numpy()
    weights, width = model.encoder.layers[layer], model.config.hidden_size // model.config.heads
    of_head = slice(head * width, (head + 1) * width)
    q, k = ((x_TD @ projection.weight.numpy())[:, of_head] for projection in (weights.q, weights.k))
    scores = np.exp(q @ k.T / math.sqrt(width))
    return scores / scores.sum(1, keepdims=True)


def mean_at(seen: np.ndarray, distance: int) -> float:
    """The attention of a token to the one at this distance after it, on average."""
    return float(np.diagonal(seen, distance).mean())


@settings(max_examples=30, deadline=None)
@given(shape=shapes(1), first=st.integers(0, 250), seed=st.integers(0, 1000))
def test_each_of_the_first_heads_attends_most_to_one_neighbor(shape: EncoderConfig, first: int, seed: int) -> None:
    paddle.seed(seed)
    model = ErnieModel(shape)
    for head, distance in enumerate(neighbor_offsets(shape.heads)):
        seen = attention_by_position(model, head, first)
        means = {other: mean_at(seen, other) for other in range(-20, 21)}
        assert max(means, key=lambda offset: means[offset]) == distance
        assert sum(mean_at(seen, distance + near) for near in (-2, -1, 0, 1, 2)) > 0.6


@pytest.mark.parametrize("name", ["tiny", "mini", "small", "base"])
def test_presets_attend_to_a_neighbor_and_hardly_beyond_the_next_one(name: str) -> None:
    paddle.seed(0)
    model = ErnieModel(EncoderConfig(**{**vars(PRESETS[name]), "vocab_size": 500, "layers": 1}))
    for head, distance in enumerate(neighbor_offsets(model.config.heads)):
        seen = attention_by_position(model, head, first=40)
        assert mean_at(seen, distance) > 0.3
        assert mean_at(seen, distance - 1) + mean_at(seen, distance) + mean_at(seen, distance + 1) > 0.75


@pytest.mark.parametrize("task", range(4))
def test_every_token_attends_near_its_neighbor_for_every_task(task: int) -> None:
    paddle.seed(task)
    model = ErnieModel(EncoderConfig(**{**vars(PRESETS["mini"]), "vocab_size": 500, "layers": 1}))
    for head, distance in enumerate(neighbor_offsets(model.config.heads)):
        away = attention_by_position(model, head, task=task).argmax(1) - (np.arange(TOKENS) + distance)
        assert np.abs(away[2:-2]).max() <= 1  # the others have no such neighbor


def test_the_other_heads_and_layers_start_randomly() -> None:
    paddle.seed(0)
    config = EncoderConfig(**{**vars(PRESETS["small"]), "vocab_size": 500, "layers": 2})
    model = ErnieModel(config)
    for layer, head in ((0, len(neighbor_offsets(config.heads)) + 1), (0, config.heads - 1), (1, 0)):
        seen = attention_by_position(model, head, layer=layer)
        assert max(mean_at(seen, distance) for distance in range(-5, 6)) < 3 / TOKENS


def test_random_weights_attend_to_no_neighbor() -> None:
    paddle.seed(0)
    model = ErnieModel(EncoderConfig(**{**vars(PRESETS["mini"]), "vocab_size": 500, "layers": 1}))
    initialize(model, model.config.initializer_range)
    initialize_positions(model)
    seen = attention_by_position(model, 0)
    assert max(mean_at(seen, distance) for distance in range(-5, 6)) < 3 / TOKENS


def pair(vocabulary: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Two segments of 25 tokens each that share 10 tokens in another order: ids and segments, both (50,)."""
    rng = np.random.default_rng(seed)
    ids = rng.permutation(vocabulary)[:40]
    return np.concatenate([ids[:25], rng.permutation(ids[15:])]), np.repeat([0, 1], 25)


@settings(max_examples=30, deadline=None)
@given(config=shapes(3), first=st.integers(0, 250), seed=st.integers(0, 1000))
def test_the_next_head_attends_most_to_equal_tokens(config: EncoderConfig, first: int, seed: int) -> None:
    paddle.seed(seed)
    ids, segments = pair(config.vocab_size, seed)
    seen = attention(ErnieModel(config), len(neighbor_offsets(config.heads)), ids, segments, first)
    same = ids == ids[:, None]
    assert seen[same].mean() > 10 * seen[~same].mean()


@pytest.mark.parametrize("name", ["mini", "small", "base"])
def test_a_token_attends_to_its_copy_in_the_other_segment_as_much_as_to_itself(name: str) -> None:
    paddle.seed(0)
    config = EncoderConfig(**{**vars(PRESETS[name]), "vocab_size": 500, "layers": 1})
    ids, segments = pair(500, 0)
    seen = attention(ErnieModel(config), len(neighbor_offsets(config.heads)), ids, segments, first=40, task=3)
    of_the_other = (seen * (segments != segments[:, None])).sum(1)
    shared = (ids == ids[:, None]).sum(1) == 2
    assert of_the_other[shared].mean() == pytest.approx(0.5, abs=0.05)
    assert of_the_other[~shared].max() < 0.2


def test_at_least_one_head_starts_randomly() -> None:
    paddle.seed(0)
    config = EncoderConfig(**{**vars(PRESETS["tiny"]), "vocab_size": 500, "layers": 1})
    ids, segments = pair(500, 0)
    seen = attention(ErnieModel(config), 1, ids, segments)
    assert seen.max() < 3 / TOKENS
