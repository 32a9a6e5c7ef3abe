"""The folders that hostile cases start from, and the program that tries them."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from support.finished import finished_run
from support.hostile.case import Trier
from support.made_up_run import SEVEN, made_up_run
from support.running import CONFIG, build_corpus, made_up_text
from support.toys import tiny_encoder

from ernie.cli import main


@pytest.fixture(scope="session")
def trier(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Trier]:
    """The program that tries cases: see support/hostile/case.py."""
    run = finished_run(tmp_path_factory.mktemp("finetune"))
    pretrained = tmp_path_factory.mktemp("pretrain")
    made_up_run(pretrained / "run", SEVEN[:2], steps_per_task=6)
    finished = tmp_path_factory.mktemp("finished")
    tiny_encoder().save_pretrained(made_up_run(finished / "run", SEVEN[:1], steps_per_task=3) / "model")
    bases = {"run": run, "pretrained": pretrained, "finished": finished, "trained": _trained(tmp_path_factory)}
    trier = Trier(tmp_path_factory.mktemp("hostile"), bases)
    yield trier
    trier.close()


def _trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with `corpus`, `run.yaml`, and `run`, a pretraining run of four steps, with its report."""
    folder = tmp_path_factory.mktemp("trained")
    build_corpus(made_up_text(folder / "text.txt"), folder)
    config = yaml.safe_load(CONFIG.format(corpus="corpus"))
    config["schedule"] = {"tasks": ["knowledge_masking"], "steps_per_task": 4}
    config.pop("tasks")
    (folder / "run.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
    before = Path.cwd()
    os.chdir(folder)
    try:
        assert main(["pretrain", "run.yaml", "--output", "run", "--quiet"]) == 0
        assert main(["report", "run"]) == 0
    finally:
        os.chdir(before)
    score = {"median": 0.5, "lowest": 0.4, "highest": 0.6, "values": [0.4, 0.5, 0.6]}
    downstream = {"step": 4, "runs": [["mine", {"dev": {"f1": score}}]]}
    (folder / "run" / "report" / "downstream.json").write_text(json.dumps(downstream), encoding="utf-8")
    return folder
