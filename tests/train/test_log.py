"""The log of a run: one record per line; resuming drops the records of repeated steps."""

from __future__ import annotations

import io
import json
from pathlib import Path

import pytest

from ernie.errors import UserError
from ernie.train.log import METRICS_FILE, Log, read_records


def test_records_can_be_read_while_the_log_is_open(tmp_path: Path) -> None:
    log = Log(tmp_path, 10, quiet=True)
    log.record("step", 0, loss={"red": 1.5})
    log.record("probe", 0, task="red")
    assert read_records(tmp_path) == [
        {"kind": "step", "step": 0, "loss": {"red": 1.5}},
        {"kind": "probe", "step": 0, "task": "red"},
    ]
    assert [record["kind"] for record in read_records(tmp_path, "probe")] == ["probe"]
    log.close()


def test_numbers_that_are_not_finite_are_null_wherever_they_are(tmp_path: Path) -> None:
    log = Log(tmp_path, 10, quiet=True)
    log.record("probe", 0, scores={"value": float("nan"), "draws": (1.0, float("inf"), [2.0, float("nan")])})
    log.close()
    text = (tmp_path / METRICS_FILE).read_text()
    assert json.loads(text)["scores"] == {"value": None, "draws": [1.0, None, [2.0, None]]}


def test_a_resumed_run_drops_the_records_that_it_rewrites(tmp_path: Path) -> None:
    log = Log(tmp_path, 10, quiet=True)
    for step in range(6):
        log.record("step", step)
    log.close()
    with (tmp_path / METRICS_FILE).open("a") as file:
        file.write('{"kind": "step", "st')  # killed in the middle of a line
    assert [record["step"] for record in read_records(tmp_path)] == list(range(6))
    log = Log(tmp_path, 10, resume_at=3, quiet=True)
    log.record("step", 3, again=True)
    log.close()
    assert [(record["step"], "again" in record) for record in read_records(tmp_path)] == [
        (0, False),
        (1, False),
        (2, False),
        (3, True),
    ]


def test_a_damaged_line_in_the_middle_is_named(tmp_path: Path) -> None:
    (tmp_path / METRICS_FILE).write_text('{"kind": "step", "step": 0}\n{"kin\n{"kind": "step", "step": 1}\n')
    with pytest.raises(UserError, match=r"metrics.jsonl:2: is not JSON; the file is damaged"):
        read_records(tmp_path)


def test_a_folder_without_a_log_raises_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="is it the folder of a run"):
        read_records(tmp_path)


def test_messages_go_to_standard_error_unless_quiet(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for quiet in (False, True):
        log = Log(tmp_path, 2, quiet=quiet)
        log.say("a sentence")
        log.progress(0, loss="1.5")
        log.progress(1, loss="1.2")
        log.close()
        shown = capsys.readouterr()
        assert shown.out == ""
        assert shown.err == ("" if quiet else "a sentence\nstep 2/2  loss 1.2  left 0.0 s\n")


def test_a_terminal_shows_a_progress_bar_with_the_same_values(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = io.StringIO()
    monkeypatch.setattr(terminal, "isatty", lambda: True)
    monkeypatch.setattr("sys.stderr", terminal)
    log = Log(tmp_path, 2)
    log.progress(0, stage="1/1", loss="red 1.5")
    log.close()
    last = terminal.getvalue().split("\r")[-1]
    assert last.startswith(" 50% |")
    assert last.rstrip().endswith("stage 1/1  loss red 1.5")


def test_a_non_finite_number_is_written_as_null(tmp_path: Path) -> None:
    log = Log(tmp_path, 10, quiet=True)
    log.record("step", 0, loss={"red": float("nan")}, rate=float("inf"))
    log.close()
    assert "NaN" not in (tmp_path / METRICS_FILE).read_text()
    assert read_records(tmp_path)[0] == {"kind": "step", "step": 0, "loss": {"red": None}, "rate": None}
