"""Encoder shapes: published presets, files, and invalid values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ernie.errors import UserError
from ernie.model.config import PRESETS, EncoderConfig


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_read_back_from_its_file(name: str, tmp_path: Path) -> None:
    config = EncoderConfig.preset(name)
    config.write(tmp_path / "config.json")
    assert EncoderConfig.read(tmp_path / "config.json") == config


@pytest.mark.parametrize(
    ("name", "millions"), [("bert-base", 109.5), ("bert-large", 335.1), ("ernie-1.0-base-zh", 99.9)]
)
def test_published_shapes_have_the_published_number_of_weights(name: str, millions: float) -> None:
    """Counted from the shape alone: BERT's paper says 110 and 340 million."""
    c = EncoderConfig.preset(name)
    D, F = c.hidden_size, c.intermediate_size
    embeddings = (c.vocab_size + c.max_positions + c.segments + c.task_vocab_size) * D + 2 * D
    layer = 4 * (D * D + D) + (D * F + F) + (F * D + D) + 4 * D
    assert (embeddings + c.layers * layer + D * D + D) / 1e6 == pytest.approx(millions, abs=0.1)


def test_a_model_has_the_weights_of_its_configuration() -> None:
    from ernie import ErnieModel

    c = EncoderConfig.preset("tiny")
    D, F = c.hidden_size, c.intermediate_size
    found = {name: list(p.shape) for name, p in ErnieModel(c).named_parameters()}
    assert found["embedding.token.weight"] == [c.vocab_size, D]
    assert found["encoder.layers.1.inner.weight"] == [D, F]
    embeddings = (c.vocab_size + c.max_positions + c.segments + c.task_vocab_size) * D + 2 * D
    layer = 4 * (D * D + D) + (D * F + F) + (F * D + D) + 4 * D
    assert sum(int(np.prod(shape)) for shape in found.values()) == embeddings + c.layers * layer + D * D + D


@pytest.mark.parametrize("layers", [10**9, 10**400], ids=["many", "beyond-floats"])
def test_more_layers_than_any_memory_holds_are_refused_with_the_arithmetic(layers: int) -> None:
    with pytest.raises(UserError, match=r"^layers: 1[\d,]* of width 64, with 500 tokens, are \d[\d,]* TB of weights"):
        EncoderConfig(500, 64, layers, 2, 128)


@pytest.mark.parametrize("name", ["vocab_size", "max_positions", "task_vocab_size"])
def test_sizes_beyond_the_limit_raise_a_user_error(name: str) -> None:
    with pytest.raises(UserError, match=f"{name}: expected at most 2147483647, found 10000000000000"):
        EncoderConfig(**{name: 10**13})


def test_initial_weights_are_truncated_normal_and_biases_zero() -> None:
    import paddle

    from ernie import ErnieModel

    paddle.seed(0)
    for name, parameter in ErnieModel(EncoderConfig(500, 64, 1, 2, 128)).named_parameters():
        values = parameter.numpy()
        if "position" in name:  # sinusoids
            assert values.std() == pytest.approx(0.02, rel=0.15)
        elif values.ndim > 1:
            if ".q." in name or ".k." in name:
                values = values[:, 32:]  # the other head attends to a neighbor: tests/model/test_initialization.py
            nonzero = values[values != 0]  # without the dimensions reserved for positions
            assert np.abs(nonzero).max() <= 0.04 + 1e-6
            assert nonzero.std() == pytest.approx(0.0176, rel=0.15)  # 0.02 cut off at two deviations
        else:
            assert (values == (1.0 if name.endswith("norm.weight") else 0.0)).all()


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"hidden_size": 100, "heads": 3}, "hidden_size 100 is not divisible by heads 3"),
        ({"layers": 0}, "layers: expected at least 1, found 0"),
        ({"heads": 0}, "heads: expected at least 1, found 0"),
        ({"dropout": 1.0}, "dropout: expected a probability from 0 to below 1, found 1.0"),
        ({"task_vocab_size": -1}, "task_vocab_size: expected at least 0, found -1"),
        ({"activation": "silu"}, "activation: expected one of gelu, relu, found 'silu'"),
    ],
)
def test_invalid_values_raise_a_user_error(fields: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        EncoderConfig(**fields)
    assert str(caught.value).startswith(message)


def test_an_unknown_preset_raises_an_error_that_suggests_the_nearest() -> None:
    with pytest.raises(UserError, match=r"there is no encoder preset 'bert_base'. Did you mean 'bert-base'\?"):
        EncoderConfig.preset("bert_base")
