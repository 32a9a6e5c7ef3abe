"""What a server writes to standard error: a line for each request and each event, as text or as JSON.

A request's line never holds a text, a key or an answer.
"""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections import deque
from contextlib import suppress
from typing import Any, Literal

import msgspec

LogForm = Literal["text", "json"]
_WAITING = 10_000  # lines that wait for a slow reader of standard error
_BETWEEN_WRITES = 0.1  # seconds
_encode = msgspec.json.Encoder(enc_hook=str).encode


class _Text(logging.Formatter):
    """Time, level, message, and fields as name=value."""

    def __init__(self, constant: dict[str, Any]):
        super().__init__()
        self._constant = constant

    def fields(self, record: logging.LogRecord) -> dict[str, Any]:
        return self._constant | getattr(record, "fields", {})

    def time(self, record: logging.LogRecord) -> str:
        return f"{time.strftime('%Y-%m-%dT%H:%M:%S', time.gmtime(record.created))}.{int(record.msecs):03}Z"

    def format(self, record: logging.LogRecord) -> str:
        fields = "".join(f" {name}={value}" for name, value in self.fields(record).items())
        trace = f"\n{self.formatException(record.exc_info)}" if record.exc_info else ""
        return f"{self.time(record)} {record.levelname.lower()} {record.getMessage()}{fields}{trace}"


class _Json(_Text):
    """One JSON object a line."""

    def format(self, record: logging.LogRecord) -> str:
        line = {
            "time": self.time(record),
            "level": record.levelname.lower(),
            "message": record.getMessage(),
            **self.fields(record),
        }
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _encode(line).decode()


class LogWriter(logging.Handler):
    """Writes lines in a thread of its own, some at a time: whoever logs a line waits for nothing.

    Lines that a slow reader of standard error leaves no room for are dropped, counted, and a line says how many.
    """

    def __init__(self, formatter: logging.Formatter):
        super().__init__()
        self.setFormatter(formatter)
        self._lines: deque[logging.LogRecord] = deque()
        self._dropped = 0
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="log", daemon=True)
        self._thread.start()

    def emit(self, record: logging.LogRecord) -> None:
        if len(self._lines) < _WAITING:
            self._lines.append(record)
        else:
            self._dropped += 1

    def stop(self) -> None:
        """Write what still waits, and end the thread."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(_BETWEEN_WRITES):
            self._write()
        self._write()

    def _write(self) -> None:
        written = []
        for _ in range(len(self._lines)):  # those that come meanwhile wait, or nothing would ever be written
            written.append(self.format(self._lines.popleft()) + "\n")
        if dropped := self._dropped:
            self._dropped -= dropped
            sentence = "%d lines of this log were dropped: it was not read fast enough"
            note = logging.LogRecord("ernie.serving", logging.WARNING, "", 0, sentence, (dropped,), None)
            written.append(self.format(note) + "\n")
        if written:
            with suppress(OSError, ValueError):  # whoever read it has gone
                sys.stderr.write("".join(written))
                sys.stderr.flush()


def write_logs(form: LogForm, **constant: Any) -> LogWriter:
    """Write logs to standard error from now on, with constant fields in each line.

    The caller stops what is returned at the end, which writes what still waits.
    """
    # What no line shows takes a third of the time of a record.
    logging.logThreads = logging.logProcesses = logging.logMultiprocessing = False
    writer = LogWriter((_Json if form == "json" else _Text)(constant))
    root = logging.getLogger()
    root.handlers[:] = [writer]
    root.setLevel(logging.WARNING)
    logging.getLogger("ernie").setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings are of what single clients do wrong
    return writer
