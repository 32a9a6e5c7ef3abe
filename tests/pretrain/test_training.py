"""Starting, stopping, resuming and verifying pretraining runs from the command line."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import forked
import numpy as np
import paddle
import pytest
import yaml
from paddle import nn
from running import CONFIG, build_corpus, made_up_text

from ernie import ErnieModel, sha256
from ernie.cli import main
from ernie.data.batch import Packed
from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.kernels.cpu.library import library
from ernie.model.losses import Loss, cross_entropy
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.world import World
from ernie.sha256 import file_sha256
from ernie.train.checkpoint import MANIFEST, Checkpoints, read_manifest
from ernie.train.lock import LOCK, run_lock
from ernie.train.log import read_records
from pretrain import folder, verify
from pretrain.config import DataConfig, ProbeConfig, load
from pretrain.feeds import open_streams, sources
from pretrain.probe import Probe, first_batches
from pretrain.run import STATE
from pretrain.scaling.points import read_run
from pretrain.schedule import ScheduleConfig
from pretrain.verify import Certificate, _ConsumedSamples
from tasks.base import PretrainTask
from tasks.objectives.discourse_relation import DiscourseRelation

GOLDEN = Path(__file__).with_name("golden_losses.json")
ROOT = Path(__file__).parent.parent.parent


def pretrain(config: Path, output: Path, *more: str) -> int:
    return main(["pretrain", str(config), "--output", str(output), "--quiet", *more])


def start_process(config: Path, output: Path, *more: str, fresh: bool = False) -> subprocess.Popen[str]:
    """Start a run in a fork, or in an interpreter that reads the number of threads."""
    words = ["pretrain", str(config), "--output", str(output), "--quiet", *more]
    command = [*forked.python(fresh=fresh), "-m", "ernie.cli", *words]
    return subprocess.Popen(command, text=True, stderr=subprocess.PIPE)


def await_step(output: Path, step: int, process: subprocess.Popen[str]) -> None:
    """Wait until a run has logged `step`."""
    metrics = output / "metrics.jsonl"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        if metrics.exists() and re.search(rf'"kind": "step", "step": {step},', metrics.read_text(encoding="utf-8")):
            return
        time.sleep(0.01)
    raise AssertionError(f"the run never came to step {step}: {process.communicate()[1]}")


def outcome(output: Path) -> tuple[str, list[str]]:
    """Everything a run must reproduce: its last checkpoint and its records without times and memory."""
    last = sorted((output / "checkpoints").iterdir())[-1]
    digest = hashlib.sha256()
    for file in sorted(last.rglob("*")):
        if file.is_file():
            digest.update(file.relative_to(last).as_posix().encode() + file.read_bytes())
    records = []
    for record in read_records(output):
        if record["kind"] == "layout":
            continue
        for key in ("seconds", "waited"):
            record.pop(key, None)
        records.append(json.dumps(record))
    return digest.hexdigest(), records


@pytest.fixture(scope="module")
def finished(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A configuration and the folder of its uninterrupted run, by a process of its own."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert start_process(config, folder).wait() == 0
    return config, folder


def test_a_run_trains_every_task_for_its_scheduled_steps(finished: tuple[Path, Path]) -> None:
    records = read_records(finished[1], "step")
    counts: dict[str, int] = {}
    for record in records:
        for name in record["loss"]:
            counts[name] = counts.get(name, 0) + 1
    assert counts == {"knowledge_masking": 8, "capitalization": 8, "sentence_reordering": 8}
    assert [record["step"] for record in records] == list(range(24))


def test_the_model_card_has_the_command_also_when_a_program_ran_it(finished: tuple[Path, Path]) -> None:
    """These tests call `ernie.cli.main`, as examples/quickstart.py does, and so are no command themselves."""
    config, run = finished
    assert f"```console\nernie pretrain {config} --output {run}" in (run / "README.md").read_text()


def test_every_earlier_task_is_measured_again_after_each_stage(finished: tuple[Path, Path]) -> None:
    probes = read_records(finished[1], "probe")
    tasks = ["knowledge_masking", "capitalization", "sentence_reordering"]
    assert [(probe["stage"], probe["task"]) for probe in probes] == [(s, t) for s in range(3) for t in tasks[: s + 1]]


def test_a_checkpoint_has_a_score_only_if_its_state_was_measured(finished: tuple[Path, Path]) -> None:
    checkpoints = Checkpoints(finished[1] / "checkpoints")
    scores = {step: read_manifest(checkpoints.path(step))["score"] for step in checkpoints.steps()}
    assert scores[20] is None  # saved because of `every`
    assert 0 < scores[24] < 1  # the end of a stage


def test_a_killed_run_resumes_bit_for_bit(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, uninterrupted = finished
    for step in (2, 9, 17):  # before the first checkpoint, in the second stage, in the third
        process = start_process(config, tmp_path / "run")
        await_step(tmp_path / "run", step, process)
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert start_process(config, tmp_path / "run").wait() == 0
    assert outcome(tmp_path / "run") == outcome(uninterrupted)
    assert main(["verify", str(tmp_path / "run"), "--quiet"]) == 0


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_saves_the_step_and_the_run_resumes_from_it(
    finished: tuple[Path, Path], tmp_path: Path, number: signal.Signals
) -> None:
    config, uninterrupted = finished
    process = start_process(config, tmp_path / "run")
    await_step(tmp_path / "run", 6, process)
    process.send_signal(number)
    assert process.wait() == 130
    steps = read_records(tmp_path / "run", "step")
    saved = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1]
    assert saved.name == f"step-{len(steps):08d}"
    assert pretrain(config, tmp_path / "run") == 0
    assert outcome(tmp_path / "run")[0] == outcome(uninterrupted)[0]


@pytest.mark.slow
def test_a_killed_run_with_moments_per_task_resumes_bit_for_bit(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, options = finished[0], ("--set", "train.moments=each_task")
    assert pretrain(config, tmp_path / "whole", *options) == 0
    process = start_process(config, tmp_path / "run", *options)
    await_step(tmp_path / "run", 17, process)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert pretrain(config, tmp_path / "run", *options) == 0
    assert outcome(tmp_path / "run") == outcome(tmp_path / "whole")
    assert outcome(tmp_path / "run")[0] != outcome(finished[1])[0]


@pytest.mark.skipif(library() is None, reason="there are no kernels in C++ here")
def test_the_number_of_threads_changes_nothing(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, uninterrupted = finished
    for threads in ("1", "3"):
        monkeypatch.setenv("MKL_NUM_THREADS", threads)
        assert start_process(config, tmp_path / threads, fresh=True).wait() == 0
        assert outcome(tmp_path / threads) == outcome(uninterrupted)


def test_worker_processes_change_nothing(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, uninterrupted = finished
    process = start_process(config, tmp_path / "run", "--set", "data.workers=2")
    assert process.wait() == 0
    assert outcome(tmp_path / "run") == outcome(uninterrupted)


def test_the_first_losses_match_the_golden_file(tmp_path: Path) -> None:
    """Explain a change to the golden file in its commit; ERNIE_WRITE_GOLDEN=1 rewrites it."""
    config = tmp_path / "run.yaml"
    corpus = build_corpus(made_up_text(tmp_path / "text.txt"), tmp_path / "corpus")
    config.write_text(CONFIG.format(corpus=corpus), encoding="utf-8")
    # Without dropout and in fp32 the losses do not depend on the kernel implementation.
    options = ("--set", "model.dropout=0.0", "--set", "model.attention_dropout=0.0", "--set", "train.precision=fp32")
    assert pretrain(config, tmp_path / "run", *options) == 0
    found = [next(iter(record["loss"].values())) for record in read_records(tmp_path / "run", "step")[:20]]
    if os.environ.get("ERNIE_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps([round(loss, 6) for loss in found], indent=0) + "\n", encoding="utf-8")
    # The tolerance is far above rounding differences between CPUs and far below any change of data or weights.
    np.testing.assert_allclose(found, json.loads(GOLDEN.read_text(encoding="utf-8")), rtol=1e-4)


def test_the_encoder_loads_in_python(finished: tuple[Path, Path]) -> None:
    import paddle

    from ernie import ErnieModel

    model = ErnieModel.from_pretrained(finished[1])
    assert model.tokenizer is not None
    ids = model.tokenizer.encode("The with statement is used to wrap the execution of a block.").ids
    output = model(paddle.to_tensor(ids[None]))
    assert list(output.last_hidden_state.shape) == [1, len(ids), 32]
    assert np.isfinite(output.last_hidden_state.numpy()).all()


def test_a_changed_configuration_is_rejected_with_the_difference(
    finished: tuple[Path, Path], capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    assert pretrain(config, run, "--set", "train.clip=0.5") == 2
    error = capsys.readouterr().err
    assert "train.clip: was 1.0, is 0.5" in error
    assert "--allow-change train.clip" in error
    assert main(["pretrain", str(config), "--output", str(run), "--set", "save.every=7"]) == 0  # this key may change
    assert "all 24 steps are done already; append a stage to the schedule to continue" in capsys.readouterr().err
    assert pretrain(config, run, "--set", "probe.batches=3") == 2  # other documents would make scores incomparable
    assert "probe.batches: was 2, is 3" in capsys.readouterr().err


def test_a_change_that_the_user_names_is_allowed(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, _ = finished
    process = start_process(config, tmp_path / "run")
    await_step(tmp_path / "run", 6, process)
    process.kill()
    process.wait()
    assert pretrain(config, tmp_path / "run", "--set", "train.clip=0.5", "--allow-change", "train") == 0


def test_verify_says_which_change_made_it_draw_other_samples(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    last = sorted((run / "checkpoints").iterdir())[-1]
    shutil.rmtree(last)
    shutil.rmtree(run / "model")
    assert (
        pretrain(config, run, "--set", "data.micro_batch_tokens=256", "--allow-change", "data.micro_batch_tokens") == 0
    )
    assert main(["verify", str(run), "--quiet"]) == 1
    assert "note: the run was resumed with other values of data.micro_batch_tokens: samples" in capsys.readouterr().out


def test_the_number_of_lanes_cannot_change(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    changes = ["--set", "data.data_shards=2", "--set", "train.micro_batches=2"]
    assert pretrain(config, run, *changes) == 2
    offered = capsys.readouterr().err
    assert "data.data_shards: was 1, is 2" in offered
    assert "name the keys that may differ: --allow-change train.micro_batches\n" in offered
    assert pretrain(config, run, *changes, "--allow-change", "data", "--allow-change", "train") == 2
    assert "data.data_shards: is 2, but the run has read its documents in 1 shard so far" in capsys.readouterr().err


def test_allowing_a_change_of_an_unknown_key_is_rejected(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    for output in (run, tmp_path / "fresh"):
        assert pretrain(config, output, "--allow-change", "train.clipp") == 2
        error = capsys.readouterr().err
        assert "--allow-change train.clipp: there is no such key" in error
        assert "train.clip" in error.replace("train.clipp", "")
    assert not (tmp_path / "fresh" / "config.yaml").exists()


def test_a_damaged_checkpoint_is_reported_with_a_remedy(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = finished
    assert pretrain(config, tmp_path / "run") == 0
    weights = sorted((tmp_path / "run" / "checkpoints").iterdir())[-1] / "model" / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    assert pretrain(config, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert str(weights) in error
    assert "Delete the folder" in error


def test_a_run_without_its_checkpoints_or_records_says_what_it_does(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    start = ["pretrain", str(config), "--output", str(run)]
    (run / "metrics.jsonl").unlink()
    assert main(start) == 0
    assert "metrics.jsonl lacks the records of 24 of the 24 steps that are done" in capsys.readouterr().err

    first, last = sorted((run / "checkpoints").iterdir())
    (last / STATE).write_text("{")
    assert main(start) == 2
    assert "Delete the folder" in capsys.readouterr().err
    shutil.rmtree(last)
    (first / STATE).write_text("{")
    assert main(start) == 2
    assert "There is no earlier checkpoint: delete the folder" in capsys.readouterr().err

    shutil.rmtree(run / "model")
    shutil.rmtree(first)
    shutil.copy(finished[1] / "metrics.jsonl", run)
    assert main(start) == 0
    note = "there is no checkpoint, so the run starts from its beginning, and the records of the 24 steps in metrics"
    assert note in capsys.readouterr().err


def test_a_run_without_its_origin_is_called_damaged(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    (run / "origin.json").unlink()
    assert pretrain(config, run) == 2
    assert f"{run}: is the folder of a run, but damaged: it has no origin.json" in capsys.readouterr().err


def test_the_checksums_of_a_checkpoint_are_verified_once(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, uninterrupted = finished
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    hashed: list[Path] = []

    def counted(file: Path) -> str:
        hashed.append(file)
        return file_sha256(file)

    monkeypatch.setattr(sha256, "file_sha256", counted)
    assert pretrain(config, run) == 0
    last = sorted((run / "checkpoints").iterdir())[-1].resolve()
    assert sorted(file for file in hashed if last in file.parents) == sorted(
        last / name for name in read_manifest(last)["sha256"]
    )


@pytest.mark.parametrize("content", ["{}", "[]", "{", '{"corpus": 1}'])
def test_a_damaged_origin_is_reported_by_every_command(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str
) -> None:
    config, uninterrupted = finished
    run = shutil.copytree(uninterrupted, tmp_path / "run")
    (run / "origin.json").write_text(content)
    for command in (["verify", str(run)], ["report", str(run)], ["pretrain", str(config), "--output", str(run)]):
        assert main(command) == 2
        assert "origin.json" in capsys.readouterr().err


def test_verify_finds_a_step_with_different_samples(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, _ = finished
    assert pretrain(config, tmp_path / "run") == 0
    metrics = tmp_path / "run" / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines()
    index = next(i for i, line in enumerate(lines) if '"kind": "step", "step": 11,' in line)
    record = json.loads(lines[index])
    record["samples"] = dict.fromkeys(record["samples"], "00000000")
    lines[index] = json.dumps(record)
    metrics.write_text("\n".join(lines) + "\n", encoding="utf-8")
    assert main(["verify", str(tmp_path / "run"), "--quiet"]) == 1
    found = capsys.readouterr().out
    assert "step 12: the samples' hash is" in found  # records count from 0, people from 1
    assert "NOT verified: 1 difference\n" in found


def test_verify_finds_a_missing_record_and_a_checkpoint_at_another_position(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines(keepends=True)
    metrics.write_text("".join(line for line in lines if '"kind": "step", "step": 5,' not in line), encoding="utf-8")
    last = run / "checkpoints" / "step-00000024"
    state, manifest = json.loads((last / STATE).read_text()), read_manifest(last)
    state["streams"]["capitalization"]["batch"] += 1
    (last / STATE).write_text(json.dumps(state))
    manifest["sha256"][STATE] = file_sha256(last / STATE)
    (last / MANIFEST).write_text(json.dumps(manifest))
    assert main(["verify", str(run), "--quiet"]) == 1
    found = capsys.readouterr().out
    assert "step 6: there is no record of it in metrics.jsonl\n" in found
    assert "checkpoint of step 24: capitalization is at {'epoch': " in found
    assert "NOT verified: 2 differences\n" in found


def test_verify_names_a_damaged_checkpoint_and_compares_the_others(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    first, *others = sorted((run / "checkpoints").glob("step-*"))
    (first / STATE).write_text("{}")
    assert main(["verify", str(run), "--quiet"]) == 1
    found = capsys.readouterr().out
    assert f"checkpoint of step {int(first.name[5:])}: {first / STATE}: does not match its checksum" in found
    assert others
    assert "NOT verified: 1 difference\n" in found


def test_verify_passes_over_a_checkpoint_that_a_run_removes_meanwhile(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    first, *others = sorted((run / "checkpoints").glob("step-*"))
    compare = verify.check

    def check(path: Path) -> None:
        shutil.rmtree(first, ignore_errors=True)
        compare(path)

    monkeypatch.setattr(verify, "check", check)
    assert main(["verify", str(run), "--quiet"]) == 0
    assert f"{len(others)} checkpoint" in capsys.readouterr().out


@pytest.mark.parametrize("resumed", ["3", "[{}]", '{"changed": []}'])
def test_a_damaged_list_of_resumes_is_reported(
    resumed: str, finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    record = json.loads((run / "origin.json").read_text(encoding="utf-8"))
    (run / "origin.json").write_text(json.dumps({**record, "resumed": json.loads(resumed)}), encoding="utf-8")
    assert main(["verify", str(run), "--quiet"]) == 2
    assert "origin.json: resumed: expected a list of objects with the key changed" in capsys.readouterr().err


def test_only_the_steps_of_the_measured_task_count_as_reading_the_text(finished: tuple[Path, Path]) -> None:
    run = finished[1]
    tokens = sum(record["tokens"] for record in read_records(run, "step") if "knowledge_masking" in record["loss"])
    point = read_run(run)
    assert point.passes == pytest.approx(tokens / point.size)


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("step", '"seconds"', '"hours"'),
        ("probe", '"task"', '"exercise"'),
        ("probe", '"perplexity": {"', '"perplexity": {"value": "x", "'),
        ("step", '"step": 3', '"step": 30'),
    ],
)
def test_a_damaged_record_is_reported_by_scaling(
    kind: str, old: str, new: str, finished: tuple[Path, Path], tmp_path: Path
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    metrics = run / "metrics.jsonl"
    lines = metrics.read_text(encoding="utf-8").splitlines()
    number = next(i for i, line in enumerate(lines) if json.loads(line)["kind"] == kind and old in line)
    lines[number] = lines[number].replace(old, new).replace(', "value"', ', "former"')
    metrics.write_text("\n".join(lines) + "\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"metrics\.jsonl: (step \d+: seconds|probe \d+: (task|scores)|holds what)"):
        read_run(run)


@pytest.mark.parametrize(
    ("taken", "problems"),
    [
        ([(0, 0, 0), (0, 2, 0), (0, 1, 0), (1, 2, 0)], []),
        ([(0, 0, 0), (0, 2, 0), (0, 1, 0), (1, 2, 0), (1, 2, 0)], ["epoch 1: 1 sample consumed twice"]),
        ([(0, 0, 0), (0, 2, 0), (1, 1, 0)], ["epoch 0: 1 of 3 samples missed"]),
        ([(0, 0, 0), (0, 0, 0), (0, 1, 0)], ["epoch 0: 1 sample consumed twice"]),
        ([], []),
    ],
)
def test_duplicate_and_missing_samples_are_reported(taken: list[tuple[int, int, int]], problems: list[str]) -> None:
    """A completed epoch must not miss any; the rest of the current one is still to come."""
    source = SimpleNamespace(items=range(3), named_samples=lambda epoch, first, last: iter(range(first, last)))
    consumed = _ConsumedSamples()
    for name in taken:
        consumed.add(np.array([name]))
    assert consumed.problems(SimpleNamespace(epoch=1, source=source)) == problems  # type: ignore


def test_verify_finds_a_schedule_that_ends_before_the_run(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    text = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(text.replace("steps_per_task: 8", "steps_per_task: 4"), encoding="utf-8")
    assert main(["verify", str(run), "--quiet"]) == 1
    message = "step 12: the schedule in config.yaml ends here, but the run has come to step 24"
    assert message in capsys.readouterr().out


def test_a_task_from_outside_the_library_trains(
    corpus: Path, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    plugin = ["--set", "plugins=[shuffled_words]"]
    schedule = ["--set", "schedule={stages: [{knowledge_masking: 2}, {knowledge_masking: 1, shuffled_words: 3}]}"]
    file = tmp_path / "plain.yaml"
    text = config.read_text(encoding="utf-8")
    file.write_text(re.sub(r"schedule:\n.*\n.*\nobjectives:\n.*\n", "", text), encoding="utf-8")
    assert pretrain(file, tmp_path / "run", *plugin, *schedule) == 0
    assert {record["task"] for record in read_records(tmp_path / "run", "probe")} == {
        "knowledge_masking",
        "shuffled_words",
    }


@pytest.mark.parametrize(
    ("line", "replacement", "expected"),
    [
        ('("macro_f1", "accuracy")', '("macro_fl",)', "there is no metric 'macro_fl'. Did you mean 'macro_f1'?"),
        ('("macro_f1", "accuracy")', '("accuracy")', "expected names of metrics"),
        ("(shuffled != ids).astype(np.int64)", "np.full(len(ids), -1)", "not one label in them to be measured by"),
        ("(shuffled != ids).astype(np.int64)", "np.full(len(ids), 2)", "a label is 2, and the task has 2 classes"),
    ],
)
def test_errors_in_a_custom_task_are_reported_before_training(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str, replacement: str, expected: str
) -> None:
    text = (ROOT / "examples" / "shuffled_words.py").read_text(encoding="utf-8")
    assert line in text
    (tmp_path / "own_words.py").write_text(text.replace(line, replacement).replace('task("shuffled', 'task("own'))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    schedule = ["--set", "schedule.tasks=[knowledge_masking, own_words]"]
    process = start_process(config, tmp_path / "run", "--set", "plugins=[own_words]", *schedule)
    error = process.communicate()[1]
    assert process.returncode == 2, error
    assert "task 'own_words'" in error
    assert expected in error
    assert "Traceback" not in error
    log = tmp_path / "run" / "metrics.jsonl"
    assert not log.exists() or not read_records(tmp_path / "run", "step")


def test_a_run_with_an_edited_custom_task_resumes_only_if_allowed(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    plugin, run = tmp_path / "edited_words.py", tmp_path / "run"
    text = (
        (ROOT / "examples" / "shuffled_words.py").read_text(encoding="utf-8").replace('task("shuffled', 'task("edited')
    )
    plugin.write_text(text, encoding="utf-8")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path), prepend=os.pathsep)
    file = tmp_path / "plain.yaml"
    file.write_text(re.sub(r"schedule:\n.*\n.*\n", "", config.read_text(encoding="utf-8")), encoding="utf-8")

    def run_stages(stages: str, *more: str) -> tuple[int, str]:
        options = ("--set", "plugins=[edited_words]", "--set", f"schedule={{stages: [{stages}]}}", *more)
        process = start_process(file, run, *options)
        return process.wait(), process.communicate()[1]

    first, both = "{edited_words: 2}", "{edited_words: 2}, {edited_words: 1, knowledge_masking: 1}"
    appended = ("--allow-change", "schedule", "--allow-change", "objectives")
    assert run_stages(first) == (0, "")
    assert "```\n\nThe plug-in `edited_words` must be on the Python path" in (run / "README.md").read_text()
    plugin.write_text(text + "# no word of it is the same\n", encoding="utf-8")
    status, error = run_stages(both, *appended)
    assert status == 2
    assert "plugins: the code of edited_words was changed since the run in" in error
    assert "--allow-change plugins" in error
    assert run_stages(both, *appended, "--allow-change", "plugins")[0] == 0
    assert "plugins" in folder.read_origin(run)["resumed"][0]["changed"]
    assert "resumed with another `objectives.knowledge_masking`, `plugins`" in (run / "README.md").read_text()
    assert run_stages(both)[0] == 0  # a change needs to be allowed only once


def test_a_finished_run_has_a_model_card_that_describes_it(finished: tuple[Path, Path]) -> None:
    _, run = finished
    card = (run / "README.md").read_text()
    corpus = Corpus.open(yaml.safe_load((run / "config.yaml").read_text())["corpus"])
    assert f"{len(corpus.train):,} documents" in card
    assert f"{corpus.tokenizer.vocab_size:,} tokens" in card
    assert "24 steps in 3 stages" in card
    for task in ("knowledge_masking", "capitalization", "sentence_reordering"):
        assert re.search(rf"\| {task} +\|", card)


def test_a_run_from_before_sample_mixing_is_verified_and_resumed_without_mixing(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], tmp_path / "run"
    assert pretrain(config, run, "--set", "data.shuffle_buffer_tokens=0") == 0
    saved = (run / "config.yaml").read_text(encoding="utf-8")
    (run / "config.yaml").write_text(saved.replace("  shuffle_buffer_tokens: 0\n", ""), encoding="utf-8")
    assert main(["verify", str(run), "--quiet"]) == 0
    assert pretrain(config, run) == 2
    assert f"data.shuffle_buffer_tokens: was 0, is {DataConfig().shuffle_buffer_tokens}" in capsys.readouterr().err


def test_a_folder_in_use_by_another_process_is_left_alone(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], tmp_path / "run"
    run.mkdir()
    with run_lock(run):
        assert pretrain(config, run) == 2
        assert f"{run}: another process is at work on the run in this folder" in capsys.readouterr().err
        assert [path.name for path in run.iterdir()] == [LOCK]
    assert pretrain(config, run) == 0  # a leftover lock does not make the folder foreign


def test_only_the_first_of_many_differences_are_shown() -> None:
    lines = Certificate(differences=[f"step {number}: another sample" for number in range(25)]).text().splitlines()
    assert lines[-2:] == ["step 9: another sample", "NOT verified: 25 differences, of which these are the first"]
    assert len(lines) == 11


def test_a_run_can_start_from_another_models_weights(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, run = finished
    text = re.sub(r"model: .*\n", f"model: {{start_from: {run}}}\n", config.read_text(encoding="utf-8"))
    file = tmp_path / "on.yaml"
    file.write_text(text, encoding="utf-8")
    assert pretrain(file, tmp_path / "run", "--set", "train.lr.peak=1e-9") == 0
    before, after = (
        read_records(folder, "probe")[-3]["scores"]["perplexity"]["value"] for folder in (run, tmp_path / "run")
    )
    assert after == pytest.approx(before, rel=1e-4)


def test_all_selected_held_out_tokens_are_masked_unlike_in_training(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])

    def visible_share(held_out: bool) -> float:
        (source,) = [item for item in sources(config, corpus, held_out=held_out) if item.name == "knowledge_masking"]
        batches = first_batches(source, 8)
        ids = np.concatenate([batch.ids[batch.labels["label"].positions] for batch in batches])
        return float((ids != corpus.tokenizer.mask_id).mean())

    assert visible_share(held_out=True) == 0
    assert 0.1 < visible_share(held_out=False) < 0.3


def test_the_mixing_setting_affects_training_but_not_evaluation(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    config = replace(config, data=replace(config.data, shuffle_buffer_tokens=0))
    (train, *_), (evaluation, *_) = (sources(config, corpus, held_out=held_out) for held_out in (False, True))
    assert (train.mixed, evaluation.mixed) == (0, DataConfig().shuffle_buffer_tokens)
    assert train.seed != evaluation.seed  # different random numbers, even if both splits have the same text


def test_the_share_applies_to_training_data_not_to_held_out_data(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    config = replace(config, data=replace(config.data, fraction=0.25))
    (train, *_), (evaluation, *_) = (sources(config, corpus, held_out=held_out) for held_out in (False, True))
    assert (len(train.items), len(evaluation.items)) == (round(len(corpus.train) / 4), len(corpus.held_out))


def test_training_and_held_out_rows_of_a_file_are_disjoint(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, corpus = folder.read(finished[1])
    (tmp_path / "pairs.tsv").write_text("first\tsecond\tlabel\n" + "".join(f"a {n}\tb\t{n % 2}\n" for n in range(99)))
    task = DiscourseRelation(pairs=tmp_path / "pairs.tsv")
    config = replace(config, schedule=ScheduleConfig(stages=[{"pairs": 1}]), objectives={"pairs": task})
    (train,), (evaluation,) = (sources(config, corpus, held_out=held_out) for held_out in (False, True))
    rows = [{row["first"] for row in side.items} for side in (train, evaluation)]
    assert rows[1] and not rows[0] & rows[1]
    assert len(rows[0] | rows[1]) == 99


class RecordingModel(nn.Layer):
    """A model stand-in that records the batches it is evaluated on."""

    def __init__(self, objectives: Mapping[str, PretrainTask]) -> None:
        super().__init__()
        self.objectives, self.seen = objectives, list[Packed]()

    def loss(self, name: str, batch: Packed) -> Loss:
        self.seen.append(batch)
        labels = batch.labels["label"].values
        return cross_entropy(paddle.zeros([len(labels), 2]), labels)


def test_tasks_are_evaluated_on_the_first_samples_of_held_out_documents(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    probe, model = Probe(replace(config, probe=ProbeConfig(batches=2)), corpus), RecordingModel(config.objectives)
    (score, *_) = probe.measure(model, "capitalization").values()  # type: ignore[arg-type]
    assert len(model.seen) == 2
    assert score.count == sum(batch.targets for batch in model.seen)
    for batch in model.seen:
        for ids, (epoch, item, _) in zip(np.split(batch.ids, batch.layout.starts[1:]), batch.samples, strict=True):
            assert epoch == 0
            assert ids[1:-1].astype(np.int64).tobytes() in corpus.held_out[int(item)].ids.astype(np.int64).tobytes()
    probe.measure(model, "capitalization", most=1)  # type: ignore[arg-type]
    assert model.seen[2:] == model.seen[:1]


def test_evaluation_uses_all_batches_if_more_are_requested(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    source = next(item for item in sources(config, corpus, held_out=False) if item.name == "capitalization")
    source = replace(source, mixed=0, budget=128)
    assert source.items_per_block() < len(source.items)  # there are several blocks
    names = np.concatenate([batch.samples for batch in first_batches(source, 10**6)])
    expected = [name for name, _ in source.named_samples(0, 0, len(source.items))]
    assert sorted(map(tuple, names.tolist())) == sorted(expected)


@pytest.mark.parametrize("rank", [0, 1])
def test_a_process_makes_the_lanes_of_its_own_micro_batches(config: Path, rank: int) -> None:
    loaded = load(config, ["data.data_shards=4", "train.micro_batches=4"])
    world = World()
    world.layout, world.rank = ParallelConfig(data=2), rank
    feed, streams = open_streams(loaded, Corpus.open(loaded.corpus), world)
    batches = [next(streams["capitalization"]) for _ in range(4)]
    feed.close()
    made = [number for number, batch in enumerate(batches) if batch is not None]
    assert made == world.share(range(4)) == [rank, 2 + rank]


def test_a_run_saves_a_model_that_fills_masks(finished: tuple[Path, Path]) -> None:
    _, run = finished
    model = ErnieModel.from_pretrained(run)
    (candidates,) = model.fill_mask("Anna sees the [MASK] near Berlin.", top=3)
    assert all(re.fullmatch(r"Anna sees the ?\S+ near Berlin\.", candidate.text) for candidate in candidates)
    assert 1 > candidates[0].probability >= candidates[2].probability > 0


def test_tensorboard_files_are_written_on_request(config: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    assert pretrain(config, tmp_path / "run", "--set", "tensorboard=true") == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


@pytest.mark.parametrize(
    ("override", "expected"),
    [
        ("corpus=nowhere", "is not a corpus"),
        ("objectives.sentence_reordering.max_len=40000", "do not fit into data.micro_batch_tokens"),
        ("data.max_len=600", "cannot hold one sample"),
        ("model.max_positions=16", "need as many positions"),
        ("model.start_from=nowhere", "no such folder"),
        ("model.preset=smal", "Did you mean 'small'?"),
        ("schedule.tasks=[knowledge_maskin]", "Did you mean 'knowledge_masking'?"),
        ("train.lr.peek=1", "Did you mean 'peak'?"),
        ("plugins=[no_such_module]", "cannot be imported"),
        ("model.task_vocab_size=1", "task ids"),
        ("model.vocab_size=10", "do not belong together"),
        ("seed=-1", "seed: expected a number from 0 to"),
        ("seed=99999999999999999999", "seed: expected a number from 0 to"),
    ],
)
def test_user_errors_are_reported_with_status_2(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], override: str, expected: str
) -> None:
    assert pretrain(config, tmp_path / "run", "--set", override) == 2
    error = capsys.readouterr().err
    assert expected in error
    assert "Traceback" not in error


def test_a_folder_that_holds_something_else_is_left_alone(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    assert pretrain(config, tmp_path / "run") == 2
    assert "is not empty and holds no run" in capsys.readouterr().err


def test_leftovers_of_a_run_killed_at_startup_are_no_problem(config: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    run.mkdir()
    for name in (".lock", "origin.json.partial"):
        (run / name).write_text("")
    few = ["--set", "schedule.steps_per_task=2"]
    assert pretrain(config, run, *few) == 0
    shutil.rmtree(run / "checkpoints")
    shutil.rmtree(run / "model")
    (run / "config.yaml").unlink()  # it is written after origin.json
    assert pretrain(config, run, *few) == 0


def test_a_model_without_a_checkpoint_is_not_overwritten(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    copy = shutil.copytree(run, tmp_path / "run")
    shutil.rmtree(copy / "checkpoints")
    logged = (copy / "metrics.jsonl").read_bytes()
    assert pretrain(config, copy) == 2
    assert "holds a model, but no checkpoint to resume from" in capsys.readouterr().err
    assert (copy / "metrics.jsonl").read_bytes() == logged


def test_a_corpus_damaged_since_the_run_is_detected_on_resume_and_verify(
    finished: tuple[Path, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    own, run = shutil.copytree(corpus, tmp_path / "corpus"), shutil.copytree(finished[1], tmp_path / "run")
    saved = run / "config.yaml"
    saved.write_text(saved.read_text(encoding="utf-8").replace(str(corpus), str(own)), encoding="utf-8")
    [ids] = (own / "train").glob("*.ids")
    content = bytearray(ids.read_bytes())
    content[len(content) // 2] ^= 1
    ids.write_bytes(content)
    for command in (["verify", str(run)], ["pretrain", str(saved), "--output", str(run)]):
        assert main(command) == 2
        assert f"{ids}: is not what was written (its SHA-256 differs)" in capsys.readouterr().err


def test_the_relative_corpus_of_a_run_is_not_taken_for_one_that_was_never_built(
    finished: tuple[Path, Path], corpus: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    saved = run / "config.yaml"
    saved.write_text(saved.read_text(encoding="utf-8").replace(str(corpus), "texts/corpus"), encoding="utf-8")
    assert main(["verify", str(run)]) == 2
    error = capsys.readouterr().err
    assert "texts/corpus: the corpus of the run" in error
    assert "begin in the folder where it was started: give the command there" in error


def test_a_run_resumes_with_its_corpus_in_another_folder_and_not_with_another_corpus(
    finished: tuple[Path, Path], corpus: Path, text: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    moved, shorter = shutil.copytree(corpus, tmp_path / "moved"), tmp_path / text.name
    shorter.write_text("".join(text.read_text(encoding="utf-8").splitlines(keepends=True)[1:]), encoding="utf-8")
    other = build_corpus(shorter, tmp_path)
    assert pretrain(config, run, "--set", f"corpus={moved}", "--set", "train.clip=0.5") == 2
    assert "corpus: was" not in capsys.readouterr().err
    longer = ["--set", "schedule.steps_per_task=9", "--allow-change", "schedule"]
    assert pretrain(config, run, *longer, "--set", f"corpus={other}", "--allow-change", "corpus") == 2
    error = capsys.readouterr().err
    assert f"{other}: is not the corpus that the run in {run} was trained on" in error
    assert "--allow-change" not in error
    assert pretrain(config, run, *longer, "--set", f"corpus={moved}") == 0
    assert load(run / "config.yaml").corpus == moved
    assert folder.read_origin(run)["resumed"][-1]["changed"] == ["schedule.steps_per_task"]


def test_a_changed_label_file_is_detected_on_resume(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    clicks = tmp_path / "clicks.tsv"
    rows = [f"what is {n}\tthe number {n} it is\t{n % 2}\n" for n in range(200)]
    clicks.write_text("query\tpassage\tclicked\n" + "".join(rows))
    options = ["--set", "schedule={steps_per_task: 2, tasks: [knowledge_masking, ir_relevance]}"]
    options += ["--set", f"objectives={{knowledge_masking: {{}}, ir_relevance: {{clicks: {clicks}}}}}"]
    assert pretrain(config, tmp_path / "run", *options) == 0
    with clicks.open("a") as file:
        file.write("what is 7\tanother passage\t1\n")
    capsys.readouterr()
    assert pretrain(config, tmp_path / "run", *options) == 2
    assert f"{clicks}: was changed since the run in" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "run")]) == 2
    assert "was changed since the run in" in capsys.readouterr().err


def test_a_changed_label_file_of_an_appended_task_is_detected_on_resume(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, run = tmp_path / "pairs.tsv", tmp_path / "run"
    rows = [f"number {n} is here\tit is {n}\t{('cause', 'time')[n % 2]}\n" for n in range(200)]
    pairs.write_text("first\tsecond\tlabel\n" + "".join(rows))
    file = tmp_path / "plain.yaml"
    file.write_text(re.sub(r"schedule:\n.*\n.*\nobjectives:\n.*\n", "", config.read_text(encoding="utf-8")))
    first = ["--set", "schedule={stages: [{knowledge_masking: 2}]}"]
    longer = ["--set", "schedule={stages: [{knowledge_masking: 2}, {discourse_relation: 2}]}"]
    longer += ["--set", f"objectives.discourse_relation.pairs={pairs}"]
    assert pretrain(file, run, *first) == 0
    assert pretrain(file, run, *longer, "--allow-change", "schedule", "--allow-change", "objectives") == 0
    assert pretrain(file, run, *longer) == 0
    pairs.write_text(pairs.read_text().replace("time", "manner"))
    assert pretrain(file, run, *longer) == 2
    assert f"{pairs}: was changed since the run in" in capsys.readouterr().err


def test_tasks_share_a_head_only_if_their_classes_are_equal(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(re.sub(r"schedule:\n.*\n.*\nobjectives:\n.*\n", "", config.read_text(encoding="utf-8")))
    options = ["--set", "schedule={stages: [{sentence_reordering: 2}, {harder: 2}]}"]
    harder = "harder: {task: sentence_reordering, segments: 3, head_of: sentence_reordering}"
    options += ["--set", f"objectives={{sentence_reordering: {{segments: 2}}, {harder}}}"]
    assert pretrain(file, tmp_path / "run", *options) == 2
    assert (
        "objectives.harder: head_of: sentence_reordering has 3 classes (0, 1, 2), this one 9 classes (0, 1, 2, 3, 4, "
        "...)" in capsys.readouterr().err
    )
    for name, label in (("one", "contrast"), ("two", "time")):
        rows = [f"number {n} is here\tit is {n}\t{('cause', label)[n % 2]}\n" for n in range(40)]
        (tmp_path / f"{name}.tsv").write_text("first\tsecond\tlabel\n" + "".join(rows))
    options = ["--set", "schedule={stages: [{one: 2}, {two: 2}]}", "--set"]
    files = (f"{name}: {{task: discourse_relation, pairs: {tmp_path / name}.tsv" for name in ("one", "two"))
    options.append(f"objectives={{{'}, '.join(files)}, head_of: one}}}}")
    assert pretrain(file, tmp_path / "run", *options) == 2
    assert "one has 2 classes (cause, contrast), this one 2 classes (cause, time)" in capsys.readouterr().err


def test_while_a_run_is_extended_its_old_encoder_is_set_aside(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    before = (run / "model" / "model.safetensors").read_bytes()
    longer = ("--set", "schedule.steps_per_task=4000", "--allow-change", "schedule", "--set", "save.every=100000")
    process = start_process(config, run, *longer)
    await_step(run, 26, process)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 130
    assert main(["report", str(run)]) == 0
    assert not (run / "README.md").exists()
    with pytest.raises(
        UserError, match=r"the run in it is not done, and its newest checkpoint is .*/step-000000.*-00000024"
    ):
        ErnieModel.from_pretrained(run)
    aside = run / "model-step-00000024"
    assert (aside / "model.safetensors").read_bytes() == before
    assert "24 steps in 3 stages" in (aside / "README.md").read_text()
    assert ErnieModel.from_pretrained(aside).config.layers == 1


def test_the_encoder_set_aside_keeps_its_step_when_the_start_of_the_extension_is_killed(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, run = finished[0], shutil.copytree(finished[1], tmp_path / "run")
    longer = ("--set", "schedule.steps_per_task=9", "--allow-change", "schedule")
    written = []

    def killed(path: Path, text: str) -> None:
        written.append(path.name)
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(folder, "put_text", killed)
        folder.record_resume(
            load(config, ["schedule.steps_per_task=9"]), Corpus.open(load(config).corpus), run, "one process"
        )
    assert written
    assert pretrain(config, run, *longer) == 0
    assert [path.name for path in run.glob("model-step-*")] == ["model-step-00000024"]


def test_learned_tasks_cannot_be_removed_from_the_schedule(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    copy = shutil.copytree(run, tmp_path / "run")
    for tasks, message in (
        ("[knowledge_masking, sentence_reordering]", "the run has learned capitalization, which is not in it any more"),
        ("[knowledge_masking, token_document, capitalization, sentence_reordering]", "has learned with the task id 1"),
    ):
        changes = ["--set", f"schedule.tasks={tasks}", "--allow-change", "schedule", "--allow-change", "objectives"]
        assert pretrain(config, copy, *changes) == 2
        assert message in capsys.readouterr().err
    assert pretrain(config, copy, "--set", "schedule.steps_per_task=4", "--allow-change", "schedule") == 2
    assert "has 12 steps, and the run has done 24" in capsys.readouterr().err
    # Rejected settings are not saved: the previous command still works.
    assert pretrain(config, copy) == 0


def test_a_run_that_saved_nothing_restarts_with_the_new_settings(config: Path, tmp_path: Path) -> None:
    assert pretrain(config, tmp_path / "run", "--set", "data.max_len=600", "--set", "data.micro_batch_tokens=1024") == 2
    assert pretrain(config, tmp_path / "run", "--set", "schedule.steps_per_task=2") == 0


def test_the_card_of_an_extended_run_does_not_promise_identical_bytes(
    finished: tuple[Path, Path], tmp_path: Path
) -> None:
    config, run = finished
    copy = shutil.copytree(run, tmp_path / "run")
    assert "byte for byte" in (copy / "README.md").read_text()
    longer = ["--set", "schedule.steps_per_task=9", "--allow-change", "schedule"]
    assert pretrain(config, copy, *longer) == 0
    card = (copy / "README.md").read_text()
    assert "byte for byte" not in card
    assert "resumed with another `schedule.steps_per_task`" in card
    first, again = (json.loads((folder / "origin.json").read_text()) for folder in (run, copy))
    assert {key: again[key] for key in first if key != "resumed"} == {
        key: value for key, value in first.items() if key != "resumed"
    }


def test_a_stage_can_be_appended_and_a_changed_past_is_reported(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    allowed = ["--allow-change", "schedule", "--allow-change", "objectives"]
    table = load(config).schedule.table
    done = sum(sum(stage.values()) for stage in table)
    for stages, is_other in (
        ([*table, {"knowledge_masking": 2, "token_document": 4}], False),
        ([*table[:-1], {**table[-1], "knowledge_masking": table[-1]["knowledge_masking"] + 6}], True),
    ):
        copy = shutil.copytree(run, tmp_path / f"run-{len(stages)}")
        tree = yaml.safe_load(config.read_text())
        tree["schedule"] = {"stages": [dict(stage) for stage in stages]}
        (tmp_path / "longer.yaml").write_text(yaml.safe_dump(tree, sort_keys=False))
        capsys.readouterr()
        assert main(["pretrain", str(tmp_path / "longer.yaml"), "--output", str(copy), *allowed]) == 0
        stderr = capsys.readouterr().err
        assert f"resuming from step {done} of {done + 6}" in stderr
        assert ("which is done, would have drawn other tasks" in stderr) is is_other
        assert main(["verify", str(copy), "--quiet"]) == is_other
        drawn = [task for record in read_records(copy, "step") for task in record["samples"]]
        if not is_other:
            assert sorted(drawn[done:]) == ["knowledge_masking"] * 2 + ["token_document"] * 4


def test_an_objective_that_is_never_drawn_is_dropped_unless_others_share_its_head(config: Path, tmp_path: Path) -> None:
    shared = "{knowledge_masking: {}, phrases: {task: knowledge_masking, head_of: knowledge_masking, units: [phrase]}}"
    for objectives, stages in (
        ("{knowledge_masking: {}, sentence_reordering: {segments: 2}}", "[{knowledge_masking: 2}]"),
        (shared, "[{phrases: 2}]"),
    ):
        text = re.sub(
            r"(?s)schedule:.*?model:",
            f"schedule: {{stages: {stages}}}\nobjectives: {objectives}\nmodel:",
            config.read_text(),
        )
        (tmp_path / "run.yaml").write_text(text)
        folder = tmp_path / f"run-{len(objectives)}"
        assert pretrain(tmp_path / "run.yaml", folder) == 0
        assert sorted(yaml.safe_load((folder / "config.yaml").read_text())["objectives"]) == (
            ["knowledge_masking", "phrases"] if objectives == shared else ["knowledge_masking"]
        )


def test_a_model_with_another_vocabulary_than_the_corpus_is_rejected(
    finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config, run = finished
    other = build_corpus(made_up_text(tmp_path / "text.txt"), tmp_path)
    text = re.sub(r"model: .*\n", f"model: {{start_from: {run}}}\n", config.read_text(encoding="utf-8"))
    (tmp_path / "on.yaml").write_text(re.sub(r"corpus: .*\n", f"corpus: {other}\n", text), encoding="utf-8")
    assert pretrain(tmp_path / "on.yaml", tmp_path / "run") == 2
    assert "has another vocabulary than the corpus" in capsys.readouterr().err


def test_ctrl_c_saves_even_with_worker_processes(config: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "ernie.cli", "pretrain", str(config), "--output", str(tmp_path / "run"), "--quiet"]
    command += ["--set", "data.workers=2", "--set", "schedule.steps_per_task=4000", "--set", "save.every=100000"]
    with subprocess.Popen(command, text=True, stderr=subprocess.PIPE, start_new_session=True) as process:
        await_step(tmp_path / "run", 6, process)
        os.killpg(process.pid, signal.SIGINT)  # like a terminal, to the workers too
        error = process.communicate()[1]
    assert process.returncode == 130
    assert "Traceback" not in error
    assert Checkpoints(tmp_path / "run" / "checkpoints").latest() is not None
