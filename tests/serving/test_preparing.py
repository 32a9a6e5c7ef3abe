"""Where texts are tokenized: short ones at once, all others in threads."""

import threading
import time
from collections.abc import Iterator

import pytest

from serving.preparing import Preparers


@pytest.fixture
def preparers() -> Iterator[Preparers]:
    found = Preparers(threads=1, most_waiting=100_000)
    found.start()
    yield found
    found.stop()


def threads_of(preparers: Preparers, kind: str, characters: int = 100, seconds: float = 0.0) -> list[str]:
    """The names of the threads in which tasks are run one after another, each of which computes for a time."""
    found: list[str] = []
    for _ in range(30):
        done = threading.Event()

        def task(done: threading.Event = done) -> None:
            end = time.thread_time() + seconds
            while time.thread_time() < end:
                pass
            found.append(threading.current_thread().name)
            done.set()

        assert preparers.submit(characters, task, kind)
        assert done.wait(60)
    return found


def test_a_short_task_is_run_at_once_when_others_of_its_kind_were_quick(preparers: Preparers) -> None:
    own = threading.current_thread().name
    found = threads_of(preparers, "quick")
    assert found[0] == "prepare" and found[-1] == own


@pytest.mark.parametrize(
    ("kind", "characters", "seconds"),
    [("slow", 100, 0.002), ("long", 5000, 0.0), ("", 100, 0.0)],
    ids=["a slow kind", "long texts", "of no kind"],
)
def test_other_tasks_are_run_in_threads(preparers: Preparers, kind: str, characters: int, seconds: float) -> None:
    assert {*threads_of(preparers, kind, characters, seconds)} == {"prepare"}


def test_a_task_is_refused_while_too_much_text_waits(preparers: Preparers) -> None:
    began, end = threading.Event(), threading.Event()

    def stuck() -> None:
        began.set()
        end.wait(60)

    assert preparers.submit(90_000, stuck)
    assert began.wait(60)
    assert not preparers.submit(20_000, began.set)
    assert preparers.waiting == 90_000
    end.set()
