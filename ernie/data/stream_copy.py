"""Copies of standard input and pipes, which can be read only once: building a corpus reads its input several times."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import BinaryIO

from ernie.atomic import disk_guard, make_folder, partial_folder
from ernie.data.read import STANDARD_INPUT, Input
from ernie.data.remote import place
from ernie.errors import UserError


@contextmanager
def streams_copied(inputs: Sequence[Input], output: Path) -> Iterator[list[Input]]:
    """Yield the inputs with a copy of each that is a stream, in a folder beside `output` that is removed at the end.

    Raises UserError when a stream cannot be read or the disk is full.
    """
    if not any(source.is_stream for source in inputs):
        yield list(inputs)
        return
    output = output.absolute()
    folder = make_folder(partial_folder(output.with_name(f"{output.name}.input")))
    try:
        with disk_guard(output, "the input, which is copied beside it, was not read"):
            copied = [_copied(source, folder / str(i)) for i, source in enumerate(inputs)]
        yield copied
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def _copied(source: Input, copy: Path) -> Input:
    if not source.is_stream:
        return source
    try:
        stream = _standard_input() if source.name == STANDARD_INPUT else place(source.name).open("rb")
    except OSError as error:
        raise UserError(f"{source.name}: cannot be read: {error.strerror}") from None
    with stream, copy.open("wb") as file:
        shutil.copyfileobj(stream, file, 1 << 20)
    return replace(source, size=copy.stat().st_size, copy=copy)


def _standard_input() -> BinaryIO:
    if sys.stdin is None:
        raise UserError("standard input is closed; redirect a file to it (< FILE)")
    # A separate file object: Python aborts at exit if a thread still waits for input from sys.stdin's own.
    return open(sys.stdin.fileno(), "rb", closefd=False)
