"""The processes of a run find one another, whatever else happens on the ports of their machine."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from ernie.parallel.store import disable_libuv_store, join_store, serve_store


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
