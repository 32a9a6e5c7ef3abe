"""Multiple choice: how rows spell choices and the right one, what the model reads, which is answered."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import vocabulary

from ernie.data.batch import pack
from ernie.data.labeled.row import Row
from ernie.errors import UserError
from tasks.downstream.choose import Choose

TOKENIZER = vocabulary("what is it ? a cat dog house the #idiom# sat on mat")
CELLS = {"text": "the cat sat", "choices": ["house", "cat", "dog"]}


def read_as(task: Choose, **cells: object) -> list[str]:
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
def test_the_right_choice_is_its_number_its_letter_or_its_words(task: Choose, label: object) -> None:
    row = Row(CELLS | {"label": label})
    assert task.truth(row) == 1
    assert task.scores([row], [{"choice": 1 + task.first}]) == {"accuracy": 1}


@pytest.mark.parametrize(
    ("first", "label"), [(0, 3), (0, -1), (1, 0), (0, "D"), (0, "owl"), (0, "²"), (0, ""), (0, "1.0")]
)
def test_a_label_that_is_none_of_the_choices_is_quoted(first: int, label: object) -> None:
    with pytest.raises(UserError, match=rf"label '{label}' is none of the 3 choices \(numbers begin at {first}\)"):
        Choose(first=first).truth(Row(CELLS | {"label": label}))


def test_digits_as_text_are_a_choices_words_before_they_are_its_number() -> None:
    assert Choose().truth(Row({"choices": ["2", "1", "0"], "label": "2"})) == 0
    assert Choose().truth(Row({"choices": ["2", "1", "0"], "label": 2})) == 2
    assert Choose().truth(Row({"choices": ["20", "10", "30"], "label": "2"})) == 2


def test_each_choice_is_read_with_the_text_as_a_pair() -> None:
    assert read_as(Choose()) == [f"[CLS] the cat sat [SEP] {choice} [SEP]" for choice in CELLS["choices"]]


def test_a_question_goes_before_each_choice() -> None:
    said = read_as(Choose(question="asked"), asked="what is it?")
    assert said[2] == "[CLS] the cat sat [SEP] what is it ? dog [SEP]"


def test_a_choice_takes_the_place_of_the_blank() -> None:
    said = read_as(Choose(blank="#idiom#"), text="the #idiom# sat on the mat")
    assert said[1] == "[CLS] the cat sat on the mat [SEP] cat [SEP]"
    with pytest.raises(UserError, match="column 'text': there is no '#idiom#' in the text"):
        read_as(Choose(blank="#idiom#"))


def test_choices_may_stand_in_columns_of_their_own() -> None:
    task = Choose(choices=("one", "two"))
    assert read_as(task, one="cat", two="dog")[1] == "[CLS] the cat sat [SEP] dog [SEP]"
    with pytest.raises(UserError, match="there is no column 'two'"):
        read_as(task, one="cat")


@pytest.mark.parametrize("choices", [["cat"], [], "cat", ["cat", 3], None])
def test_what_is_no_list_of_at_least_two_texts_is_told(choices: object) -> None:
    with pytest.raises(UserError, match="column 'choices': expected a list of at least two texts, found"):
        read_as(Choose(), choices=choices)


def test_a_batch_has_one_target_a_row_at_its_first_choice() -> None:
    rows = [Row(CELLS | {"label": 2}), Row({"text": "a mat", "choices": ["cat", "dog"], "label": 1})]
    labels = pack([s for row in rows for s in Choose().training_example(row, TOKENIZER).samples]).labels["choice"]
    assert labels.values.tolist() == [2, 1]
    assert labels.positions is not None
    assert labels.positions.tolist() == [0, 3]


def test_the_choice_with_the_highest_score_is_answered_with_its_share() -> None:
    example = Choose(first=1).example(Row(CELLS), TOKENIZER)
    logits = [np.log(np.float32([share])) for share in (1, 2, 5)]
    assert Choose(first=1).answer(example, logits) == {
        "choice": 3,
        "text": "dog",
        "probability": pytest.approx(5 / 8, abs=1e-6),
    }


def test_what_is_cut_of_all_choices_is_counted() -> None:
    example = Choose(max_len=8).example(Row({"text": "the cat sat on the mat", "choices": ["a", "a dog"]}), TOKENIZER)
    assert [len(sample) for sample in example.samples] == [8, 8]
    assert example.cut == (6 + 1 + 3 - 8) + (6 + 2 + 3 - 8)


@pytest.mark.parametrize("label", ["--1", "\u00df", "-", "9"])
def test_what_is_no_choice_is_a_sentence(label: str) -> None:
    with pytest.raises(UserError, match="is none of the 3 choices"):
        Choose().truth(Row(CELLS | {"label": label}))


def test_no_columns_of_choices_are_a_sentence() -> None:
    with pytest.raises(UserError, match="choices: expected the column"):
        Choose(choices=())
