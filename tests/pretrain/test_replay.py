"""`ernie replay` rebuilds a step bit for bit, and names the fault that was planted in it."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from safetensors.numpy import load_file, save_file

from ernie.cli import main
from ernie.data.batch import Packed
from ernie.errors import UserError
from ernie.kernels.types import LayerSettings
from ernie.model import encoder
from ernie.model.losses import Loss
from ernie.parallel.distributed_model import DistributedModel
from ernie.replay.report import read_readings
from ernie.sha256 import checksums_of
from pretrain.diagnosis import bisect, compare, diagnose
from pretrain.model import MultiTaskModel
from pretrain.replay import Replay
from pretrain.run import Run

STEP = 21  # the first one after a checkpoint, counted from 1
WEIGHTS = "model/model.safetensors"
ONE_TASK = ("--set", "schedule.tasks=[capitalization]")


def replay(run: Path, *words: str) -> int:
    return main(["replay", str(run), "--quiet", *words])


def diagnosed(run: Path, step: int = STEP) -> list[str]:
    """What is said of a step, without its report."""
    rebuilt = Replay(run, step - 1)
    try:
        found = diagnose(rebuilt, rebuilt.observe())
    finally:
        rebuilt.close()
    faults = ("not finite", "another", "departs", "other values")
    assert found.holds == (not any(fault in line for fault in faults for line in found.lines))
    return found.lines


@pytest.fixture
def run(finished: tuple[Path, Path], tmp_path: Path) -> Path:
    """A copy of a finished run of 24 steps, with checkpoints of steps 20 and 24."""
    return shutil.copytree(finished[1], tmp_path / "run")


def change(checkpoint: Path, name: str, change: Callable[[np.ndarray], None], file: str = WEIGHTS) -> None:
    """Change a tensor of a checkpoint as if it had been saved like that."""
    arrays = load_file(checkpoint / file)
    change(arrays[name])
    save_file(arrays, checkpoint / file)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["sha256"] |= checksums_of(checkpoint, [file])
    (checkpoint / "manifest.json").write_text(json.dumps(manifest))


def flip(bit: int, at: int) -> Callable[[np.ndarray], None]:
    def flipped(values: np.ndarray) -> None:
        values.reshape(-1).view(np.uint32)[at] ^= np.uint32(1 << bit)

    return flipped


def test_a_step_has_the_bits_of_the_run(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert replay(run, "--step", "24", "--samples") == 0
    printed = capsys.readouterr().out
    assert "every value of the step is finite" in printed
    assert "the run's records of steps 21 to 24 agree bit for bit with the replay" in printed
    assert "the checkpoint of step 24 has the bits of the replay" in printed
    assert re.search(r"^\| 1 ernie\.encoder\.layers\.0 +\| [\d.]+ ", printed, re.MULTILINE)
    assert re.search(r"sample \d of item \d+ of its documents \(.*topics\.jsonl:\d+\), epoch 0", printed)
    page = run / "replay" / "step-00000024.html"
    assert printed.endswith(f"{page}\n")
    html = page.read_text(encoding="utf-8")
    assert html.count("<img") >= 6 and "http" not in html.replace("http://www.w3.org", "")
    assert len(json.loads(page.with_suffix(".json").read_text())["readings"]) > 100


def test_observing_a_step_does_not_change_it_and_may_be_repeated(run: Path) -> None:
    watched, plain = Replay(run, STEP - 1), Replay(run, STEP - 1)
    try:
        first, again = watched.observe(), watched.observe()
        plain.advance()
    finally:
        watched.close()
        plain.close()
    assert [reading.digest for reading in first.readings] == [reading.digest for reading in again.readings]
    for name, values in plain.weights.items():
        assert np.array_equal(values, first.weights[name]), name
    for name, values in plain.moments.items():
        assert np.array_equal(values, first.optimizer[name]), name


def test_a_weight_that_is_not_finite_is_named(run: Path) -> None:
    def spoil(values: np.ndarray) -> None:
        values[3, 7] = np.nan

    change(run / "checkpoints" / "step-00000020", "encoder.layers.0.inner.weight", spoil)
    told = "first not finite: the weight ernie.encoder.layers.0.inner.weight: 1 of 2,048 values not finite"
    assert diagnosed(run)[0] == f"{told}, the first at [3, 7], in the checkpoint of step 20"


def test_the_document_that_makes_the_loss_infinite_is_named(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rebuilt = Replay(run, STEP - 1)
    [(task, batch), *_] = rebuilt.observe().batches
    assert batch is not None
    odd = batch.samples[len(batch.samples) // 2].tolist()
    place = rebuilt.place(task, odd)
    rebuilt.close()
    plain = MultiTaskModel.head_loss

    def head_loss(self: MultiTaskModel, name: str, hidden_TD: Any, batch: Packed) -> Loss:
        found = plain(self, name, hidden_TD, batch)
        is_in = (batch.samples == odd).all(1).any()
        return Loss(found.total * (float("inf") if is_in else 1.0), found.count, None, found.labels)

    monkeypatch.setattr(MultiTaskModel, "head_loss", head_loss)
    first, *lines = diagnosed(run)
    assert first == f"first not finite: the loss of {task} in micro-batch 1: 1 of 1 value not finite, the first"
    told = f"sample: {task}: sample {odd[2]} of {place}, epoch {odd[0]}"
    assert [line for line in lines if line.startswith("sample: ")] == [told]


def test_the_operator_whose_output_is_not_finite_is_named_with_its_samples(run: Path) -> None:
    """A weight that is finite, and overflows the product with the vectors of some tokens."""

    def spoil(values: np.ndarray) -> None:
        values[:, 5] = 3e38

    change(run / "checkpoints" / "step-00000020", "encoder.layers.0.inner.weight", spoil)
    first, second, *_ = diagnosed(run)
    assert first.startswith(
        "first not finite: the output of the operator ernie.encoder.layers.0.inner in micro-batch 1"
    )
    assert second.startswith("sample: ")


def test_a_flipped_bit_in_the_gradient_of_one_rank_is_named(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, bit, name = tmp_path / "run", 26, "ernie.encoder.layers.0.attention_out.weight"
    plain = DistributedModel.backward

    def backward(self: DistributedModel, tasks: Any, made: Any, loss: Any) -> Any:
        calls = []

        def flipped(gradient: paddle.Tensor) -> paddle.Tensor | None:
            calls.append(None)
            if len(calls) != 2 or self.steps_done != 3:  # the second micro-batch of the fourth step
                return None
            values = gradient.numpy()
            flip(bit, 45)(values)
            return paddle.to_tensor(values)

        self.steps_done = getattr(self, "steps_done", -1) + 1
        hook = self.state.parameters[name].register_hook(flipped)
        try:
            return plain(self, tasks, made, loss)
        finally:
            hook.remove()

    with monkeypatch.context() as patch:
        patch.setattr(DistributedModel, "backward", backward)
        words = ["--set", "save.every=1", "--set", "save.keep_last=9", "--set", "train.micro_batches=2"]
        words += ["--set", "train.precision=fp32"]  # in bfloat16 the bit is within the rounding of the records
        words += [*ONE_TASK, "--set", "schedule.steps_per_task=5", "--quiet", "--output", str(run)]
        assert main(["pretrain", str(config), *words]) == 0
    origin = json.loads((run / "origin.json").read_text())
    (run / "origin.json").write_text(json.dumps({**origin, "layout": "data 2"}))  # the same numbers
    _, recorded, saved = diagnosed(run, 4)
    assert recorded.startswith("the run departs from its replay at step 4: gradient norm")
    told = f"the run had another gradient: the gradient of {name}, summed over the micro-batches: at [1, 13] "
    assert saved.startswith(told)
    assert saved.endswith(f": bit {bit} of it is flipped in micro-batch 2, which rank 1 computed")


def test_a_layer_that_rounds_otherwise_is_named_by_the_readings_of_another_machine(
    run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain = encoder.transformer_layer

    def rounded(x_TD: Any, layout: Any, weights: Any, settings: LayerSettings, *rest: Any) -> Any:
        return plain(x_TD, layout, weights, settings, *rest) * np.float32(1 + 2**-22)

    assert replay(run, "--step", str(STEP), "--output", str(tmp_path / "here.html")) == 0
    assert not (run / "replay").exists()
    readings = read_readings(tmp_path / "here.json", STEP)
    with monkeypatch.context() as patch:
        patch.setattr(encoder, "transformer_layer", rounded)
        there = Replay(run, STEP - 1)
        told = compare(there, there.observe(), readings, None, 0.0)
        near = compare(there, there.observe(), readings, None, 1e-3)
        there.close()
    first = "first tensor that differs: the output of ernie.encoder.layers.0 in micro-batch 1: by "
    assert told.lines[0].startswith(first) and not told.holds
    assert near.lines == ["no tensor of the step differs by more than 0.001 from that of the other run"]
    with pytest.raises(UserError, match="is a replay of step 21, not of step 22"):
        read_readings(tmp_path / "here.json", STEP + 1)


def test_the_first_tensor_in_which_two_runs_differ_is_named(run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    change(other / "checkpoints" / "step-00000020", "encoder.layers.0.v.weight", flip(20, 33))
    origin = json.loads((other / "origin.json").read_text())
    origin["versions"]["paddlepaddle-gpu"] = origin["versions"].pop("paddlepaddle")
    (other / "origin.json").write_text(json.dumps(origin))
    one, two = Replay(run, STEP - 1), Replay(other, STEP - 1)
    assert one.notes == []
    assert two.notes == ["the run was trained with paddlepaddle-gpu, and a GPU draws another dropout than a CPU"]
    told = compare(one, one.observe(), two.observe().readings, lambda place: two.observe([place]).kept[place], 0.0)
    one.close()
    two.close()
    where = r"the weight ernie\.encoder\.layers\.0\.v\.weight: 1 of 1,024 values; at \[1, 1\] .*: bit 20 is flipped"
    assert re.search(f"^first tensor that differs: {where} in the other run", told.lines[0])
    assert not told.holds


def test_a_run_of_another_seed_differs_from_the_first_step(config: Path, tmp_path: Path) -> None:
    for seed in ("1", "2"):
        words = ["--seed", seed, *ONE_TASK, "--set", "schedule.steps_per_task=2", "--quiet"]
        assert main(["pretrain", str(config), *words, "--output", str(tmp_path / seed)]) == 0
    found = bisect(tmp_path / "1", tmp_path / "2", lambda run, step: Replay(run, step, from_start=True))
    assert (found.step, found.replays) == (0, True)
    assert found.lines[0] == "their records first differ at step 1: other samples"
    assert "ahead of step 1: ernie.embedding.token.weight: " in found.lines[-1]


def test_the_run_whose_checkpoint_is_not_what_its_steps_give_is_found(run: Path, tmp_path: Path) -> None:
    other = shutil.copytree(run, tmp_path / "other")
    change(other / "checkpoints" / "step-00000024", "encoder.layers.0.v.weight", flip(20, 33))
    found = bisect(run, other, Replay)
    assert (found.step, found.replays, found.odd) == (23, False, 1)
    told = f"the checkpoint of step 24 in {other} is not what its replay gives: ernie.encoder.layers.0.v.weight: 1 of "
    assert found.lines[-1].startswith(told)
    assert any(re.search(r" of .*v\.weight: .*: bit 20 is flipped in it$", line) for line in diagnosed(other, 24))


def test_what_a_user_can_mend_is_said_in_a_sentence(run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        capsys.readouterr()
        assert replay(run, *words) == 2
        return capsys.readouterr().err

    assert "give the step to replay, --step N, or the run" in refused()
    assert "has no checkpoint from before step 20: the earliest was written after step 20" in refused("--step", "20")
    assert "--from-start trains the 19 steps before it once more" in refused("--step", "20")
    assert "has done 24 steps; steps count from 1" in refused("--step", "25")
    assert "has done 24 steps; steps count from 1" in refused("--step", "0")
    assert "is not a corpus" in refused("--step", "21", "--corpus", str(run / "nowhere"))
    assert "a name that ends in .html" in refused("--step", "21", "--output", "a.txt")
    other = json.loads((run / "origin.json").read_text())
    other["versions"]["ernie-continual"] = "0.0.1"
    (run / "origin.json").write_text(json.dumps(other))
    assert "was trained with ernie-continual 0.0.1, this is" in refused("--step", "21")


def test_a_run_that_crashed_before_its_first_checkpoint_is_replayed_from_its_beginning(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    run, plain = tmp_path / "run", Run.train

    def train(self: Run, *arguments: Any) -> Any:
        if self.step == 2:
            raise ArithmeticError("the third step crashes")
        return plain(self, *arguments)

    with monkeypatch.context() as patch, pytest.raises(ArithmeticError):
        patch.setattr(Run, "train", train)
        main(["pretrain", str(config), *ONE_TASK, "--output", str(run), "--quiet", "--set", "train.precision=fp32"])
    saved = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(saved.replace("precision: fp32", "precision: bf16"), encoding="utf-8")
    rebuilt = Replay(run, 2, from_start=True, precision="fp32")
    assert rebuilt.notes == ["the run was trained in bf16, and is replayed in fp32"]
    assert "the run has no record of this step" in diagnose(rebuilt, rebuilt.observe()).lines
    rebuilt.close()
