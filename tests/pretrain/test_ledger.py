"""The forgetting ledger, on numbers worked out by hand."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.made_up_run import measured, score

from pretrain.history import Measurement
from pretrain.ledger import beats_majority, best, make_ledger, markdown

# After stage 1: a 0.50.  After stage 2: a 0.80, b 0.60.  After stage 3: a 0.60, b 0.594, c 0.90.
MEASUREMENTS = [
    measured("a", 0, 0.50),
    measured("a", 1, 0.80),
    measured("b", 1, 0.60),
    measured("a", 2, 0.60),
    measured("b", 2, 0.594),
    measured("c", 2, 0.90),
]


def test_the_matrix_has_a_row_per_stage_and_a_column_per_task_in_order_of_arrival() -> None:
    ledger = make_ledger(MEASUREMENTS, ["a", "b", "c"])
    assert ledger.tasks == ["a", "b", "c"]
    assert ledger.stages == [0, 1, 2]
    values = [[found and found.value for found in row] for row in ledger.cells]
    assert values == [[0.50, None, None], [0.80, 0.60, None], [0.60, 0.594, 0.90]]


def test_measurements_within_a_stage_are_no_rows() -> None:
    within = [measured("a", 2, 0.99, ends_stage=False), measured("a", 3, 0.20, ends_stage=False)]
    assert make_ledger([*MEASUREMENTS, *within], ["a", "b", "c"]) == make_ledger(MEASUREMENTS, ["a", "b", "c"])


def test_forgetting_is_the_share_of_the_best_score_lost_at_the_end() -> None:
    ledger = make_ledger(MEASUREMENTS, ["a", "b", "c"])
    assert ledger.forgetting("a") == pytest.approx(0.25)
    assert ledger.forgetting("b") == pytest.approx(0.01)
    assert ledger.forgetting("c") == 0


def test_a_cell_is_compared_with_the_best_so_far_not_a_later_one() -> None:
    ledger = make_ledger(MEASUREMENTS, ["a", "b", "c"])
    assert ledger.shortfalls("a") == pytest.approx([0, 0, 0.25])
    assert ledger.shortfalls("c") == [None, None, 0]


def test_only_a_loss_larger_than_chance_counts_as_forgotten() -> None:
    ledger = make_ledger(MEASUREMENTS, ["a", "b", "c"])
    assert [ledger.has_forgotten(task) for task in "abc"] == [True, False, False]


def test_scores_on_different_documents_are_not_compared_draw_by_draw() -> None:
    before = score(0.60, spread=0.1)
    after = replace(before, value=0.59, draws=[value - 0.01 for value in before.draws])
    assert after.is_worse_than(before)
    assert not replace(after, count=after.count + 1).is_worse_than(before)


def test_a_small_loss_on_every_document_counts_as_forgotten() -> None:
    before = score(0.60, spread=0.1)
    after = replace(before, value=0.59, low=0.49, high=0.69, draws=[value - 0.01 for value in before.draws])
    measurements = [Measurement(9, stage, True, "a", found) for stage, found in enumerate((before, after))]
    ledger = make_ledger(measurements, ["a"])
    assert ledger.has_forgotten("a")


def test_measurements_within_a_stage_are_not_in_the_ledger() -> None:
    within = [measured("a", 0, 0.99, ends_stage=False), measured("a", 0, 0.5)]
    ledger = make_ledger(within, ["a"])
    assert [[found and found.value for found in row] for row in ledger.cells] == [[0.5]]


def test_tasks_that_have_not_arrived_have_an_empty_column_and_no_forgetting() -> None:
    ledger = make_ledger(MEASUREMENTS[:1], ["a", "b"])
    assert ledger.column("b") == [None]
    assert ledger.forgetting("b") is None
    assert not ledger.has_forgotten("b")


def test_a_task_removed_from_the_schedule_keeps_its_column() -> None:
    assert make_ledger(MEASUREMENTS, ["c"]).tasks == ["c", "a", "b"]


def test_a_run_without_measurements_has_an_empty_ledger() -> None:
    ledger = make_ledger([], ["a"])
    assert (ledger.stages, ledger.forgetting("a")) == ([], None)


def test_if_lower_is_better_forgetting_is_an_increase() -> None:
    rising = [
        measured("a", stage, value, name="perplexity", majority=20.0) for stage, value in enumerate([8.0, 4.0, 5.0])
    ]
    ledger = make_ledger(rising, ["a"])
    assert ledger.shortfalls("a") == pytest.approx([0, 0, 0.25])
    assert ledger.has_forgotten("a")
    assert best(found for found in ledger.column("a") if found).value == 4.0
    assert beats_majority(score(5.0, majority=6.0, name="perplexity"))


def test_a_task_that_never_beat_the_majority_has_forgotten_nothing() -> None:
    ledger = make_ledger([measured("a", 0, 0.29), measured("a", 1, 0.10)], ["a"])
    assert ledger.forgetting("a") == pytest.approx(0.19 / 0.29)
    assert not ledger.has_forgotten("a")


def test_a_task_that_falls_to_the_majority_or_below_has_forgotten() -> None:
    for last in (0.3, 0.1):
        assert make_ledger([measured("a", 0, 0.8), measured("a", 1, last)], ["a"]).has_forgotten("a")


def test_the_earliest_of_equal_scores_is_the_best() -> None:
    scores = [score(0.6), score(0.7, spread=0.01), score(0.7, spread=0.02), score(0.5)]
    assert best(scores) is scores[1]


def test_a_task_with_only_zero_scores_has_forgotten_nothing() -> None:
    ledger = make_ledger([measured("a", 0, 0.0), measured("a", 1, 0.0)], ["a"])
    assert ledger.forgetting("a") == 0


def test_a_task_beats_the_majority_only_with_its_whole_interval() -> None:
    assert beats_majority(score(0.32, majority=0.3))
    assert not beats_majority(score(0.305, majority=0.3))
    assert not beats_majority(score(5.995, majority=6.0, name="perplexity"))


@given(st.lists(st.floats(0.01, 1), min_size=1, max_size=9))
def test_forgetting_is_a_share_and_zero_exactly_at_the_best(values: list[float]) -> None:
    ledger = make_ledger([measured("a", stage, value) for stage, value in enumerate(values)], ["a"])
    forgotten = ledger.forgetting("a")
    assert forgotten is not None
    assert 0 <= forgotten < 1
    assert (forgotten == 0) == (values[-1] == max(values))


def test_the_table_shows_values_intervals_and_forgetting() -> None:
    text = markdown(make_ledger(MEASUREMENTS, ["a", "b", "c"]).rows())
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]
    assert rows[0] == ["after stage", "a", "b", "c"]
    assert rows[2] == ["metric", "accuracy", "accuracy", "accuracy"]
    assert rows[3] == ["1", "0.500 [0.490, 0.510]", "", ""]
    assert rows[-1] == ["forgotten", "25.0% *", "1.0%", "0.0%"]
    assert len({len(line) for line in text.splitlines()}) == 1


def test_the_ledger_is_plain_data_with_stages_counted_from_one() -> None:
    data = json.loads(json.dumps(make_ledger(MEASUREMENTS, ["a", "b", "c"]).as_dict()))
    assert data["stages"] == [1, 2, 3]
    assert data["scores"][0][1] is None
    assert data["scores"][1][1]["value"] == 0.60
    assert data["forgetting"]["a"] == pytest.approx(0.25)
    assert data["beyond_chance"] == ["a"]
