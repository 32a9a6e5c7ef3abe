"""The planner: sums of the analytic model, the search, and what the command prints."""

from __future__ import annotations

import math
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import checkpoints
import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.cli import main
from ernie.config import build, from_dict
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.parallel.layout import ParallelConfig
from pretrain.config import load
from pretrain.planner import machine
from pretrain.planner.cost import Cost, Work, cost, work_planned
from pretrain.planner.layouts import Candidate, Space, regrouped
from pretrain.planner.machine import Link, Machine, measured_with, named, quantity
from pretrain.planner.plan import BUDGET, block, make_plan
from pretrain.planner.search import learned_search, random_search

SHAPE = EncoderConfig.preset("base")
WORK = Work(SHAPE, micro_batches=16, tokens=4096, length=128)
FREE = Link(math.inf, 0.0)
IDEAL = Machine("ideal", 1e12, math.inf, FREE, FREE, kept=34, base=0)


def priced(layout: ParallelConfig, work: Work = WORK, machine: Machine = IDEAL) -> Cost:
    found = cost(work, layout, machine)
    assert found is not None
    return found


def test_a_link_takes_as_long_as_the_formula_of_ring_all_reduce() -> None:
    link = Link(bandwidth=1e9, latency=1e-3)
    assert link.sum_seconds(1e9, 1) == 0
    assert link.sum_seconds(1e9, 2) == pytest.approx(1.0 + 2e-3)
    assert link.sum_seconds(1e9, 4) == pytest.approx(1.5 + 6e-3)


def test_the_weights_are_those_of_the_model() -> None:
    shape = replace(EncoderConfig.preset("tiny"), vocab_size=500)
    work = Work(shape, 1, 100, 10.0)
    model = ErnieModel(shape)
    layer = sum(math.prod(value.shape) for value in model.encoder.layers[0].parameters())
    assert work.layer_weights == layer
    assert work.embedding_weights == math.prod(model.embedding.token.weight.shape)


def test_where_links_cost_nothing_replicas_and_tensor_parts_share_the_work_evenly() -> None:
    alone = priced(ParallelConfig(1)).seconds
    for layout in (ParallelConfig(4), ParallelConfig(1, tensor=4), ParallelConfig(2, sharding=2)):
        assert priced(layout).seconds == pytest.approx(alone / 4)


def test_a_pipeline_waits_as_the_formula_says() -> None:
    work = replace(WORK, shape=replace(SHAPE, vocab_size=1))  # a head of next to no work
    alone = priced(ParallelConfig(1), work).seconds
    found = priced(ParallelConfig(1, pipeline=4), work)
    assert found.seconds == pytest.approx(alone / 4 * (16 + 3) / 16, rel=1e-2)
    halves = priced(ParallelConfig(1, pipeline=4, virtual_stages=3), work)
    assert halves.seconds == pytest.approx(alone / 4 * (16 + 1) / 16, rel=1e-2)


def test_memory_falls_with_each_thing_that_is_shared_out() -> None:
    alone = priced(ParallelConfig(1)).memory
    state, gradients, all_of_it = (
        priced(ParallelConfig(1, sharding=4, sharding_stage=stage)).memory for stage in (1, 2, 3)
    )
    assert gradients < state < alone
    weights = SHAPE.layers * WORK.layer_weights + WORK.embedding_weights + WORK.other_weights
    assert alone - state == pytest.approx(weights * 8 * 3 / 4)  # moments
    assert state - gradients == pytest.approx(weights * 4 * 3 / 4)
    gathered = 4 * weights  # the first process has the whole model besides
    assert gradients - all_of_it == pytest.approx(SHAPE.layers * WORK.layer_weights * (4 + 2) * 3 / 4 - gathered)
    tensor, sequence = (priced(ParallelConfig(1, tensor=4, sequence=shared)).memory for shared in (False, True))
    assert sequence < tensor < alone
    assert priced(ParallelConfig(1, recompute=True)).memory < alone


def test_every_process_has_memory_for_the_unsplit_model_that_it_starts_with() -> None:
    """Twice on the first one, which keeps a copy: whatever the layout, and however little is left after splitting."""
    work = replace(WORK, tokens=1)
    for layout in (ParallelConfig(1, pipeline=12), ParallelConfig(1, pipeline=6, virtual_stages=2)):
        least = 2 * 4 * work.weights
        assert priced(layout, work).memory >= least
        assert cost(work, layout, replace(IDEAL, memory=least - 1)) is None


def test_sums_cost_what_is_sent() -> None:
    slow = replace(IDEAL, near=Link(1e9, 0.0), far=Link(1e9, 0.0))
    tensor = priced(ParallelConfig(1, tensor=2), machine=slow).spent["tensor sums"]
    vectors = WORK.tokens * SHAPE.hidden_size * 2  # bytes, of which a ring of two sends as many
    assert tensor == pytest.approx(16 * SHAPE.layers * 4 * vectors / 1e9)
    data = priced(ParallelConfig(2), machine=slow).spent["gradient sums"]
    weights = SHAPE.layers * WORK.layer_weights + WORK.embedding_weights + WORK.other_weights
    assert data == pytest.approx(4 * weights / 1e9)


def test_groups_that_cross_nodes_take_the_network() -> None:
    machine = replace(IDEAL, near=FREE, far=Link(1e9, 0.0), per_node=2)
    assert priced(ParallelConfig(1, tensor=2, pipeline=1), machine=machine).spent["tensor sums"] == 0
    assert priced(ParallelConfig(1, tensor=4), machine=machine).spent["tensor sums"] > 0


def test_every_layout_that_is_listed_divides_and_has_the_devices() -> None:
    found = [candidate.layout for candidate in Space(8, [WORK])]
    assert len(found) == len(set(found)) > 20
    for layout in found:
        assert layout.processes == 8
        layout.check(WORK.sizes)


HARD = [  # devices, micro-batches, memory, bandwidth of the links: where memory or links are scarce
    (256, 1024, 8e9, 30e9),
    (1024, 4096, 6e9, 300e9),
    (96, 384, 6e9, 20e9),
    (64, 256, 5e9, 100e9),
]


@pytest.mark.slow
def test_the_learned_search_comes_within_a_twentieth_of_the_best_and_beats_chance() -> None:
    found: dict[tuple[str, int], list[float]] = {}  # how much slower than the best, by search and budget
    for devices, micro_batches, memory, bandwidth in HARD:
        work = Work(EncoderConfig.preset("large"), micro_batches, 8192, 128)
        machine = replace(named("a100"), memory=memory, near=Link(bandwidth, 5e-6), base=5e8)
        space = Space(devices, regrouped(work))
        prices = {candidate: cost(candidate.work, candidate.layout, machine) for candidate in space}
        best = min(one.seconds for one in prices.values() if one is not None)
        assert len(prices) > 1000
        for search in (learned_search, random_search):
            for budget in (50, 100, 200, BUDGET):
                ratios = [search(space, prices.__getitem__, budget, seed)[0].seconds / best for seed in range(20)]
                found.setdefault((search.__name__, budget), []).extend(ratios)
    for budget in (50, 100, 200, BUDGET):
        assert np.mean(found["learned_search", budget]) < np.mean(found["random_search", budget])
        assert np.median(found["learned_search", budget]) <= 1.05
    assert np.mean(np.array(found["learned_search", 100]) <= 1.05) >= 0.95
    assert max(found["learned_search", BUDGET]) <= 1.05


def test_a_search_asks_for_no_more_than_it_may_and_repeats_itself() -> None:
    machine, space = named("a100"), Space(8, [WORK])
    asked: list[Candidate] = []

    def price(candidate: Candidate) -> Cost | None:
        asked.append(candidate)
        return cost(candidate.work, candidate.layout, machine)

    for search in (learned_search, random_search):
        asked.clear()
        first, second = (search(space, price, 20, seed=1) for _ in range(2))
        assert [one.layout for one in first] == [one.layout for one in second]
        assert len(asked) == 40
        assert len(set(asked)) == 20


def test_a_search_with_budget_enough_tries_all_there_are() -> None:
    space = Space(4, [replace(WORK, micro_batches=4)])
    every = set(space)
    asked: list[Candidate] = []

    def price(candidate: Candidate) -> Cost | None:
        asked.append(candidate)
        return cost(candidate.work, candidate.layout, IDEAL)

    assert len(random_search(space, price, 10 * len(every))) == len(every) > 20
    assert set(asked) == every


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([4, 6, 8, 12, 64]), st.randoms(use_true_random=False))
def test_a_move_stays_among_the_layouts_of_the_devices(devices: int, random: Random) -> None:
    space = Space(devices, regrouped(WORK))
    for _ in range(5):
        for kind, decision in space.moves(space.draw(random.randrange)):
            assert math.prod(decision.degrees) == devices
            assert kind
            if (found := space.candidate(decision)) is not None:
                assert found.layout.processes == devices


def test_a_step_is_regrouped_without_losing_a_token() -> None:
    found = regrouped(WORK)
    assert WORK in found
    assert [work.micro_batches for work in found] == [2, 4, 8, 16, 32, 64, 128]
    assert {work.all_tokens for work in found} == {WORK.all_tokens}
    assert all(work.tokens >= work.length for work in regrouped(replace(WORK, tokens=200)))


@pytest.mark.parametrize(
    ("text", "value"),
    [("80GiB", 80 * 2**30), ("300GB/s", 3e11), ("312TFLOP/s", 3.12e14), ("5e-6s", 5e-6), ("16", 16.0), ("1.5kB", 1500)],
)
def test_quantities_are_read_with_their_units(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["much", "GB", "3 apples", "-4GB", "1.2.3GB", ".", ""])
def test_what_is_no_quantity_says_how_to_write_one(text: str) -> None:
    with pytest.raises(UserError, match="is no quantity; write it like 80GiB"):
        quantity(text)


def test_what_does_not_fit_says_how_much_is_needed() -> None:
    with pytest.raises(UserError, match=r"none of \d+ layouts of 4 devices fits into 1 GB: the smallest needs 2"):
        make_plan(WORK, 4, replace(named("a100"), memory=1e9))
    with pytest.raises(UserError, match="no layout of 11 devices divides 12 heads"):
        make_plan(replace(WORK, shape=replace(SHAPE, layers=2)), 11, named("a100"))


def test_the_block_builds_the_layout() -> None:
    for layout in (ParallelConfig(2, 4, sequence=True), ParallelConfig(1, pipeline=3, stages=(5, 4, 3))):
        text = block(priced(layout), WORK)
        assert build(ParallelConfig, from_dict(yaml.safe_load(text)["parallel"])) == layout


def test_the_block_says_how_to_cut_the_step_where_that_differs() -> None:
    found = priced(ParallelConfig(2), replace(WORK, micro_batches=64, tokens=1024))
    given = yaml.safe_load(block(found, WORK))
    assert (given["train"], given["data"]) == ({"micro_batches": 64}, {"batch_tokens": 1024})


def test_the_command_prints_layouts_reasons_and_the_block(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "ernie2-en", "--set", f"corpus={tmp_path}", "--set", "train.micro_batches=16", "--devices", "8"]
    assert main([*words, "--bandwidth", "1GB/s", "--top", "3"]) == 0
    said = capsys.readouterr()
    assert "assumed: a100 in bf16 at O1: 140 TFLOP/s in layers, 80 GB, 1 GB/s within a node of 8" in said.err
    rows = [line for line in said.out.splitlines() if line.startswith("| ")]
    assert len(rows) == 4
    assert re.search(r"\d+\.\d% slower: [\d.]+ m?s more for ", rows[-1])
    shown = said.out[said.out.index("parallel:") :]
    assert build(ParallelConfig, from_dict(yaml.safe_load(shown)["parallel"])).processes == 8


@pytest.mark.parametrize(
    ("train", "says", "value"),
    [
        ("precision: bf16, amp_level: O2", "a100 in bf16 at O2: 140 TFLOP/s", 2),
        ("precision: auto", "a100 in bf16 at O1: 140 TFLOP/s", 4),
        ("precision: fp32", "a100 in fp32, without TF32: 8.78 TFLOP/s", 4),
    ],
)
def test_a_plan_is_for_the_precision_that_the_run_computes_in(
    train: str, says: str, value: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "ernie2-en", "--set", f"corpus={tmp_path}", "--devices", "1"]
    for key in train.split(", "):
        words += ["--set", f"train.{key.replace(': ', '=')}"]
    assert main(words) == 0
    assert f"assumed: {says} in layers" in capsys.readouterr().err
    settings = yaml.safe_load(f"{{{train}}}")
    assert named("a100", settings["precision"], settings.get("amp_level", "O1")).value == value


def test_a_device_is_not_planned_in_a_precision_that_it_has_not() -> None:
    with pytest.raises(UserError, match="a v100 has no bf16"):
        named("v100", "bf16")
    assert named("v100", "auto") == named("v100", "fp32")


def test_figures_that_were_measured_with_other_layers_are_warned_of(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "here", lambda: tmp_path / "machine.json")
    words = ["plan", "ernie2-en", "--set", "corpus=x", "--set", "train.precision=fp32", "--devices", "1"]
    for precision, warns in (("fp32", False), ("bf16", True)):
        measured = measured_with(EncoderConfig.preset("base"), precision, "O1")
        replace(named("a100"), name=measured).write(machine.here())
        assert main([*words, "--kind", "here"]) == 0
        assert (f"warning: --kind here: the figures are of {measured}" in capsys.readouterr().err) is warns


@pytest.mark.parametrize("kind", ["ours", "hf", "official", "paddlenlp"])
def test_the_model_to_start_from_brings_its_shape_whoever_wrote_it(tmp_path: Path, kind: str) -> None:
    checkpoints.FORMATS["hf" if kind == "ours" else kind](tmp_path, checkpoints.weights(), checkpoints.SETTINGS)
    checkpoints.write_vocabulary(tmp_path)
    model = ErnieModel.from_pretrained(tmp_path)
    if kind == "ours":
        model.save_pretrained(tmp_path / "model")
    start = tmp_path / "model" if kind == "ours" else tmp_path
    config = load("ernie2-en", [f"corpus={tmp_path / 'none'}", f"model.start_from={start}"])
    assert work_planned(config).shape == model.config
    with pytest.raises(UserError, match=r"model\.layers: is 7, but the model in .* has 2; .* take the key out"):
        work_planned(replace(config, model=replace(config.model, layers=7)))


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (["--devices", "0"], "--devices: expected at least 1, found 0"),
        (["--devices", "4", "--kind", "a10"], "--kind: there is no kind of device 'a10'. Did you mean 'a100'?"),
        (["--devices", "4", "--memory", "0GB"], "--memory: expected more than 0, found 0GB"),
        (["--devices", "4", "--per-node", "0"], "--per-node: expected at least 1, found 0"),
    ],
)
def test_mistakes_are_sentences(words: list[str], says: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ernie2-en", "--set", "corpus=x", *words]) == 2
    assert says in capsys.readouterr().err


def test_a_quantity_of_another_unit_is_refused() -> None:
    assert quantity("80GB", "B") == quantity("80G", "B") == 80e9
    with pytest.raises(UserError, match="'300GB/s': expected a number of B, found one of B/s"):
        quantity("300GB/s", "B")
    with pytest.raises(UserError, match="'80': expected a number of B with its unit, such as 80GB"):
        quantity("80", "B")
