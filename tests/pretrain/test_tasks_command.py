"""`ernie tasks`: what is installed, and what one of it takes."""

from __future__ import annotations

import pytest

from ernie.cli import main
from tasks.base import pretrain_tasks


def test_the_list_has_a_line_for_each_task(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks"]) == 0
    shown = capsys.readouterr()
    lines = shown.out.splitlines()
    assert [line.split()[0] for line in lines] == list(pretrain_tasks)
    assert all(line.endswith((".", "?")) for line in lines)
    assert "ernie tasks TASK" in shown.err


def test_a_description_tells_fields_and_defaults(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tasks", "sentence_reordering"]) == 0
    assert "    segments: int = 3\n" in capsys.readouterr().out
