"""The folders that hostile cases start from, and the program that tries them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from finished import finished_run
from hostile_case import Trier
from made_up_run import SEVEN, made_up_run
from toys import tiny_encoder


@pytest.fixture(scope="session")
def trier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trier]:
    """The program that tries cases: see hostile_case."""
    run = finished_run(tmp_path_factory.mktemp("finetune"))
    pretrained = tmp_path_factory.mktemp("pretrain")
    made_up_run(pretrained / "run", SEVEN[:2], steps_per_task=6)
    finished = tmp_path_factory.mktemp("finished")
    tiny_encoder().save_pretrained(made_up_run(finished / "run", SEVEN[:1], steps_per_task=3) / "model")
    bases = {"run": run, "pretrained": pretrained, "finished": finished}
    trier = Trier(tmp_path_factory.mktemp("hostile"), bases)
    yield trier
    trier.close()
