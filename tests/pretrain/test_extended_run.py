"""Runs that are extended by stages and tasks."""

from __future__ import annotations

import json
import re
import shutil
import signal
from pathlib import Path

import pytest
import yaml
from support.pretraining import await_step, pretrain, start_process

from ernie import ErnieModel
from ernie.cli import main
from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.train import run_folder
from ernie.train.log import read_records
from pretrain import folder
from pretrain.config import load


def test_a_changed_label_file_of_an_appended_task_is_detected_on_resume(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pairs, run = tmp_path / "pairs.tsv", tmp_path / "run"
    rows = [f"number {n} is here\tit is {n}\t{('cause', 'time')[n % 2]}\n" for n in range(200)]
    pairs.write_text("first\tsecond\tlabel\n" + "".join(rows))
    file = tmp_path / "plain.yaml"
    file.write_text(re.sub(r"schedule:\n.*\n.*\ntasks:\n.*\n", "", config.read_text(encoding="utf-8")))
    first = ["--set", "schedule={stages: [{knowledge_masking: 2}]}"]
    longer = ["--set", "schedule={stages: [{knowledge_masking: 2}, {discourse_relation: 2}]}"]
    longer += ["--set", f"tasks.discourse_relation.pairs={pairs}"]
    assert pretrain(file, run, *first) == 0
    assert pretrain(file, run, *longer, "--allow-change", "schedule", "--allow-change", "tasks") == 0
    assert pretrain(file, run, *longer) == 0
    pairs.write_text(pairs.read_text().replace("time", "manner"))
    assert pretrain(file, run, *longer) == 2
    assert f"{pairs}: was changed since the run in" in capsys.readouterr().err


def test_tasks_share_a_head_only_if_their_classes_are_equal(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "plain.yaml"
    file.write_text(re.sub(r"schedule:\n.*\n.*\ntasks:\n.*\n", "", config.read_text(encoding="utf-8")))
    options = ["--set", "schedule={stages: [{sentence_reordering: 2}, {harder: 2}]}"]
    harder = "harder: {task: sentence_reordering, segments: 3, head_of: sentence_reordering}"
    options += ["--set", f"tasks={{sentence_reordering: {{segments: 2}}, {harder}}}"]
    assert pretrain(file, tmp_path / "run", *options) == 2
    assert (
        "tasks.harder: head_of: sentence_reordering has 3 classes (0, 1, 2), this one 9 classes (0, 1, 2, 3, 4, "
        "...)" in capsys.readouterr().err
    )
    for name, label in (("one", "contrast"), ("two", "time")):
        rows = [f"number {n} is here\tit is {n}\t{('cause', label)[n % 2]}\n" for n in range(40)]
        (tmp_path / f"{name}.tsv").write_text("first\tsecond\tlabel\n" + "".join(rows))
    options = ["--set", "schedule={stages: [{one: 2}, {two: 2}]}", "--set"]
    files = (f"{name}: {{task: discourse_relation, pairs: {tmp_path / name}.tsv" for name in ("one", "two"))
    options.append(f"tasks={{{'}, '.join(files)}, head_of: one}}}}")
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
        patch.setattr(run_folder, "put_text", killed)
        folder.record_resume(
            load(config, ["schedule.steps_per_task=9"]), Corpus.open(load(config).corpus), run, "one process", 24
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
        changes = ["--set", f"schedule.tasks={tasks}", "--allow-change", "schedule", "--allow-change", "tasks"]
        assert pretrain(config, copy, *changes) == 2
        assert message in capsys.readouterr().err
    assert pretrain(config, copy, "--set", "schedule.steps_per_task=4", "--allow-change", "schedule") == 2
    assert "has 12 steps, and the run has done 24" in capsys.readouterr().err
    # Rejected settings are not saved: the previous command still works.
    assert pretrain(config, copy) == 0


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
    allowed = ["--allow-change", "schedule", "--allow-change", "tasks"]
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


def test_a_task_that_is_never_drawn_is_dropped_unless_others_share_its_head(config: Path, tmp_path: Path) -> None:
    shared = "{knowledge_masking: {}, phrases: {task: knowledge_masking, head_of: knowledge_masking, units: [phrase]}}"
    for tasks, stages in (
        ("{knowledge_masking: {}, sentence_reordering: {segments: 2}}", "[{knowledge_masking: 2}]"),
        (shared, "[{phrases: 2}]"),
    ):
        text = re.sub(
            r"(?s)schedule:.*?model:",
            f"schedule: {{stages: {stages}}}\ntasks: {tasks}\nmodel:",
            config.read_text(),
        )
        (tmp_path / "run.yaml").write_text(text)
        folder = tmp_path / f"run-{len(tasks)}"
        assert pretrain(tmp_path / "run.yaml", folder) == 0
        assert sorted(yaml.safe_load((folder / "config.yaml").read_text())["tasks"]) == (
            ["knowledge_masking", "phrases"] if tasks == shared else ["knowledge_masking"]
        )
