"""The watchdog: which process has failed or hangs, and that all processes learn of it."""

from __future__ import annotations

import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest

from ernie.errors import UserError
from ernie.parallel import hub as module
from ernie.parallel.hub import FAILED, Hub, Place, RankState, Verdict, beat, judge, pause
from ernie.parallel.ports import host, listen
from ernie.parallel.watch import Watch

LIMIT = 5.0
SECRET = "0123456789abcdef" * 2
NOW = 100.0


def state(rank: int, doing: str = "forward and backward", *, waiting: bool = False, **others: Any) -> RankState:
    """The state of a process that was heard just now, in its eighth step."""
    return RankState(rank, others.pop("heard", NOW), place=Place(7, "reordering", doing, waiting), **others)


def verdict_on(*states: RankState) -> str:
    verdict = judge(states, NOW, LIMIT)
    assert verdict is not None
    return verdict.text


def test_processes_that_report_may_compute_for_any_time() -> None:
    assert judge([state(0, stood=900.0), state(1, stood=900.0)], NOW, LIMIT) is None


def test_waiting_within_the_limit_is_no_failure() -> None:
    assert judge([state(0, "all_reduce", waiting=True, stood=4.9), state(1, stood=300.0)], NOW, LIMIT) is None


def test_a_dead_process_is_named_with_its_place() -> None:
    assert verdict_on(state(0, "all_reduce", waiting=True), state(1, gone=True)) == (
        "rank 1 of 2 has died at step 8, task reordering, forward and backward"
    )


def test_a_finished_process_may_exit() -> None:
    assert judge([state(0), state(1, gone=True, done=True)], NOW, LIMIT) is None


def test_an_error_is_reported_with_its_exit_status() -> None:
    found = judge([state(0), state(1, error="the disk is full", status=2)], NOW, LIMIT)
    assert found == Verdict("rank 1 of 2 failed at step 8, task reordering, forward and backward: the disk is full", 2)


def test_silence_is_reported_after_the_limit() -> None:
    assert judge([state(0), state(1, heard=NOW - 4.9)], NOW, LIMIT) is None
    assert "rank 1 of 2 has said nothing for 5 s since step 8" in verdict_on(state(0), state(1, heard=NOW - 5.1))


def test_the_process_that_others_wait_for_is_named_not_the_waiting_one() -> None:
    waits = state(0, "all_reduce", waiting=True, stood=6.0)
    assert verdict_on(waits, state(1, stood=7.0), state(2, "all_reduce", waiting=True, stood=6.0)) == (
        "rank 1 is at step 8, task reordering, forward and backward for 7 s, while rank 0 of 3 waited at step 8, "
        "task reordering, all_reduce"
    )


def test_processes_that_wait_for_each_other_are_all_named() -> None:
    text = verdict_on(state(0, "all_reduce", waiting=True, stood=6.0), state(1, "recv", waiting=True, stood=6.0))
    assert text.startswith("the processes wait for each other: rank 0 at step 8")
    assert "rank 1 at step 8, task reordering, recv" in text


def test_a_failed_collective_is_reported_only_after_a_moment_for_its_cause() -> None:
    failed = state(0, "all_reduce", waiting=True, error="RuntimeError: TIMEOUT", symptom=True, failed=NOW - 0.1)
    assert judge([failed, state(1)], NOW, LIMIT) is None
    assert "rank 1 of 2 has died" in verdict_on(failed, state(1, gone=True))
    failed.failed = NOW - 3
    assert verdict_on(failed, state(1, stood=31.0)).startswith("rank 1 is at step 8")


def test_without_another_cause_the_failed_collective_is_reported() -> None:
    failed = state(0, "all_reduce", waiting=True, error="RuntimeError: no route to host", symptom=True, failed=NOW - 3)
    other = state(1, "all_reduce", waiting=True, error="RuntimeError: closed", symptom=True, failed=NOW - 3)
    assert verdict_on(failed, other).endswith(
        "rank 0 of 2 waited at step 8, task reordering, all_reduce: RuntimeError: no route to host"
    )


class Store(dict[str, bytes]):
    """The key-value store that processes share, for threads."""

    set = dict.__setitem__

    def get(self, key: str) -> bytes:  # type: ignore[override]
        while key not in self:
            time.sleep(0.01)
        return self[key]


# For what is noticed at once: on a busy machine a second may pass between two signs of life.
AT_ONCE = pytest.mark.parametrize("three", [30.0], indirect=True, ids=["no limit"])


class ThreeWatches:
    """The watches of three processes, in threads, and the verdicts that they receive."""

    def __init__(self, limit: float):
        self.heard: dict[int, Verdict] = {}
        store = Store()
        self.watches = [
            Watch(store, rank, 3, limit, "127.0.0.1", end=lambda verdict, rank=rank: self.heard.update({rank: verdict}))  # type: ignore[misc]
            for rank in range(3)
        ]
        to, port = store["ernie/watch"].decode().split(":")
        self.hub, self.secret = (to, int(port)), store["ernie/secret"].decode()
        self.watches[0].pass_on()  # which the last one hears when it has entered
        while not all(watch._passes for watch in self.watches):
            time.sleep(0.01)
        for watch in self.watches:
            watch._passes = 0

    def wait(self, *ranks: int) -> str:
        """The verdict that all of these ranks receive."""
        deadline = time.monotonic() + 20
        while not all(rank in self.heard for rank in ranks):
            assert time.monotonic() < deadline, self.heard
            time.sleep(0.01)
        [text] = {self.heard[rank].text for rank in ranks}
        return text


@pytest.fixture(params=[1.0])
def three(request: pytest.FixtureRequest) -> Iterator[ThreeWatches]:
    made = ThreeWatches(request.param)
    yield made
    for watch in made.watches[::-1]:
        watch.close()


def test_a_closed_connection_is_reported_to_all(three: ThreeWatches) -> None:
    three.watches[1].at(step=3, task="masking", doing="the update")
    time.sleep(0.3)
    three.watches[1]._socket.shutdown(2)
    assert three.wait(0, 2) == "rank 1 of 3 has died at step 4, task masking, the update"


def test_what_is_done_in_between_is_not_the_place_of_what_comes_after(three: ThreeWatches) -> None:
    three.watches[1].at(step=3, task="masking", doing="making batches")
    with three.watches[1].doing("waiting for rank 0, saving"):
        pass
    three.watches[1]._report()
    time.sleep(0.3)
    three.watches[1]._socket.shutdown(2)
    assert three.wait(0, 2) == "rank 1 of 3 has died at step 4, task masking, making batches"


def test_a_process_that_others_wait_for_is_reported_to_all(three: ThreeWatches) -> None:
    three.watches[2].at(step=4, task="masking", doing="forward and backward")
    with three.watches[0].waiting("all_reduce"), three.watches[1].waiting("all_reduce"):
        text = three.wait(0, 1, 2)
    assert text.startswith("rank 2 is at step 5, task masking, forward and backward for ")


def test_waiting_for_the_first_process_has_no_time_limit(three: ThreeWatches) -> None:
    passed: list[float] = []
    waiting = threading.Thread(target=lambda: (three.watches[1].wait_for_first(), passed.append(time.monotonic())))
    waiting.start()
    time.sleep(2.5)  # longer than the limit
    assert not passed and not three.heard
    three.watches[0].pass_on()
    waiting.join(5)
    assert passed


def test_processes_that_arrive_after_the_first_passed_on_do_not_wait(three: ThreeWatches) -> None:
    three.watches[0].pass_on()
    three.watches[0].pass_on()
    for _ in range(2):
        three.watches[2].wait_for_first()


def judge_of(ranks: int) -> tuple[tuple[str, int], threading.Thread]:
    """Start the judge of so many processes in a thread; return its address and the thread."""
    hub = Hub(ranks, 1.0, "127.0.0.1", SECRET)
    judging = threading.Thread(target=hub.run, daemon=True)
    judging.start()
    to, port = hub.address.split(":")
    return (to, int(port)), judging


def entry(rank: int, secret: str = SECRET) -> bytes:
    """What a process of the run says first."""
    return json.dumps({"rank": rank, "secret": secret}).encode() + b"\n"


def heard(connection: socket.socket) -> dict[str, Any]:
    """The first message from the hub that is not just a sign of life."""
    for line in connection.makefile("rb"):
        message: dict[str, Any] = json.loads(line)
        if message:
            return message
    raise AssertionError("the connection was closed")


def test_messages_in_the_same_packet_as_the_rank_are_read() -> None:
    address, judging = judge_of(2)
    with socket.create_connection(address, timeout=5) as other:
        other.sendall(entry(1))
        with socket.create_connection(address, timeout=5) as first:
            first.sendall(entry(0) + b'{"passed": true}\n{"done": true}\n')
            assert heard(other) == {"passed": True}
            other.sendall(b'{"done": true}\n')
            judging.join(5)
    assert not judging.is_alive()


def test_a_late_process_learns_that_the_first_passed_on() -> None:
    address, judging = judge_of(2)
    with socket.create_connection(address, timeout=5) as first:
        first.sendall(entry(0) + b'{"passed": true}\n')
        assert heard(first) == {"passed": True}
        with socket.create_connection(address, timeout=5) as late:
            late.sendall(entry(1))
            assert heard(late) == {"passed": True}
            for connection in (first, late):
                connection.sendall(b'{"done": true}\n')
            judging.join(5)
    assert not judging.is_alive()


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
        b"x" * 200_000,
        b'{"rank": 1, "secret": ""}\n',
        b'{"rank": 1, "secret": 7}\n',
        b'{"rank": 1, "secret": "01234567890123456789012345678901"}\n{"error": "forged", "status": 2}\n',
        b'{"verdict": ["forged", 0]}\n',
    ],
)
def test_a_stranger_is_disconnected_without_affecting_the_others(words: bytes, three: ThreeWatches) -> None:
    stranger = socket.create_connection(three.hub, timeout=5)
    with stranger, contextlib.suppress(ConnectionResetError):  # it is closed with words that were not read
        stranger.sendall(words)
        assert not stranger.makefile("rb").read(1)
    assert not three.heard
    three.watches[1]._socket.shutdown(2)
    assert three.wait(0, 2).startswith("rank 1 of 3 has died")


@AT_ONCE
def test_a_rank_has_one_speaker(three: ThreeWatches) -> None:
    """Even one that knows the secret, such as a process that was started twice."""
    with socket.create_connection(three.hub, timeout=5) as second:
        second.sendall(entry(1, three.secret) + b'{"error": "forged", "symptom": false, "status": 2}\n')
        with contextlib.suppress(ConnectionResetError):  # it is closed with words that were not read
            assert not second.makefile("rb").read(1)
    assert not three.heard


def test_a_stranger_hears_nothing_and_has_little_time_to_enter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_TO_ENTER", 0.3)
    address, judging = judge_of(2)
    with (
        socket.create_connection(address, timeout=5) as stranger,
        socket.create_connection(address, timeout=5) as first,
        socket.create_connection(address, timeout=5) as other,
    ):
        first.sendall(entry(0) + b'{"passed": true}\n')
        other.sendall(entry(1))
        assert stranger.recv(1) == b""
        for connection in (first, other):
            connection.sendall(b'{"done": true}\n')
        judging.join(5)
    assert not judging.is_alive()


def test_a_first_process_that_is_silent_is_reported_by_each_other() -> None:
    """As one that was stopped: its connections stay open."""
    store, verdicts = Store(), dict[int, Verdict]()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        store["ernie/secret"], port = SECRET.encode(), silent.getsockname()[1]
        store["ernie/watch"] = f"127.0.0.1:{port}".encode()
        began = time.monotonic()
        watches = [
            Watch(store, rank, 3, 0.5, "127.0.0.1", end=lambda verdict, rank=rank: verdicts.update({rank: verdict}))  # type: ignore[misc]
            for rank in (1, 2)
        ]
        watches[1].at(step=3, task="masking", doing="the update")
        while len(verdicts) < 2 and time.monotonic() < began + 20:
            time.sleep(0.01)
    assert verdicts[2].text == "rank 0 of 3 has said nothing for 0.5 s; rank 2 was at step 4, task masking, the update"
    assert verdicts[1].status == FAILED
    for watch in watches:
        watch.close()


@pytest.mark.parametrize(
    ("everyone", "wanted"),
    [
        ("10.0.0.5:6000,10.0.0.5:6001", "127.0.0.1"),
        ("10.0.0.5:6000,10.0.0.6:6000", "10.0.0.5"),
        ("", "127.0.0.1"),
    ],
)
def test_processes_of_one_machine_listen_on_its_loopback_alone(
    everyone: str, wanted: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PADDLE_CURRENT_ENDPOINT", "10.0.0.5:6000")
    monkeypatch.setenv("PADDLE_TRAINER_ENDPOINTS", everyone)
    assert host() == wanted


@AT_ONCE
def test_a_process_that_sends_an_invalid_message_counts_as_dead(three: ThreeWatches) -> None:
    three.watches[1]._socket.sendall(b'{"place": 7}\n')
    assert three.wait(0, 2).startswith("rank 1 of 3 has died")


@AT_ONCE
def test_without_its_judge_a_run_ends(three: ThreeWatches) -> None:
    hub = three.watches[0]._hub
    assert hub is not None
    hub.kill()
    for rank in range(3):
        assert three.wait(rank) == f"rank 0 has died; rank {rank} was at starting"


def test_a_judge_that_fails_ends_all_processes(monkeypatch: pytest.MonkeyPatch) -> None:
    def failing(states: list[RankState], *others: float) -> Verdict | None:
        if states[1].process:
            raise ArithmeticError("one and one are three")
        return judge(states, *others)

    monkeypatch.setattr(module, "judge", failing)
    address, judging = judge_of(2)
    with socket.create_connection(address, timeout=5) as other:
        other.sendall(json.dumps({"rank": 1, "secret": SECRET, "process": 7}).encode() + b"\n")
        text, status = heard(other)["verdict"]
        judging.join(5)
    assert (text, status) == ("the watchdog of the processes failed: ArithmeticError: one and one are three", FAILED)


def test_a_normal_end_causes_no_verdict(three: ThreeWatches) -> None:
    for rank in (2, 1, 0):
        three.watches[rank].close()
    time.sleep(0.5)
    assert not three.heard


def test_a_process_of_another_machine_is_named_with_its_address() -> None:
    assert verdict_on(state(0), state(1, gone=True, host="10.0.0.2")).startswith("rank 1 of 2 on 10.0.0.2 has died at")
    waits = state(0, "all_reduce", waiting=True, stood=6.0, host="10.0.0.1")
    assert verdict_on(waits, state(1, stood=7.0, host="10.0.0.2")).startswith("rank 1 on 10.0.0.2 is at step 8")


@pytest.mark.parametrize("ranks", [2, 8, 64, 1024])
def test_the_number_of_reports_does_not_grow_with_the_number_of_processes(ranks: int) -> None:
    assert ranks / pause(ranks) <= 100.01
    assert ranks / beat(ranks, 100.0) <= 100.01
    assert beat(ranks, 1.0) <= 1 / 8  # often enough for the limit


def test_processes_listen_on_the_ports_that_a_firewall_lets_through() -> None:
    with listen("127.0.0.1") as probe:
        first = min(probe.getsockname()[1], 65_000)
    with listen("127.0.0.1", (first, first + 9)) as one, listen("127.0.0.1", (first, first + 9)) as other:
        found = [each.getsockname()[1] for each in (one, other)]
        assert first <= found[0] < found[1] <= first + 9
        with pytest.raises(UserError, match=rf"parallel.ports: all ports from {found[0]} to {found[0]} are taken"):
            listen("127.0.0.1", (found[0], found[0]))


def test_a_user_error_has_its_own_exit_status() -> None:
    failed = state(0, error=str(UserError("give another folder")), status=2)
    verdict = judge([failed, state(1)], NOW, LIMIT)
    assert verdict is not None and verdict.status == 2 != FAILED
