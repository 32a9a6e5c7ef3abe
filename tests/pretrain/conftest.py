"""A small corpus of real text, built with the command-line tools, and the configuration of a run."""

from __future__ import annotations

import json
import pydoc_data.topics
from pathlib import Path

import pytest
from support.pretraining import start_process
from support.running import CONFIG, build_corpus


@pytest.fixture(scope="session")
def text(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The help topics that ship with Python, as JSON lines."""
    file = tmp_path_factory.mktemp("text") / "topics.jsonl"
    with file.open("w", encoding="utf-8") as out:
        for name, topic in sorted(pydoc_data.topics.topics.items())[::4]:
            paragraphs = [" ".join(part.split()) for part in topic.split("\n\n")]
            out.write(json.dumps({"title": name, "paragraphs": [part for part in paragraphs if part]}) + "\n")
    return file


@pytest.fixture(scope="session")
def corpus(text: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A corpus of these topics, a tenth of them held out."""
    return build_corpus(text, tmp_path_factory.mktemp("corpus"))


@pytest.fixture(scope="session")
def config(corpus: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The YAML of a tiny run of three tasks in three stages, 24 steps."""
    file = tmp_path_factory.mktemp("config") / "run.yaml"
    file.write_text(CONFIG.format(corpus=corpus), encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def finished(config: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """A configuration and the folder of its uninterrupted run, by a process of its own."""
    folder = tmp_path_factory.mktemp("finished") / "run"
    assert start_process(config, folder).wait() == 0
    return config, folder
