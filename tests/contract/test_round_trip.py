"""Round trips through YAML: every shipped configuration and every registered variant is read back equal."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

import finetune.config
import pretrain.config
import tasks.pretraining
from ernie.config import dump, load
from ernie.text.segment.base import Segmenter, segmenters
from pretrain.corpus.config import CorpusConfig
from tasks.base import pretrain_tasks

CONFIGS = Path(__file__).resolve().parents[2] / "configs"
LOADERS: dict[str, Any] = {"pretrain": pretrain.config.load, "finetune": finetune.config.load}
# A base.yaml of fine-tuning is included by its neighbors, and names no task itself.
FILES = [
    (kind, file)
    for kind in LOADERS
    for file in sorted((CONFIGS / kind).rglob("*.yaml"))
    if (kind, file.name) != ("finetune", "base.yaml")
]
assert tasks.pretraining and FILES


@pytest.mark.parametrize(("kind", "file"), FILES, ids=[file.relative_to(CONFIGS).as_posix() for _, file in FILES])
def test_a_shipped_configuration_is_read_back_equal(kind: str, file: Path, tmp_path: Path) -> None:
    config = LOADERS[kind](file)
    written = tmp_path / "config.yaml"
    written.write_text(dump(config), encoding="utf-8")
    assert LOADERS[kind](written) == config


@pytest.mark.parametrize("name", list(segmenters))
def test_a_corpus_with_any_segmenter_is_read_back_equal(name: str, tmp_path: Path) -> None:
    if name in ("jieba", "spacy") and importlib.util.find_spec(name) is None:
        pytest.skip(f"needs {name}")
    (tmp_path / "words.txt").write_text("so it goes\n")
    segmenter = segmenters[name](**required_fields(name, tmp_path))
    config = CorpusConfig(["a.txt"], Path("tok"), segmenters=[segmenter, segmenters["capitals"]()])
    (tmp_path / "corpus.yaml").write_text(dump(config), encoding="utf-8")
    again = load(CorpusConfig, tmp_path / "corpus.yaml")
    assert again == config
    assert again.segmenters is not None and type(again.segmenters[0]) is type(segmenter)


def required_fields(name: str, folder: Path) -> dict[str, Any]:
    """The required fields of a segmenter."""
    if name == "spacy":
        import spacy

        spacy.blank("en").to_disk(folder / "model")
        return {"model": str(folder / "model")}
    return {"file": folder / "words.txt"} if name == "dictionary" else {}


def test_an_unregistered_segmenter_has_no_name() -> None:
    assert Segmenter().variant_name is None


@pytest.mark.parametrize("name", list(pretrain_tasks))
def test_a_run_with_any_task_is_read_back_equal(name: str, tmp_path: Path) -> None:
    text = f"corpus: c\nschedule: {{stages: [{{mine: 3}}]}}\ntasks: {{mine: {{task: {name}, max_len: 64}}}}\n"
    (tmp_path / "a.yaml").write_text(text)
    config = pretrain.config.load(tmp_path / "a.yaml")
    (tmp_path / "b.yaml").write_text(dump(config), encoding="utf-8")
    assert pretrain.config.load(tmp_path / "b.yaml") == config
