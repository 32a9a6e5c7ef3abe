"""A network between a browser and a server that is slow when a test wants it to be."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress


class Link:
    """Passes on what comes to its address; while `flows` is not set, nothing that is for the server."""

    def __init__(self, server: str):
        self._server = ("127.0.0.1", int(server.rpartition(":")[2]))
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.flows = threading.Event()
        self.flows.set()
        self._sockets = [self._listener]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                client, server = self._listener.accept()[0], socket.create_connection(self._server)
                self._sockets += [client, server]
                for source, target, waits in ((client, server, True), (server, client, False)):
                    threading.Thread(target=self._pass_on, args=(source, target, waits), daemon=True).start()

    def _pass_on(self, source: socket.socket, target: socket.socket, waits: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if waits:
                    self.flows.wait()
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End all connections."""
        self.flows.set()
        for own in self._sockets:
            with suppress(OSError):
                own.shutdown(socket.SHUT_RDWR)
            own.close()


@contextmanager
def link_to(server: str) -> Iterator[Link]:
    """A link to the address of a server."""
    link = Link(server)
    try:
        yield link
    finally:
        link.close()
