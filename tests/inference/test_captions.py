"""Captions and JSON lines of transcripts with times."""

from __future__ import annotations

import io
import json
from unicodedata import east_asian_width

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.text.scripts import words_in
from inference.captions import CaptionWriter, Line, TimedWord, lines_of


def line(*words: tuple[str, float, float]) -> Line:
    return Line(" ".join(word for word, _, _ in words), [TimedWord(*word, 0.5) for word in words])


def written(kind: str, *lines: Line) -> str:
    out = io.StringIO()
    writer = CaptionWriter(kind, out)  # type: ignore[arg-type]
    for each in lines:
        writer.write(each)
    return out.getvalue()


def test_captions_are_parted_at_pauses_and_where_they_would_be_too_long() -> None:
    slow = line(("a", 0.0, 0.5), ("b", 0.6, 1.0), ("c", 2.0, 8.0), ("d", 8.1, 9.5))
    assert written("srt", slow) == (
        "1\n00:00:00,000 --> 00:00:01,000\na b\n\n"
        "2\n00:00:02,000 --> 00:00:08,000\nc\n\n"
        "3\n00:00:08,100 --> 00:00:09,500\nd\n\n"
    )
    many = line(*((f"word{n}", 0.1 * n, 0.1 * n + 0.1) for n in range(30)))
    texts = [part.split("\n")[2:-1] for part in written("srt", many).split("\n\n")[:-1]]
    assert all(len(text) <= 42 for rows in texts for text in rows)
    assert all(len(part.split("\n")) <= 4 for part in written("srt", many).split("\n\n"))


def test_marks_of_webvtt_are_escaped_and_hours_are_counted() -> None:
    assert written("vtt", line(("<b>", 3599.9996, 3601.5), ("R&D", 3601.5, 3602))) == (
        "WEBVTT\n\n01:00:00.000 --> 01:00:02.000\n&lt;b&gt; R&amp;D\n\n"
    )


def test_chinese_words_have_no_spaces_between_them() -> None:
    assert "你好 ok 吗" not in written("srt", line(("你", 0, 1), ("好", 1, 2), ("ok", 2, 3), ("吗", 3, 4)))
    assert "你好" in written("srt", line(("你", 0, 1), ("好", 1, 2)))


def test_an_answer_is_cut_into_its_lines() -> None:
    answer = {"transcript": "one two\nthree", "seconds": [0, 1, 2], "ends": [1, 2, 3], "confidences": [0.5, 0.6, 0.7]}
    first, second = lines_of(answer)
    assert first == Line("one two", [TimedWord("one", 0, 1, 0.5), TimedWord("two", 1, 2, 0.6)])
    assert json.loads(written("jsonl", second)) == {
        **{"text": "three", "begin": 2, "end": 3, "confidence": 0.7},
        "words": [{"word": "three", "begin": 2, "end": 3, "confidence": 0.7}],
    }


def test_silence_is_an_empty_record_and_no_caption() -> None:
    (silence,) = lines_of({"transcript": "", "seconds": [], "ends": [], "confidences": []})
    assert json.loads(written("jsonl", silence)) == {"text": "", "words": []}
    assert written("srt", silence) == ""


def test_a_file_name_that_is_not_utf8_is_escaped() -> None:
    out = io.StringIO()
    CaptionWriter("jsonl", out).write(line(("a", 0.0, 0.5)), "f\udcff.wav")
    assert json.loads(out.getvalue().encode())["file"] == "f\\udcff.wav"


def captions(text: str) -> list[list[str]]:
    """The lines of each caption of a text that is said evenly and quickly."""
    words = [(word, 0.05 * n, 0.05 * n + 0.05) for n, word in enumerate(words_in(text))]
    return [part.split("\n")[2:] for part in written("srt", line(*words)).split("\n\n")[:-1]]


def columns(text: str) -> int:
    return sum(2 if east_asian_width(letter) in "WF" else 1 for letter in text)


def test_lines_of_chinese_are_wrapped_and_a_full_width_character_takes_two_columns() -> None:
    assert captions("天" * 50) == [["天" * 21, "天" * 21], ["天" * 8]]
    assert captions("天" * 20 + " Paddle " + "地" * 18) == [["天" * 20, "Paddle" + "地" * 18]]
    assert captions("안녕 " * 20) == [[" ".join(["안녕"] * 8)] * 2, [" ".join(["안녕"] * 4)]]


@pytest.mark.parametrize("mark", ["。", "，", "」", "！", "”", "…"])
def test_no_line_begins_with_a_mark_that_ends_something(mark: str) -> None:
    assert captions("天" * 21 + mark + "地") == [["天" * 20, f"天{mark}地"]]
    assert captions("天" * 42 + mark + "地") == [["天" * 21, "天" * 20], [f"天{mark}地"]]


@pytest.mark.parametrize("mark", ["「", "（", "“", "《"])
def test_no_line_ends_with_a_mark_that_begins_something(mark: str) -> None:
    assert captions("天" * 20 + mark + "地") == [["天" * 20, f"{mark}地"]]


@settings(max_examples=200, deadline=None)
@given(st.text(st.sampled_from("天地。「」a b,é\u0301ｶー안"), max_size=150))
def test_no_line_is_too_wide_and_no_character_is_lost(text: str) -> None:
    found = captions(text)
    assert "".join(each for lines in found for each in lines).replace(" ", "") == text.replace(" ", "")
    for lines in found:
        assert all(columns(each.replace("\u0301", "")) <= 42 for each in lines)
        assert all(lines)


def test_what_is_longer_than_a_line_is_cut() -> None:
    assert captions("see " + "x" * 60) == [["see"], ["x" * 42, "x" * 18]]
