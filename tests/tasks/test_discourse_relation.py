"""Discourse relation: the connective is found, determines the label, and is removed from the input."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from support.helpers import document_from, vocabulary

from ernie.data.document import Mark, Sample
from ernie.errors import UserError
from ernie.text.wordpiece import WordPiece
from tasks.connectives import CHINESE, ENGLISH, PREPOSITIONS, RELATIONS
from tasks.pretraining.discourse_relation import DiscourseRelation

TOKENIZER = vocabulary(
    " ".join(("It rained all day . the fields were wet far in", *PREPOSITIONS, *ENGLISH))
    + "".join(CHINESE)
    + "，。天下雨路湿",
    "##ories",
)
BEFORE, REST = "It rained all day.", "the fields were wet."


def samples_of(second: str, first: str = BEFORE, **fields: object) -> list[Sample]:
    text = document_from(TOKENIZER, [first, second])
    return list(DiscourseRelation(**fields).samples([text], TOKENIZER, np.random.default_rng(0)))  # type: ignore[arg-type]


def shown(sample: Sample, tokenizer: WordPiece = TOKENIZER) -> tuple[str, str]:
    """The two texts of a pair, as token strings."""
    tokens = [tokenizer.tokens[i] for i in sample.ids]
    middle = int(np.argmax(sample.segments))
    return " ".join(tokens[1 : middle - 1]), " ".join(tokens[middle:-1])


def relation(sample: Sample) -> str:
    return RELATIONS[int(sample.labels["label"])]


def test_every_relation_has_english_and_chinese_connectives() -> None:
    assert set(ENGLISH.values()) == set(CHINESE.values()) == set(RELATIONS)


@pytest.mark.parametrize("connective", ENGLISH)
def test_an_english_connective_is_removed_with_its_comma(connective: str) -> None:
    word = connective.removesuffix(" ,").capitalize()
    (sample,) = samples_of(f"{word}, {REST}")
    assert shown(sample) == ("it rained all day .", "the fields were wet .")
    assert relation(sample) == ENGLISH[connective]


@pytest.mark.parametrize("connective", CHINESE)
@pytest.mark.parametrize("comma", ["", "，"])
def test_a_chinese_connective_is_removed_with_its_comma(connective: str, comma: str) -> None:
    found = samples_of(f"{connective}{comma}路湿天天。", "天下雨。")
    if len(connective) == 1 and not comma:
        assert not found  # many words begin with a single such character
    else:
        assert shown(found[0]) == ("天 下 雨 。", "路 湿 天 天 。")
        assert relation(found[0]) == CHINESE[connective]


@pytest.mark.parametrize(
    ("second", "expected"),
    [
        ("However the fields were wet.", "contrast"),
        ("But the fields were wet.", "contrast"),
        ("Hence the fields were wet.", "result"),  # five letters or more need no comma
        ("Thus the fields were wet.", None),
        ("In fact the fields were wet.", "emphasis"),
        ("As a result the fields were wet.", "result"),
        ("So far the fields were wet.", None),
        ("That is all the fields were.", None),
        ("In addition to it the fields were wet.", None),
        ("Instead of the fields it rained.", None),
        ("In factories the fields were wet.", None),  # split into "fact" and "##ories"
        ("The fields however were wet.", None),
        ("However, wet.", None),  # too little is left
    ],
)
def test_only_words_used_as_connectives_count(second: str, expected: str | None) -> None:
    found = samples_of(second)
    assert [relation(sample) for sample in found] == ([expected] if expected else [])


def test_the_tokens_of_in_factories_begin_with_those_of_in_fact() -> None:
    """Otherwise the test above would prove nothing."""
    fact, factories = (TOKENIZER.encode(text).ids.tolist() for text in ("In fact", "In factories"))
    assert factories[: len(fact)] == fact


def test_the_longest_matching_connective_is_used() -> None:
    (sample,) = samples_of(f"On the other hand, {REST}")
    assert shown(sample)[1] == "the fields were wet ."
    (sample,) = samples_of(f"In particular, {REST}")
    assert relation(sample) == "example"


@pytest.mark.parametrize(
    "marks",
    [
        (0, Mark.BEGINS_PARAGRAPH),
        (Mark.TITLE, 0),
        (Mark.HEADING, 0),
        (0, Mark.HEADING),
    ],
)
def test_pairs_are_neighbors_in_one_paragraph_and_never_headings(marks: tuple[int, int]) -> None:
    text = document_from(TOKENIZER, [BEFORE, f"However, {REST}"], marks=marks)
    assert list(DiscourseRelation().samples([text], TOKENIZER, np.random.default_rng(0))) == []


def test_a_document_can_begin_with_a_connective() -> None:
    text = document_from(TOKENIZER, [f"However, {REST}", f"Therefore, {REST}"])
    (sample,) = DiscourseRelation().samples([text], TOKENIZER, np.random.default_rng(0))
    assert relation(sample) == "result"


def test_the_first_text_of_a_pair_is_the_preceding_sentence() -> None:
    text = document_from(TOKENIZER, ["It rained.", BEFORE, f"However, {REST}", f"Therefore, {REST}"])
    found = DiscourseRelation().samples([text], TOKENIZER, np.random.default_rng(0))
    assert [shown(sample)[0] for sample in found] == ["it rained all day .", "however , the fields were wet ."]


def test_a_connective_that_is_not_in_the_vocabulary_makes_no_pairs() -> None:
    tokenizer = vocabulary("it rained . the fields were wet , however")
    text = document_from(tokenizer, ["It rained.", f"Therefore, {REST}", f"However, {REST}"])
    (sample,) = DiscourseRelation().samples([text], tokenizer, np.random.default_rng(0))
    assert relation(sample) == "contrast"


# -------------------------------------------------------------------------------------------- from a file


@pytest.mark.parametrize("name", ["pairs.tsv", "pairs.jsonl"])
def test_labeled_pairs_can_come_from_a_file_whose_labels_are_the_classes(tmp_path: Path, name: str) -> None:
    rows = [("It rained.", REST, label) for label in ("result", "cause", "cause", "none")]
    if name.endswith("tsv"):
        text = "first\tsecond\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows)
    else:
        text = "".join(json.dumps(dict(zip(("first", "second", "label"), row, strict=True))) + "\n" for row in rows)
    (tmp_path / name).write_text(text)
    task = DiscourseRelation(pairs=tmp_path / name)
    assert task.class_count() == 3
    sides = [task.items([], held_out=held_out) for held_out in (False, True)]
    found = [s for items in sides for row in items for s in task.samples([row], TOKENIZER, np.random.default_rng(0))]
    assert sorted(int(sample.labels["label"]) for sample in found) == [0, 0, 1, 2]  # cause, cause, none, result
    assert {shown(sample) for sample in found} == {("it rained .", "the fields were wet .")}


def test_an_empty_label_is_an_error_with_its_line(tmp_path: Path) -> None:
    (tmp_path / "pairs.tsv").write_text("first\tsecond\tlabel\nA b.\tC d.\tcause\nE f.\tG h.\t \n", encoding="utf-8")
    with pytest.raises(UserError, match=r"pairs\.tsv:3: label: is empty; leave out rows without a relation"):
        DiscourseRelation(pairs=tmp_path / "pairs.tsv").class_count()


def test_a_pair_with_several_labels_is_held_out_with_all_of_them(tmp_path: Path) -> None:
    rows = [(f"It rained {i} times.", REST, label) for i in range(100) for label in ("result", "cause")]
    (tmp_path / "pairs.tsv").write_text("first\tsecond\tlabel\n" + "".join("\t".join(row) + "\n" for row in rows))
    task = DiscourseRelation(pairs=tmp_path / "pairs.tsv")
    train, held_out = ({row["first"] for row in task.items([], held_out=side)} for side in (False, True))
    assert train and held_out
    assert not train & held_out


def test_a_file_without_the_columns_raises_an_error(tmp_path: Path) -> None:
    path = tmp_path / "pairs.tsv"
    path.write_text("first\tsecnod\tlabel\n")
    with pytest.raises(UserError, match=r"pairs.tsv:1: there is no column 'second'. Did you mean 'secnod'\?"):
        DiscourseRelation(pairs=path).items([], held_out=False)
