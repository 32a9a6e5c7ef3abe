"""At which addresses and ports a process of a run listens."""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from ernie.errors import UserError


def host() -> str:
    """Return the address at which other processes reach this one: the loopback one if all are on this machine."""
    own = os.environ.get("PADDLE_CURRENT_ENDPOINT", "127.0.0.1:0").rsplit(":", 1)[0]
    everyone = os.environ.get("PADDLE_TRAINER_ENDPOINTS", "")
    hosts = {endpoint.rsplit(":", 1)[0] for endpoint in everyone.split(",") if endpoint}
    return "127.0.0.1" if hosts <= {own} else own


def listen(address: str, ports: Sequence[int] = (), backlog: int = 64) -> socket.socket:
    """Listen at an address, on a free port between the two `ports`, or on any if there are none.

    Raises UserError if all of them are taken.
    """
    if not ports:
        return socket.create_server((address, 0), backlog=backlog)
    for port in range(ports[0], ports[1] + 1):
        with suppress(OSError):
            return socket.create_server((address, port), backlog=backlog)
    raise UserError(
        f"parallel.ports: all ports from {ports[0]} to {ports[1]} are taken on {address}; each process listens on one, "
        "and on a CPU on another for each group that it is in"
    )
