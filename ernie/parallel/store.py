"""The stores in which the processes of a run find one another: Paddle's TCPStore, served by the first process of each.

A store maps keys to bytes.
"""

from __future__ import annotations

import contextlib
import os
import re
import socket
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, ClassVar

import paddle
from paddle.base import core
from paddle.distributed import get_rank

from ernie.errors import PortTaken, UserError
from ernie.formatting import duration
from ernie.parallel.hub import FAILED
from ernie.parallel.ports import host, listen

TO_BE_SERVED = 900.0  # seconds to wait for the first process, as long as Paddle waits
_ATTEMPT = 5.0  # seconds after which a connection is tried anew
_ALIVE = 10  # seconds at most after which, and between which, an idle connection is asked whether it still is one
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


class Unreached(UserError):
    """The first process was not reached, which a restart may mend."""

    status: ClassVar[int] = FAILED


def global_store(patience: float = TO_BE_SERVED) -> Any:
    """Return the store of all processes, which rank 0 serves.  The others wait for it for `patience` seconds.

    So long it may be silent later, as over a link that is down, before what waits for it raises an error of Paddle.
    Raises PortTaken in rank 0 if another program has its port, and Unreached in others that wait in vain.
    """
    to, port = _first_process()
    if get_rank() != 0 and port and not _is_served(to, port, patience):
        raise Unreached(
            f"rank {get_rank()} has not reached the first process at {to}:{port} within {duration(patience)}. Is it "
            "running, and is the network between them up? Then run the command again"
        )
    try:
        store = core.create_or_get_global_tcp_store()
    except ValueError as error:
        found = re.search(r"Bind network on \S+:(\d+) failed", str(error))
        if found is None:
            raise
        raise PortTaken(
            f"port {found[1]}, which was free when the processes were started, is in use by another program now; run "
            "the command again"
        ) from None
    _send_at_once(port, patience)
    return store


def serve_store(ports: Sequence[int] = ()) -> tuple[str, Any]:
    """Serve a store on a free port (see `listen`); return its address, host:port, and the store.

    It listens when this returns.  A process that connects to a free port before anyone listens may reach itself.
    """
    for _ in range(_PORTS_TRIED):
        with listen(host(), ports) as probe:
            port = int(probe.getsockname()[1])
        with contextlib.suppress(ValueError):  # another program took the port just now
            store = core.TCPStore(host(), port, True, _UNAWAITED)
            _send_at_once(port)
            return f"{host()}:{port}", store
    raise ConnectionError(f"no free port was found on {host()} in {_PORTS_TRIED} attempts")


def join_store(address: str) -> Any:
    """Return the store that another process serves at this address."""
    to, port = address.rsplit(":", 1)
    store = core.TCPStore(to, int(port), False, _UNAWAITED)
    _send_at_once(int(port))
    return store


def _send_at_once(port: int, patience: float | None = None) -> None:
    """Turn Nagle's algorithm off on this process's connections at a store's port, and on those that it accepts later.

    Paddle writes a message in pieces.  Each waits 40 ms for the other side's delayed acknowledgement of the one before,
    so that a look-up takes 90 ms instead of 0.1.  With `patience` connections also end when the other side has
    acknowledged nothing for so many seconds: Paddle waits without a limit.
    """
    options = [(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)]
    if patience is not None and hasattr(socket, "TCP_USER_TIMEOUT"):  # Linux
        # Whoever waits for an answer has sent all it has to: only these questions tell it that the link is down.
        alive = max(1, min(_ALIVE, int(patience / 2)))
        options += [
            (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
            (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, alive),
            (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, alive),
            (socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * patience)),
        ]
    with contextlib.suppress(OSError):  # a system without such a folder
        for file in Path("/dev/fd").iterdir():
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(file.name))) as connection:
                is_tcp = (
                    connection.family in (socket.AF_INET, socket.AF_INET6) and connection.type == socket.SOCK_STREAM
                )
                if is_tcp and port in (connection.getsockname()[1], _peer_port(connection)):
                    for option in options:
                        connection.setsockopt(*option)


def _peer_port(connection: socket.socket) -> int:
    try:
        port: int = connection.getpeername()[1]
    except OSError:  # it listens
        return 0
    return port


def _first_process() -> tuple[str, int]:
    """Return where the first process serves the store of all, with port 0 if that is not said."""
    master = os.environ.get("PADDLE_MASTER") or os.environ.get("PADDLE_TRAINER_ENDPOINTS", "").split(",")[0]
    to, _, port = master.rpartition(":")
    return to, int(port) if port.isdecimal() else 0


def _is_served(to: str, port: int, patience: float) -> bool:
    """Wait until the store of all processes accepts connections; return whether it does in time.

    Paddle would sleep for three seconds where it does not at once, and hold Python's lock while it waits, so that
    nobody could end it.
    """
    end = time.monotonic() + patience
    while (left := end - time.monotonic()) > 0:
        with (
            contextlib.suppress(OSError),
            socket.create_connection((to, port), timeout=min(left, _ATTEMPT)) as connection,
        ):
            if connection.getsockname() != connection.getpeername():  # a connection to a free port may reach itself
                return True
        time.sleep(_BETWEEN_PROBES)
    return False
