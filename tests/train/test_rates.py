"""Learning rates as a pure function of the step, compared with tables."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.train.adam_config import AdamConfig
from ernie.train.lr_schedule import LRScheduleConfig


@pytest.mark.parametrize(
    ("config", "steps", "rates"),
    [
        (LRScheduleConfig(1.0, "linear", warmup=2), 6, [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]),
        (LRScheduleConfig(1.0, "linear", warmup=0.5), 4, [0.5, 1.0, 1.0, 0.5]),  # a fraction of all steps
        (LRScheduleConfig(2.0, "linear", warmup=0, floor=0.5), 4, [2.0, 1.75, 1.5, 1.25]),
        (LRScheduleConfig(1.0, "constant", warmup=2), 4, [0.5, 1.0, 1.0, 1.0]),
        (LRScheduleConfig(1.0, "wsd", warmup=1, cooldown=0.5), 8, [1.0, 1.0, 1.0, 1.0, 1.0, 0.75, 0.5, 0.25]),
        (LRScheduleConfig(1.0, "wsd", warmup=2, cooldown=2, floor=0.5), 6, [0.5, 1.0, 1.0, 1.0, 1.0, 0.75]),
        (
            LRScheduleConfig(1.0, "wsd_sqrt", warmup=1, cooldown=4, floor=0.2),
            6,
            [1.0, 1.0, 1.0, 0.2 + 0.8 * 0.5, 0.2 + 0.8 * (1 - math.sqrt(0.5)), 0.2 + 0.8 * (1 - math.sqrt(0.75))],
        ),
        (
            LRScheduleConfig(1.0, "wsd", warmup=2, cooldown=9),
            4,
            [0.5, 1.0, 2 / 9, 1 / 9],
        ),  # decays before the warm-up ends
        (
            LRScheduleConfig(1.0, "noam", warmup=4),
            9,
            [0.25, 0.5, 0.75, 1.0, *(math.sqrt(4 / n) for n in (5, 6, 7, 8, 9))],
        ),
        (LRScheduleConfig(1.0, "cosine", warmup=0), 4, [1.0, (1 + math.sqrt(0.5)) / 2, 0.5, (1 - math.sqrt(0.5)) / 2]),
        (LRScheduleConfig(1.0, "cosine", warmup=0, floor=0.2), 2, [1.0, 0.6]),
        (LRScheduleConfig(1.0, "linear", warmup=10), 4, [0.1, 0.2, 0.3, 0.4]),  # a warm-up longer than the run
    ],
)
def test_rates_match_the_table(config: LRScheduleConfig, steps: int, rates: list[float]) -> None:
    assert [config.at(step, steps) for step in range(steps)] == pytest.approx(rates)


@pytest.mark.parametrize(
    ("warmup", "cooldown", "warns"), [(2, 9, True), (0.5, 0.8, True), (2, 8, False), (0.2, 0.8, False)]
)
def test_a_cool_down_that_begins_below_the_peak_gives_a_warning(warmup: float, cooldown: float, warns: bool) -> None:
    for decay in ("wsd", "wsd_sqrt"):
        config = LRScheduleConfig(1.0, decay, warmup=warmup, cooldown=cooldown)
        assert (config.remark(10) is not None) == warns


@pytest.mark.parametrize(("warmup", "steps", "warns"), [(10, 4, True), (4, 4, False), (3, 4, False), (0.5, 4, False)])
def test_a_rate_that_does_not_reach_its_peak_gives_a_warning(warmup: float, steps: int, warns: bool) -> None:
    config = LRScheduleConfig(2.0, warmup=warmup)
    assert (config.remark(steps) is not None) == warns
    assert (max(config.at(step, steps) for step in range(steps)) < config.peak) == warns


COOLING = st.sampled_from(["wsd", "wsd_sqrt"])
STEPS = st.one_of(st.floats(0, 0.9), st.integers(1, 50).map(float))
RATES = {"peak": st.floats(1e-6, 1.0), "warmup": STEPS}


@given(
    st.one_of(
        st.builds(LRScheduleConfig, decay=st.sampled_from(["linear", "cosine"]), floor=st.floats(0, 1), **RATES),
        st.builds(LRScheduleConfig, decay=st.sampled_from(["noam", "constant"]), **RATES),
        st.builds(LRScheduleConfig, decay=COOLING, cooldown=STEPS, floor=st.floats(0, 1), **RATES),
    ),
    st.integers(min_value=1, max_value=200),
)
def test_a_rate_rises_to_its_peak_then_never_rises_again_and_is_never_zero(
    config: LRScheduleConfig, steps: int
) -> None:
    rates = [config.at(step, steps) for step in range(steps)]
    top = rates.index(max(rates))
    assert all(0 < rate <= config.peak * (1 + 1e-9) for rate in rates)
    assert all(before < after for before, after in pairwise(rates[: top + 1]))
    assert all(before >= after - 1e-15 for before, after in pairwise(rates[top:]))


@pytest.mark.parametrize(
    ("cls", "fields", "message"),
    [
        (LRScheduleConfig, {"peak": 0.0}, "peak: expected a learning rate above 0, found 0.0"),
        (LRScheduleConfig, {"warmup": -1.0}, "warmup: expected a number of steps or a fraction below 1, found -1.0"),
        (LRScheduleConfig, {"floor": 1.5}, "floor: expected a fraction of the peak from 0 to 1, found 1.5"),
        (
            LRScheduleConfig,
            {"cooldown": -0.1},
            "cooldown: expected a number of steps or a fraction below 1, found -0.1",
        ),
        (
            LRScheduleConfig,
            {"decay": "noam", "floor": 0.5},
            "floor: has no effect with `decay: noam`; leave it out",
        ),
        (
            LRScheduleConfig,
            {"cooldown": 0.5},
            "cooldown: has an effect with `decay: wsd` or `wsd_sqrt` only, found `decay: linear`",
        ),
        (AdamConfig, {"beta1": 1.0}, "beta1: expected a number from 0 to below 1, found 1.0"),
        (AdamConfig, {"beta2": -0.1}, "beta2: expected a number from 0 to below 1, found -0.1"),
        (AdamConfig, {"epsilon": 0.0}, "epsilon: expected a number above 0, found 0.0"),
        (AdamConfig, {"weight_decay": -0.01}, "weight_decay: expected at least 0, found -0.01"),
    ],
)
def test_invalid_settings_raise_a_clear_error(cls: type, fields: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        cls(**fields)
    assert str(caught.value) == message
