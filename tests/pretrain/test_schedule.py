"""The schedule: the paper's table, exact counts, even spread, and steps that are a pure function of their number."""

from __future__ import annotations

from collections import Counter
from types import SimpleNamespace
from typing import Any, Literal

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.train.lr_schedule import LRScheduleConfig
from pretrain.run import Run
from pretrain.schedule import Schedule, ScheduleConfig

PAPER = ["knowledge_masking", "capitalization", "token_document", "sentence_reordering"]
NAMES = ["a", "b", "c", "d", "e", "f"]
stages = st.dictionaries(st.sampled_from(NAMES), st.integers(min_value=0, max_value=40), min_size=1).filter(
    lambda stage: sum(stage.values()) > 0
)
tables = st.lists(stages, min_size=1, max_size=5)


def counts(schedule: Schedule) -> list[Counter[str]]:
    """Micro-batches of each task in each stage, counted step by step."""
    found: list[Counter[str]] = [Counter() for _ in schedule.table]
    for slot in schedule:
        found[slot.stage].update(slot.draws)
    return found


# --------------------------------------------------------------------------------------------------- table


def test_the_continual_method_gives_the_papers_table() -> None:
    """ERNIE 2.0's ablation: four tasks of 50 thousand steps each."""
    config = ScheduleConfig(steps_per_task=50_000, tasks=PAPER)
    assert config.table == [
        {"knowledge_masking": 20_000},
        {"knowledge_masking": 10_000, "capitalization": 30_000},
        {"knowledge_masking": 10_000, "capitalization": 10_000, "token_document": 40_000},
        {
            "knowledge_masking": 10_000,
            "capitalization": 10_000,
            "token_document": 10_000,
            "sentence_reordering": 50_000,
        },
    ]
    assert config.task_names == PAPER


def test_sequential_and_joint_are_the_two_extremes() -> None:
    sequential = ScheduleConfig(steps_per_task=5, tasks=["a", "b"], method="sequential")
    joint = ScheduleConfig(steps_per_task=5, tasks=["a", "b"], method="joint")
    assert sequential.table == [{"a": 5}, {"b": 5}]
    assert joint.table == [{"a": 5, "b": 5}]


@given(
    st.integers(min_value=1, max_value=6),
    st.integers(min_value=1, max_value=10**6),
    st.sampled_from(["continual", "sequential", "joint"]),
)
def test_every_method_gives_every_task_the_same_number_of_steps(number: int, steps: int, method: str) -> None:
    config = ScheduleConfig(steps_per_task=steps, tasks=NAMES[:number], method=method)  # type: ignore[arg-type]
    total: Counter[str] = Counter()
    for stage in config.table:
        assert min(stage.values()) > 0
        total.update(stage)
    assert total == dict.fromkeys(NAMES[:number], steps)


def test_explicit_stages_are_used_as_given_except_tasks_without_steps() -> None:
    config = ScheduleConfig(stages=[{"b": 2, "a": 0}, {"a": 1}])
    assert config.table == [{"b": 2}, {"a": 1}]
    assert config.task_names == ["b", "a"]


# ------------------------------------------------------------------------------------------------- the steps


@settings(max_examples=60)
@given(tables, st.sampled_from(["one", "mix"]), st.integers(min_value=1, max_value=4))
def test_every_stage_draws_exactly_its_number_of_steps(
    table: list[dict[str, int]], draw: str, micro_batches: int
) -> None:
    schedule = Schedule(ScheduleConfig(stages=table, draw=draw), micro_batches)  # type: ignore[arg-type]
    expected = [{task: steps * micro_batches for task, steps in stage.items() if steps} for stage in table]
    assert counts(schedule) == expected
    assert {len(slot.draws) for slot in schedule} == {micro_batches}


@settings(max_examples=60)
@given(stages)
def test_tasks_are_spread_evenly_over_their_stage(stage: dict[str, int]) -> None:
    """At any point of a stage, no task deviates from its share by more than rounding explains: half a step for the
    task itself, plus half a step for each other task in proportion to its share."""
    schedule = Schedule(ScheduleConfig(stages=[stage]))
    total, tasks = len(schedule), len(schedule.tasks)
    drawn = Counter[str]()
    for step, slot in enumerate(schedule, 1):
        drawn.update(slot.draws)
        for task in schedule.tasks:
            share = stage[task] / total
            assert abs(drawn[task] - share * step) <= 0.5 + share * max(0, tasks - 2) / 2 + 1e-9


@pytest.mark.parametrize("steps", [3, 500])
def test_two_tasks_of_equal_steps_alternate(steps: int) -> None:
    schedule = Schedule(ScheduleConfig(stages=[{"a": steps, "b": steps}]))
    assert [slot.draws for slot in schedule] == [("a",), ("b",)] * steps


def test_one_task_feeds_all_micro_batches_of_a_step_and_a_mix_holds_several() -> None:
    stage = {"a": 2, "b": 4}
    single = Schedule(ScheduleConfig(stages=[stage]), micro_batches=3)
    assert all(len(set(slot.draws)) == 1 for slot in single)
    mix = Schedule(ScheduleConfig(stages=[stage], draw="mix"), micro_batches=3)
    assert all(Counter(slot.draws) == {"a": 1, "b": 2} for slot in mix)


@settings(max_examples=40)
@given(tables, st.data())
def test_a_step_does_not_depend_on_earlier_lookups(table: list[dict[str, int]], data: st.DataObject) -> None:
    config = ScheduleConfig(stages=table, draw="mix")
    forward = list(Schedule(config, 2))
    lookups = data.draw(st.lists(st.integers(min_value=0, max_value=len(forward) - 1), min_size=1, max_size=10))
    fresh = Schedule(config, 2)
    assert [fresh[step] for step in lookups] == [forward[step] for step in lookups]


@pytest.mark.parametrize(
    ("step", "stage", "ends"),
    [(0, 0, False), (1, 0, True), (2, 1, False), (4, 1, True), (5, 2, True), (6, 3, False), (9, 3, True)],
)
def test_a_step_knows_its_stage_and_whether_it_ends_it(step: int, stage: int, ends: bool) -> None:
    schedule = Schedule(ScheduleConfig(stages=[{"a": 2}, {"a": 1, "b": 2}, {"b": 1}, {"c": 4}]))
    assert schedule[step].stage == schedule.stage_of(step) == stage
    assert schedule.ends_stage(step) == ends
    assert schedule.stage_start(stage) <= step < schedule.stage_start(stage) + schedule.stage_length(stage)
    assert [schedule.stage_start(s) for s in range(4)] == [0, 2, 5, 6]
    assert [schedule.stage_length(s) for s in range(4)] == [2, 3, 1, 4]


@pytest.mark.parametrize("step", [-1, 3])
def test_there_is_no_step_outside_the_schedule(step: int) -> None:
    with pytest.raises(IndexError):
        Schedule(ScheduleConfig(stages=[{"a": 3}]))[step]


def test_lookups_in_a_schedule_of_the_papers_size_are_fast() -> None:
    schedule = Schedule(ScheduleConfig(steps_per_task=50_000, tasks=PAPER))
    assert len(schedule) == 200_000
    assert [schedule.ends_stage(end - 1) for end in np.cumsum([20_000, 40_000, 60_000, 80_000])] == [True] * 4
    assert schedule[199_999].stage == 3


# ------------------------------------------------------------------------------------------------- errors


NEITHER = "give either stages, such as [{knowledge_masking: 1000}], or steps_per_task and tasks"


@pytest.mark.parametrize(
    ("keys", "message"),
    [
        ({}, NEITHER),
        ({"stages": [{"a": 1}], "steps_per_task": 1, "tasks": ["a"]}, f"{NEITHER}; both are there"),
        ({"stages": []}, "stages: name at least one stage"),
        ({"stages": [{"a": 1}, {}]}, "stages: stage 2 has no steps"),
        ({"stages": [{"a": 0}]}, "stages: stage 1 has no steps"),
        ({"stages": [{"a": 3, "b": -1}]}, "stages: stage 1 gives b -1 steps"),
        ({"stages": [{"a": 1}], "tasks": ["a"]}, "tasks: belongs to steps_per_task"),
        ({"stages": [{"a": 1}], "method": "joint"}, "method: joint is a rule for steps_per_task"),
        ({"steps_per_task": 5}, "steps_per_task: also list the tasks"),
        ({"steps_per_task": 5, "tasks": []}, "steps_per_task: also list the tasks"),
        ({"steps_per_task": 0, "tasks": ["a"]}, "steps_per_task: expected at least 1, found 0"),
        ({"steps_per_task": 5, "tasks": ["a", "b", "a"]}, "tasks: a task is listed twice"),
    ],
)
def test_an_invalid_schedule_raises_an_error(keys: dict, message: str) -> None:
    with pytest.raises(UserError) as caught:
        ScheduleConfig(**keys)
    assert str(caught.value).startswith(message)


@given(tables, tables, st.integers(1, 3))
def test_schedules_have_equal_digests_only_if_all_their_steps_are_equal(
    one: list[dict[str, int]], other: list[dict[str, int]], micro_batches: int
) -> None:
    first, second = (Schedule(ScheduleConfig(stages=table, draw="mix"), micro_batches) for table in (one, other))
    assert first.digest() == Schedule(ScheduleConfig(stages=one, draw="mix"), micro_batches).digest()
    if list(first) != list(second):
        assert first.digest() != second.digest()


def test_schedules_that_differ_only_in_names_or_in_drawing_have_different_digests() -> None:
    one, other = [{"a": 2, "b": 4}], [{"a": 2, "c": 4}]
    schedules = [
        Schedule(ScheduleConfig(stages=stages, draw=draw), micro_batches)  # type: ignore[arg-type]
        for stages in (one, other)
        for draw, micro_batches in (("one", 1), ("one", 2), ("mix", 2))
    ]
    assert len({schedule.digest() for schedule in schedules}) == len(schedules)


@pytest.mark.parametrize(
    ("each_stage", "rates"),
    [(True, [1, 1, 1 / 2, 1, 1, 2 / 3, 1 / 3]), (False, [1, 1, 5 / 6, 4 / 6, 3 / 6, 2 / 6, 1 / 6])],
)
def test_the_learning_rate_restarts_at_every_stage_on_request(each_stage: bool, rates: list[float]) -> None:
    lr = LRScheduleConfig(peak=1.0, warmup=1, each_stage=each_stage)
    schedule = Schedule(ScheduleConfig(stages=[{"a": 3}, {"a": 1, "b": 3}]))
    run = SimpleNamespace(config=SimpleNamespace(train=SimpleNamespace(lr=lr)), schedule=schedule)
    assert [Run.lr(run, step) for step in range(7)] == pytest.approx(rates)  # type: ignore[arg-type]


# ------------------------------------------------------------------------------------------- many steps


@given(tables, st.integers(1, 3), st.sampled_from(["one", "mix"]), st.integers(1, 9))
def test_the_order_does_not_depend_on_how_much_of_it_is_computed_at_a_time(
    table: list[dict[str, int]], micro_batches: int, draw: Literal["one", "mix"], window: int
) -> None:
    config = ScheduleConfig(stages=table, draw=draw)
    whole = Schedule(config, micro_batches)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pretrain.schedule._WINDOW", window)
        assert list(Schedule(config, micro_batches)) == list(whole)


@pytest.mark.parametrize("steps", [10**9, 10**12])
def test_a_schedule_of_any_length_takes_little_memory(steps: int) -> None:
    schedule = Schedule(ScheduleConfig(stages=[{"a": steps, "b": steps // 3}, {"a": 5}]))
    assert len(schedule) == steps + steps // 3 + 5
    middle = [schedule[len(schedule) // 2 + i].draws[0] for i in range(8)]
    assert middle.count("a") == 6
    assert [schedule[i].draws[0] for i in range(4)].count("a") == 3
    assert schedule[len(schedule) - 1] == (1, ("a",))
    assert len(schedule.digest()) == 32


@pytest.mark.parametrize(
    "keys", [{"steps_per_task": 10**20, "tasks": ["a"]}, {"stages": [{"a": 10**20}]}, {"stages": [{"a": 10**13}]}]
)
def test_a_number_of_steps_that_no_run_reaches_is_refused(keys: dict[str, Any]) -> None:
    with pytest.raises(UserError, match="at most 1,000,000,000,000"):
        ScheduleConfig(**keys)
