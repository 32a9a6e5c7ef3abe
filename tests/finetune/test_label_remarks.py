"""Remarks on labels and texts that are probably a mistake, in `ernie check` and at the start of a run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from support.helpers import vocabulary

from ernie.data.labeled.read import Split
from ernie.data.labeled.row import Row
from ernie.data.raw import Place
from ernie.errors import Remark
from finetune.config import DataConfig
from finetune.label_remarks import label_counts, label_remarks, listed_counts
from finetune.prepare import prepare, prepare_all
from tasks.downstream.base import FinetuneTask
from tasks.downstream.choose import Choose
from tasks.downstream.classify import Classify
from tasks.downstream.extract import Extract
from tasks.downstream.multilabel import MultiLabel
from tasks.downstream.tag import Tag
from tasks.downstream.translate import Translate

TOKENIZER = vocabulary("a film good bad 好 书")
Write = Callable[..., DataConfig]


def remarks(labels: Sequence[Any], task: FinetuneTask | None = None) -> list[str]:
    rows = [Row({"text": "a", "label": label}, Place("train.tsv", 2 + i)) for i, label in enumerate(labels)]
    return label_remarks((task or Classify()).adapted_to(rows), rows)


@pytest.mark.parametrize("mark", ["-", "-1", -1, "-100", -999, "N/A", "<NA>", "#N/A", "?", "_", "NaN", "null", "<unk>"])
def test_a_label_that_marks_rows_without_one_is_noted_with_its_count(mark: Any) -> None:
    (remark,) = remarks(["0", "1", "0", mark])
    assert remark.startswith(f"train: label '{mark}' (1 of 4) looks like a mark of rows without a label")
    assert len(remarks(["x; y", f"x;{mark}"], MultiLabel(separator=";"))) == 1


def test_a_tag_that_marks_words_without_one_is_noted_with_what_can_change_it() -> None:
    rows = [Row({"token": ["a", "b", "c"], "tag": [0, 1, -100]}, Place("train.jsonl", 1))]
    assert label_remarks(Tag(entities=False).adapted_to(rows), rows) == [
        "train: label '-100' (1 of 3) looks like a mark of words without a label, and is learned as a label; "
        "data.values can make it another"
    ]


def test_minus_one_is_a_label_beside_one_or_other_negative_numbers() -> None:
    assert remarks([-1, 1, 1]) == remarks([-2, -1, 0, 1]) == remarks([-100, 100]) == []


def test_labels_that_have_only_a_place_are_said_to_be_numbered_and_to_apply_or_not() -> None:
    numbered, never = remarks([[1, 0, 0], [0, 1, 0]], MultiLabel())
    assert numbered == "train: the labels have no names, and are numbered from 0 to 2; task.labels can name them"
    assert never == "train: label '2' applies to no row: it cannot be learned"
    assert remarks([[1, 0], [0, 1]], MultiLabel(labels=("x", "y"))) == remarks(["x", "y"], MultiLabel()) == []


def test_labels_alike_but_for_case_width_or_invisible_characters_are_noted() -> None:
    (remark,) = remarks(["Pos", "pos", "pos", "\uff50\uff4f\uff53", "pos\u200b", "neg"])
    assert "'Pos' (1) and 'pos' (2) and 'pos\\u200b' (1) and 'ｐｏｓ' (1) differ only in how they are written" in remark
    assert remarks(["pos ", " pos", "neg"]) == []  # spaces around a label are no part of it


@pytest.mark.parametrize(
    "alike", [("1", "1.0"), ("1", "01"), ("pos", "pos."), ("好", "好。"), ("pos", '"pos"'), ("pos", "“pos”")]
)
def test_labels_alike_but_for_marks_around_them_or_the_form_of_a_number_are_noted(alike: tuple[str, str]) -> None:
    (remark,) = remarks([*alike, "neg"])
    assert "differ only in how they are written, and are learned as 2 labels" in remark


@pytest.mark.parametrize("labels", [("1", "-1"), ("1", "1.5"), (".", ","), ("C", "C++"), ("a b", "ab")])
def test_labels_with_another_meaning_are_not_alike(labels: tuple[str, str]) -> None:
    assert not any("how they are written" in remark for remark in remarks([*labels, "neg"]))


@pytest.mark.parametrize("mark", [";", "|", "，", "、"])
def test_labels_with_another_separator_between_them_are_noted(mark: str) -> None:
    (remark,) = remarks([f"x{mark}y", "y", "z"], MultiLabel())
    assert f"label 'x{mark}y' has parts, at '{mark}', that other labels have, too" in remark
    assert remarks([f"x{mark}y", "y", "z"], MultiLabel(separator=mark)) == []
    assert remarks([f"x{mark}y", "z"], MultiLabel()) == []


def test_lists_as_the_text_of_one_label_are_noted() -> None:
    (remark,) = remarks(["[1, 0]", "[0, 1]", "[1, 0]"])
    assert remark.startswith("train: label '[0, 1]' spells a list, and is learned as one label; the kind multilabel")
    assert remarks(["[neg]", "[pos]"]) == []


def test_a_column_of_thousands_of_labels_is_noted() -> None:
    (remark,) = remarks([f"title {n % 700}" for n in range(900)])
    assert remark.startswith("train: 700 different labels in 900 rows, most of them in few: does the column 'label'")
    assert remarks([n % 20 for n in range(30)]) == remarks([n % 100 for n in range(1000)]) == []


def test_labels_are_counted_in_rows_and_tags_in_words_and_many_are_cut() -> None:
    task = Classify(labels=("x", "y"))
    counts = label_counts(task, [Row({"label": label}) for label in "xyxx"])
    assert listed_counts(counts, 4, "row") == "x 3 (75%), y 1 (25%) of 4 rows"
    tags = label_counts(Tag(labels=("B-X", "I-X", "O")), [Row({"tag": ["B-X", "O", "O"]})])
    assert tags == {"B-X": 1, "O": 2}
    many = {f"l{n:02}": 100 - n for n in range(50)}
    assert listed_counts(many, 5000, "row").endswith("l19 81 (1.6%) of 5,000 rows, and 30 more labels, down to l49 51")


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Return a function that writes the texts of two splits, and returns the data of a run on them."""
    monkeypatch.chdir(tmp_path)

    def write(train: Sequence[str], dev: Sequence[str]) -> DataConfig:
        for name, texts in (("train", train), ("dev", dev)):
            lines = [f"{text}\t{'xy'[n % 2]}\n" for n, text in enumerate(texts)]
            Path(f"{name}.tsv").write_text("".join(["text\tlabel\n", *lines]), encoding="utf-8")
        return DataConfig(train="train.tsv", dev="dev.tsv")

    return write


def dev_remarks(data: DataConfig) -> str:
    return "\n".join(prepare_all(Classify(), data, TOKENIZER)[1]["dev"].remarks)


def test_texts_of_unknown_characters_are_the_same_only_if_the_characters_are(written: Write) -> None:
    assert "the text of a row of train" not in dev_remarks(written(["龘龘", "靐靐"], ["齉齉", "爨爨"]))
    assert "dev: 1 of 2 rows have the text of a row of train" in dev_remarks(
        written(["龘龘", "靐靐"], ["靐靐", "爨爨"])
    )
    assert "dev: 2 of 2 rows have the text" in dev_remarks(written(["a film", "good"], ["A  Film", "good"]))


def test_values_that_replace_nothing_are_noted_with_a_cell(written: Write) -> None:
    data = written(["a film", "good"], ["bad", "a"])
    with pytest.warns(Remark, match=r"^data\.values\.label: nothing is replaced: no cell is 1, 0; one is 'x'$"):
        prepare_all(Classify(), replace(data, values={"label": {"1": "yes", "0": "no"}}), TOKENIZER)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        prepare_all(Classify(), replace(data, values={"label": {"x": "yes", "0": "no"}}), TOKENIZER)


def test_a_split_of_which_the_vocabulary_lacks_a_fifth_is_noted_in_any_language(written: Write) -> None:
    said = dev_remarks(written(["a film", "good"], ["a film ξ", "bad"]))
    assert "dev: 25% of the tokens are [UNK], which the model's vocabulary lacks, the first at dev.tsv:2;" in said
    assert "100% of the tokens are [UNK]" in dev_remarks(written(["好书", "a"], ["龘龘", "靐靐"]))
    assert "[UNK]" not in dev_remarks(written(["a film", "good"], ["a film good bad 好 ξ", "bad"]))


def test_letters_that_lose_a_mark_are_noted_where_many_do(written: Write) -> None:
    assert (
        "dev: 33% of the characters lose a mark that is part of a letter, as か is not が, the first at dev.tsv:3;"
        in (dev_remarks(written(["a film", "good"], ["か", "がか"])))
    )
    assert "lose a mark" not in dev_remarks(written(["a film", "good"], ["café", "naïve"]))


UNKNOWN, LOST_MARK = "of the tokens are [UNK]", "lose a mark"
REMARKED: list[tuple[FinetuneTask, dict[str, Any], str]] = [
    (Classify(labels=("x", "y"), text_pair="other"), {"text": "a", "other": "ξ", "label": "x"}, UNKNOWN),
    (Choose(), {"text": "a", "choices": ["ξ", "ψ"], "label": 0}, UNKNOWN),
    (Choose(), {"text": "a", "choices": ["が", "か"], "label": 0}, LOST_MARK),
    (Extract(), {"question": "a", "context": "ξ ψ", "answers": ["ξ"]}, UNKNOWN),
    (Extract(), {"question": "a", "context": "が か", "answers": ["か"]}, LOST_MARK),
    (Tag(labels=("O", "B-X")), {"token": ["ξ", "a"], "tag": ["O", "B-X"]}, UNKNOWN),
    (Tag(labels=("O", "B-X")), {"token": ["が", "a"], "tag": ["O", "B-X"]}, LOST_MARK),
    (Translate(), {"source": "ξ film", "target": "a"}, UNKNOWN),
    (Translate(), {"source": "が film", "target": "a"}, LOST_MARK),
]


@pytest.mark.parametrize(
    ("task", "cells", "expected"), REMARKED, ids=lambda value: getattr(value, "variant_name", None)
)
def test_unknown_tokens_and_lost_marks_are_noted_for_every_kind_that_reads_or_writes_text(
    task: FinetuneTask, cells: dict[str, Any], expected: str
) -> None:
    split = prepare(task, Split("train", [Row(cells, Place("train.jsonl", 1))]), TOKENIZER)
    assert any(expected in remark for remark in split.remarks)
