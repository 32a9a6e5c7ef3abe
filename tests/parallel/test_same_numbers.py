"""Every layout computes the same numbers as one process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from support.helpers import ROOT
from support.parallel import training
from support.parallel.ranks import run_ranks

from ernie.kernels.cpu.library import library
from ernie.parallel.layout import ParallelConfig

PROGRAM = ROOT / "tests" / "support" / "parallel" / "training.py"
LAYOUTS = [
    {"data": 2, "overlap": True},
    {"tensor": 2, "sequence": True},
    {"sharding": 2, "sharding_stage": 2},
    {"sharding": 2, "sharding_stage": 3},
    {"pipeline": 2, "stages": [3, 1]},
    {"pipeline": 2, "tensor": 2, "sequence": True, "recompute": True},
    *(
        pytest.param(layout, marks=pytest.mark.slow)
        for layout in (
            {"data": 2},
            {"tensor": 2},
            {"sharding": 2},
            {"pipeline": 2},
            {"data": 2, "tensor": 2, "overlap": True},
            {"data": 4, "overlap": True},
            {"data": 2, "tensor": 2},
            {"data": 2, "sharding": 2},
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
def single() -> dict[str, Any]:
    return training.train({})


def trained(layout: dict[str, Any], *arguments: Any, **options: Any) -> list[Any]:
    return run_ranks(PROGRAM, ParallelConfig(**layout).processes, json.dumps([[layout, *arguments], options]))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_losses_norms_and_weights_equal_those_of_one_process(layout: dict[str, Any], single: dict[str, Any]) -> None:
    _check_same(trained(layout), single)


@pytest.mark.parametrize(
    "layout",
    [
        {"sharding": 2, "sharding_stage": 3},
        pytest.param({"data": 2}, marks=pytest.mark.slow),
        pytest.param({"data": 2, "overlap": True}, marks=pytest.mark.slow),
        pytest.param({"sharding": 4, "sharding_stage": 3}, marks=pytest.mark.slow),
        pytest.param({"data": 2, "pipeline": 2}, marks=pytest.mark.slow),
        pytest.param({"sharding": 2, "sharding_stage": 2, "tensor": 1, "data": 2}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_in_steps_of_one_task_a_process_needs_none_of_the_batches_of_others(layout: dict[str, Any]) -> None:
    _check_same(trained(layout, separate=True, own_batches=True), training.train({}, separate=True))


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
def test_an_interleaved_pipeline_equals_one_process(layout: dict[str, Any]) -> None:
    options = {"layers": 6}  # one for each of six pieces
    _check_same(trained(layout, **options), training.train({}, **options))


@pytest.mark.skipif(not getattr(library(), "has_bf16", False), reason="these kernels do not compute in bfloat16")
@pytest.mark.parametrize(
    "layout", [{"data": 2}, {"sharding": 2}, {"sharding": 2, "sharding_stage": 3}, {"pipeline": 2}], ids=str
)
def test_in_bf16_a_process_uses_the_weights_that_others_have_updated(layout: dict[str, Any]) -> None:
    single = training.train({}, kind="bf16")
    for found in trained(layout, kind="bf16"):
        for loss, expected in zip(found["losses"], single["losses"], strict=True):
            assert loss == pytest.approx(expected, rel=1e-5)  # a step changes the losses by a thousandth


def test_data_parallel_dropout_equals_that_of_one_process() -> None:
    _check_same(trained({"data": 2}, 0.1), training.train({}, 0.1))


@pytest.mark.parametrize(
    "layout",
    [
        {"tensor": 2, "sequence": True},
        *(
            pytest.param(layout, marks=pytest.mark.slow)
            for layout in (
                {"tensor": 2},
                {"pipeline": 2},
                {"data": 2, "tensor": 2},
                {"pipeline": 2, "tensor": 2, "sequence": True},
            )
        ),
    ],
    ids=str,
)
def test_one_process_can_draw_the_dropout_of_a_layout(layout: dict[str, Any]) -> None:
    alone = training.train({}, 0.1, serial=layout)
    assert alone["losses"] != training.train({}, 0.1)["losses"]
    _check_same(trained(layout, 0.1), alone)


def _check_same(ranks: list[Any], single: dict[str, Any]) -> None:
    for found in ranks:
        assert [report.keys() for report in found["losses"]] == [report.keys() for report in single["losses"]]
        for loss, expected in zip(found["losses"], single["losses"], strict=True):
            assert loss == pytest.approx(expected, rel=1e-6)
        assert found["norms"] == pytest.approx(single["norms"], rel=1e-6)
    _check_weights(ranks, single)


def _check_weights(ranks: list[Any], single: dict[str, Any]) -> None:
    """Each process has the weights of its stage; only the first one gathers the weights and moments of all."""
    first, *others = (found["gathered"] for found in ranks)
    assert first.keys() == single["gathered"].keys()
    assert not any(others)
    for weights in [first, *(found["weights"] for found in ranks)]:
        for name in weights.keys() & single["weights"].keys():
            np.testing.assert_allclose(weights[name], single["weights"][name], rtol=1e-6, atol=1e-6, err_msg=name)


def test_recomputing_changes_neither_numbers_nor_dropout() -> None:
    for dropout in (0.0, 0.1):
        assert training.train({"recompute": True}, dropout) == training.train({}, dropout)


def test_gradient_clipping_is_active(single: dict[str, Any]) -> None:
    assert min(norm for step, norm in enumerate(single["norms"]) if step != training.WITHOUT_TARGETS) > training.CLIP


def test_a_step_without_targets_is_skipped(single: dict[str, Any]) -> None:
    # That every layout skips it is tested by comparing its numbers with these.
    assert (single["losses"][training.WITHOUT_TARGETS], single["norms"][training.WITHOUT_TARGETS]) == ({}, 0.0)


@pytest.mark.parametrize(
    "layout",
    [
        {"tensor": 2, "sequence": True},
        pytest.param({"data": 2}, marks=pytest.mark.slow),
        pytest.param({"pipeline": 2, "recompute": True}, marks=pytest.mark.slow),
    ],
    ids=str,
)
def test_a_layout_with_dropout_is_deterministic_bit_for_bit(layout: dict[str, Any]) -> None:
    first, second = trained(layout, 0.1), trained(layout, 0.1)
    assert first == second
    rank0, rank1 = first
    assert (rank0["losses"], rank0["norms"]) == (rank1["losses"], rank1["norms"])
    for name in rank0["weights"].keys() & rank1["weights"].keys():
        assert rank0["weights"][name] == rank1["weights"][name], name


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {"pipeline": 2, "tensor": 2}),
        ({"sharding": 2, "sharding_stage": 3}, {"tensor": 2}),
        *(
            pytest.param(before, after, marks=pytest.mark.slow)
            for before, after in (
                ({"pipeline": 2}, {"sharding": 2}),
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
def test_a_checkpoint_of_one_layout_resumes_under_another(
    before: dict[str, Any], after: dict[str, Any], single: dict[str, Any], tmp_path: Path
) -> None:
    half, file = training.STEPS // 2, str(tmp_path / "state.npz")
    for layout, *arguments in ((before, 0.0, (0, half), "", file), (after, 0.0, (half, training.STEPS), file)):
        found = trained(layout, *arguments) if layout else [training.train(layout, *arguments)]
    for rank in found:
        assert rank["norms"] == pytest.approx(single["norms"][half:], rel=1e-6)
    _check_weights(found, single)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({"tensor": 2}, {"sharding": 2, "sharding_stage": 3}),
        ({"sharding": 2}, {"pipeline": 2}),
    ],
    ids=str,
)
def test_separate_moments_of_each_task_are_sharded_and_resumed(
    before: dict[str, Any], after: dict[str, Any], tmp_path: Path
) -> None:
    half, file, whole = training.STEPS // 2, str(tmp_path / "state.npz"), training.train({}, separate=True)
    for layout, *arguments in ((before, 0.0, (0, half), "", file), (after, 0.0, (half, training.STEPS), file)):
        found = trained(layout, *arguments, separate=True)
    assert whole["norms"] != training.train({})["norms"]
    for rank in found:
        assert rank["norms"] == pytest.approx(whole["norms"][half:], rel=1e-6)
    _check_weights(found, whole)
