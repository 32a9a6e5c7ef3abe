"""The stores in which the processes of a run find one another: Paddle's TCPStore, served by the first process of each.

A store maps keys to bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from typing import Any

import paddle
from paddle.base import core
from paddle.distributed import get_rank

from ernie.errors import PortTaken
from ernie.parallel.watch import host

_TO_BE_SERVED = 900.0  # seconds to wait for the first process, as long as Paddle waits
_BETWEEN_PROBES = 0.02  # seconds
_UNAWAITED = 0  # as the number of a store's processes: opening it waits for none
_PORTS_TRIED = 20


def disable_libuv_store() -> None:
    """Make Paddle serve its TCP stores without libuv; to be called before the first store is created.

    libuv is Paddle's default.  With it, the process that hosts a store may be aborted (SIGABRT, without a message) when
    another process exits at the same time.  The store's thread keeps running after what it uses has been freed.  A
    completed run would fail.
    """
    paddle.set_flags({"FLAGS_tcp_store_using_libuv": False})


def global_store() -> Any:
    """Return the store of all processes, which rank 0 serves.

    Raises PortTaken in rank 0 if another program has its port.
    """
    if get_rank() != 0:
        _wait_until_served()
    try:
        return core.create_or_get_global_tcp_store()
    except ValueError as error:
        found = re.search(r"Bind network on \S+:(\d+) failed", str(error))
        if found is None:
            raise
        raise PortTaken(
            f"port {found[1]}, which was free when the processes were started, is in use by another program now; run "
            "the command again"
        ) from None


def serve_store() -> tuple[str, Any]:
    """Serve a store on a free port; return its address, host:port, and the store.

    It listens when this returns.  A process that connects to a free port before anyone listens may reach itself.
    """
    for _ in range(_PORTS_TRIED):
        with socket.create_server((host(), 0)) as probe:
            port = int(probe.getsockname()[1])
        with contextlib.suppress(ValueError):  # another program took the port just now
            return f"{host()}:{port}", core.TCPStore(host(), port, True, _UNAWAITED)
    raise ConnectionError(f"no free port was found on {host()} in {_PORTS_TRIED} attempts")


def join_store(address: str) -> Any:
    """Return the store that another process serves at this address."""
    to, port = address.rsplit(":", 1)
    return core.TCPStore(to, int(port), False, _UNAWAITED)


def _wait_until_served() -> None:
    """Wait until the store of all processes accepts connections: Paddle would sleep for three seconds if it does not.

    Whoever waits in vain leaves the error to Paddle.
    """
    master = os.environ.get("PADDLE_MASTER") or os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]
    to, _, port = master.rpartition(":")
    if not port.isdecimal():
        return
    end = time.monotonic() + _TO_BE_SERVED
    while time.monotonic() < end:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((to, int(port)), timeout=_TO_BE_SERVED) as connection,
        ):
            if connection.getsockname() != connection.getpeername():  # a connection to a free port may reach itself
                return
        time.sleep(_BETWEEN_PROBES)
