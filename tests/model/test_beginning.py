"""What a fresh encoder begins with: heads of its first layer look at the tokens before and behind each one."""

from __future__ import annotations

import math

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie import ErnieModel
from ernie.model.beginning import begin_positions, initialize, neighbours
from ernie.model.config import PRESETS, EncoderConfig

TOKENS = 50
shapes = st.builds(
    lambda heads, width, tasks: EncoderConfig(
        vocab_size=200,
        hidden_size=heads * width,
        heads=heads,
        layers=2,
        intermediate_size=32,
        max_positions=300,
        task_vocab_size=tasks,
        initializer_range=0.02 * math.sqrt(768 / (heads * width)),
    ),
    heads=st.integers(1, 6),
    width=st.integers(32, 70),
    tasks=st.sampled_from([0, 4]),
)


def looked_at(model: ErnieModel, head: int, first: int = 0, task: int = 0, layer: int = 0) -> np.ndarray:
    """How much each of some tokens that have nothing in common looks at each other, (T, T), at these positions."""
    model.eval()
    ids = np.random.default_rng(first).integers(model.config.vocab_size, size=TOKENS)
    x_TD = model.embedding(ids, np.zeros(TOKENS, np.int64), first + np.arange(TOKENS), task).numpy()
    weights, width = model.encoder.layers[layer], model.config.hidden_size // model.config.heads
    of_head = slice(head * width, (head + 1) * width)
    q, k = ((x_TD @ one.weight.numpy())[:, of_head] for one in (weights.q, weights.k))
    scores = np.exp(q @ k.T / math.sqrt(width))
    return scores / scores.sum(1, keepdims=True)


def at(seen: np.ndarray, distance: int) -> float:
    """How much a token looks at the one so far behind it, in the mean of those that have one."""
    return float(np.diagonal(seen, distance).mean())


@settings(max_examples=30, deadline=None)
@given(shape=shapes, first=st.integers(0, 250), seed=st.integers(0, 1000))
def test_each_of_the_first_heads_looks_most_at_one_neighbour(shape: EncoderConfig, first: int, seed: int) -> None:
    paddle.seed(seed)
    model = ErnieModel(shape)
    for head, distance in enumerate(neighbours(shape.heads)):
        seen = looked_at(model, head, first)
        means = {other: at(seen, other) for other in range(-20, 21)}
        assert max(means, key=lambda one: means[one]) == distance
        assert sum(at(seen, distance + near) for near in (-2, -1, 0, 1, 2)) > 0.6


@pytest.mark.parametrize("name", ["tiny", "mini", "small", "base"])
def test_the_presets_look_at_a_neighbour_and_hardly_past_the_next(name: str) -> None:
    paddle.seed(0)
    model = ErnieModel(EncoderConfig(**{**vars(PRESETS[name]), "vocab_size": 500, "layers": 1}))
    for head, distance in enumerate(neighbours(model.config.heads)):
        seen = looked_at(model, head, first=40)
        assert at(seen, distance) > 0.3
        assert at(seen, distance - 1) + at(seen, distance) + at(seen, distance + 1) > 0.75


@pytest.mark.parametrize("task", range(4))
def test_a_token_looks_near_its_neighbour_whatever_it_is_and_whatever_the_task(task: int) -> None:
    paddle.seed(task)
    model = ErnieModel(EncoderConfig(**{**vars(PRESETS["mini"]), "vocab_size": 500, "layers": 1}))
    for head, distance in enumerate(neighbours(model.config.heads)):
        away = looked_at(model, head, task=task).argmax(1) - (np.arange(TOKENS) + distance)
        assert np.abs(away[2:-2]).max() <= 1  # the others have no such neighbour


def test_the_other_heads_and_layers_begin_by_chance() -> None:
    paddle.seed(0)
    shape = EncoderConfig(**{**vars(PRESETS["small"]), "vocab_size": 500, "layers": 2})
    model = ErnieModel(shape)
    for layer, head in ((0, len(neighbours(shape.heads))), (1, 0)):
        seen = looked_at(model, head, layer=layer)
        assert max(at(seen, distance) for distance in range(-5, 6)) < 3 / TOKENS


def test_weights_that_are_drawn_by_chance_find_no_neighbours() -> None:
    paddle.seed(0)
    model = ErnieModel(EncoderConfig(**{**vars(PRESETS["mini"]), "vocab_size": 500, "layers": 1}))
    initialize(model, model.config.initializer_range)
    begin_positions(model)
    seen = looked_at(model, 0)
    assert max(at(seen, distance) for distance in range(-5, 6)) < 3 / TOKENS
