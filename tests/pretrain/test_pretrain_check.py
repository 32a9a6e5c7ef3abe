"""`ernie pretrain --check`: what a run would train on, and what is wrong with it, before any training."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from support.helpers import ROOT, python

from ernie.cli import main
from pretrain.config import load


def test_the_samples_of_every_task_are_listed_and_nothing_is_written(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pretrain", str(config), "--check", "--set", "train.lr.warmup=25"]) == 0
    shown = capsys.readouterr().out
    assert "note: the learning rate warms up for 25 steps, but there are only 24: it does not reach its peak" in shown
    assert shown.splitlines()[0] == f"ok: {config} has no unknown or mistyped key"
    assert "ok: 24 steps in 3 stages\n" in shown
    head, *parts = re.split(r"^(\w+):$", shown, flags=re.MULTILINE)
    assert "ok: an encoder of 1 layers, width 32" in head
    assert parts[::2] == ["knowledge_masking", "capitalization", "sentence_reordering"]
    for part in parts[1::2]:
        assert re.search(r"  ok: [\d,]+ documents give [\d,]+ samples of \d+ to 48 tokens, \d+ on average", part)
        assert re.search(r"  ok: one step on \d+ tokens, \d+ labels: loss \d\.\d{3}", part)
    masked, capitals, reordered = parts[1::2]
    assert "[MASK]/" in masked
    assert re.search(r"ok: [\d,]+ labels: 0 \d+%, 1 [\d.]+%\n", capitals)
    assert re.search(r"\(1\.099 for a uniform guess\)", reordered)
    assert re.search(r": label [012]\n", reordered)
    assert "ok: measured on held-out documents by f1" in capitals
    assert list(tmp_path.iterdir()) == []


ONLY_MASKING = ("--set", "schedule.tasks=[knowledge_masking]")


def test_text_that_the_tokenizer_does_not_know_is_noted(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [json.dumps({"text": f"今天天气很好。我们去公园。第{n}次。" * 9}, ensure_ascii=False) for n in range(40)]
    (tmp_path / "zh.jsonl").write_text("\n".join(rows), encoding="utf-8")
    tokenizer = load(config).corpus / "tokenizer"
    build = ["--input", str(tmp_path / "zh.jsonl"), "--tokenizer", str(tokenizer), "--output", str(tmp_path / "corpus")]
    assert main(["data", "build", *build, "--quiet"]) == 0
    assert main(["pretrain", str(config), "--check", "--set", f"corpus={tmp_path / 'corpus'}", *ONLY_MASKING]) == 0
    assert re.search(
        r"note: \d\d% of their tokens are unknown to the tokenizer; was it trained on such text\?",
        capsys.readouterr().out,
    )


def test_a_text_without_blank_lines_is_called_a_single_document(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "one.txt").write_text("The river runs past the town. It is slow.\n" * 60, encoding="utf-8")
    tokenizer = load(config).corpus / "tokenizer"
    build = ["--input", str(tmp_path / "one.txt"), "--tokenizer", str(tokenizer), "--output", str(tmp_path / "corpus")]
    assert main(["data", "build", *build]) == 0
    assert "a blank line separates documents in a text file, and these files hold one" in capsys.readouterr().out
    assert main(["pretrain", str(config), "--check", "--set", f"corpus={tmp_path / 'corpus'}", *ONLY_MASKING]) == 2
    assert "The corpus is a single document: a blank line separates documents" in capsys.readouterr().err


def test_a_corpus_that_was_changed_fails_the_check(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(load(config).corpus, tmp_path / "corpus")
    ids = next((tmp_path / "corpus" / "train").glob("*.ids"))
    content = bytearray(ids.read_bytes())
    content[0] ^= 1
    ids.write_bytes(content)
    assert main(["pretrain", str(config), "--check", "--set", f"corpus={tmp_path / 'corpus'}"]) == 2
    assert f"{ids}: is not what was written (its SHA-256 differs)" in capsys.readouterr().err


@pytest.fixture
def check_edited_task(
    config: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[[str, str], tuple[int, str, str]]:
    """A function that edits the example task and checks a run of it; returns exit status, stdout and stderr."""

    def check(line: str, replacement: str) -> tuple[int, str, str]:
        text = (ROOT / "examples" / "shuffled_words.py").read_text(encoding="utf-8")
        assert line in text
        text = text.replace(line, replacement).replace('task("shuffled_words")', 'task("mine")')
        (tmp_path / "mine.py").write_text(text, encoding="utf-8")
        options = ("--set", "plugins=[mine]", "--set", "schedule.tasks=[mine]", "--check")
        done = python("-m", "ernie.cli", "pretrain", str(config), *options, cwd=tmp_path, path=[tmp_path])
        return done.returncode, done.stdout, done.stderr

    return check


@pytest.mark.parametrize(
    ("line", "replacement", "message"),
    [
        ("rng.random(len(ids))", "np.random.random(len(ids))", "its samples differ when they are made twice"),
        (
            "rng.random(len(ids))",
            "rng.random(len(ids)) * (hash('a word') % 1009 / 500)",
            "when another process makes them",
        ),
        ("rng.random(len(ids))", "rng.normally(len(ids))", "failed at item"),
        ("astype(np.int64))", "astype(np.float64))", "labels are of the type float64; expected integers"),
        ("label=", "lable=", "a sample has no label called 'label' (it has: lable)"),
        ("self.length - 2", "self.length + 2", "tokens, and none may have more than `length`, 48"),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n    def loss(self, head, hidden_TD, batch):\n"
            "        return super().loss(head, hidden_TD * float('inf'), batch)",
            "its first step has the loss nan and a gradient of the norm nan",
        ),
        (
            "label=(shuffled != ids).astype(np.int64)",
            "label=(shuffled != ids).astype(np.int64), weight=1",
            "targets, and a batch of its samples has",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n    def loss(self, head, hidden_TD, batch):\n"
            "        from ernie.model.losses import squared_error\n"
            "        values = head(hidden_TD, batch.labels['label'].positions)[:, :1]\n"
            "        return squared_error(values, batch.labels['label'].values / 3)",
            "Metrics compare classes: they need logits (P, C) and P whole numbers below C",
        ),
        (
            "yield single(tokenizer, shuffled, label=(shuffled != ids).astype(np.int64))",
            "one = single(tokenizer, shuffled, label=(shuffled != ids).astype(np.int64))\n"
            "            yield Sample(one.ids, one.segments + 9, one.labels)",
            "task 'mine': token_type_ids: 9: expected a number from 0 to",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n"
            "    def loss(self, head, hidden_TD, batch):\n"
            "        from ernie.model.losses import cross_entropy\n"
            "        labels = batch.labels['label']\n"
            "        return cross_entropy(head(hidden_TD, labels.positions - 1), labels.values)\n",
            "its loss uses tokens that its `reads` leaves out",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n"
            "    def loss(self, head, hidden_TD, batch):\n"
            "        found = super().loss(head, hidden_TD, batch)\n"
            "        return type(found)(found.total / found.count, found.count, found.logits, found.labels)\n",
            "the total of its loss is the mean over its targets; expected the sum",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n"
            "    def loss(self, head, hidden_TD, batch):\n"
            "        return super().loss(head, hidden_TD, batch).total\n",
            "its `loss` gives a Tensor; expected a Loss",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n"
            "    def loss(self, head, hidden_TD, batch):\n"
            "        found = super().loss(head, hidden_TD, batch)\n"
            "        return type(found)(found.total * found.logits, found.count, found.logits, found.labels)\n",
            "its `loss` gives a Loss with a total of the shape [",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n"
            "    def loss(self, head, hidden_TD, batch):\n"
            "        found = super().loss(head, hidden_TD, batch)\n"
            "        return type(found)(found.total, found.count, found.logits, None)\n",
            "the labels of its loss are a NoneType; expected a NumPy array",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n    def head(self, model):\n        super().head(model)\n",
            "its `head` gives a NoneType; expected a layer of paddle.nn",
        ),
        (
            'classes: ClassVar[int] = 2\n    metrics: ClassVar[tuple[str, ...]] = ("macro_f1", "accuracy")',
            'classes: ClassVar[int] = 3\n    metrics: ClassVar[tuple[str, ...]] = ("f1", "accuracy")',
            "f1 is that of class 1 of two, and there are 3; macro_f1",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n    def items(self, documents, *, held_out):\n        return iter(documents)",
            "its `items` gives a ",
        ),
        ('"accuracy")', '"acuracy")', "there is no metric 'acuracy'. Did you mean 'accuracy'?"),
    ],
)
def test_errors_in_a_custom_task_are_reported(
    check_edited_task: Callable[[str, str], tuple[int, str, str]], line: str, replacement: str, message: str
) -> None:
    status, _, error = check_edited_task(line, replacement)
    assert message in error
    assert "mine" in error
    assert status == (1 if message.startswith("failed") else 2)
    if status == 1:
        assert re.search(r"failed at item \d+ of its documents \(\S+:\d+\): AttributeError", error)


@pytest.mark.parametrize(
    ("line", "replacement", "note"),
    [
        ("classes: ClassVar[int] = 2", "classes: ClassVar[int] = 4", "note: of 4 classes these do not occur: 2, 3"),
        (
            "fraction: float = 0.15",
            "fraction: float = 0.02",
            "of the labels are 0; there is little to learn from the others",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n    def items(self, documents, *, held_out):\n"
            "        flags, ends = np.zeros(40, np.uint8), np.array([40])\n"
            "        return [Document(0, np.arange(10, 50), flags, ends, np.zeros(1, np.uint8))] * 99",
            "note: its `items` gives the same items held out and not: it is measured on its training data",
        ),
        (
            "astype(np.int64))",
            "astype(np.int64))\n\n    def loss(self, head, hidden_TD, batch):\n"
            "        return super().loss(head, hidden_TD.detach(), batch)",
            "note: no gradient of its loss reaches the encoder",
        ),
        ("in token_spans(", "in () if items[0].index % 3 else token_spans(", "of these documents give none"),
    ],
)
def test_oddities_of_a_custom_task_are_noted(
    check_edited_task: Callable[[str, str], tuple[int, str, str]], line: str, replacement: str, note: str
) -> None:
    status, shown, error = check_edited_task(line, replacement)
    assert status == 0, error
    assert note in shown
    assert "ok: measured on held-out documents by macro_f1, accuracy" in shown


def test_a_configuration_of_the_other_kind_is_referred_to_its_command(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["check", str(config)]) == 2
    assert "it is a configuration for `ernie pretrain`, which checks it with --check" in capsys.readouterr().err
    (tmp_path / "task.yaml").write_text("task: {kind: classify, text: a, label: b}\n", encoding="utf-8")
    assert main(["pretrain", str(tmp_path / "task.yaml"), "--check"]) == 2
    assert "it is a configuration for `ernie finetune`" in capsys.readouterr().err
