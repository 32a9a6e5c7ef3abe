"""Texts longer than a sample are read in windows, whose logits are pooled before loss and answer."""

from __future__ import annotations

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import paddle
import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.toys import TOKENIZER, TOYS, Toy, tiny_encoder

import tasks.downstream.base
from ernie.cli import main
from ernie.data.batch import Packed, pack
from ernie.data.document import IGNORE, Sample
from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.model.losses import pooled_logits
from ernie.train.lr_schedule import LRScheduleConfig
from finetune.config import TrainConfig
from finetune.prepare import prepare
from finetune.train.loop import finetune
from finetune.train.model import TrainingModel
from tasks.downstream.base import Example, WindowedTask, float_logits, truncation_note
from tasks.downstream.classify import Classify
from tasks.downstream.rank import Rank
from tasks.downstream.tag import Tag
from tasks.downstream.windows import WindowConfig

KINDS = sorted(kind for kind, toy in TOYS.items() if isinstance(toy.task, WindowedTask))
WORDS = "a film it the very was blue red great poor".split()
TEXTS = st.lists(st.sampled_from(WORDS), min_size=1, max_size=40)


def windowed(kind: str, pooling: Any = "mean") -> Toy:
    """A toy whose texts have more words, so that most are read in several windows."""
    toy = TOYS[kind]
    padding = " ".join(WORDS[:6] * 4) + " "
    task: Any = replace(toy.task, max_len=12, windows=WindowConfig(pooling, stride=2))
    long = replace(
        toy, write=lambda rng: (row := toy.write(rng)) | {"text": padding[rng.integers(130) :] + row["text"]}
    )
    return replace(long, task=task)


def ids(words: list[str]) -> list[int]:
    return TOKENIZER.ids(" ".join(words)).tolist()


class TestSamples:
    @given(TEXTS, st.integers(0, 5), st.sampled_from([0, 1, 2, 3]))
    def test_every_token_is_in_a_window_or_counted_as_cut(self, words: list[str], stride: int, most: int) -> None:
        task = Classify(max_len=8, labels=("a", "b"), windows=WindowConfig(stride=stride, most=most))
        example = task.training_example(Row({"text": " ".join(words), "label": "b"}), TOKENIZER)
        parts = [sample.ids[1:-1].tolist() for sample in example.samples]
        spans = WindowConfig(stride=stride).of(len(words), 6)
        read = set(range(len(words)))
        if most and len(spans) > most:
            spans = [spans[round(i * (len(spans) - 1) / max(1, most - 1))] for i in range(most)]
            read = {token for start, stop in spans for token in range(start, stop)}
        assert parts == [ids(words)[start:stop] for start, stop in spans]
        assert example.cut == len(words) - len(read)
        assert spans[0][0] == 0 and (most == 1 or spans[-1][1] == len(words))
        assert all(len(sample) <= 8 for sample in example.samples)
        assert [sample.continues for sample in example.samples] == [False] + [True] * (len(parts) - 1)
        assert [dict(sample.labels) for sample in example.samples] == [{"label": 1}] + [{}] * (len(parts) - 1)

    @given(TEXTS, TEXTS)
    def test_of_a_pair_the_longer_text_is_divided_and_the_other_stands_in_each_window(
        self, first: list[str], second: list[str]
    ) -> None:
        plain = Rank(max_len=13)
        row = Row({"query": " ".join(first), "text": " ".join(second), "label": "1"})
        example = replace(plain, windows=WindowConfig(stride=1)).training_example(row, TOKENIZER)
        if len(first) + len(second) + 3 <= 13:
            (sample,), (same,) = example.samples, plain.training_example(row, TOKENIZER).samples
            assert sample.ids.tolist() == same.ids.tolist() and not example.cut
            return
        divided, kept = (first, second) if len(first) >= len(second) else (second, first)
        half, segment = ids(kept)[:5], int(divided is second)
        read: list[int] = []
        for sample in example.samples:
            assert len(sample) <= 13
            sides = [sample.ids[sample.segments == n].tolist() for n in (0, 1)]
            assert sides[0][0] == TOKENIZER.cls_id and sides[0].pop() == sides[1].pop() == TOKENIZER.sep_id
            sides[0] = sides[0][1:]
            assert sides[1 - segment] == half
            read += sides[segment][1 if read else 0 :]
        assert read == ids(divided)
        assert example.cut == max(0, len(kept) - 5)

    def test_the_note_on_what_is_cut_names_the_settings_that_cut_it(self) -> None:
        single = Classify(max_len=64, labels=("a", "b"), windows=WindowConfig(most=3))
        assert truncation_note(single) == "windows.most 3"
        half = "half of max_len 64 for the shorter text of a pair"
        assert truncation_note(replace(single, text_pair="b")) == f"{half} or windows.most 3"
        assert truncation_note(Rank(max_len=64, windows=WindowConfig())) == half

    @pytest.mark.parametrize(("pair", "room"), [("", 14), ("b", 7)])
    def test_an_overlap_that_leaves_nothing_new_is_refused(self, pair: str, room: int) -> None:
        def task(stride: int) -> Classify:
            return Classify(max_len=16, text_pair=pair, windows=WindowConfig(stride=stride))

        assert task(room - 1).windows
        with pytest.raises(UserError, match=rf"^windows\.stride: .* as few as {room} tokens .* found {room}$"):
            task(room)


class TestPooling:
    @pytest.mark.parametrize("pooling", ["mean", "max"])
    def test_each_row_has_the_mean_or_the_maximum_of_its_logits(self, pooling: Any) -> None:
        logits = np.random.default_rng(0).normal(size=(6, 3)).astype(np.float32)
        tensor = paddle.to_tensor(logits, stop_gradient=False)
        pooled = pooled_logits(tensor, np.array([0, 1, 4]), pooling)
        parts = [logits[:1], logits[1:4], logits[4:]]
        np.testing.assert_allclose(pooled.numpy(), [getattr(part, pooling)(0) for part in parts], rtol=1e-6)
        pooled.sum().backward()
        assert tensor.grad is not None
        shares = [np.ones((len(part), 3)) / len(part) for part in parts]
        if pooling == "max":
            shares = [part == part.max(0) for part in parts]
        np.testing.assert_allclose(tensor.grad.numpy(), np.concatenate(shares), rtol=1e-6)

    def test_the_score_of_a_text_is_that_of_its_most_relevant_window(self) -> None:
        task = Rank(max_len=16, windows=WindowConfig("max"), raw_scores=True)
        logits = [np.array([3.0, 4.0]), np.array([-2.0, 0.5]), np.array([5.0, 1.0])]
        example = Example(tuple(Sample(np.zeros(3), np.zeros(3), continues=n > 0) for n in range(3)))
        assert task.answer(example, task._of_row(example, logits))["raw_score"] == 2.5


@pytest.mark.parametrize("pooling", ["mean", "max"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("with_settings", [False, True], ids=["plain", "with settings"])
def test_loss_and_answers_are_those_of_the_pooled_logits(kind: str, pooling: Any, with_settings: bool) -> None:
    toy = windowed(kind, pooling)
    toy = toy.with_loss_settings() if with_settings else toy
    task: Any = toy.task
    examples = prepare(task, Split("train", toy.rows(9)), TOKENIZER).examples
    counts = [count for example in examples for count in np.diff([*example.firsts, len(example.samples)]).tolist()]
    assert min(counts) < 3 <= max(counts)
    model = TrainingModel(tiny_encoder(), task)
    model.eval()
    batch = pack([sample for example in examples for sample in example.samples])
    loss = model.loss(batch)
    pooled = []
    for example in examples:
        one = pack(example.samples)
        hidden = model.ernie.encode_packed(one, model.task_id)
        logits = task.comparable(float_logits(task, model.head, hidden, one.layout).numpy())
        pooled.append([getattr(part, pooling)(0) for part in np.split(logits, example.firsts[1:])])
    rows = pack([example.samples[first] for example in examples for first in example.firsts])
    assert loss.count == len(examples) == batch.targets
    expected = float(task.loss(paddle.to_tensor(np.stack([part for parts in pooled for part in parts])), rows).total)
    assert float(loss.total) == pytest.approx(expected, rel=1e-4)
    for answer, example, logits in zip(model.answers(examples), examples, pooled, strict=True):
        for value, wanted in zip(answer.values(), task.answer(example, logits).values(), strict=True):
            assert value == (pytest.approx(wanted, abs=1e-4) if isinstance(wanted, float | list) else wanted)
    model.r_drop = 1.0  # two passes without dropout do not differ
    twice = model.loss(pack([sample for example in examples for sample in example.samples] * 2))
    assert float(twice.total) == pytest.approx(2 * float(loss.total), rel=1e-4)


def test_what_stands_behind_the_cut_is_learned_with_windows_only() -> None:
    def accuracy(task: Classify) -> float:
        rows = [Row({"text": "a film it was the very " * 3 + color, "label": color}) for color in ("blue", "red") * 24]
        split = prepare(task, Split("train", rows), TOKENIZER)
        settings = TrainConfig(epochs=6, batch=8, lr=LRScheduleConfig(peak=4e-3))
        return finetune(tiny_encoder(), task, split, split, settings)[1][-1].scores["accuracy"]

    task = Classify(max_len=12, labels=("blue", "red"))
    assert accuracy(task) == 0.5
    assert accuracy(replace(task, windows=WindowConfig("max", stride=2))) == 1.0


def test_the_windows_of_a_long_row_are_computed_in_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    task = Classify(max_len=12, labels=("blue", "red"), windows=WindowConfig(stride=2), raw_scores=True)
    model = TrainingModel(tiny_encoder(), task)
    sizes: list[int] = []
    encode = model.ernie.encode_packed

    def counted(batch: Packed, *more: Any) -> paddle.Tensor:
        sizes.append(batch.layout.tokens)
        return encode(batch, *more)

    monkeypatch.setattr(model.ernie, "encode_packed", counted)
    (whole,) = model.predict(" ".join(WORDS * 6))
    monkeypatch.setattr(tasks.downstream.base, "_MOST_AT_ONCE", 40)
    (parts,) = model.predict(" ".join(WORDS * 6))
    assert sizes[0] == sum(sizes[1:]) and max(sizes[1:]) <= 40
    assert parts["raw_scores"] == pytest.approx(whole["raw_scores"], abs=1e-4)


class TestTags:
    @given(st.lists(st.sampled_from([*WORDS, "greatgreat"]), min_size=1, max_size=40), st.integers(0, 6))
    def test_each_word_is_learned_once_in_the_window_with_most_context(self, words: list[str], stride: int) -> None:
        task = Tag(max_len=9, labels=("B-X", "I-X", "O"), stride=stride)
        row = Row({"token": words, "tag": [("O", "B-X")[len(word) > 4] for word in words]})
        example = task.training_example(row, TOKENIZER)
        spans, found = example.notes.windows, []
        assert all(after[0] > before[0] and after[1] > before[1] for before, after in pairwise(spans))
        for sample, firsts, (start, stop) in zip(example.samples, example.notes.firsts, spans, strict=True):
            assert len(sample) <= 9
            labels = np.asarray(sample.labels["tag"])
            assert np.flatnonzero(labels != IGNORE).tolist() == firsts.tolist()
            found += [task.labels[label] for label in labels[firsts]]
            others = [min(word - a, b - 1 - word) for word in range(start, stop) for a, b in spans if a <= word < b]
            assert len(firsts) and max(others) >= 0
        assert found == row["tag"]
        if stride == 0:
            assert all(before[1] == after[0] for before, after in pairwise(spans))

    def test_the_middle_of_an_overlap_divides_its_words_among_two_windows(self) -> None:
        task = Tag(max_len=10, labels=("O", "X"), entities=False, stride=4)
        example = task.example(Row({"token": WORDS + WORDS[:2]}), TOKENIZER)
        assert example.notes.windows == [(0, 8), (4, 12)]
        assert [firsts.tolist() for firsts in example.notes.firsts] == [[1, 2, 3, 4, 5, 6], [3, 4, 5, 6, 7, 8]]

    def test_rows_with_an_entity_that_windows_divide_are_counted(self) -> None:
        task = Tag(max_len=9, labels=("B-X", "I-X", "O"))
        tags = ["O"] * 6 + ["B-X", "I-X", "O"]
        rows = [Row({"token": WORDS[:9], "tag": tags}), Row({"token": WORDS[1:], "tag": ["O"] * 9})]
        for name in ("train", "dev"):
            (remark,) = prepare(task, Split(name, rows), TOKENIZER).remarks
            assert remark.startswith(
                f"{name}: 1 row with an entity that no window holds whole (task.stride 0), the first"
            )
        assert prepare(replace(task, stride=3), Split("dev", rows), TOKENIZER).remarks == []

    def test_an_overlap_of_a_whole_window_is_refused(self) -> None:
        with pytest.raises(UserError, match=r"^stride: a window of max_len 9 has 7 tokens .* found 7$"):
            Tag(max_len=9, stride=7)


class TestCommands:
    LONG = " ".join(WORDS * 4)

    @pytest.mark.parametrize(
        ("setting", "message"),
        [
            ("task.windows.pooling=median", "task.windows.pooling: expected one of mean, max, found 'median'"),
            ("task.windows.stride=14", "task: windows.stride: a window of max_len 16 may hold as few as 14 tokens"),
            ("task.windows.most=-1", "task.windows: most: expected at least 0, found -1"),
            ("task={kind: tag, windows: {}}", "task.windows: unknown key"),
        ],
    )
    def test_wrong_settings_are_errors_before_training(
        self, work: Path, capsys: pytest.CaptureFixture[str], setting: str, message: str
    ) -> None:
        assert main(["check", "task.yaml", "--set", setting]) == 2
        error = capsys.readouterr().err
        assert message in error and "--set" in error

    def test_check_counts_rows_and_windows_and_what_is_cut_and_memory(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        rows = ["text\tlabel", "good film\tpraise", f"{self.LONG}\tblame", f"good {self.LONG} {self.LONG}\tpraise"]
        (work / "train.tsv").write_text("\n".join(rows) + "\n", encoding="utf-8")
        options = ["--set", "task.windows={stride: 2, most: 6}", "--set", "train.micro_batch_tokens=40"]
        assert main(["check", "task.yaml", *options]) == 0
        lines = capsys.readouterr().out
        assert "note: train: 2 of 3 rows longer than max_len 16 and read in windows, " in lines
        assert "and up to 6\n" in lines
        assert "note: train: 1 of 3 rows cut to windows.most 6, the first at train.tsv:4; " in lines
        assert re.search(r"note: train\.micro_batch_tokens: the windows of a row have up to 9\d tokens, which", lines)

    def test_a_trained_model_can_answer_with_windows_and_its_export_and_conversion_say_how(
        self, work: Path, capsys: pytest.CaptureFixture[str]
    ) -> None:
        (work / "long.txt").write_text(self.LONG + "\n", encoding="utf-8")
        assert main(["predict", "done", "--input", "long.txt"]) == 0
        assert "longer than max_len 16 and was truncated" in capsys.readouterr().err
        assert main(["predict", "done", "--input", "long.txt", "--set", "task.windows.stride=2"]) == 0
        assert "truncated" not in capsys.readouterr().err
        words = ["--set", "task.windows={pooling: max, stride: 2}", "--set", "train.epochs=1", "--quiet"]
        assert main(["finetune", "task.yaml", "--output", "windowed", *words]) == 0
        assert main(["export", "windowed", "--to", "paddle", "--output", "there"]) == 0
        card = (work / "there" / "README.md").read_text(encoding="utf-8")
        assert "windows of at most 16 tokens, each overlapping the next by 2; its logits are the largest value" in card
        capsys.readouterr()
        assert main(["convert", "windowed", "converted", "--to", "hf"]) == 0
        assert "its windows over longer texts are this library's own" in "".join(capsys.readouterr())
