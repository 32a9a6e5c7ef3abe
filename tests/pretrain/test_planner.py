"""The planner: arithmetic of the cost model, the search, and the output of the command."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace
from pathlib import Path
from random import Random

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from support import checkpoints

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
from pretrain.planner.plan import BUDGET, block, in_bytes, make_plan
from pretrain.planner.search import learned_search, random_search

SHAPE = EncoderConfig.preset("base")
WORK = Work(SHAPE, micro_batches=16, tokens=4096, length=128)
FREE = Link(math.inf, 0.0)
IDEAL = Machine("ideal", 1e12, math.inf, FREE, FREE, kept=34, base=0)


def cost_of(layout: ParallelConfig, work: Work = WORK, machine: Machine = IDEAL) -> Cost:
    found = cost(work, layout, machine)
    assert found is not None
    return found


def test_all_reduce_time_follows_the_ring_formula() -> None:
    link = Link(bandwidth=1e9, latency=1e-3)
    assert link.sum_seconds(1e9, 1) == 0
    assert link.sum_seconds(1e9, 2) == pytest.approx(1.0 + 2e-3)
    assert link.sum_seconds(1e9, 4) == pytest.approx(1.5 + 6e-3)


def test_weight_counts_match_the_model() -> None:
    shape = replace(EncoderConfig.preset("tiny"), vocab_size=500)
    work = Work(shape, 1, 100, 10.0)
    model = ErnieModel(shape)
    layer = sum(math.prod(value.shape) for value in model.encoder.layers[0].parameters())
    assert work.layer_weights == layer
    assert work.embedding_weights == math.prod(model.embedding.token.weight.shape)


def test_with_free_links_data_and_tensor_parallelism_divide_the_time_evenly() -> None:
    single = cost_of(ParallelConfig(1)).seconds
    for layout in (ParallelConfig(4), ParallelConfig(1, tensor=4), ParallelConfig(2, sharding=2)):
        assert cost_of(layout).seconds == pytest.approx(single / 4)


def test_the_pipeline_bubble_follows_the_formula() -> None:
    work = replace(WORK, shape=replace(SHAPE, vocab_size=1))  # a head with almost no work
    single = cost_of(ParallelConfig(1), work).seconds
    found = cost_of(ParallelConfig(1, pipeline=4), work)
    assert found.seconds == pytest.approx(single / 4 * (16 + 3) / 16, rel=1e-2)
    interleaved = cost_of(ParallelConfig(1, pipeline=4, virtual_stages=3), work)
    assert interleaved.seconds == pytest.approx(single / 4 * (16 + 1) / 16, rel=1e-2)


def test_sharding_more_reduces_memory_by_the_expected_amount() -> None:
    single = cost_of(ParallelConfig(1)).memory
    state, gradients, parameters = (
        cost_of(ParallelConfig(1, sharding=4, sharding_stage=stage)).memory for stage in (1, 2, 3)
    )
    assert gradients < state < single
    weights = SHAPE.layers * WORK.layer_weights + WORK.embedding_weights + WORK.other_weights
    assert single - state == pytest.approx(weights * 8 * 3 / 4)  # moments
    assert state - gradients == pytest.approx(weights * 4 * 3 / 4)
    gathered = 4 * weights  # the first process also holds the whole model
    assert gradients - parameters == pytest.approx(SHAPE.layers * WORK.layer_weights * (4 + 2) * 3 / 4 - gathered)
    tensor, sequence = (cost_of(ParallelConfig(1, tensor=4, sequence=shared)).memory for shared in (False, True))
    assert sequence < tensor < single
    assert cost_of(ParallelConfig(1, recompute=True)).memory < single


def test_every_process_needs_memory_for_the_unsplit_model_at_startup() -> None:
    """Twice on the first one, which keeps a copy, for any layout and however little remains after splitting."""
    work = replace(WORK, tokens=1)
    for layout in (ParallelConfig(1, pipeline=12), ParallelConfig(1, pipeline=6, virtual_stages=2)):
        least = 2 * 4 * work.weights
        assert cost_of(layout, work).memory >= least
        assert cost(work, layout, replace(IDEAL, memory=least - 1)) is None


def test_communication_time_is_bytes_over_bandwidth() -> None:
    slow = replace(IDEAL, near=Link(1e9, 0.0), far=Link(1e9, 0.0))
    tensor = cost_of(ParallelConfig(1, tensor=2), machine=slow).spent["tensor sums"]
    vectors = WORK.tokens * SHAPE.hidden_size * 2  # bytes; a ring of two sends the same number
    assert tensor == pytest.approx(16 * SHAPE.layers * 4 * vectors / 1e9)
    data = cost_of(ParallelConfig(2, overlap=False), machine=slow).spent["gradient sums"]
    weights = SHAPE.layers * WORK.layer_weights + WORK.embedding_weights + WORK.other_weights
    assert data == pytest.approx(4 * weights / 1e9)


def test_sums_of_gradients_beside_the_last_backward_pass_take_what_is_longer_than_it() -> None:
    weights = SHAPE.layers * WORK.layer_weights + WORK.embedding_weights + WORK.other_weights
    step = cost_of(ParallelConfig(2))
    backward = step.spent["products"] / (WORK.micro_batches / 2) * 2 / 3
    for bandwidth, seconds in ((1e9, 2**25 / 1e9), (1e6, 4 * weights / 1e6 - backward)):
        slow = replace(IDEAL, near=Link(bandwidth, 0.0))
        assert cost_of(ParallelConfig(2), machine=slow).spent["gradient sums"] == pytest.approx(seconds)
    sharing = replace(IDEAL, near=Link(1e9, 0.0), at_once=2)
    assert cost_of(ParallelConfig(2), machine=sharing).spent["gradient sums"] == pytest.approx(4 * weights / 1e9)


def test_groups_that_cross_nodes_use_the_network() -> None:
    machine = replace(IDEAL, near=FREE, far=Link(1e9, 0.0), per_node=2)
    assert cost_of(ParallelConfig(1, tensor=2, pipeline=1), machine=machine).spent["tensor sums"] == 0
    assert cost_of(ParallelConfig(1, tensor=4), machine=machine).spent["tensor sums"] > 0


def test_every_listed_layout_divides_the_model_and_uses_all_devices() -> None:
    found = [candidate.layout for candidate in Space(8, [WORK])]
    assert len(found) == len(set(found)) > 20
    for layout in found:
        assert layout.processes == 8
        layout.check(WORK.sizes)


HARD = [  # devices, micro-batches, memory, bandwidth of the links: cases with scarce memory or links
    (256, 1024, 8e9, 30e9),
    (1024, 4096, 6e9, 300e9),
    (96, 384, 6e9, 20e9),
    (64, 256, 5e9, 100e9),
]


@pytest.fixture(scope="module")
def slowdowns() -> dict[tuple[str, int], list[float]]:
    """How much slower than the best what a search finds is, by the search and its budget, over the cases and seeds."""
    found: dict[tuple[str, int], list[float]] = {}
    for devices, micro_batches, memory, bandwidth in HARD:
        work = Work(EncoderConfig.preset("large"), micro_batches, 8192, 128)
        machine = replace(named("a100"), memory=memory, near=Link(bandwidth, 5e-6), base=5e8)
        space = Space(devices, regrouped(work))
        prices = {candidate: cost(candidate.work, candidate.layout, machine) for candidate in space}
        best = min(price.seconds for price in prices.values() if price is not None)
        assert len(prices) > 1000
        for search in (learned_search, random_search):
            for budget in (50, 100, 200, BUDGET):
                ratios = [search(space, prices.__getitem__, budget, seed)[0].seconds / best for seed in range(20)]
                found.setdefault((search.__name__, budget), []).extend(ratios)
    return found


@pytest.mark.slow
def test_the_learned_search_is_within_5_percent_of_the_best_and_beats_random_search(
    slowdowns: dict[tuple[str, int], list[float]],
) -> None:
    for budget in (50, 100, 200, BUDGET):
        assert np.mean(slowdowns["learned_search", budget]) < np.mean(slowdowns["random_search", budget])
        assert np.median(slowdowns["learned_search", budget]) <= 1.05
    assert max(slowdowns["learned_search", BUDGET]) <= 1.05


@pytest.mark.slow
@pytest.mark.xfail(strict=True, reason="a target that is missed since the planner assumes less of GPUs: 87.5 %")
def test_in_95_percent_of_the_runs_100_prices_lead_within_5_percent_of_the_best(
    slowdowns: dict[tuple[str, int], list[float]],
) -> None:
    assert np.mean(np.array(slowdowns["learned_search", 100]) <= 1.05) >= 0.95


def test_a_search_stays_within_its_budget_and_is_deterministic() -> None:
    machine, space = named("a100"), Space(8, [WORK])
    asked: list[Candidate] = []

    def price(candidate: Candidate) -> Cost | None:
        asked.append(candidate)
        return cost(candidate.work, candidate.layout, machine)

    for search in (learned_search, random_search):
        asked.clear()
        first, second = (search(space, price, 20, seed=1) for _ in range(2))
        assert [found.layout for found in first] == [found.layout for found in second]
        assert len(asked) == 40
        assert len(set(asked)) == 20


def test_a_search_with_enough_budget_tries_every_candidate() -> None:
    space = Space(4, [replace(WORK, micro_batches=4)])
    candidates = set(space)
    asked: list[Candidate] = []

    def price(candidate: Candidate) -> Cost | None:
        asked.append(candidate)
        return cost(candidate.work, candidate.layout, IDEAL)

    assert len(random_search(space, price, 10 * len(candidates))) == len(candidates) > 20
    assert set(asked) == candidates


@settings(max_examples=50, deadline=None)
@given(st.sampled_from([4, 6, 8, 12, 64]), st.randoms(use_true_random=False))
def test_a_move_keeps_the_number_of_devices(devices: int, random: Random) -> None:
    space = Space(devices, regrouped(WORK))
    for _ in range(5):
        for _, decision in space.moves(space.draw(random.randrange)):
            assert math.prod(decision.degrees) == devices
            if (found := space.candidate(decision)) is not None:
                assert found.layout.processes == devices


def test_regrouping_a_step_keeps_all_tokens() -> None:
    found = regrouped(WORK)
    assert WORK in found
    assert [work.micro_batches for work in found] == [2, 4, 8, 16, 32, 64, 128]
    assert {work.all_tokens for work in found} == {WORK.all_tokens}
    assert all(work.tokens >= work.length for work in regrouped(replace(WORK, tokens=200)))
    assert [work.micro_batches for work in regrouped(replace(WORK, data_shards=8))] == [8, 16, 32, 64, 128]


def test_data_shards_restrict_layouts_to_replicas_that_divide_them() -> None:
    replicas = {
        data_shards: {found.layout.replicas for found in Space(8, [replace(WORK, data_shards=data_shards)])}
        for data_shards in (1, 2)
    }
    assert replicas == {1: {1, 2, 4, 8}, 2: {1, 2}}


def test_a_remark_says_when_making_batches_may_be_the_bottleneck() -> None:
    def remark(devices: int, **changes: int) -> str | None:
        return make_plan(replace(WORK, **changes), devices, named("a100")).remark_on_data()

    assert remark(1) is None
    shared = remark(8)
    assert shared is not None
    total, own = (int(number.replace(",", "")) for number in re.findall(r"(\d[\d,]+)(?: tokens a second|$)", shared))
    assert total == pytest.approx(8 * own, rel=1e-3)
    assert "with data.data_shards: 8" in shared
    assert remark(8, data_shards=8) is None  # each process makes an eighth


def test_the_configuration_of_the_papers_base_model_feeds_eight_gpus() -> None:
    config = load("ernie2-en", ["corpus=none"])
    plan = make_plan(work_planned(config), 8, named("h100"))
    assert plan.best.layout.replicas == 8
    assert plan.remark_on_data() is None


@pytest.mark.parametrize(
    ("text", "value"),
    [("80GiB", 80 * 2**30), ("300GB/s", 3e11), ("312TFLOP/s", 3.12e14), ("5e-6s", 5e-6), ("16", 16.0), ("1.5kB", 1500)],
)
def test_quantities_are_read_with_their_units(text: str, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["much", "GB", "3 apples", "-4GB", "1.2.3GB", ".", ""])
def test_an_invalid_quantity_raises_an_error_with_an_example(text: str) -> None:
    with pytest.raises(UserError, match="is no quantity; write it like 80GiB"):
        quantity(text)


def test_a_model_that_does_not_fit_raises_an_error_with_the_required_memory() -> None:
    with pytest.raises(UserError, match=r"none of \d+ layouts of 4 devices fits into 1 GB: the smallest needs 2"):
        make_plan(WORK, 4, replace(named("a100"), memory=1e9))
    with pytest.raises(UserError, match="no layout of 11 devices divides 12 heads"):
        make_plan(replace(WORK, shape=replace(SHAPE, layers=2)), 11, named("a100"))


def test_the_yaml_block_rebuilds_the_layout() -> None:
    for layout in (ParallelConfig(2, 4, sequence=True), ParallelConfig(1, pipeline=3, stages=(5, 4, 3))):
        text = block(cost_of(layout), WORK)
        assert build(ParallelConfig, from_dict(yaml.safe_load(text)["parallel"])) == layout


def test_the_yaml_block_sets_micro_batches_and_batch_size_if_they_differ() -> None:
    found = cost_of(ParallelConfig(2), replace(WORK, micro_batches=64, tokens=1024))
    loaded = yaml.safe_load(block(found, WORK))
    assert (loaded["train"], loaded["data"]) == ({"micro_batches": 64}, {"micro_batch_tokens": 1024})


def test_the_command_prints_layouts_reasons_and_the_yaml_block(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    args = ["plan", "ernie2-en", "--set", f"corpus={tmp_path}", "--set", "train.micro_batches=16", "--devices", "8"]
    assert main([*args, "--bandwidth", "1GB/s", "--top", "3"]) == 0
    printed = capsys.readouterr()
    assert "assumed: a100 in bf16 at O1: 140 TFLOP/s in layers, 80 GB, 1 GB/s within a node of 8" in printed.err
    assert "assumed: 45% of the FLOP/s in the maker's data sheet" in printed.err
    rows = [line for line in printed.out.splitlines() if line.startswith("| ")]
    assert len(rows) == 4
    assert re.search(r"\d+\.\d% slower: [\d.]+ [mµ]?s more for ", rows[-1])
    shown = printed.out[printed.out.index("parallel:") :]
    assert build(ParallelConfig, from_dict(yaml.safe_load(shown)["parallel"])).processes == 8


@pytest.mark.parametrize(
    ("train", "message", "value"),
    [
        ("precision: bf16, amp_level: O2", "a100 in bf16 at O2: 140 TFLOP/s", 2),
        ("precision: auto", "a100 in bf16 at O1: 140 TFLOP/s", 4),
        ("precision: fp32", "a100 in fp32, without TF32: 8.78 TFLOP/s", 4),
    ],
)
def test_a_plan_uses_the_precision_of_the_run(
    train: str, message: str, value: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["plan", "ernie2-en", "--set", f"corpus={tmp_path}", "--devices", "1"]
    for key in train.split(", "):
        arguments += ["--set", f"train.{key.replace(': ', '=')}"]
    assert main(arguments) == 0
    assert f"assumed: {message} in layers" in capsys.readouterr().err
    settings = yaml.safe_load(f"{{{train}}}")
    assert named("a100", settings["precision"], settings.get("amp_level", "O1")).value == value


def test_planning_in_a_precision_the_device_lacks_raises_an_error() -> None:
    with pytest.raises(UserError, match="a v100 has no bf16"):
        named("v100", "bf16")
    assert named("v100", "auto") == named("v100", "fp32")


def test_measurements_from_other_layers_cause_a_warning(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "here", lambda: tmp_path / "machine.json")
    arguments = ["plan", "ernie2-en", "--set", "corpus=x", "--set", "train.precision=fp32", "--devices", "1"]
    for precision, warns in (("fp32", False), ("bf16", True)):
        measured = measured_with(EncoderConfig.preset("base"), precision, "O1")
        replace(named("a100"), name=measured).write(machine.here())
        assert main([*arguments, "--kind", "here"]) == 0
        assert (f"warning: --kind here: the figures are of {measured}" in capsys.readouterr().err) is warns


@pytest.mark.parametrize("kind", ["ours", "hf", "official", "paddlenlp"])
def test_the_shape_comes_from_the_model_to_start_from_in_any_format(tmp_path: Path, kind: str) -> None:
    checkpoints.FORMATS["hf" if kind == "ours" else kind](tmp_path, checkpoints.weights(), checkpoints.SETTINGS)
    checkpoints.write_vocabulary(tmp_path)
    model = ErnieModel.from_pretrained(tmp_path)
    if kind == "ours":
        model.save_pretrained(tmp_path / "model")
    start = tmp_path / "model" if kind == "ours" else tmp_path
    config = load("ernie2-en", [f"corpus={tmp_path / 'none'}", f"model.start_from={start}"])
    assert work_planned(config).shape == model.config
    with pytest.raises(UserError, match=r"model\.layers: is 7, but the model in .* has 2; .* leave model\.layers out"):
        work_planned(replace(config, model=replace(config.model, layers=7)))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--devices", "0"], "--devices: expected 1 to 1,000,000, found 0"),
        (["--devices", "1" + "0" * 20], "--devices: expected 1 to 1,000,000"),
        (["--devices", "4", "--kind", "a10"], "--kind: there is no kind of device 'a10'. Did you mean 'a100'?"),
        (["--devices", "4", "--memory", "0GB"], "--memory: expected more than 0, found 0GB"),
        (["--devices", "4", "--per-node", "0"], "--per-node: expected at least 1, found 0"),
    ],
)
def test_invalid_options_are_reported(arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ernie2-en", "--set", "corpus=x", *arguments]) == 2
    assert message in capsys.readouterr().err


def test_kinds_of_devices_may_be_in_capitals(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "ernie2-en", "--set", "corpus=x", "--devices", "7", "--kind", "V100"]) == 0
    assert "assumed: v100 in" in capsys.readouterr().err


def test_bytes_are_printed_with_three_digits() -> None:
    written = {1: "1 B", 999: "999 B", 999_499: "999 kB", 999_600: "1 MB", 1_500_000: "1.5 MB", 2e12: "2 TB"}
    assert {value: in_bytes(value) for value in written} == written


def test_a_quantity_with_the_wrong_unit_raises_an_error() -> None:
    assert quantity("80GB", "B") == quantity("80G", "B") == 80e9
    with pytest.raises(UserError, match="'300GB/s': expected a number of B, found one of B/s"):
        quantity("300GB/s", "B")
    with pytest.raises(UserError, match="'80': expected a number of B with its unit, such as 80GB"):
        quantity("80", "B")


def test_a_machine_that_an_earlier_version_measured_is_read(tmp_path: Path) -> None:
    measured = replace(machine.MACHINES["a100"], per_tensor_latency=1e-6, sharded_base=3.0, pipeline_base=4.0)
    measured.write(tmp_path / "machine.json")
    former = {"per_tensor_latency": "handed", "replicated_activations": "kept_alike"}
    former |= {"sharded_base": "handed_base", "pipeline_base": "piped_base"}
    content = json.loads((tmp_path / "machine.json").read_text())
    (tmp_path / "former.json").write_text(json.dumps({former.get(key, key): value for key, value in content.items()}))
    assert Machine.read(tmp_path / "former.json") == measured
