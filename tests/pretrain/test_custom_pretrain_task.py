"""Pretraining tasks from outside the library."""

from __future__ import annotations

import os
import re
from pathlib import Path

import numpy as np
import pytest
from support.helpers import ROOT
from support.pretraining import pretrain, start_process

from ernie.cli import main
from ernie.train.log import read_records
from pretrain import folder


@pytest.mark.parametrize("task", ["shuffled_words", "span_boundary"])
def test_a_task_from_outside_the_library_passes_its_check_and_trains(
    corpus: Path,
    config: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    task: str,
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    plugin = ["--set", f"plugins=[{task}]"]
    schedule = ["--set", f"schedule={{stages: [{{knowledge_masking: 2}}, {{knowledge_masking: 1, {task}: 3}}]}}"]
    file = tmp_path / "plain.yaml"
    text = config.read_text(encoding="utf-8")
    file.write_text(re.sub(r"schedule:\n.*\n.*\ntasks:\n.*\n", "", text), encoding="utf-8")
    assert main(["pretrain", str(file), "--output", str(tmp_path / "run"), "--check", *plugin, *schedule]) == 0
    shown = capsys.readouterr().out.partition(f"\n{task}:\n")[2]
    assert all(line.startswith("  ok: ") for line in shown.splitlines() if not line.startswith(("    ", "  one of")))
    assert "  ok: one step on" in shown
    assert pretrain(file, tmp_path / "run", *plugin, *schedule) == 0
    assert {record["task"] for record in read_records(tmp_path / "run", "probe")} == {"knowledge_masking", task}


def test_the_spans_of_the_example_are_bounded_by_tokens_that_are_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    from span_boundary import bounds

    left, right = bounds(np.array([2, 3, 5, 11, 12, 13]))
    assert (left.tolist(), right.tolist()) == ([1, 1, 4, 10, 10, 10], [4, 4, 6, 14, 14, 14])


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
    appended = ("--allow-change", "schedule", "--allow-change", "tasks")
    assert run_stages(first) == (0, "")
    assert "```\n\nThe plug-in `edited_words` must be on the Python path" in (run / "README.md").read_text()
    plugin.write_text(text + "# no word of it is the same\n", encoding="utf-8")
    status, error = run_stages(both, *appended)
    assert status == 2
    assert "plugins: the code of edited_words was changed since the run in" in error
    assert "--allow-change plugins" in error
    assert run_stages(both, *appended, "--allow-change", "plugins")[0] == 0
    assert "plugins" in folder.read_origin(run)["resumed"][0]["changed"]
    changed = "resumed with another `plugins`, `schedule.stages`, `tasks.knowledge_masking`"
    assert changed in (run / "README.md").read_text()
    assert run_stages(both)[0] == 0  # a change needs to be allowed only once
