"""The processes of a run find one another, whatever else happens on the ports of their machine."""

from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ernie.parallel.store import Unreached, disable_libuv_store, global_store, join_store, serve_store


def test_a_store_is_served_on_another_port_when_a_program_takes_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    real, thieves = socket.create_server, []

    class Stolen(socket.socket):
        """A probe whose port another program takes as soon as it is closed."""

        def __exit__(self, *_: object) -> None:
            address = self.getsockname()
            self.close()
            thieves.append(real(address))

    def probe(address: Any, **_: Any) -> socket.socket:
        if thieves:
            return real(address)
        stolen = Stolen()
        stolen.bind(address)
        return stolen

    monkeypatch.setattr(socket, "create_server", probe)
    disable_libuv_store()
    address, served = serve_store()
    assert len(thieves) == 1
    assert address.rsplit(":", 1)[1] != str(thieves[0].getsockname()[1])
    join_store(address).set("key", b"value")
    assert served.get("key") == b"value"
    thieves[0].close()


def test_serving_a_store_does_not_wait_for_whoever_joins_it() -> None:
    disable_libuv_store()
    stores = [serve_store() for _ in range(2)]
    assert stores[0][0] != stores[1][0]


def test_no_message_of_a_store_waits_for_the_acknowledgement_of_the_one_before() -> None:
    disable_libuv_store()
    address, served = serve_store()
    joined = join_store(address)
    joined.set("key", b"value")
    assert served.get("key") == b"value"
    port, found = int(address.rsplit(":", 1)[1]), []
    for file in Path("/dev/fd").iterdir():
        with suppress(OSError), socket.socket(fileno=os.dup(int(file.name))) as each:
            inet = each.family in (socket.AF_INET, socket.AF_INET6) and each.type == socket.SOCK_STREAM
            if inet and port in (each.getsockname()[1], each.getpeername()[1]):
                found.append(each.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
    assert len(found) == 4  # both ends of the connections of both stores
    assert all(found)


@pytest.mark.parametrize("is_full", [False, True])
def test_whoever_does_not_reach_the_first_process_says_so_in_time(
    is_full: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody listens there, or packets get no answer, as over a link that is down."""
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        address, waiting = silent.getsockname(), []
        if is_full:
            silent.listen(0)
            for _ in range(4):  # more than are let wait
                waiting.append(socket.socket())
                waiting[-1].setblocking(False)
                waiting[-1].connect_ex(address)
        monkeypatch.setattr("ernie.parallel.store.get_rank", lambda: 3)
        monkeypatch.setenv("PADDLE_MASTER", f"127.0.0.1:{address[1]}")
        began = time.monotonic()
        with pytest.raises(
            Unreached, match=rf"^rank 3 has not reached the first process at 127\.0\.0\.1:{address[1]} "
        ):
            global_store(patience=0.5)
        assert 0.4 < time.monotonic() - began < 5
        for each in waiting:
            each.close()


@pytest.mark.parametrize("words", [[], ["waiting"]])
def test_whoever_waits_over_a_link_that_is_down_is_told_so_in_time(words: list[str]) -> None:
    """Two processes in a network of their own: Paddle itself would wait for an answer without a limit."""
    lost = Path(__file__).parents[1] / "support/parallel/lost_link.py"
    alone = ["unshare", "--user", "--map-root-user", "--net"]
    if shutil.which("unshare") is None or subprocess.run([*alone, "ip", "link"], check=False).returncode:
        pytest.skip("network namespaces are not allowed here")
    done = subprocess.run([*alone, sys.executable, str(lost), *words], text=True, capture_output=True, timeout=100)
    assert re.fullmatch(r"(\w+ after [2-9]\.\d s\n){2}", done.stdout), done.stderr
