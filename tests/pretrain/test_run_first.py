"""Work that only the first process does when a run starts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar

import pytest

from ernie.data.shards import Corpus
from ernie.parallel.mesh import Mesh
from ernie.parallel.watch import Unwatched
from ernie.train.log import Log
from pretrain import run as run_module
from pretrain import training as training_module
from pretrain.config import load

T = TypeVar("T")


class RecordingWatch(Unwatched):
    """Keeps the current description of what rank 0 is doing."""

    current = ""

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        self.current = what
        try:
            yield
        finally:
            self.current = ""


class SplitMesh(Mesh):
    """A process of a split model."""

    splits_model = True  # type: ignore[assignment]


def test_other_processes_are_told_what_rank_0_is_building_while_they_wait(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    watch, recorded = RecordingWatch(), []

    def recording(build: Callable[..., T]) -> Callable[..., T]:
        def wrapper(*args: object) -> T:
            recorded.append(watch.current)
            return build(*args)

        return wrapper

    for module, name in ((training_module, "build_model"), (run_module, "Probe")):
        monkeypatch.setattr(module, name, recording(getattr(module, name)))
    found = load(config)
    mesh = SplitMesh(watch=watch)
    run_module.Run(found, tmp_path, Corpus.open(found.corpus), Log(tmp_path, 1, quiet=True), mesh=mesh).close()
    # At first, without a description, every process builds a model of its own.
    assert recorded == ["", "building the full model", "making held-out batches"]
