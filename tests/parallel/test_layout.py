"""Layouts: the place of each process, and which models and steps a layout can divide."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.config import build, from_dict
from ernie.errors import UserError
from ernie.parallel.layout import AXES, ParallelConfig, Sizes

SIZES = Sizes(layers=12, heads=12, inner=3072, vocabulary=30528, micro_batches=8)
degrees = st.integers(1, 4)


@given(degrees, degrees, degrees, degrees)
def test_every_rank_has_its_own_place(data: int, tensor: int, pipeline: int, sharding: int) -> None:
    layout = ParallelConfig(data=data, tensor=tensor, pipeline=pipeline, sharding=sharding)
    places = [tuple(layout.place(rank).values()) for rank in range(layout.processes)]
    assert len(set(places)) == layout.processes == data * tensor * pipeline * sharding
    assert places == sorted(places)
    assert all(0 <= place < getattr(layout, axis) for found in places for axis, place in zip(AXES, found, strict=True))


def test_a_layout_that_divides_everything_is_accepted() -> None:
    ParallelConfig(data=2, tensor=4, pipeline=3, sharding=2, virtual_stages=1).check(SIZES)


def test_all_reasons_against_a_layout_are_reported() -> None:
    layout = ParallelConfig(data=3, tensor=5, pipeline=13)
    with pytest.raises(UserError) as caught:
        layout.check(SIZES)
    assert str(caught.value).splitlines() == [
        "parallel: heads: 12 / tensor 5 = 2.40, which is no whole number; 15 would do",
        "parallel: inner width: 3,072 / tensor 5 = 614.40, which is no whole number; 3,075 would do",
        "parallel: vocabulary: 30,528 / tensor 5 = 6105.60, which is no whole number; 30,530 would do",
        "parallel: micro-batches of a step: 8 / data x sharding 3 = 2.67, which is no whole number; 9 would do",
        "parallel: layers: 12 are too few for 13 pieces (pipeline x virtual_stages)",
    ]


def test_replicas_divide_the_data_shards_unless_every_process_makes_all_batches() -> None:
    for data_shards in (1, 4, 8):
        ParallelConfig(data=2, sharding=2).check(replace(SIZES, data_shards=data_shards))
    with pytest.raises(
        UserError, match=r"data.data_shards: 2 / data x sharding 4 = 0.50, which is no whole number; 4 would"
    ):
        ParallelConfig(data=2, sharding=2).check(replace(SIZES, data_shards=2))


def test_stages_must_cover_all_layers() -> None:
    ParallelConfig(pipeline=2, stages=(5, 7)).check(SIZES)
    with pytest.raises(UserError, match=r"stages: 5 \+ 6 = 11 layers, the model has 12"):
        ParallelConfig(pipeline=2, stages=(5, 6)).check(SIZES)


def test_a_different_number_of_processes_is_an_error() -> None:
    message = r"parallel: data 3 x pipeline 2 x sharding 1 x tensor 5 = 30 processes, but there are 8"
    with pytest.raises(UserError, match=message):
        ParallelConfig(data=3, tensor=5, pipeline=2).over(8)


def test_an_omitted_data_degree_uses_the_remaining_processes() -> None:
    assert ParallelConfig().over(1) == ParallelConfig(data=1)
    assert ParallelConfig().over(6) == ParallelConfig(data=6)
    assert ParallelConfig(tensor=2, sharding=2).over(8) == ParallelConfig(data=2, tensor=2, sharding=2)
    with pytest.raises(UserError, match="data 1 x pipeline 1 x sharding 1 x tensor 4 = 4 processes, but there are 6"):
        ParallelConfig(tensor=4).over(6)
    with pytest.raises(UserError, match="but there is 1; --processes says how many to start on this machine"):
        ParallelConfig(tensor=4).over(1)


def test_interleaved_stages_need_two_rounds_of_micro_batches_and_equal_layers() -> None:
    ParallelConfig(pipeline=3, virtual_stages=2).check(SIZES)
    with pytest.raises(UserError, match=r"micro-batches: 8 for each pipeline are less than 2 x pipeline 6"):
        ParallelConfig(pipeline=6, virtual_stages=2).check(SIZES)
    with pytest.raises(UserError, match=r"layers: 12 / \(pipeline x virtual_stages\) 8 = 1\.50"):
        ParallelConfig(pipeline=4, virtual_stages=2).check(SIZES)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"data": 0}, "data: expected at least 1, found 0"),
        ({"sharding_stage": 4}, "sharding_stage: expected 1, 2 or 3, found 4"),
        ({"sequence": True}, "sequence: splits tokens over the processes of `tensor`, which is 1"),
        ({"tensor": 2, "sharding": 2, "sharding_stage": 2}, "sharding_stage: 2 goes with `data` only"),
        ({"pipeline": 2, "virtual_stages": 2}, "virtual_stages: 2 needs a pipeline of at least 3, this one has 2"),
        ({"pipeline": 3, "stages": [6, 6]}, "stages: 2 numbers of layers for a pipeline of 3"),
        ({"pipeline": 3, "stages": [6, 6, 0], "virtual_stages": 2}, "stages: does not go with virtual_stages"),
        ({"pipeline": 2, "stages": [13, -1]}, "stages: expected numbers of layers, found -1"),
        ({"sharding": 2, "sharding_stage": 3, "recompute": True}, "recompute: does not go with sharding_stage 3"),
        ({"timeout": 0}, "timeout: expected seconds above 0, found 0"),
    ],
)
def test_an_invalid_layout_is_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(UserError, match=message):
        build(ParallelConfig, from_dict(options))


@given(st.integers(1, 40), st.integers(1, 12))
def test_a_pipeline_is_split_evenly_with_extra_layers_in_the_middle(layers: int, stages: int) -> None:
    split = ParallelConfig(pipeline=stages).layers_per_stage(layers)
    assert (len(split), sum(split)) == (stages, layers)
    assert max(split) - min(split) <= 1
    if layers >= stages > 2 and layers % stages <= stages - 2:
        assert split[0] == split[-1] == layers // stages


def test_given_stages_are_kept() -> None:
    assert ParallelConfig(pipeline=3, stages=(5, 0, 1)).layers_per_stage(6) == (5, 0, 1)


def test_a_layout_is_described_by_its_degrees() -> None:
    assert ParallelConfig(data=2, tensor=4).described() == "data 2 x tensor 4"
    assert ParallelConfig().described() == "one process"
