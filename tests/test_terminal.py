"""What is printed cannot control a terminal, and data stays as it is."""

from __future__ import annotations

import io
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.terminal import bounded, escaping, one_line, pass_data, shown


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("plain, größer, 中文, 😀\n\tnext", "plain, größer, 中文, 😀\n\tnext"),
        ("\x1b[31mred\x1b]0;title\x07", "\\x1b[31mred\\x1b]0;title\\x07"),
        ("over\rwritten\b\x7f\x9b1m", "over\\x0dwritten\\x08\\x7f\\x9b1m"),
        ("abc\u202etxt.exe\u2066", "abc\\u202etxt.exe\\u2066"),
        (b"caf\xe9.tsv".decode(errors="surrogateescape"), "caf\\xe9.tsv"),
        ("\ud800", "\\ud800"),
    ],
)
def test_control_characters_are_shown_and_all_others_stay(text: str, expected: str) -> None:
    assert shown(text) == expected


@given(st.text(st.characters(categories=("Cc", "Cs", "L", "Zs"))))
def test_nothing_shown_controls_a_terminal_or_fails_to_be_encoded(text: str) -> None:
    printed = shown(text)
    assert all(letter.isprintable() or letter in "\n\t" or letter.isspace() for letter in printed)
    printed.encode()
    assert shown(printed) == printed


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_what_is_printed_is_escaped_on_both_streams(capsys: pytest.CaptureFixture[str]) -> None:
    with escaping():
        print("a\x1b[2J")
        print("b\u202e", file=sys.stderr)
    print("after\x1b")
    assert capsys.readouterr() == ("a\\x1b[2J\nafter\x1b\n", "b\\u202e\n")


def test_a_progress_bar_returns_to_the_beginning_of_its_line(monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = _Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    with escaping():
        sys.stderr.write("\r 10% name\r\x1b[A")
    assert terminal.getvalue() == "\r 10% name\\x0d\\x1b[A"


@pytest.mark.parametrize(("stream", "expected"), [(io.StringIO, "\x1b\u202e"), (_Terminal, "\\x1b\\u202e")])
def test_data_is_escaped_only_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], expected: str
) -> None:
    output = stream()
    monkeypatch.setattr(sys, "stdout", output)
    with escaping():
        pass_data()
        sys.stdout.write("\x1b\u202e")
    assert output.getvalue() == expected
    assert sys.stdout is output


def test_lines_of_a_message_are_cut_at_some_length() -> None:
    assert bounded("abc\n\nabcde", 3) == "abc\n\nabc... (2 more characters)"
    assert bounded("abc\n" * 9_000) == "abc\n" * 9_000


def test_a_name_within_a_sentence_is_on_one_line() -> None:
    assert one_line("x\nernie: error:\r\n\x1b[31m  y\u2028z") == "x ernie: error: \\x1b[31m y z"
    assert one_line("a" * 100, 10) == "aaaaaaa..."
