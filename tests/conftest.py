"""Settings for all tests."""

from __future__ import annotations

import atexit
import gc
import os
import shutil
import signal
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

# A shell that starts the tests in the background makes them, and the programs that they start, ignore Ctrl-C.
signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) == signal.SIG_IGN:  # by `nohup`: ignore it here, but not in child processes
    signal.signal(signal.SIGHUP, lambda number, frame: None)

# What the processes that run tests share; they inherit the name of the folder from the first one.
if "ERNIE_TESTS_SHARED" not in os.environ:
    os.environ["ERNIE_TESTS_SHARED"] = tempfile.mkdtemp(prefix="ernie-tests-")
    atexit.register(shutil.rmtree, os.environ["ERNIE_TESTS_SHARED"], ignore_errors=True)

gc.disable()  # until the tests begin: importing and collecting them makes none

# Idle threads sleep at once: tests run in one process for each core, and would wait for each other's idle threads.
os.environ.setdefault("KMP_BLOCKTIME", "0")

# No deadlines: an example may take any time on a busy machine.
settings.register_profile("ernie", deadline=None)
settings.load_profile("ernie")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop() -> None:
    """Look for garbage from now on, and only in what the tests make: all that was imported and collected stays."""
    gc.freeze()
    gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Run the pages first: their tests take longest, and one that began last would leave the other cores idle."""
    items.sort(key=lambda item: item.path.name != "test_docs.py")


@pytest.fixture(scope="session")
def _finished_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The initial contents of the working folder, with a finished run."""
    from support.finished import finished_run

    return finished_run(tmp_path_factory.mktemp("finetune"))


@pytest.fixture
def work(_finished_run: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The working folder: an encoder, train.tsv, dev.tsv, test.tsv, task.yaml, and `done`, a finished run of it."""
    folder = tmp_path / "work"
    shutil.copytree(_finished_run, folder)
    monkeypatch.chdir(folder)
    return folder


@pytest.fixture(params=["cpu", "gpu"])
def either_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """A CPU, and the library's code for a GPU with `support.fake_gpu`."""
    if request.param == "cpu":
        yield
    else:
        from support.fake_gpu import fake_gpu

        with fake_gpu():
            yield


@pytest.fixture(params=[pytest.param("real", marks=pytest.mark.gpu), "played"])
def gpu_device(request: pytest.FixtureRequest) -> Iterator[None]:
    """A GPU, or one that `support.fake_gpu` plays, so that tests for a GPU are known to be right without one."""
    import paddle
    from support.fake_gpu import fake_gpu

    if request.param == "played":
        with fake_gpu():
            yield
    else:
        paddle.set_device("gpu")
        yield
        paddle.set_device("cpu")
