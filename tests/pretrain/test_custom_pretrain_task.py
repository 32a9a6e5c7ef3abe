"""Pretraining tasks from outside the library."""

from __future__ import annotations

import os
import re
from pathlib import Path

import pytest
from support.helpers import ROOT
from support.pretraining import pretrain, start_process

from ernie.train.log import read_records
from pretrain import folder


def test_a_task_from_outside_the_library_trains(
    corpus: Path, config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    plugin = ["--set", "plugins=[shuffled_words]"]
    schedule = ["--set", "schedule={stages: [{knowledge_masking: 2}, {knowledge_masking: 1, shuffled_words: 3}]}"]
    file = tmp_path / "plain.yaml"
    text = config.read_text(encoding="utf-8")
    file.write_text(re.sub(r"schedule:\n.*\n.*\ntasks:\n.*\n", "", text), encoding="utf-8")
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
