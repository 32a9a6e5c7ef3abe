"""What ernie.parallel.gloo adds works, and Paddle still lacks it: once it does not, code can be removed."""

from __future__ import annotations

import re
import subprocess

import paddle
import pytest
from support.helpers import ROOT
from support.parallel.gloo_checks import CHECKS
from support.parallel.ranks import run_ranks

from ernie.parallel import gloo

PROGRAM = ROOT / "tests" / "support" / "parallel" / "gloo_checks.py"
# How Paddle says that it lacks something.
LACKING = r"(?i)not support|only support|Unsupported|enforce fail|c_identity > error"
LEAVING = PROGRAM.with_name("leaving.py")


@pytest.fixture(scope="module")
def installed() -> list[dict[str, str]]:
    return run_ranks(PROGRAM, 2, "installed", "all")


@pytest.fixture(scope="module")
def stock() -> list[dict[str, str]]:
    return run_ranks(PROGRAM, 2, "stock", "all")


@pytest.mark.parametrize("name", CHECKS)
def test_a_collective_works_on_two_ranks(name: str, installed: list[dict[str, str]]) -> None:
    assert [found[name] for found in installed] == ["right", "right"]


@pytest.mark.parametrize("name", CHECKS)
def test_paddle_lacks_the_collective(name: str, stock: list[dict[str, str]]) -> None:
    found = [ranks[name] for ranks in stock]
    assert found != ["right", "right"], f"Paddle has it now: take {name} out of gloo.py"
    assert {each for each in found if not re.search(LACKING, each)} <= {"right", "wrong"}


def test_messages_can_be_sent_before_they_are_received_and_arrive_by_group_despite_strangers() -> None:
    assert run_ranks(PROGRAM, 3, "installed", "messages") == ["right"] * 3


@pytest.mark.slow  # it waits in vain
def test_paddle_lacks_asynchronous_messages() -> None:
    """Each rank waits for the one after it to receive, in a circle."""
    with pytest.raises(subprocess.TimeoutExpired):
        run_ranks(PROGRAM, 3, "stock", "messages", seconds=8)


def test_groups_of_any_ranks_can_be_created() -> None:
    assert run_ranks(PROGRAM, 4, "installed", "groups") == ["right"] * 4


def test_the_process_that_hosts_the_store_can_exit_first() -> None:
    assert run_ranks(LEAVING, 2, "lasting", fresh=True) == ["right"] * 2


@pytest.mark.slow
def test_paddles_own_store_crashes_when_its_host_exits_first() -> None:
    with pytest.raises(AssertionError, match="rank 0, status -6"):
        run_ranks(LEAVING, 2, "stock", fresh=True)


@pytest.mark.slow
def test_paddle_lacks_a_store_per_group() -> None:
    with pytest.raises((subprocess.TimeoutExpired, AssertionError)) as caught:
        for _ in range(5):  # each fails with probability 7/8
            run_ranks(PROGRAM, 4, "stock", "groups", seconds=20)
    # Ranks that meet in another group's store hang, or find each other's addresses.
    assert isinstance(caught.value, subprocess.TimeoutExpired) or re.search("gloo|Gloo|store", str(caught.value))


def test_nothing_is_patched_on_another_device(monkeypatch: pytest.MonkeyPatch) -> None:
    before = paddle.base.core.ProcessGroupGloo.create
    monkeypatch.setattr(paddle, "get_device", lambda: "gpu:0")
    assert not gloo.install()
    assert paddle.base.core.ProcessGroupGloo.create is before
