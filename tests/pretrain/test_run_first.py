"""Work that only the first process does when a run starts."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ernie.data.shards import Corpus
from ernie.parallel.world import World
from ernie.train.log import Log
from pretrain import run as run_module
from pretrain.config import load

T = TypeVar("T")


class RecordingWorld(World):
    """A process of a split model that keeps the current description of what rank 0 is doing."""

    splits = True  # type: ignore[assignment]
    doing = ""

    def on_rank0(self, doing: str, compute: Callable[[], T]) -> T:
        self.doing = doing
        try:
            return super().on_rank0(doing, compute)
        finally:
            self.doing = ""


def test_other_processes_are_told_what_rank_0_is_building_while_they_wait(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, recorded = RecordingWorld(), []

    def recording(build: Callable[..., T]) -> Callable[..., T]:
        def wrapper(*args: object) -> T:
            recorded.append(world.doing)
            return build(*args)

        return wrapper

    for name in ("build_model", "Probe"):
        monkeypatch.setattr(run_module, name, recording(getattr(run_module, name)))
    found = load(config)
    run_module.Run(found, tmp_path, Corpus.open(found.corpus), Log(tmp_path, 1, quiet=True), world=world).close()
    # At first, without a description, every process builds a model of its own.
    assert recorded == ["", "building the whole model", "making held-out batches"]
