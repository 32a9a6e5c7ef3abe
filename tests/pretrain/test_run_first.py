"""What the first process makes by itself when a run begins."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

import pytest

from ernie.data.shards import Corpus
from ernie.parallel.world import World
from ernie.train.log import Log
from pretrain import run as a_run
from pretrain.config import load

T = TypeVar("T")


class Told(World):
    """A process that has a part of the model, and notes what the others are told that it does."""

    splits = True  # type: ignore[assignment]
    doing = ""

    def on_rank0(self, doing: str, compute: Callable[[], T]) -> T:
        self.doing = doing
        try:
            return super().on_rank0(doing, compute)
        finally:
            self.doing = ""


def test_while_the_first_process_makes_what_it_alone_has_the_others_are_told_to_wait(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world, made = Told(), []

    def noting(make: Callable[..., T]) -> Callable[..., T]:
        def noted(*given: object) -> T:
            made.append(world.doing)
            return make(*given)

        return noted

    for name in ("build_model", "Probe"):
        monkeypatch.setattr(a_run, name, noting(getattr(a_run, name)))
    found = load(config)
    a_run.Run(found, tmp_path, Corpus.open(found.corpus), Log(tmp_path, 1, quiet=True), world=world).close()
    assert made == ["", "building the whole model", "making held-out batches"]  # at first each makes one for itself
