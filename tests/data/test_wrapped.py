"""Lines that were wrapped at a width are put together; lines that stand for themselves are not."""

from __future__ import annotations

import json
import random
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.documents import put, read_all

from ernie.data.raw import ReadOptions
from ernie.data.wrapped import joined, wrap_width

BOOK = [
    "It was late in the year when the letter from Berlin reached the old mill, and nobody there had thought of Anna "
    "Weber for a long time. The miller read it twice, and then he put it behind the clock. He said nothing at supper.",
    "“You might have told us,” said his wife, who had of course found it within the hour. “She will be here by Friday, "
    "and the room under the roof has had no window since the storm. What are we to do about that, I wonder?”",
    "He did not know. There was some glass in the shed, but it had been meant for the greenhouse, which in turn had "
    "been meant for the tomatoes, and these had been promised to half of the village.",
]
SONNET = """Shall I compare thee to a summer's day?
Thou art more lovely and more temperate:
Rough winds do shake the darling buds of May,
And summer's lease hath all too short a date;
Sometime too hot the eye of heaven shines,
And often is his gold complexion dimm'd;
And every fair from fair sometime declines,
By chance or nature's changing course untrimm'd;
But thy eternal summer shall not fade,
Nor lose possession of that fair thou ow'st;
Nor shall death brag thou wander'st in his shade,
When in eternal lines to time thou grow'st:
So long as men can breathe or eyes can see,
So long lives this, and this gives life to thee."""
FREE_VERSE = """the grass divides as with a comb
a spotted shaft is seen
and then it closes at your feet
and opens further on
he likes a boggy acre
a floor too cool for corn
yet when a child and barefoot
i more than once at morn
have passed i thought a whiplash
unbraiding in the sun
when stooping to secure it
it wrinkled and was gone"""
LIST = "\n".join(f"- item {i} of the {'long ' * (i % 5)}list that nobody has ever read to its end" for i in range(30))
RECIPE = "\n".join(
    ["Bread", "500 g of flour", "300 g of water", "a spoonful of salt", "some yeast", "Mix it well."] * 3
)
TABLE = "\n".join(f"{'name' + str(i):<20}{i * 37:>10}  {'some unit':<15}{'a note in words':<25}" for i in range(20))
DIALOGUE = "\n".join(
    ["- So you came after all, said the old man.", "- I did.", "- And what do you want from me now?"] * 5
)
PASSWORDS = "\n".join(
    f"user{i}:x:{i}:{i}:{'some name here' * (i % 2)}:/home/user{i}:/usr/sbin/nologin" for i in range(30)
)
CODE = Path(textwrap.__file__).read_text()[:4000]


def wrapped(paragraphs: list[str], width: int, indent: str = "", between: str = "\n") -> str:
    filled = (textwrap.fill(text, width, initial_indent=indent, break_on_hyphens=False) for text in paragraphs)
    return between.join(filled) + "\n"


@pytest.mark.parametrize("width", [50, 60, 72, 76, 80, 100])
def test_a_wrapped_book_has_the_paragraphs_of_the_book(tmp_path: Path, width: int) -> None:
    path = put(tmp_path / "a.txt", wrapped(BOOK, width, between="\n\n"))
    read = read_all(path)
    assert [(document.text, document.title) for document in read] == [(text, "") for text in BOOK]
    assert sum(document.unwrapped for document in read) == path.read_text().count("\n") - 5


def test_paragraphs_that_only_an_indent_begins_are_told_apart(tmp_path: Path) -> None:
    (document,) = read_all(put(tmp_path / "a.txt", wrapped(BOOK, 72, indent="   ")))
    assert [line.strip() for line in document.text.split("\n")] == BOOK


def test_a_short_last_line_ends_a_paragraph_and_a_title_stays_one(tmp_path: Path) -> None:
    (document,) = read_all(put(tmp_path / "a.txt", "The Letter from Berlin\n" + wrapped(BOOK, 66)))
    assert (document.title, document.text.split("\n")) == ("The Letter from Berlin", BOOK)


def test_a_single_wrapped_paragraph_is_no_title_and_text(tmp_path: Path) -> None:
    for text in BOOK:
        (document,) = read_all(put(tmp_path / "a.txt", wrapped([text], 64)))
        assert (document.title, document.text) == ("", text)
    (document,) = read_all(put(tmp_path / "a.txt", wrapped([BOOK[0]], 120)))  # two lines, too few to tell
    assert document.title == ""


def test_whole_books_in_rows_are_put_together(tmp_path: Path) -> None:
    row = {"title": "The Letter", "text": wrapped(BOOK, 72, between="\n\n")}
    (document,) = read_all(put(tmp_path / "a.jsonl", json.dumps(row)))
    assert [line for line in document.text.split("\n") if line] == BOOK


def test_chinese_lines_of_one_length_are_joined_without_spaces(tmp_path: Path) -> None:
    text = "那天晚上他从城里回来，路上没有遇见一个人，只听见河水在石头中间流动的声音，" * 8 + "后来天就亮了。"
    lines = [text[i : i + 35] for i in range(0, len(text), 35)]
    (document,) = read_all(put(tmp_path / "a.txt", "\n".join(lines)))
    assert document.text == text


@pytest.mark.parametrize(
    "text",
    [SONNET, FREE_VERSE, LIST, RECIPE, TABLE, DIALOGUE, PASSWORDS, CODE, "\n".join(BOOK)],
    ids=["sonnet", "free verse", "list", "recipe", "table", "dialogue", "passwords", "code", "paragraphs"],
)
def test_what_is_no_wrapped_prose_keeps_its_lines(tmp_path: Path, text: str) -> None:
    path = put(tmp_path / "a.txt", text)
    assert sum(document.unwrapped for document in read_all(path)) == 0
    assert wrap_width(text.split("\n")) == 0


def test_verse_and_lists_within_a_wrapped_book_keep_their_lines(tmp_path: Path) -> None:
    verse = textwrap.indent("\n".join(SONNET.split("\n")[:4]), "     ")
    items = "1. A lamp for the room under the roof.\n2. Glass.\n3. A letter to Berlin, which has to be answered soon."
    book = wrapped(BOOK * 2, 72, between="\n\n")
    read = read_all(put(tmp_path / "a.txt", f"{book}\n{verse}\n\n{items}\n\n{book}"), options=ReadOptions(titles=False))
    texts = [document.text for document in read]
    assert verse in texts
    assert items in texts
    assert [text for text in texts if text not in (verse, items)] == BOOK * 4


def test_sentences_a_line_are_not_joined_even_in_lower_case() -> None:
    rng = random.Random(1)
    sentences = [
        " ".join(rng.choices("the river runs past an old stone mill".split(), k=rng.randint(3, 20))) for _ in range(200)
    ]
    assert wrap_width(sentences) == 0


def test_the_key_decides_where_it_is_given(tmp_path: Path) -> None:
    book = put(tmp_path / "a.txt", wrapped(BOOK, 72))
    (kept,) = read_all(book, options=ReadOptions(wrapped=False, titles=False))
    assert kept.text == book.read_text().rstrip("\n")
    (document,) = read_all(put(tmp_path / "b.txt", FREE_VERSE), options=ReadOptions(wrapped=True))
    assert (document.text, document.title) == (FREE_VERSE.replace("\n", " "), "")


def test_hyphens_at_the_end_of_lines_stay_and_take_no_space() -> None:
    assert joined(["the well-", "known mill—", "old"], None) == ["the well-known mill— old"]
    assert joined(["10 -", "3"], None) == ["10 - 3"]


@pytest.mark.parametrize(
    ("lines", "paragraph"),
    [
        (["An exam-", "ple is no proof: Example, one more."], "An example is no proof: Example, one more."),
        (["A well-", "known well-known wellknown man."], "A well-known well-known wellknown man."),
        (["An exam-", "ple."], "An exam-ple."),
        (
            ["The ex- ", "ample of 10-", "20 ample ex examples, example"],
            "The example of 10-20 ample ex examples, example",
        ),
        (["Grün-", "anlage, die Grünanlage"], "Grünanlage, die Grünanlage"),
    ],
)
def test_a_word_that_a_line_breaks_is_put_together_where_the_document_has_it(lines: list[str], paragraph: str) -> None:
    assert joined(lines, None) == [paragraph]


@settings(max_examples=50, deadline=None)
@given(st.lists(st.text(alphabet="abcdefgh", min_size=1, max_size=12), min_size=60, max_size=200), st.integers(50, 110))
def test_wrapping_loses_nothing(words: list[str], width: int) -> None:
    lines = textwrap.wrap(" ".join(words), width)
    assert " ".join(joined(lines, wrap_width(lines) or None)) == " ".join(words)
