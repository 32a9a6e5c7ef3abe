"""A tiny encoder, and rows whose label depends on one word: the fixtures for tests of the commands."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from finished import finished_run


@pytest.fixture(scope="session")
def _finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The initial contents of the working folder, with a finished run."""
    return finished_run(tmp_path_factory.mktemp("finetune"))


@pytest.fixture
def work(_finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: an encoder, train.tsv, dev.tsv, test.tsv, task.yaml, and `done`, a finished run of it."""
    folder = tmp_path / "work"
    shutil.copytree(_finished_run, folder)
    monkeypatch.chdir(folder)
    return folder
