"""A server's log: lines in order, none lost in silence, and nobody waits for whoever reads it."""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
from io import StringIO

import pytest

from serving.logs import write_logs


class Slow(StringIO):
    """A reader that takes nothing until it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.reads = threading.Event()

    def write(self, text: str) -> int:
        self.reads.wait()
        return super().write(text)


@pytest.fixture
def loggers(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Logging is as before afterwards."""
    root = logging.getLogger()
    monkeypatch.setattr(root, "handlers", [])
    for logger in (root, logging.getLogger("ernie"), logging.getLogger("uvicorn")):
        monkeypatch.setattr(logger, "level", logger.level)
    return monkeypatch


def test_lines_are_written_in_order_by_the_time_that_the_log_is_stopped(loggers: pytest.MonkeyPatch) -> None:
    loggers.setattr(sys, "stderr", error := StringIO())
    writer = write_logs("json", replica=3)
    for number in range(100):
        logging.getLogger("ernie.serving").info("line %d", number, extra={"fields": {"number": number}})
    writer.stop()
    lines = [json.loads(line) for line in error.getvalue().splitlines()]
    assert [line["number"] for line in lines] == list(range(100))
    assert {line["replica"] for line in lines} == {3}


def test_a_reader_that_is_too_slow_delays_nobody_and_is_told_how_many_lines_it_missed(
    loggers: pytest.MonkeyPatch,
) -> None:
    loggers.setattr(sys, "stderr", slow := Slow())
    writer = write_logs("text")
    for number in range(30_000):
        logging.getLogger("ernie.serving").info("line %d", number)
    slow.reads.set()
    writer.stop()
    dropped = [int(found[1]) for found in re.finditer(r"(\d+) lines of this log were dropped", slow.getvalue())]
    written = re.findall(r"info line \d+", slow.getvalue())
    assert dropped
    assert len(written) + sum(dropped) == 30_000
