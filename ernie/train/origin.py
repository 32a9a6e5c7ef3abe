"""Provenance of a run, stored with its results."""

from __future__ import annotations

import platform
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("ernie-continual", "paddlepaddle", "paddlepaddle-gpu", "numpy", "tokenizers", "sentencepiece")

_command: ContextVar[list[str] | None] = ContextVar("command", default=None)


@contextmanager
def running(command: Sequence[str]) -> Iterator[None]:
    """Let `origin` report this command line, which a program may run by `ernie.cli.main` without it being its own."""
    token = _command.set(list(command))
    try:
        yield
    finally:
        _command.reset(token)


def origin() -> dict[str, Any]:
    """Return the command line, the library's commit, dependency versions and the platform, as plain data."""
    versions = {"python": platform.python_version()}
    for name in _PACKAGES:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    command = _command.get() or sys.argv
    return {"command": command, "commit": _commit(), "versions": versions, "machine": platform.platform()}


def _commit() -> str | None:
    """Return the commit of the library's checkout, ending in -dirty if files differ; None for an installed library."""
    home = Path(__file__).resolve().parent.parent.parent
    if not (home / ".git").exists():
        return None
    try:
        commit, changes = (
            subprocess.run(["git", "-C", str(home), *words], capture_output=True, text=True).stdout.strip()
            for words in (["rev-parse", "HEAD"], ["status", "--porcelain", "--untracked-files=no"])
        )
    except OSError:
        return None
    return f"{commit}-dirty" if commit and changes else commit or None
