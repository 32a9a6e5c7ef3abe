"""A plug-in's task kind is trained, saved and used for prediction like a built-in one."""

from __future__ import annotations

import json
import random
from pathlib import Path

import paddle
import pytest
from helpers import ROOT, python, vocabulary

from ernie.cli import main
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel

WORDS = "awful poor fair good great".split()
CONFIG = """
plugins: [grades]
task: {kind: grade, text: review, label: stars, max_len: 16}
data: {train: train.tsv, dev: dev.tsv}
model: encoder
train: {epochs: 16, batch: 10, rate: {peak: 3e-3}}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with an encoder, and rows whose grade depends on one word."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    paddle.seed(0)
    tokenizer = vocabulary(" ".join(WORDS) + " a film it was")
    shape = {"hidden_size": 32, "layers": 1, "heads": 2, "intermediate_size": 64, "max_positions": 16}
    model = ErnieModel(EncoderConfig(vocab_size=tokenizer.vocab_size, dropout=0.0, attention_dropout=0.0, **shape))
    model.tokenizer = tokenizer
    model.save_pretrained(tmp_path / "encoder")
    rng = random.Random(0)
    for name, count in (("train", 150), ("dev", 40)):
        grades = [rng.randrange(5) for _ in range(count)]
        rows = [f"{rng.choice(['a', 'it was a'])} {WORDS[grade]} film\t{grade + 1}" for grade in grades]
        (tmp_path / f"{name}.tsv").write_text("\n".join(["review\tstars", *rows]) + "\n", encoding="utf-8")
    (tmp_path / "grades.yaml").write_text(CONFIG, encoding="utf-8")
    return tmp_path


def test_it_trains_and_a_new_process_predicts_with_it_as_its_card_says(folder: Path) -> None:
    assert main(["finetune", "grades.yaml", "--output", "run", "--quiet"]) == 0
    scores = json.loads((folder / "run" / "scores.json").read_text(encoding="utf-8"))["scores"]["dev"]
    assert scores["kappa"]["median"] > 0.9
    card = (folder / "run" / "README.md").read_text(encoding="utf-8")
    assert "\n\nThe plug-in `grades` must be on the Python path (PYTHONPATH, or an installed package).\n\n" in card
    (folder / "asked.txt").write_text("a great film\nit was a awful film\n", encoding="utf-8")
    rows = (folder / "asked.txt").read_text(encoding="utf-8").splitlines()
    (folder / "asked.tsv").write_text("\n".join(["review", *rows]) + "\n", encoding="utf-8")
    done = python("-m", "ernie.cli", "predict", "run", "--input", "asked.tsv", cwd=folder, path=[ROOT / "examples"])
    assert [json.loads(line)["grade"] for line in done.stdout.splitlines()] == [5, 1], done.stderr


def test_trials_are_not_reused_after_the_plug_in_was_edited(folder: Path) -> None:
    (folder / "marks.py").write_text(
        (ROOT / "examples" / "grades.py").read_text(encoding="utf-8").replace('task("grade"', 'task("mark"'),
        encoding="utf-8",
    )
    config = (
        CONFIG.replace("[grades]", "[marks]").replace("kind: grade", "kind: mark").replace("epochs: 16", "epochs: 1")
    )
    (folder / "marks.yaml").write_text(config, encoding="utf-8")
    command = ("-m", "ernie.cli", "finetune", "marks.yaml", "--output", "run", "--quiet")
    assert python(*command, cwd=folder, path=[folder]).returncode == 0
    assert python(*command, cwd=folder, path=[folder]).returncode == 0
    with (folder / "marks.py").open("a", encoding="utf-8") as file:
        file.write("# edited\n")
    done = python(*command, cwd=folder, path=[folder])
    assert done.returncode == 2
    assert "trained on other inputs under the same name: plugins.marks changed since" in done.stderr


def test_a_grade_outside_the_scale_is_reported_with_its_line(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with (folder / "train.tsv").open("a", encoding="utf-8") as file:
        file.write("a good film\t6\n")
    assert main(["finetune", "grades.yaml", "--output", "run", "--quiet"]) == 2
    assert "train.tsv:152: grade '6' is not a whole number from 1 to 5" in capsys.readouterr().err
