"""`ernie tasks`: the installed tasks and their fields."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ernie.cli import main
from ernie.data.document import Sample
from ernie.text.tokenizer import Tokenizer
from tasks.base import SequenceTask, pretrain_task, pretrain_tasks
from tasks.downstream.base import finetune_tasks


def test_the_list_has_a_line_for_each_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines] == list(pretrain_tasks)
    assert all(line.endswith((".", "?")) for line in lines)
    assert "ernie tasks TASK" in shown.err


def test_a_description_lists_fields_and_defaults_and_explains_those_of_every_task(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", "sentence_reordering"]) == 0
    shown = capsys.readouterr().out
    assert "    segments: int = 3\n" in shown
    assert "by default the run's `data.max_len`" in shown
    assert "base class" not in shown


@pytest.mark.parametrize(("name", "meant"), [("clasify", "classify"), ("capitalisation", "capitalization")])
def test_a_misspelt_name_of_either_sort_gets_the_nearest(
    name: str, meant: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tasks", name]) == 2
    assert f"no task is called '{name}'. Did you mean '{meant}'?" in capsys.readouterr().err


def test_the_kinds_of_fine_tuning_task_are_listed_and_described_with_their_metrics(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["tasks", "--downstream"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(finetune_tasks)
    assert main(["tasks", "classify"]) == 0
    shown = capsys.readouterr().out
    assert "    metrics used unless named: accuracy\n" in shown
    assert "    metrics on demand: f1, macro_f1, matthews\n" in shown
    assert "    text_pair: str = ''\n" in shown


@dataclass(frozen=True, kw_only=True)
class FileTask(SequenceTask):
    """A task that reads a file of its own."""

    file: Path

    def samples(self, items: Sequence[Any], tokenizer: Tokenizer, rng: np.random.Generator) -> Iterator[Sample]:
        return iter(())


def test_a_field_without_a_default_is_described_as_required(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(pretrain_tasks, "_items", dict(pretrain_tasks._items))
    pretrain_task("of_a_file")(FileTask)
    assert main(["tasks", "of_a_file"]) == 0
    assert "    file: Path, required\n" in capsys.readouterr().out


@pytest.mark.parametrize("name", [*pretrain_tasks, *finetune_tasks])
def test_every_description_is_human_readable(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", name]) == 0
    shown = capsys.readouterr().out
    assert "<class" not in shown
    assert "object at 0x" not in shown
