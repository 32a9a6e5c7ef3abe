"""What ernie.parallel.gloo supplies works, and Paddle still lacks it: where it no longer does, code can go."""

from __future__ import annotations

import subprocess
from pathlib import Path

import paddle
import pytest
from gloo_checks import CHECKS
from ranks import run_ranks

from ernie.parallel import gloo

PROGRAM = Path(__file__).with_name("gloo_checks.py")
LEAVING = PROGRAM.with_name("leaving.py")


@pytest.fixture(scope="module")
def installed() -> list[dict[str, str]]:
    return run_ranks(PROGRAM, 2, "installed", "all")


@pytest.fixture(scope="module")
def stock() -> list[dict[str, str]]:
    return run_ranks(PROGRAM, 2, "stock", "all")


@pytest.mark.parametrize("name", CHECKS)
def test_it_works_on_two_ranks(name: str, installed: list[dict[str, str]]) -> None:
    assert [found[name] for found in installed] == ["right", "right"]


@pytest.mark.parametrize("name", CHECKS)
def test_paddle_needs_it(name: str, stock: list[dict[str, str]]) -> None:
    assert [found[name] for found in stock] != ["right", "right"], f"Paddle has it now: take {name} out of gloo.py"


def test_messages_may_be_sent_before_anyone_asks_for_them_and_come_by_group_whatever_strangers_say() -> None:
    assert run_ranks(PROGRAM, 3, "installed", "messages") == ["right"] * 3


def test_paddle_needs_messages_that_do_not_wait() -> None:
    with pytest.raises((subprocess.TimeoutExpired, AssertionError)):
        run_ranks(PROGRAM, 3, "stock", "messages", seconds=12)


def test_groups_of_all_sorts_can_be_made() -> None:
    assert run_ranks(PROGRAM, 4, "installed", "groups") == ["right"] * 4


def test_a_process_where_a_store_is_may_leave_first() -> None:
    assert run_ranks(LEAVING, 2, "lasting") == ["right"] * 2


def test_paddle_needs_another_store_for_that() -> None:
    with pytest.raises(AssertionError, match="rank 0, status -6"):
        run_ranks(LEAVING, 2, "stock")


@pytest.mark.slow
def test_paddle_needs_a_store_for_each_group() -> None:
    with pytest.raises((subprocess.TimeoutExpired, AssertionError)):
        for _ in range(5):  # seven times of eight it fails
            run_ranks(PROGRAM, 4, "stock", "groups", seconds=20)


def test_on_another_device_nothing_is_touched(monkeypatch: pytest.MonkeyPatch) -> None:
    before = paddle.base.core.ProcessGroupGloo.create
    monkeypatch.setattr(paddle, "get_device", lambda: "gpu:0")
    assert not gloo.install()
    assert paddle.base.core.ProcessGroupGloo.create is before
