"""SIGHUP is a wish for new configuration, unless the terminal has gone."""

from __future__ import annotations

import os
import signal

import pytest

from serving.terminal import Terminal


@pytest.fixture
def pair() -> tuple[int, int]:
    """A terminal's own end, and the end that programs see."""
    return os.openpty()


def test_a_terminal_that_is_closed_is_gone(pair: tuple[int, int]) -> None:
    own, seen = pair
    terminal = Terminal([seen])
    assert not terminal.is_gone
    os.close(own)
    assert terminal.is_gone
    terminal.leave()
    assert os.write(seen, b"nothing happens") > 0
    os.close(seen)


def test_files_and_pipes_are_no_terminal(pair: tuple[int, int]) -> None:
    for file in (*os.pipe(), *pair):
        os.close(file)
    assert not Terminal(list(pair)).is_gone


def test_under_nohup_the_end_of_the_terminal_does_not_count(pair: tuple[int, int]) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        terminal = Terminal([pair[1]])
    finally:
        signal.signal(signal.SIGHUP, before)
    os.close(pair[0])
    assert not terminal.is_gone
    os.close(pair[1])
