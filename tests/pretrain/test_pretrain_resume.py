"""Stopped pretraining runs resume bit for bit; changes since then are reported."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.pretraining import await_step, outcome, pretrain, start_process
from support.running import build_corpus

from ernie import sha256
from ernie.cli import main
from ernie.sha256 import file_sha256
from ernie.train.checkpoint import STATE, Checkpoints, read_manifest
from ernie.train.log import read_records
from ernie.train.run_folder import LOCK, run_lock
from pretrain import folder
from pretrain.config import DataConfig, load
from pretrain.verify import Certificate


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


def test_the_number_of_data_shards_cannot_change(
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


@pytest.mark.parametrize("resumed", ["3", "[{}]", '{"changed": []}'])
def test_a_damaged_list_of_resumes_is_reported(
    resumed: str, finished: tuple[Path, Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = shutil.copytree(finished[1], tmp_path / "run")
    record = json.loads((run / "origin.json").read_text(encoding="utf-8"))
    (run / "origin.json").write_text(json.dumps({**record, "resumed": json.loads(resumed)}), encoding="utf-8")
    assert main(["verify", str(run), "--quiet"]) == 2
    assert "origin.json: resumed: expected a list of objects with the key changed" in capsys.readouterr().err


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
    options += ["--set", f"tasks={{knowledge_masking: {{}}, ir_relevance: {{clicks: {clicks}}}}}"]
    assert pretrain(config, tmp_path / "run", *options) == 0
    with clicks.open("a") as file:
        file.write("what is 7\tanother passage\t1\n")
    capsys.readouterr()
    assert pretrain(config, tmp_path / "run", *options) == 2
    assert f"{clicks}: was changed since the run in" in capsys.readouterr().err
    assert main(["verify", str(tmp_path / "run")]) == 2
    assert "was changed since the run in" in capsys.readouterr().err


def test_a_run_that_saved_nothing_restarts_with_the_new_settings(config: Path, tmp_path: Path) -> None:
    assert pretrain(config, tmp_path / "run", "--set", "data.max_len=600", "--set", "data.micro_batch_tokens=1024") == 2
    assert pretrain(config, tmp_path / "run", "--set", "schedule.steps_per_task=2") == 0


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
