"""Outcomes, and the places of errors and notes."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from ernie.data.raw import Place
from ernie.errors import NotFinite, UserError, about
from ernie.outcome import Note, Outcome


def test_an_outcome_returns_its_value_or_raises_its_error() -> None:
    assert Outcome("word").get() == "word"
    error = UserError("no such word", row=3)
    with pytest.raises(UserError) as raised:
        Outcome[str](error=error).get()
    assert raised.value is error


@pytest.mark.parametrize(
    ("note", "sentence"),
    [
        (Note("it is cut"), "it is cut"),
        (Note("it is cut", file="a.txt", line=3), "a.txt:3: it is cut"),
        (Note("it is cut", file="a.txt"), "a.txt: it is cut"),
        (Note("it is cut", row=0, stream=4), "row 0: it is cut"),
        (Note("it is cut", key="column 'text'"), "column 'text': it is cut"),
    ],
)
def test_a_note_reads_as_place_colon_text(note: Note, sentence: str) -> None:
    assert str(note) == sentence


def test_about_sets_the_place_that_an_error_lacks_and_keeps_the_other_fields() -> None:
    with (
        pytest.raises(UserError) as raised,
        about(Place("outer.txt", 2)),
        about(Path("inner.txt")),
        about("column 'a'"),
    ):
        raise UserError("no", key="a", stream=1)
    error = raised.value
    assert str(error) == "outer.txt:2: inner.txt: column 'a': no"
    assert (error.file, error.line, error.key, error.row, error.stream) == ("inner.txt", None, "a", None, 1)


def test_a_place_in_no_file_sets_the_row() -> None:
    with pytest.raises(NotFinite, match=r"^row 0: damaged$") as raised, about(Place("", 0)):
        raise NotFinite("damaged")
    assert (raised.value.file, raised.value.line, raised.value.row) == (None, None, 0)


def test_an_error_keeps_its_fields_between_processes() -> None:
    error = pickle.loads(pickle.dumps(UserError("no", file="a.txt", line=3, key="k", row=0, stream=1)))
    assert str(error) == "no"
    assert (error.file, error.line, error.key, error.row, error.stream) == ("a.txt", 3, "k", 0, 1)
