"""What worker processes do with errors and remarks."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
import warnings
from pathlib import Path

import pytest

from ernie.data.workers import Workers
from ernie.errors import Remark, UserError


class TwoArguments(Exception):
    """An error that is pickled, and cannot be unpickled."""

    def __init__(self, what: str, where: str):
        super().__init__(f"{what} in {where}")


def fail(how: str) -> None:
    if how == "theirs":
        raise TwoArguments("fault", "a plug-in")
    if how == "with a function":
        raise ValueError("fault", lambda: None)
    raise UserError("row 3: fault") if how == "ours" else KeyError("fault")


def remark() -> None:
    for _ in range(2):
        warnings.warn("a quiet sound", Remark, 2)


def test_an_error_that_cannot_be_sent_keeps_its_traceback() -> None:
    with Workers(1, "") as workers:
        for how, words in (("theirs", "fault in a plug-in"), ("with a function", "fault")):
            with pytest.raises(RuntimeError, match=words) as raised:
                list(workers.map(fail, [how]))
            assert "test_workers.py" in str(raised.value)
        with pytest.raises(UserError, match=r"^row 3: fault$"):
            list(workers.map(fail, ["ours"]))
        with pytest.raises(KeyError, match="fault"):
            list(workers.map(fail, ["Python's"]))


def test_a_remark_of_a_worker_is_a_plain_sentence_said_once(capfd: pytest.CaptureFixture[str]) -> None:
    with Workers(1, "") as workers:
        workers.submit(remark).result()
    assert capfd.readouterr().err == "note: a quiet sound\n"


def refuse() -> None:
    raise ImportError("no such plug-in")


def test_workers_that_cannot_be_prepared_say_why() -> None:
    with Workers(2, "", refuse) as workers, pytest.raises(ImportError, match="no such plug-in"):
        list(workers.map(str, [1, 2, 3]))


def leave(status: int) -> None:
    os._exit(status)


def test_a_worker_that_ends_after_the_start_is_not_said_to_have_failed_at_it() -> None:
    with Workers(1, "Use fewer.") as workers, pytest.raises(UserError, match=r"was killed.* Use fewer\.$"):
        list(workers.map(leave, [1]))


def test_a_script_without_a_main_guard_is_told_to_have_one(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    lines = [
        "from ernie.data.workers import Workers",
        "with Workers(1, '') as workers:",
        "    list(workers.map(len, ['']))",
    ]
    script.write_text("\n".join(lines), encoding="utf-8")
    ended = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, timeout=120)
    assert ended.returncode
    assert 'in a script, call this below `if __name__ == "__main__":`' in ended.stderr.splitlines()[-1]


def end_while_sending(seconds: float) -> bytes:
    threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGKILL)).start()
    return bytes(2**28)


AROUND = [0.3, 0.4, 0.5, 0.6, 0.7]  # seconds, of which some are while it sends


@pytest.mark.parametrize("seconds", AROUND)
def test_a_worker_that_is_killed_while_it_sends_a_result_is_told(seconds: float) -> None:
    said = ""
    with Workers(1, "Use fewer.") as workers:
        try:
            workers.submit(end_while_sending, seconds).result()
            workers.submit(time.sleep, 9).result()  # where all was sent in time
        except UserError as error:
            said = str(error)
    assert said.endswith("memory ran out. Use fewer.")


@pytest.mark.parametrize("seconds", AROUND)
def test_workers_end_though_one_was_killed_while_it_sent_a_result(seconds: float) -> None:
    workers = Workers(1, "")
    workers.submit(end_while_sending, seconds)
    time.sleep(2.5)
    workers.close()
