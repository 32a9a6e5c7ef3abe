"""Run a server: its models, its socket, and what signals ask of it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import ssl
import sys
import webbrowser
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import uvicorn

from ernie.config import differences, to_dict
from ernie.errors import UserError
from ernie.runtime import SIGHUP
from serving.access import Access, Keys
from serving.app import make_app
from serving.config import ServeConfig
from serving.connection import Bounds, bounded_connection, bounded_socket
from serving.garbage import collect_garbage
from serving.http import Problem
from serving.lifecycle import SAME_SIGNAL
from serving.logs import write_logs
from serving.reloading import Reloader, load_model
from serving.replica import Replica
from serving.saved_sessions import SessionFolder
from serving.service import Limits, Service
from serving.sessions import SessionLimits, Sessions
from serving.terminal import Terminal

_log = logging.getLogger("ernie.serving")
_SWITCH_SECONDS = 0.0005  # after which Python code of the engine lets the event loop run
_MB, _KB = 1_000_000, 1000
_BACKLOG = 2048
_LAST_SECONDS = 1  # that uvicorn itself waits, after all requests are answered
_READ_AGAIN = ("models", "api_key_file", "tls_certificate", "tls_key")  # keys that SIGHUP changes
_SPARE_FILES = 200  # besides those of connections


def make_service(config: ServeConfig) -> Service:
    """Return a service with the models of a configuration.  Raises UserError for a model that cannot be loaded."""
    limits, folder = config.limits, SessionFolder(config.sessions_folder) if config.sessions_folder else None
    if folder is not None:
        folder.check()
    service = Service(
        Limits(
            limits.inputs,
            limits.timeout,
            limits.bulk_timeout,
            limits.longest_timeout,
            int(limits.waiting_mb * _MB),
        ),
        limits.bulk_share,
        config.preparing_threads,
    )
    for name, model in config.models.items():
        service.put(load_model(name, model, limits.batch_tokens, bases=service.bases))
    service.sessions = Sessions(
        service.engine,
        SessionLimits(
            limits.sessions,
            int(limits.session_mb * _MB),
            limits.session_idle,
            limits.session_step,
        ),
        folder,
    )
    service.chains, service.notice = dict(config.chains), config.notice
    for name in service.chains:
        service.streams(name)  # raises UserError for models that do not fit
    return service


def serve(
    config: ServeConfig, reread: Callable[[], ServeConfig], replica: Replica | None = None, show: bool = False
) -> int:
    """Serve until a signal ends it; return the exit status.

    SIGHUP reads the configuration again, by `reread`.  With `show` a browser opens the page.  Raises UserError if the
    server cannot start.
    """
    lines = write_logs(config.log, **({"replica": replica.index} if replica else {}))
    try:
        sys.setswitchinterval(_SWITCH_SECONDS)
        listener = bind(config.host, config.port)
        access = Access(Keys.read(config.api_key_file) if config.api_key_file else None, config.cors_origins)
        context = _tls(config)
        _allow_files(config.limits.connections)
        server = _Server(config, make_service(config), access, context, reread, replica, show)
        try:
            listener.listen(_BACKLOG)
        except OSError as error:
            raise _taken(config.host, config.port, error) from None
        server.run([listener])
        return 0
    finally:
        lines.stop()


def bind(host: str, port: int) -> socket.socket:
    """Return a socket for this address, which does not listen yet.  Raises UserError if that is impossible."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        listener = socket.socket(family, kind, protocol)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)  # :: takes IPv4, too
        listener.bind(address)
    except OSError as error:
        raise _taken(host, port, error) from None
    return listener


def _taken(host: str, port: int, error: OSError) -> UserError:
    reason = (error.strerror or str(error)).lower()
    return UserError(f"cannot listen on port {port} of {host}: {reason}; --port and --host choose others")


def _tls(config: ServeConfig) -> ssl.SSLContext | None:
    """Return what encrypts connections, if there is a certificate.  Raises UserError for one that is no use."""
    if config.tls_certificate is None:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    _read_certificate(context, config)
    return context


def _read_certificate(context: ssl.SSLContext, config: ServeConfig) -> None:
    assert config.tls_certificate is not None
    try:
        context.load_cert_chain(config.tls_certificate, config.tls_key)
    except OSError as error:  # ssl.SSLError is one
        raise UserError(f"tls_certificate, tls_key: cannot be read: {error.strerror or error}") from None


def _allow_files(connections: int) -> None:
    """Let this process have a file for each connection, as far as the system allows."""
    with suppress(ImportError, OSError, ValueError):  # Windows has no such limit
        import resource

        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = connections + _SPARE_FILES
        if soft != resource.RLIM_INFINITY and soft < wanted:
            most = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
            resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _reached(host: str) -> str:
    """Return an address of this machine at which a server on all addresses is reached."""
    return {"0.0.0.0": "127.0.0.1", "[::]": "[::1]"}.get(host, host)


def _open_page(address: str) -> None:
    """Open a page in a browser of the desktop, if there is one: others would take the terminal."""
    with suppress(webbrowser.Error):
        browser = webbrowser.get()
        in_terminal = type(browser) is webbrowser.GenericBrowser
        if not in_terminal and browser.open(address):
            return
    _log.warning("no browser could be opened; the page is at %s", address)


class _Server(uvicorn.Server):
    """A server of uvicorn whose signals, drain and reloads are this library's own."""

    def __init__(
        self,
        config: ServeConfig,
        service: Service,
        access: Access,
        context: ssl.SSLContext | None,
        reread: Callable[[], ServeConfig],
        replica: Replica | None,
        show: bool,
    ):
        self._settings, self._service, self._access, self._context = config, service, access, context
        self._reread, self._replica, self._show = reread, replica, show
        self._reloader = Reloader(service, config.models, config.limits.batch_tokens)
        self._leaving: asyncio.Task[None] | None = None
        self._left_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._terminal = Terminal()
        limits = config.limits
        bounds = Bounds(
            limits.connections,
            int(limits.head_kb * _KB),
            limits.head_seconds,
            limits.body_seconds,
            limits.write_seconds,
        )
        options = uvicorn.Config(
            make_app(
                service,
                int(limits.body_mb * _MB),
                int(limits.form_mb * _MB),
                access=access,
                reload=self._reloader.reload,
            ),
            http=bounded_connection(bounds, service.connection_refused),
            ws=bounded_socket(bounds),
            lifespan="on",
            ws_max_size=int(limits.session_mb * _MB),
            ws_per_message_deflate=False,  # a few bytes would become megabytes
            log_config=None,
            access_log=False,
            server_header=False,
            timeout_keep_alive=limits.idle_seconds,
            timeout_graceful_shutdown=_LAST_SECONDS,
        )
        options.load()
        options.ssl = context
        super().__init__(options)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Leave signals alone: `serve` handles them."""
        yield

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until a signal ends it."""
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, self._leave, signal.SIGTERM, self._settings.grace_seconds)
        if signal.getsignal(signal.SIGINT) != signal.SIG_IGN:  # as for a shell's background jobs
            loop.add_signal_handler(signal.SIGINT, self._leave, signal.SIGINT, 0.0)
        if SIGHUP is not None:
            loop.add_signal_handler(SIGHUP, self._hang_up)
        if self._replica is not None:
            loop.add_reader(self._replica.file, self._leave, signal.SIGTERM, 0.0)  # the supervisor has gone
        self._start(self._announce())
        self._start(collect_garbage(lambda: self._service.is_idle))
        await super().serve(sockets)

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _announce(self) -> None:
        """Say where the server is, as soon as it answers."""
        while not self.started:
            await asyncio.sleep(0.01)
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        shown = f"[{host}]" if ":" in host else host
        scheme = "https" if self._context else "http"
        names, process = ", ".join(self._service.models), {"fields": {"pid": os.getpid()}}
        _log.info("serving %s at %s://%s:%d", names, scheme, shown, port, extra=process)
        if self._access.keys is None and host in ("0.0.0.0", "::"):
            _log.warning("whoever reaches this machine may ask: it listens on all addresses, without api_key_file")
        if self._show:
            await asyncio.to_thread(_open_page, f"{scheme}://{_reached(shown)}:{port}/")
        if self._replica is not None and await self._service.is_ready():
            await self._replica.say_ready(lambda: self._service.engine.is_alive)

    def _leave(self, number: int, grace: float) -> None:
        """End after the drain; at the second signal at once."""
        now = asyncio.get_running_loop().time()
        if self._leaving is None:
            self._leaving, self._left_at = self._start(self._drain(grace)), now
            if self._replica is not None:
                asyncio.get_running_loop().remove_reader(self._replica.file)
        if now - self._left_at < SAME_SIGNAL:
            return
        os.write(2, b"ernie: ended at once, by the second signal\n")
        os._exit(128 + number)

    async def _drain(self, grace: float) -> None:
        service = self._service
        _log.info("leaving: not ready from now on, refuses what is new in %.3g s", grace)
        left = await service.lifecycle.leave(grace, self._settings.drain_seconds)
        if left:
            _log.warning("requests and sessions that are not answered in time: %d", left)
            service.abandon(Problem(503, "leaving", "this server is ending; ask another one"))
        _log.info("the server ends")
        self.should_exit = True

    def _hang_up(self) -> None:
        """Read everything again; but when the terminal is gone, end."""
        if not self._terminal.is_gone:
            self._start(self._read_again())
        elif self._leaving is None:
            self._terminal.leave()
            self._leave(signal.SIGHUP, 0.0)

    async def _read_again(self) -> None:
        """Read the configuration, the keys and the certificate again, and load all models; keep what fails."""
        try:
            config = self._reread()
            keys = Keys.read(config.api_key_file) if config.api_key_file else None
            if self._context is not None and config.tls_certificate is not None:
                _read_certificate(self._context, config)
        except UserError as error:
            _log.error("nothing was read again: %s", error)
            return
        for name, (old, new) in differences(to_dict(self._settings), to_dict(config)).items():
            if name.partition(".")[0] not in _READ_AGAIN:
                _log.warning("%s: %s becomes %s only after a restart", name, old, new)
        self._access.keys = keys
        await self._reloader.change(config.models)
        self._service.chains = dict(config.chains)
