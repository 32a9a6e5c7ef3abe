"""`ernie export`: its files, its output, its errors; and the code in its README runs."""

from __future__ import annotations

import errno
import json
import re
import shutil
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file
from support.helpers import python

from ernie.cli import main
from ernie.data.labeled.read import read_rows
from ernie.data.labeled.row import Row, RowOptions
from ernie.model.export.compare import padded
from ernie.model.export.runtimes import open_model
from inference.task_model import TaskModel


def export(*arguments: str) -> int:
    return main(["export", *arguments])


@pytest.mark.parametrize("to", ["paddle", "onnx"])
def test_an_exported_run_makes_the_same_predictions(work: Path, to: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert export("done", "--to", to, "--output", "there") == 0
    out = capsys.readouterr().out
    assert re.search(r"^logits, random rows: largest difference \S+e-", out, re.MULTILINE)
    assert re.search(r"^logits, rows of the run: largest difference \S+e-", out, re.MULTILINE)
    assert out.endswith("there\n")
    labels = json.loads((work / "there" / "labels.json").read_text())
    rows = [row for row in read_rows("test.tsv", RowOptions()) if isinstance(row, Row)]
    model = TaskModel.load("done")
    samples = [model.task.example(row, model.tokenizer).samples[0] for row in rows]
    (logits,) = open_model(work / "there", to)(*padded(samples))  # type: ignore[arg-type]
    assert [labels[best] for best in logits.argmax(-1)] == [answer["label"] for answer in model.predict(rows)]


@pytest.mark.parametrize(("source", "to"), [("done", "onnx"), ("done", "paddle"), ("encoder", "onnx")])
def test_the_code_in_its_readme_runs(work: Path, source: str, to: str) -> None:
    assert export(source, "--to", to, "--output", "there") == 0
    code = re.search(r"```python\n(.*?)```", (work / "there" / "README.md").read_text(), re.DOTALL)
    assert code is not None
    shown = "logits" if source == "done" else "pooler_output"
    done = python("-c", f"{code[1]}\nprint({shown}.shape)", cwd=work / "there")
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == ("(2, 2)" if source == "done" else "(2, 32)")


def test_the_auto_classes_of_transformers_load_the_settings_and_the_tokenizer(work: Path) -> None:
    assert export("done", "--to", "onnx", "--output", "there") == 0
    settings = json.loads((work / "there" / "config.json").read_text())
    assert settings["id2label"] == {"0": "blame", "1": "praise"}
    assert settings["architectures"][0].endswith("ForSequenceClassification")
    assert json.loads((work / "there" / "tokenizer_config.json").read_text())["tokenizer_class"] == "BertTokenizer"
    tokenizer = TaskModel.load("done").tokenizer
    assert (work / "there" / "vocab.txt").read_text().split("\n")[:-1] == tokenizer.tokens
    if find_spec("transformers") is not None:
        from transformers import AutoConfig, AutoTokenizer

        theirs = AutoTokenizer.from_pretrained(str(work / "there"))("a good film")["input_ids"]
        assert theirs == tokenizer("a good film")["input_ids"][0].tolist()
        assert AutoConfig.from_pretrained(str(work / "there")).id2label == {0: "blame", 1: "praise"}


PAIRS = """\
task: {kind: regress, text: asked, text_pair: told, label: price, max_len: 16, metrics: [mean_squared_error]}
data: {train: pairs.tsv, dev: pairs.tsv}
model: encoder
train: {epochs: 30, batch: 10, lr: {peak: 3e-3}}
"""


@pytest.mark.parametrize("to", ["onnx", "paddle"])
def test_large_regression_targets_are_learned_and_both_readmes_show_the_columns(work: Path, to: str) -> None:
    prices = {"good": 450_000, "bad": 150_000}
    lines = [f"{i}\tthe film\tit was {word}\t{prices[word]}\n" for i, word in enumerate(["good", "bad"] * 10)]
    (work / "pairs.tsv").write_text("id\tasked\ttold\tprice\n" + "".join(lines))
    (work / "pairs.yaml").write_text(PAIRS)
    assert main(["finetune", "pairs.yaml", "--output", "run", "--quiet"]) == 0
    answers = list(TaskModel.load("run").predict([{"asked": "the film", "told": "it was good"}]))
    assert answers[0]["value"] == pytest.approx(450_000, rel=0.05)
    card = (work / "run" / "README.md").read_text()
    assert "model.predict([{'asked': '...', 'told': '...'}])" in card
    assert "FILE has the columns `asked`, `told`;" in card

    assert export("run", "--to", to, "--output", "there") == 0
    readme = (work / "there" / "README.md").read_text()
    assert "\nLogits are in standard deviations from the mean of the training targets.\n" in readme
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    assert 'tokenizer(["a asked", "another asked"], ["a told", "another told"], max_len=16)' in code
    filled_in = code.replace("a asked", "the film").replace("a told", "it was good")
    done = python("-c", f"{filled_in}\nprint(values[0, 0])", cwd=work / "there")
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) == pytest.approx(answers[0]["value"], rel=1e-4)


def test_an_encoder_is_compared_on_the_lines_of_a_file(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (work / "lines.txt").write_text("the film was good\nit was very poor\n")
    assert export("encoder", "--to", "onnx", "--int8", "--task", "3", "--input", "lines.txt", "--output", "there") == 0
    assert "pooler_output, rows of lines.txt: " in capsys.readouterr().out
    record = json.loads((work / "there" / "export.json").read_text())
    assert (record["int8"], record["outputs"]) == (True, ["last_hidden_state", "pooler_output"])


def test_without_rows_a_note_says_that_only_random_ones_were_compared(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (work / "dev.tsv").unlink()
    for source in ("encoder", "done"):
        assert export(source, "--to", "onnx", "--output", f"there-{source}") == 0
    err = capsys.readouterr().err
    assert err.count("compared on random rows only; --input FILE gives real ones") == 2
    assert "the rows of the run cannot be read again" in err


def test_a_full_disk_names_the_folder_and_leaves_nothing(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Another library's writer runs out of disk space, with an error that names no file."""
    from inference.export import write as module

    def disk_full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "write_model", disk_full)
    before = sorted(path.name for path in work.iterdir())
    assert export("done", "--to", "onnx", "--output", "there") == 2
    assert "ernie: error: there: the disk is full; nothing was exported." in capsys.readouterr().err
    assert sorted(path.name for path in work.iterdir()) == before


def test_a_model_with_different_outputs_is_not_written(
    work: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The weights change between export and comparison."""
    from inference.export import write as module

    def write_another(model: object, folder: Path, to: object, int8: bool) -> None:
        weights = load_file("encoder/model.safetensors")
        weights["encoder.layers.0.inner.bias"] += np.float32(0.1)
        save_file(weights, "encoder/model.safetensors")
        Path("encoder/sha256.json").unlink()
        write_model(module.exportable(Path("encoder"), 0).padded, folder, to, int8)  # type: ignore[arg-type]

    write_model = module.write_model
    monkeypatch.setattr(module, "write_model", write_another)
    assert export("encoder", "--to", "onnx", "--output", "there") == 1
    captured = capsys.readouterr()
    assert "a largest difference is above 0.0001: nothing was written to there" in captured.err
    assert "largest difference" in captured.out
    assert not list(work.glob("there*"))


def test_a_model_without_a_tokenizer_is_refused_before_anything_is_written(
    work: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(work / "encoder" / "tokenizer")
    (work / "encoder" / "sha256.json").unlink()
    assert export("encoder", "--to", "onnx", "--output", "there") == 2
    captured = capsys.readouterr()
    assert "encoder: the model in it has no tokenizer, which is part of an export" in captured.err
    assert captured.out == ""
    assert not list(work.glob("there*"))


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["nowhere", "--to", "onnx", "--output", "there"], "nowhere"),
        (["done", "--to", "onnx", "--output", "encoder"], "encoder: is there already; give a new folder"),
        (["done", "--to", "paddle", "--int8", "--output", "there"], "--int8 is for --to onnx"),
        (
            ["encoder", "--to", "onnx", "--task", "16", "--output", "there"],
            "--task 16: the model has the tasks 0 to 15",
        ),
        (["done", "--to", "onnx", "--task", "0", "--output", "there"], "--task: done is a fine-tuned model"),
        (["done", "--to", "onnx", "--input", "none.tsv", "--output", "there/model"], "none.tsv"),
    ],
)
def test_mistakes_are_reported_and_leave_nothing_behind(
    work: Path, arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert export(*arguments) == 2
    assert sentence in capsys.readouterr().err
    assert not list(work.glob("there*"))
