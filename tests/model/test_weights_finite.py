"""Weights that are not finite are never saved."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import paddle
import pytest
from support.toys import tiny_encoder

from ernie.errors import NotFinite
from ernie.model.weights import save_arrays


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
def test_an_array_that_is_not_finite_is_not_written(value: float, dtype: type, tmp_path: Path) -> None:
    good = {"layer.weight": np.ones((3, 4), dtype), "layer.steps": np.array([7])}
    save_arrays(good, tmp_path / "good.safetensors")
    broken = {**good, "layer.bias": np.array([1, value], dtype)}
    with pytest.raises(NotFinite, match=r"'layer\.bias' holds values that are not finite"):
        save_arrays(broken, tmp_path / "broken.safetensors")
    assert [path.name for path in tmp_path.iterdir()] == ["good.safetensors"]


def test_a_model_that_broke_leaves_the_one_that_was_saved_before(tmp_path: Path) -> None:
    model = tiny_encoder()
    model.save_pretrained(tmp_path / "model")
    before = {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.is_file()}
    weight = model.parameters()[0]
    weight.set_value(paddle.full_like(weight, float("nan")))
    with pytest.raises(NotFinite):
        model.save_pretrained(tmp_path / "model")
    assert {path.name: path.read_bytes() for path in (tmp_path / "model").iterdir() if path.is_file()} == before
