"""Captions and JSON lines of transcripts with times."""

from __future__ import annotations

import io
import json

from finetune.captions import CaptionWriter, Line, TimedWord, lines_of


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
