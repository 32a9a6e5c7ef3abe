"""The parts of figures: curves of any length, labels that do not overlap, numbers in words."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from ernie.formatting import amount, compact, duration, exact, percent, power
from ernie.report.curve import binned, smoothed
from ernie.report.panels import apart, logarithmic, panels, shortened, style, text_width

VALUES = arrays(float, st.integers(1, 3000), elements=st.floats(-1e3, 1e3))


@given(VALUES)
def test_binning_keeps_every_extreme_in_few_points(values: np.ndarray) -> None:
    middle, low, high = binned(np.arange(len(values)), values)
    assert len(middle) == len(low) == len(high) <= 400
    assert (low.min(), high.max()) == (values.min(), values.max())
    assert (np.diff(middle) > 0).all()


def test_binning_keeps_a_short_curve() -> None:
    values = np.array([3.0, 1.0, 2.0])
    for side in binned(np.arange(3), values)[1:]:
        assert side.tolist() == values.tolist()


@given(VALUES, st.integers(0, 200))
def test_smoothing_stays_within_the_values(values: np.ndarray, window: int) -> None:
    smooth = smoothed(values, window)
    assert len(smooth) == len(values)
    assert smooth.min() >= values.min() - 1e-6
    assert smooth.max() <= values.max() + 1e-6


@settings(max_examples=30, deadline=None)
@given(st.floats(1e-6, 1e6), st.floats(10.0, 1e9))
def test_a_logarithmic_axis_has_two_plain_numbers_or_more(least: float, ratio: float) -> None:
    values = np.array([least, least * ratio])
    with style():
        figure, (axes,) = panels(["norm"], 1.25)
        axes.plot([0, 1], values)
        assert logarithmic(axes, values)
        figure.canvas.draw()
    low, high = axes.get_ylim()
    shown = [text.get_text() for text in axes.get_yticklabels() if low <= text.get_position()[1] <= high]
    assert len(shown) >= 2 and [float(text) for text in shown] == sorted(map(float, shown))
    assert not any(text.get_text() for text in axes.get_yticklabels(minor=True))


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 4.5], [0.0, 100.0], [-1.0, 5.0]])
def test_an_axis_with_small_ratios_or_zeros_stays_linear(values: list[float]) -> None:
    with style():
        _, (axes,) = panels(["norm"], 1.25)
        assert not logarithmic(axes, np.array(values)) and axes.get_yscale() == "linear"


def test_smoothing_averages_neighbors_without_lag() -> None:
    line = np.arange(9.0)
    assert smoothed(line, 3).tolist() == [0.5, 1, 2, 3, 4, 5, 6, 7, 7.5]
    assert smoothed(line, 0).tolist() == line.tolist()


@given(arrays(float, st.integers(0, 12), elements=st.floats(0, 1)), st.floats(0.01, 0.3))
def test_labels_keep_their_order_and_a_minimum_distance(places: np.ndarray, gap: float) -> None:
    moved = apart(places, gap)
    order = np.argsort(places, kind="stable")
    assert (np.diff(moved[order]) >= gap - 1e-9).all()
    assert moved.sum() == pytest.approx(places.sum())


def test_labels_that_do_not_overlap_stay_in_place() -> None:
    assert apart(np.array([0.9, 0.1, 0.5]), 0.2).tolist() == [0.9, 0.1, 0.5]
    assert apart(np.array([0.5, 0.5]), 0.2).tolist() == pytest.approx([0.4, 0.6])


def test_a_shortened_name_keeps_both_ends() -> None:
    name = "masking_of_very_long_phrases_3"
    short = shortened(name, 60, 9)
    assert text_width(short, 9) <= 60
    assert short.startswith("mask")
    assert short.endswith("_3")
    assert shortened(name, 1000, 9) == name


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"),
        (8, "8"),
        (950, "950"),
        (2000, "2k"),
        (12_500, "12.5k"),
        (999_600, "1M"),
        (0.25, "0.25"),
        (1.64e9, "1.64G"),
    ],
)
def test_compact_numbers_have_three_digits(number: float, text: str) -> None:
    assert compact(number) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(9.54, "9.5 s"), (59.97, "1 min 0 s"), (250, "4 min 10 s"), (43_510, "12 h 5 min"), (273_600, "3 d 4 h")],
)
def test_durations_have_two_units(seconds: float, text: str) -> None:
    assert duration(seconds) == text


@pytest.mark.parametrize(
    ("share", "text"), [(0, "0%"), (0.0006, "0.06%"), (0.034, "3.4%"), (0.0996, "10%"), (0.5, "50%")]
)
def test_small_percentages_are_not_rounded_to_zero(share: float, text: str) -> None:
    assert percent(share) == text


def test_large_and_small_numbers() -> None:
    assert [amount(n) for n in (52_100, 38.1e6, 1.64e9)] == ["52,100", "38.1 million", "1.64 billion"]
    assert [exact(n) for n in (0, 950, 1000, 100_250, 1.5e6)] == ["0", "950", "1k", "100.25k", "1.5M"]
    assert [power(n) for n in (0, 1e-4, 2.5e-5)] == ["0", "1e-4", "2.5e-5"]
