"""Signals and worker processes."""

from __future__ import annotations

import importlib
import os
import signal
from pathlib import Path

import pytest

from ernie.data.workers import Workers

_INTERRUPTED = """
import os, signal

if os.getpid() != {parent}:
    os.kill(os.getpid(), signal.{name})  # as Ctrl-C does to every process of a terminal

def prepare():
    pass
"""


@pytest.mark.parametrize("name", ["SIGINT", "SIGHUP"])
def test_a_worker_that_is_interrupted_while_it_imports_works_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / f"interrupted_{name}.py").write_text(_INTERRUPTED.format(name=name, parent=os.getpid()))
    monkeypatch.syspath_prepend(tmp_path)
    prepare = importlib.import_module(f"interrupted_{name}").prepare
    with Workers(1, "", prepare) as workers:
        assert workers.submit(len, "abc").result() == 3


def test_starting_workers_lets_signals_through_afterwards() -> None:
    before = signal.pthread_sigmask(signal.SIG_BLOCK, [])
    with Workers(1, "") as workers:
        assert workers.submit(_blocked).result() == sorted(before)
    assert signal.pthread_sigmask(signal.SIG_BLOCK, []) == before


def _blocked() -> list[int]:
    return sorted(signal.pthread_sigmask(signal.SIG_BLOCK, []))
