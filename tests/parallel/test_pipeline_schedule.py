"""Pipeline schedules: equal to fleet's, complete, without deadlock, and with the bubble of the formula."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.parallel.ranks import run_ranks

from ernie.parallel.pipeline import InputCounter, StepInputs
from ernie.parallel.pipeline_schedule import Action, Deadlock, pipeline_schedule, simulate

PROGRAM = Path(__file__)
CASES = [(3, 1, 1), (3, 1, 7), (3, 2, 6), (3, 2, 8), (3, 3, 10), (4, 2, 9), (4, 2, 16)]


@st.composite
def pipelines(draw: st.DrawFn) -> tuple[int, int, int]:
    """Stages, pieces, micro-batches."""
    stages, pieces = draw(st.integers(1, 6)), draw(st.integers(1, 3))
    least = 2 * stages if pieces > 1 else 1
    return stages, pieces, draw(st.integers(least, least + 12))


def tables(stages: int, pieces: int, micro_batches: int) -> list[list[Action]]:
    return [pipeline_schedule(stage, stages, micro_batches, pieces) for stage in range(stages)]


def test_every_step_begins_with_its_first_micro_batch_also_after_steps_that_a_stage_did_not_finish() -> None:
    step = StepInputs()
    counter = InputCounter(step)
    for micro_batches, calls in (("abcd", 4), ("ef", 2), ("ghij", 5), ("kl", 1)):
        step.begin(list(micro_batches), 0)  # type: ignore[arg-type]
        expected = [micro_batches[i % len(micro_batches)] for i in range(calls)]
        assert [counter.next() for _ in range(calls)] == expected


@given(pipelines())
def test_each_piece_runs_each_micro_batch_forward_and_then_backward(case: tuple[int, int, int]) -> None:
    _, pieces, micro_batches = case
    for table in tables(*case):
        assert len(table) == len(set(table)) == 2 * pieces * micro_batches
        for number in range(micro_batches):
            for piece in range(pieces):
                assert table.index(Action(True, number, piece)) < table.index(Action(False, number, piece))


@given(pipelines(), st.floats(0, 2))
def test_no_stage_deadlocks_or_starts_before_its_input(case: tuple[int, int, int], transfer: float) -> None:
    stages, pieces, _ = case
    timeline = simulate(tables(*case), [1.0] * (stages * pieces), [2.0] * (stages * pieces), transfer)
    ends = {
        (action.forward, action.micro_batch, action.piece * stages + stage): (start, end)
        for stage, spans in enumerate(timeline.spans)
        for action, start, end in spans
    }
    for (forward, micro_batch, number), (start, _) in ends.items():
        before = (forward, micro_batch, number - 1 if forward else number + 1)
        if before in ends:
            assert start >= ends[before][1] + transfer * (stages > 1 or pieces > 1) - 1e-9


@given(st.integers(1, 8), st.integers(1, 20))
def test_the_bubble_follows_the_formula(stages: int, micro_batches: int) -> None:
    """(S - 1) / (n + S - 1) of the time, section 2.2.1."""
    timeline = simulate(tables(stages, 1, micro_batches), [1.0] * stages, [2.0] * stages)
    assert timeline.end == pytest.approx(3 * (micro_batches + stages - 1))
    busy = 3 * micro_batches  # of each stage
    assert 1 - busy / timeline.end == pytest.approx((stages - 1) / (micro_batches + stages - 1))
    assert timeline.held == [min(micro_batches, stages - stage) for stage in range(stages)]


def test_interleaved_pieces_shrink_the_bubble() -> None:
    """The bubble shrinks to 1 / pieces, section 2.2.2."""
    whole = simulate(tables(4, 1, 8), [2.0] * 4, [4.0] * 4)
    halves = simulate(tables(4, 2, 8), [1.0] * 8, [2.0] * 8)
    busy = 8 * 6.0
    assert whole.end - busy == pytest.approx(3 * 6.0)
    assert halves.end - busy == pytest.approx(3 * 6.0 / 2)


def test_a_deadlock_names_the_stages() -> None:
    wrong = tables(2, 1, 2)
    wrong[1] = [Action(False, 0), *wrong[1][:1], *wrong[1][2:]]
    with pytest.raises(Deadlock, match="stage 0 at backward of micro-batch 0, piece 0; stage 1 at backward of micro"):
        simulate(wrong, [1.0, 1.0], [1.0, 1.0])


@pytest.mark.parametrize("stages", [3, pytest.param(4, marks=pytest.mark.slow)])
def test_the_schedule_equals_that_of_fleet(stages: int) -> None:
    cases = [list(case) for case in CASES if case[0] == stages]
    found = run_ranks(PROGRAM, stages, json.dumps(cases), fresh=True)
    for number, (_, pieces, micro_batches) in enumerate(cases):
        for stage in range(stages):
            wanted = "".join(
                f"{'f' if action.forward else 'b'}{action.micro_batch}{f'_vp{action.piece}' if pieces > 1 else ''};"
                for action in pipeline_schedule(stage, stages, micro_batches, pieces)
            )
            assert found[stage][number] == wanted


def fleet_schedule(stages: int, pieces: int, micro_batches: int) -> str:
    """The schedule of this rank according to fleet."""
    from paddle import nn
    from paddle.distributed import fleet
    from paddle.distributed.fleet.meta_parallel import PipelineLayer, pipeline_parallel

    topology = fleet.get_hybrid_communicate_group()
    strategy = fleet.fleet._user_defined_strategy
    strategy.pipeline_configs = {**strategy.pipeline_configs, "p2p_cache_shape": True}
    options: dict[str, Any] = (
        {"num_virtual_pipeline_stages": pieces, "seg_method": "layer:Linear"} if pieces > 1 else {}
    )
    layers = [nn.Linear(2, 2) for _ in range(stages * pieces)]
    stage = PipelineLayer(layers, topology=topology.topology(), loss_fn=nn.MSELoss(), **options)
    kind = pipeline_parallel.PipelineParallelWithInterleave if pieces > 1 else pipeline_parallel.PipelineParallel
    pipeline = kind(stage, topology, strategy)
    pipeline.accumulate_steps = micro_batches
    pipeline._wrap_data = lambda data: None
    if pieces > 1:
        pipeline._reset_counter()
    return str(pipeline.get_static_scheduler())


if __name__ == "__main__":
    from ernie.parallel.layout import ParallelConfig
    from ernie.parallel.mesh import Mesh

    given_cases = json.loads(sys.argv[1])
    mesh = Mesh.connect(ParallelConfig(pipeline=given_cases[0][0]))
    with mesh.watch:
        print(json.dumps([fleet_schedule(*case) for case in given_cases]))
