"""A reading of a tensor: it finds what is not finite, and tells another tensor from rounding."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.replay.layers import layer_of, layers
from ernie.replay.reading import Place, Reading, elements, first_difference, first_wrong, flipped_bit

PLACE = Place("output", "ernie.encoder.layers.0", 1)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def test_a_reading_has_the_sizes_of_the_finite_values_and_the_place_of_the_first_other() -> None:
    values = normal(30, 40)
    finite = Reading.of(PLACE, values)
    assert finite.norm == pytest.approx(np.linalg.norm(values.astype(np.float64)))
    assert finite.largest == np.abs(values).max()
    assert (finite.not_finite, finite.first) == (0, ())
    values[7, 3], values[9, 0], values[11, 1] = np.nan, np.inf, 0
    bad = Reading.of(PLACE, values)
    assert (bad.not_finite, bad.first) == (2, (7, 3))
    assert math.isfinite(bad.norm) and bad.norm < finite.norm
    assert bad.wrong() == "2 of 1,200 values not finite, the first at [7, 3]"
    assert first_wrong([finite, bad, finite]) is bad
    assert first_wrong([finite]) is None


@given(st.integers(0, 200), st.integers(0, 31), st.integers(0, 10**6))
def test_one_flipped_bit_is_another_tensor_and_is_named(size: int, bit: int, seed: int) -> None:
    values = normal(size + 1, seed=seed)
    other = values.copy()
    at = seed % len(other)
    other.view(np.uint32)[at] ^= np.uint32(1 << bit)
    one, two = Reading.of(PLACE, values), Reading.of(PLACE, other)
    assert one.digest != two.digest
    assert one.difference(one) == 0
    found = first_difference([one], [two])
    assert found is not None and found.one is one and found.other is two
    if np.isfinite(other[at]):
        assert elements(values, other).endswith(f"bit {bit} is flipped")
        assert flipped_bit(float(values[at]), float(other[at])) == bit


def test_rounding_is_told_from_a_difference() -> None:
    values = normal(64, 64)
    rounded = values * (1 + 1e-7 * np.sign(normal(64, 64, seed=1)))
    changed = values.copy()
    changed[5, 5] += 3
    one, two, three = (Reading.of(PLACE, each.astype(np.float32)) for each in (values, rounded, changed))
    assert 0 < one.difference(two) < 1e-6
    assert one.difference(three) > 1e-3
    assert first_difference([one], [two]) is not None
    assert first_difference([one], [two], 1e-5) is None
    assert first_difference([one], [three], 1e-5) is not None
    assert one.difference(Reading.of(PLACE, values[:3])) == math.inf


def test_a_tensor_of_rounding_errors_differs_only_without_a_tolerance() -> None:
    pairs = [
        [Reading.of(Place("sum", f"w{n}"), scale * normal(9, seed=seed)) for n, scale in ((1, 1e-9), (2, 1))]
        for seed in (0, 1)
    ]
    for tolerance, name in ((0.0, "w1"), (1e-5, "w2")):
        found = first_difference(*pairs, tolerance)
        assert found is not None and found.one.place.name == name


def test_tensors_that_only_one_step_has_are_passed_over() -> None:
    one = [Reading.of(Place("operator", "q", 0), normal(3)), Reading.of(PLACE, normal(4))]
    assert first_difference(one, one[1:]) is None
    found = first_difference(one, [Reading.of(PLACE, normal(4, seed=1))])
    assert found is not None and found.one.place == PLACE


@pytest.mark.parametrize("shape", [(), (0,), (1,), (3, 5), (2, 3, 70)])
def test_a_reading_of_any_shape_is_read_back_from_json(shape: tuple[int, ...]) -> None:
    reading = Reading.of(PLACE, normal(*shape))
    assert Reading.from_dict(json.loads(json.dumps(reading.as_dict()))) == reading


def test_places_read_as_phrases() -> None:
    assert str(PLACE) == "the output of ernie.encoder.layers.0 in micro-batch 2"
    assert str(Place("sum", "heads.a.bias")) == "the gradient of heads.a.bias, summed over the micro-batches"


def test_readings_are_gathered_by_layer() -> None:
    kinds = [("weight", "ernie.encoder.layers.1.q.weight"), ("update", "ernie.encoder.layers.1.q.weight")]
    kinds += [("output", "ernie.encoder.layers.1"), ("weight", "heads.words.out.bias"), ("output", "heads.words")]
    found = layers([Reading.of(Place(kind, name), normal(4)) for kind, name in kinds])  # type: ignore[arg-type]
    assert [layer.name for layer in found] == ["ernie.encoder.layers.1", "heads.words"]
    assert found[0].ratio == pytest.approx(1) and math.isnan(found[1].ratio)
    assert layer_of("ernie.pooler.dense.weight") == "ernie.pooler"
    assert layer_of("head", is_layer=True) == "head"
