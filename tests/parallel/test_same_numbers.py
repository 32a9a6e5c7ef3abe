"""Whatever the layout, the numbers are those of one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import training
from ranks import run_ranks

from ernie.kernels.cpu.library import library
from ernie.parallel.layout import ParallelConfig

PROGRAM = Path(__file__).with_name("training.py")
LAYOUTS = [
    {"data": 2},
    {"tensor": 2},
    {"tensor": 2, "sequence": True},
    {"sharding": 2},
    {"sharding": 2, "sharding_stage": 2},
    {"sharding": 2, "sharding_stage": 3},
    {"pipeline": 2},
    {"pipeline": 2, "stages": [3, 1]},
    {"data": 2, "tensor": 2},
    {"data": 2, "sharding": 2},
    {"pipeline": 2, "tensor": 2, "sequence": True, "recompute": True},
    *(
        pytest.param(layout, marks=pytest.mark.slow)
        for layout in (
            {"data": 4},
            {"tensor": 4},
            {"sharding": 4},
            {"pipeline": 4},
            {"data": 2, "pipeline": 2},
            {"pipeline": 2, "tensor": 2},
            {"sharding": 2, "tensor": 2},
            {"sharding": 2, "pipeline": 2},
            {"sharding": 2, "sharding_stage": 2, "data": 2},
            {"sharding": 2, "sharding_stage": 3, "data": 2},
            {"data": 2, "tensor": 2, "pipeline": 2},
            {"sharding": 2, "tensor": 2, "pipeline": 2},
        )
    ),
]


@pytest.fixture(scope="module")
def alone() -> dict[str, Any]:
    return training.train({})


def trained(layout: dict[str, Any], *more: Any, **named: Any) -> list[Any]:
    return run_ranks(PROGRAM, ParallelConfig(**layout).processes, json.dumps([[layout, *more], named]))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_losses_norms_and_weights_are_those_of_one_process(layout: dict[str, Any], alone: dict[str, Any]) -> None:
    _check_same(trained(layout), alone)


@pytest.mark.parametrize(
    "layout",
    [
        {"pipeline": 3, "virtual_stages": 2},
        pytest.param(
            {"pipeline": 3, "virtual_stages": 2, "tensor": 2, "sequence": True, "recompute": True},
            marks=pytest.mark.slow,
        ),
    ],
    ids=str,
)
def test_so_they_are_where_pieces_of_a_pipeline_take_turns(layout: dict[str, Any]) -> None:
    more = {"layers": 6}  # which six pieces divide
    _check_same(trained(layout, **more), training.train({}, **more))


@pytest.mark.skipif(not getattr(library(), "has_bf16", False), reason="these kernels do not compute in bfloat16")
@pytest.mark.parametrize(
    "layout", [{"data": 2}, {"sharding": 2}, {"sharding": 2, "sharding_stage": 3}, {"pipeline": 2}], ids=str
)
def test_in_bf16_too_a_process_computes_with_what_others_have_updated(layout: dict[str, Any]) -> None:
    alone = training.train({}, kind="bf16")
    for found in trained(layout, kind="bf16"):
        for one, other in zip(found["losses"], alone["losses"], strict=True):
            assert one == pytest.approx(other, rel=1e-5)  # a step's update changes them by a thousandth


def test_copies_of_the_model_have_the_dropout_of_one_process() -> None:
    _check_same(trained({"data": 2}, 0.1), training.train({}, 0.1))


def _check_same(every: list[Any], alone: dict[str, Any]) -> None:
    for found in every:
        assert [report.keys() for report in found["losses"]] == [report.keys() for report in alone["losses"]]
        for one, other in zip(found["losses"], alone["losses"], strict=True):
            assert one == pytest.approx(other, rel=1e-6)
        assert found["norms"] == pytest.approx(alone["norms"], rel=1e-6)
    _check_weights(every, alone)


def _check_weights(every: list[Any], alone: dict[str, Any]) -> None:
    """Each process has the weights of its stage, and the first one alone is given those of all, and the moments."""
    first, *others = (found["gathered"] for found in every)
    assert first.keys() == alone["gathered"].keys()
    assert not any(others)
    for found in [first, *(found["weights"] for found in every)]:
        for name in found.keys() & alone["weights"].keys():
            np.testing.assert_allclose(found[name], alone["weights"][name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_recomputed_layers_have_the_same_numbers_and_dropout() -> None:
    for dropout in (0.0, 0.1):
        assert training.train({"recompute": True}, dropout) == training.train({}, dropout)


def test_the_clip_is_active(alone: dict[str, Any]) -> None:
    assert min(norm for step, norm in enumerate(alone["norms"]) if step != training.NOTHING) > training.CLIP


def test_a_step_in_which_there_is_nothing_to_learn_is_passed_over(alone: dict[str, Any]) -> None:
    # That every layout does so, too, is found where its numbers are compared with these.
    assert (alone["losses"][training.NOTHING], alone["norms"][training.NOTHING]) == ({}, 0.0)


@pytest.mark.parametrize(
    "layout", [{"data": 2}, {"tensor": 2, "sequence": True}, {"pipeline": 2, "recompute": True}], ids=str
)
def test_with_dropout_a_layout_repeats_itself_to_the_bit(layout: dict[str, Any]) -> None:
    first, second = trained(layout, 0.1), trained(layout, 0.1)
    assert first == second
    one, other = first
    assert (one["losses"], one["norms"]) == (other["losses"], other["norms"])
    for name in one["weights"].keys() & other["weights"].keys():
        assert one["weights"][name] == other["weights"][name], name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"pipeline": 2, "tensor": 2}),
        ({"sharding": 2, "sharding_stage": 3}, {"tensor": 2}),
        ({"pipeline": 2}, {"sharding": 2}),
        *(
            pytest.param(before, after, marks=pytest.mark.slow)
            for before, after in (
                ({"tensor": 2}, {}),
                ({"pipeline": 2}, {}),
                ({"sharding": 2, "sharding_stage": 2}, {"sharding": 2}),
                ({"data": 2}, {"sharding": 2, "sharding_stage": 2}),
                ({"pipeline": 2}, {"sharding": 2, "sharding_stage": 3}),
                ({"sharding": 2, "tensor": 2}, {"sharding": 2, "pipeline": 2}),
            )
        ),
    ],
    ids=str,
)
def test_a_checkpoint_of_one_layout_goes_on_under_another(
    before: dict[str, Any], after: dict[str, Any], alone: dict[str, Any], tmp_path: Path
) -> None:
    half, file = training.STEPS // 2, str(tmp_path / "state.npz")
    for layout, *more in ((before, 0.0, (0, half), "", file), (after, 0.0, (half, training.STEPS), file)):
        found = trained(layout, *more) if layout else [training.train(layout, *more)]
    for rank in found:
        assert rank["norms"] == pytest.approx(alone["norms"][half:], rel=1e-6)
    _check_weights(found, alone)


@pytest.mark.parametrize(
    ("before", "after"),
    [({"sharding": 2}, {"pipeline": 2}), ({"tensor": 2}, {"sharding": 2, "sharding_stage": 3})],
    ids=str,
)
def test_moments_of_each_task_are_spread_and_taken_along_too(
    before: dict[str, Any], after: dict[str, Any], tmp_path: Path
) -> None:
    half, file, whole = training.STEPS // 2, str(tmp_path / "state.npz"), training.train({}, apart=True)
    for layout, *more in ((before, 0.0, (0, half), "", file), (after, 0.0, (half, training.STEPS), file)):
        found = trained(layout, *more, apart=True)
    assert whole["norms"] != training.train({})["norms"]
    for rank in found:
        assert rank["norms"] == pytest.approx(whole["norms"][half:], rel=1e-6)
    _check_weights(found, whole)
