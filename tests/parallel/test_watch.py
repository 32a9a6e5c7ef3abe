"""Of processes that fail or stand still: which one it was, and that all hear of it."""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ernie.errors import UserError
from ernie.parallel.watch import FAILED, Place, RankState, Verdict, Watch, _Hub, judge

LIMIT = 5.0
NOW = 100.0


def at(rank: int, doing: str = "forward and backward", *, waiting: bool = False, **more: Any) -> RankState:
    """A process that was heard just now, at step 7."""
    return RankState(rank, more.pop("heard", NOW), Place(7, "reordering", doing, waiting), **more)


def said(*seen: RankState) -> str:
    verdict = judge(seen, NOW, LIMIT)
    assert verdict is not None
    return verdict.text


def test_processes_that_are_heard_go_on_however_long_each_computes() -> None:
    assert judge([at(0, stood=900.0), at(1, stood=900.0)], NOW, LIMIT) is None


def test_waiting_within_the_limit_is_no_failure() -> None:
    assert judge([at(0, "all_reduce", waiting=True, stood=4.9), at(1, stood=300.0)], NOW, LIMIT) is None


def test_a_process_that_died_is_named_with_its_place() -> None:
    assert said(at(0, "all_reduce", waiting=True), at(1, gone=True)) == (
        "rank 1 of 2 has died at step 7, task reordering, forward and backward"
    )


def test_one_that_is_done_may_go() -> None:
    assert judge([at(0), at(1, gone=True, done=True)], NOW, LIMIT) is None


def test_an_error_is_told_with_its_exit_status() -> None:
    found = judge([at(0), at(1, error="the disk is full", status=2)], NOW, LIMIT)
    assert found == Verdict("rank 1 of 2 failed at step 7, task reordering, forward and backward: the disk is full", 2)


def test_silence_is_told_after_the_limit() -> None:
    assert judge([at(0), at(1, heard=NOW - 4.9)], NOW, LIMIT) is None
    assert "rank 1 of 2 has said nothing for 5 s since step 7" in said(at(0), at(1, heard=NOW - 5.1))


def test_who_keeps_others_waiting_is_named_not_who_waits() -> None:
    waits = at(0, "all_reduce", waiting=True, stood=6.0)
    assert said(waits, at(1, stood=7.0), at(2, "all_reduce", waiting=True, stood=6.0)) == (
        "rank 1 is at step 7, task reordering, forward and backward for 7 s, while rank 0 of 3 waited at step 7, "
        "task reordering, all_reduce"
    )


def test_processes_that_wait_for_each_other_are_all_named() -> None:
    text = said(at(0, "all_reduce", waiting=True, stood=6.0), at(1, "recv", waiting=True, stood=6.0))
    assert text.startswith("the processes wait for each other: rank 0 at step 7")
    assert "rank 1 at step 7, task reordering, recv" in text


def test_a_broken_collective_waits_a_moment_for_its_cause() -> None:
    broken = at(0, "all_reduce", waiting=True, error="RuntimeError: TIMEOUT", symptom=True, failed=NOW - 0.1)
    assert judge([broken, at(1)], NOW, LIMIT) is None
    assert "rank 1 of 2 has died" in said(broken, at(1, gone=True))
    broken.failed = NOW - 3
    assert said(broken, at(1, stood=31.0)).startswith("rank 1 is at step 7")


def test_where_nobody_else_is_to_blame_the_collective_itself_is_told() -> None:
    broken = at(0, "all_reduce", waiting=True, error="RuntimeError: no route to host", symptom=True, failed=NOW - 3)
    other = at(1, "all_reduce", waiting=True, error="RuntimeError: closed", symptom=True, failed=NOW - 3)
    assert said(broken, other).endswith(
        "rank 0 of 2 waited at step 7, task reordering, all_reduce: RuntimeError: no route to host"
    )


class Store(dict[str, bytes]):
    """What processes share, for threads."""

    set = dict.__setitem__

    def wait(self, key: str) -> None:
        while key not in self:
            time.sleep(0.01)


class Three:
    """Three watches, as three processes have them, and what they hear."""

    def __init__(self, limit: float):
        self.heard: dict[int, Verdict] = {}
        store = Store()
        self.watches = [
            Watch(store, rank, 3, limit, "127.0.0.1", end=lambda verdict, rank=rank: self.heard.update({rank: verdict}))  # type: ignore[misc]
            for rank in range(3)
        ]

    def wait(self, *ranks: int) -> str:
        """The text that these hear."""
        deadline = time.monotonic() + 20
        while not all(rank in self.heard for rank in ranks):
            assert time.monotonic() < deadline, self.heard
            time.sleep(0.01)
        [text] = {self.heard[rank].text for rank in ranks}
        return text


@pytest.fixture
def three() -> Iterator[Three]:
    made = Three(1.0)
    yield made
    for watch in made.watches[::-1]:
        watch.close()


def test_all_hear_of_a_connection_that_closes(three: Three) -> None:
    three.watches[1].at(step=3, task="masking", doing="the update")
    time.sleep(0.3)
    three.watches[1]._socket.shutdown(2)
    assert three.wait(0, 2) == "rank 1 of 3 has died at step 3, task masking, the update"


def test_all_hear_of_a_process_that_keeps_them_waiting(three: Three) -> None:
    three.watches[2].at(step=4, task="masking", doing="forward and backward")
    with three.watches[0].waiting("all_reduce"), three.watches[1].waiting("all_reduce"):
        text = three.wait(0, 1, 2)
    assert text.startswith("rank 2 is at step 4, task masking, forward and backward for ")


def test_for_the_first_process_others_wait_as_long_as_it_takes(three: Three) -> None:
    passed: list[float] = []
    waits = threading.Thread(target=lambda: (three.watches[1].wait_for_first(), passed.append(time.monotonic())))
    waits.start()
    time.sleep(2.5)  # longer than the limit
    assert not passed and not three.heard
    three.watches[0].pass_on()
    waits.join(5)
    assert passed


def test_one_that_passed_on_before_others_came_does_not_hold_them_up(three: Three) -> None:
    three.watches[0].pass_on()
    three.watches[0].pass_on()
    for _ in range(2):
        three.watches[2].wait_for_first()


def test_what_a_process_says_with_its_name_in_one_breath_is_heard() -> None:
    hub = _Hub(2, 1.0, "127.0.0.1")
    with socket.create_connection(hub.address.split(":"), timeout=5) as other:
        other.sendall(b'{"rank": 1}\n')
        with socket.create_connection(hub.address.split(":"), timeout=5) as first:
            first.sendall(b'{"rank": 0}\n{"passed": true}\n{"done": true}\n')
            assert json.loads(other.makefile("rb").readline()) == {"passed": True}
            other.sendall(b'{"done": true}\n')
            hub.join(5)
    assert not hub.is_alive()


def test_one_that_comes_late_is_told_what_was_passed_on() -> None:
    hub = _Hub(2, 1.0, "127.0.0.1")
    with socket.create_connection(hub.address.split(":"), timeout=5) as first:
        first.sendall(b'{"rank": 0}\n{"passed": true}\n')
        assert json.loads(first.makefile("rb").readline()) == {"passed": True}
        with socket.create_connection(hub.address.split(":"), timeout=5) as late:
            late.sendall(b'{"rank": 1}\n')
            assert json.loads(late.makefile("rb").readline()) == {"passed": True}
            for one in (first, late):
                one.sendall(b'{"done": true}\n')
            hub.join(5)
    assert not hub.is_alive()


@pytest.mark.parametrize(
    "words",
    [
        b"GET / HTTP/1.0\r\n\r\n",
        b"\x16\x03\x01\x00\xff\n",
        b"{}\n",
        b"7\n",
        b'{"rank": -1}\n',
        b'{"rank": 3}\n',
        b'{"done": true}\n',
        b"[" * 100_000 + b"\n",
    ],
)
def test_a_stranger_is_sent_away_and_the_others_are_heard_as_before(words: bytes, three: Three) -> None:
    hub = three.watches[0]._hub
    assert hub is not None
    with socket.create_connection(hub.address.split(":"), timeout=5) as stranger:
        stranger.sendall(words)
        assert not stranger.makefile("rb").read(1)
    assert not three.heard
    three.watches[1]._socket.shutdown(2)
    assert three.wait(0, 2).startswith("rank 1 of 3 has died")


def test_one_that_says_what_cannot_be_read_is_gone(three: Three) -> None:
    three.watches[1]._socket.sendall(b'{"place": 7}\n')
    assert three.wait(0, 2).startswith("rank 1 of 3 has died")


def test_where_the_first_can_no_longer_watch_all_end(three: Three) -> None:
    hub = three.watches[0]._hub
    assert hub is not None
    hub._selector.close()
    assert three.wait(0, 1, 2).startswith("rank 0 can no longer watch the others: ")


def test_a_run_that_ends_well_ends_without_a_word(three: Three) -> None:
    for rank in (2, 1, 0):
        three.watches[rank].close()
    time.sleep(0.5)
    assert not three.heard


def test_what_a_user_can_mend_has_its_own_exit_status() -> None:
    seen = at(0, error=str(UserError("give another folder")), status=2)
    verdict = judge([seen, at(1)], NOW, LIMIT)
    assert verdict is not None and verdict.status == 2 != FAILED
