"""Multiple choice: choices and labels in rows, the model's input, and the predicted choice."""

from __future__ import annotations

import numpy as np
import pytest
from support.helpers import vocabulary

from ernie.data.batch import pack
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream.choose import Choose
from tasks.downstream.scoring import score_answers

TOKENIZER = vocabulary("what is it ? a cat dog house the #idiom# sat on mat")
CELLS = {"text": "the cat sat", "choices": ["house", "cat", "dog"]}


def decoded_samples(task: Choose, **cells: object) -> list[str]:
    example = task.example(Row(CELLS | cells), TOKENIZER)
    return [" ".join(TOKENIZER.tokens[i] for i in sample.ids) for sample in example.samples]


@pytest.mark.parametrize(
    ("task", "label"),
    [
        (Choose(), 1),
        (Choose(), "1"),
        (Choose(), " b "),
        (Choose(), "B"),
        (Choose(), "cat"),
        (Choose(first=1), 2),
        (Choose(first=1), "B"),
    ],
)
def test_a_label_may_be_the_choices_number_letter_or_text(task: Choose, label: object) -> None:
    row = Row(CELLS | {"label": label})
    assert task.target(row) == 1
    assert score_answers(task, [row], [{"choice": 1 + task.first}]) == {"accuracy": 1}


@pytest.mark.parametrize(("first", "label"), [(0, 3), (0, -1), (1, 0), (0, "D"), (0, "owl"), (0, "²"), (0, "1.0")])
def test_a_label_that_matches_no_choice_is_quoted_in_the_error(first: int, label: object) -> None:
    with pytest.raises(UserError, match=rf"label '{label}' is none of the 3 choices \(numbers begin at {first}\)"):
        Choose(first=first).target(Row(CELLS | {"label": label}))


def test_a_row_without_a_label_is_named_as_such() -> None:
    with pytest.raises(UserError, match="there is no label; rows without one can be left out by `skip`"):
        Choose().target(Row(CELLS | {"label": " "}))


def test_numbers_that_never_name_the_first_choice_are_noted() -> None:
    rows = [Row(CELLS | {"label": label}) for label in (1, 2) * 5]
    assert Choose().remarks_on(rows) == [
        "of 10 rows none has the first choice, number 0; if the numbers begin elsewhere, set task.first: 1"
    ]
    assert Choose(first=1).remarks_on(rows) == Choose().remarks_on(rows[:5]) == []
    assert Choose().remarks_on([*rows, Row(CELLS | {"label": 0})]) == []
    assert Choose().remarks_on([Row(CELLS | {"label": "cat"})] * 10) == []


def test_digits_given_as_text_match_a_choices_text_before_its_number() -> None:
    assert Choose().target(Row({"choices": ["2", "1", "0"], "label": "2"})) == 0
    assert Choose().target(Row({"choices": ["2", "1", "0"], "label": 2})) == 2
    assert Choose().target(Row({"choices": ["20", "10", "30"], "label": "2"})) == 2


def test_each_choice_is_paired_with_the_text() -> None:
    assert decoded_samples(Choose()) == [f"[CLS] the cat sat [SEP] {choice} [SEP]" for choice in CELLS["choices"]]


def test_a_question_is_placed_before_each_choice() -> None:
    texts = decoded_samples(Choose(question="asked"), asked="what is it?")
    assert texts[2] == "[CLS] the cat sat [SEP] what is it ? dog [SEP]"


def test_a_choice_replaces_the_blank() -> None:
    texts = decoded_samples(Choose(blank="#idiom#"), text="the #idiom# sat on the mat")
    assert texts[1] == "[CLS] the cat sat on the mat [SEP] cat [SEP]"
    with pytest.raises(UserError, match="column 'text': there is no '#idiom#' in the text"):
        decoded_samples(Choose(blank="#idiom#"))


def test_choices_can_come_from_separate_columns() -> None:
    task = Choose(choices=("one", "two"))
    assert decoded_samples(task, one="cat", two="dog")[1] == "[CLS] the cat sat [SEP] dog [SEP]"
    with pytest.raises(UserError, match="there is no column 'two'"):
        decoded_samples(task, one="cat")


@pytest.mark.parametrize("choices", [["cat"], [], "cat", ["cat", ["sat"]], None])
def test_choices_must_be_a_list_of_at_least_two_texts(choices: object) -> None:
    with pytest.raises(UserError, match="column 'choices': expected a list of at least two texts, found"):
        decoded_samples(Choose(), choices=choices)


def test_a_batch_has_one_target_per_row_at_its_first_choice() -> None:
    rows = [Row(CELLS | {"label": 2}), Row({"text": "a mat", "choices": ["cat", "dog"], "label": 1})]
    labels = pack([s for row in rows for s in Choose().training_example(row, TOKENIZER).samples]).labels["choice"]
    assert labels.values.tolist() == [2, 1]
    assert labels.positions is not None
    assert labels.positions.tolist() == [0, 3]


def test_the_choice_with_the_highest_score_is_predicted_with_its_probability() -> None:
    example = Choose(first=1).example(Row(CELLS), TOKENIZER)
    logits = [np.log(np.float32([odds])) for odds in (1, 2, 5)]
    assert Choose(first=1).answer(example, logits) == {
        "choice": 3,
        "text": "dog",
        "probability": pytest.approx(5 / 8, abs=1e-6),
    }


def test_truncated_tokens_are_counted_over_all_choices() -> None:
    example = Choose(max_len=8).example(Row({"text": "the cat sat on the mat", "choices": ["a", "a dog"]}), TOKENIZER)
    assert [len(sample) for sample in example.samples] == [8, 8]
    assert example.cut == (6 + 1 + 3 - 8) + (6 + 2 + 3 - 8)


@pytest.mark.parametrize("label", ["--1", "\u00df", "-", "9"])
def test_an_invalid_label_raises_an_error(label: str) -> None:
    with pytest.raises(UserError, match="is none of the 3 choices"):
        Choose().target(Row(CELLS | {"label": label}))


def test_an_empty_list_of_choice_columns_raises_an_error() -> None:
    with pytest.raises(UserError, match="choices: expected the column"):
        Choose(choices=())
