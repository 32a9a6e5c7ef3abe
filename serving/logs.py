"""What a server writes to standard error: a line for each request and each event, as text or as JSON.

A request's line never holds a text, a key or an answer.
"""

from __future__ import annotations

import logging
import queue
import sys
import time
from contextlib import suppress
from logging.handlers import QueueHandler, QueueListener
from typing import Any, Literal

import msgspec

LogForm = Literal["text", "json"]
_WAITING = 10_000  # lines that wait for a slow reader of standard error; more are dropped
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


class _Bounded(QueueHandler):
    """Hands lines to the thread that writes them, and never waits for it."""

    def prepare(self, record: logging.LogRecord) -> logging.LogRecord:
        return record  # it stays in this process

    def enqueue(self, record: logging.LogRecord) -> None:
        with suppress(queue.Full):
            self.queue.put_nowait(record)


def write_logs(form: LogForm, **constant: Any) -> QueueListener:
    """Write logs to standard error from now on, in a thread of their own, with constant fields in each line.

    The caller stops what is returned at the end, which writes what still waits.
    """
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter((_Json if form == "json" else _Text)(constant))
    lines: queue.Queue[logging.LogRecord] = queue.Queue(_WAITING)
    root = logging.getLogger()
    root.handlers[:] = [_Bounded(lines)]
    root.setLevel(logging.WARNING)
    logging.getLogger("ernie").setLevel(logging.INFO)
    logging.getLogger("uvicorn").setLevel(logging.ERROR)  # its warnings are of what single clients do wrong
    listener = QueueListener(lines, handler)
    listener.start()
    return listener
