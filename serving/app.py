"""The server as an ASGI application: all protocols on one service, its health, and its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from threading import Barrier

import msgspec
from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import PlainTextResponse
from starlette.routing import WebSocketRoute, compile_path
from starlette.types import ASGIApp, Receive, Scope, Send
from starlette.websockets import WebSocket

from serving.access import Access
from serving.gate import Gate
from serving.heartbeat import Heartbeat
from serving.http import Call, Endpoint, Problem, Reply, encode
from serving.metrics import ASKING, PLAIN, SOCKET, Metrics
from serving.models import ServedModel
from serving.protocols import kserve, native, openai, openai_sound, page, simuleval, tei
from serving.protocols.description import describing
from serving.protocols.registry import Protocol, Route
from serving.protocols.stream import PATH, StreamSocket
from serving.service import Service
from serving.turns import InTurns

_BEGUN_AT_ONCE = 12  # requests and sessions that begin in a turn of the event loop: a few milliseconds
_THREADS = 6  # for work that would keep the event loop
Reload = Callable[[str], Awaitable[ServedModel]]
PROTOCOLS: tuple[Protocol, ...] = (
    native.PROTOCOL,
    openai.PROTOCOL,
    openai_sound.PROTOCOL,
    tei.PROTOCOL,
    kserve.PROTOCOL,
    simuleval.PROTOCOL,
    page.PROTOCOL,
)


class Live(msgspec.Struct):
    """Whether the process answers."""

    live: bool


class Reloaded(msgspec.Struct):
    """A model that was loaded again, and when, in seconds since 1970."""

    name: str
    loaded_at: float


class Ready(msgspec.Struct):
    """Whether every model computes, and which of them do."""

    ready: bool
    models: dict[str, bool]


def make_app(
    service: Service,
    body_limit: int = 10_000_000,
    form_limit: int = 25_000_000,
    protocols: Sequence[Protocol] = PROTOCOLS,
    access: Access | None = None,
    reload: Reload | None = None,
) -> ASGIApp:
    """Return the application; its start and its end are those of the service's threads.

    Bodies have at most `body_limit` bytes, and forms with a file `form_limit`.  `reload` replaces a model by a new one
    of that name.
    """
    heartbeat, known = Heartbeat(), access or Access()
    metrics = Metrics(service, heartbeat)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(_running_threads())
        service.start(loop)
        heartbeat.start(loop)
        try:
            yield
        finally:
            heartbeat.stop()
            await asyncio.to_thread(service.stop)

    def answering(path: str, by_method: Sequence[Route], problem: Callable[[Problem], Reply]) -> Gate:
        metrics.add_route(path, ASKING if any(route.method in ("POST", "PUT") for route in by_method) else PLAIN)
        is_form = any(route.form for route in by_method)
        limit = form_limit if is_form else body_limit
        endpoint = Endpoint({route.method: route.handler for route in by_method}, problem, limit, is_form)
        kinds = {route.method: route.access for route in by_method}
        return Gate(endpoint, path, kinds, known, service.lifecycle, metrics)

    spoken = all_protocols(service, metrics, protocols, reload)
    by_path: dict[str, list[Route]] = {}
    problems: dict[str, Callable[[Problem], Reply]] = {}
    for protocol in spoken:
        for route in protocol.routes(service):
            by_path.setdefault(route.path, []).append(route)
            problems.setdefault(route.path, protocol.problem)
    for protocol in sorted(spoken, key=lambda protocol: -len(protocol.prefix)):  # paths that lead nowhere
        by_path.setdefault(path := protocol.prefix + "/{path:path}", [])
        problems.setdefault(path, protocol.problem)
    metrics.add_route(PATH, SOCKET)
    sessions = Gate(StreamSocket(service), PATH, {}, known, service.lifecycle, metrics)
    gates = {path: answering(path, by_method, problems[path]) for path, by_method in by_path.items()}
    gates[PATH] = Gate(
        Endpoint({"GET": _needs_socket}, native.problem, body_limit), PATH, {}, known, service.lifecycle, metrics
    )
    sockets = [WebSocketRoute(PATH, sessions), WebSocketRoute("/{path:path}", _no_session)]
    app: ASGIApp = _Paths(gates, Starlette(routes=sockets, lifespan=lifespan))
    app = InTurns(app, _BEGUN_AT_ONCE)
    if not known.origins:
        return app
    return CORSMiddleware(
        app,
        allow_origins=known.origins,
        allow_methods=["GET", "POST"],
        allow_headers=["authorization", "content-type", "x-api-key", "x-priority", "x-request-id", "x-timeout"],
        expose_headers=["retry-after", "x-request-id"],
    )


async def _needs_socket(call: Call) -> Reply:
    """Refuse a request to the path of a session that is no WebSocket."""
    found = f"sessions are WebSockets: connect to ws://HOST:PORT/models/{call.path['model']:.60}/stream"
    raise Problem(426, "upgrade_required", found, {"upgrade": "websocket", "connection": "upgrade"})


async def _no_session(socket: WebSocket) -> None:
    """Refuse a connection at a path where there are no sessions."""
    sentence = f"there are no sessions at {socket.url.path:.200}; expected /models/MODEL/stream"
    await socket.send_denial_response(PlainTextResponse(sentence, 404))


def _running_threads() -> ThreadPoolExecutor:
    """Return threads for what would keep the event loop.  They run already: to start one keeps the event loop, too."""
    executor, all_run = ThreadPoolExecutor(_THREADS, "aside"), Barrier(_THREADS + 1)
    for _ in range(_THREADS):
        executor.submit(all_run.wait)
    all_run.wait()
    return executor


class _Paths:
    """The applications of all paths of HTTP, beside one for whatever else comes.

    Starlette's own way to them takes ten times as long.  Of the paths that fit, the one with the fewest variable parts
    answers; one whose variable part may have slashes comes last.
    """

    def __init__(self, apps: Mapping[str, ASGIApp], other: ASGIApp):
        self._exact = {path: app for path, app in apps.items() if "{" not in path}
        ordered = sorted(apps.items(), key=lambda item: (":path}" in item[0], item[0].count("{")))
        self._templates = [(compile_path(path)[0], app) for path, app in ordered if path not in self._exact]
        self._other = other

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        app = self._find(scope) if scope["type"] == "http" else self._other
        await app(scope, receive, send)

    def _find(self, scope: Scope) -> ASGIApp:
        path = scope["path"].removeprefix(scope.get("root_path", ""))
        if (exact := self._exact.get(path)) is not None:
            return exact
        for pattern, app in self._templates:
            if (found := pattern.match(path)) is not None:
                scope["path_params"] = found.groupdict()
                return app
        return self._other


def all_protocols(
    service: Service, metrics: Metrics, protocols: Sequence[Protocol] = PROTOCOLS, reload: Reload | None = None
) -> list[Protocol]:
    """Return these protocols, and those for whoever operates the server or wants to know what it answers."""
    spoken = [_operation(service, metrics, reload), *protocols]
    return [*spoken, describing(spoken)]


def _operation(service: Service, metrics: Metrics, reload: Reload | None) -> Protocol:
    """Return the routes for whoever operates the server."""

    async def reload_model(call: Call) -> Reply:
        assert reload is not None
        # A client that goes away does not stop what it has begun.
        model = await asyncio.shield(asyncio.ensure_future(reload(call.path["model"])))
        return Reply(encode(Reloaded(model.name, model.loaded_at)))

    async def live(_: Call) -> Reply:
        return Reply(encode(Live(True)))

    async def ready(_: Call) -> Reply:
        models = await service.readiness()
        found = Ready(bool(models) and all(models.values()), models)
        return Reply(encode(found), 200 if found.ready else 503)

    async def show_metrics(_: Call) -> Reply:
        return Reply(await asyncio.to_thread(metrics.text), content_type=metrics.content_type)

    reloading = Route(
        "POST", "/models/{model}/reload", reload_model, "Load a model again.", reply=Reloaded, access="admin"
    )
    return Protocol(
        "operation",
        lambda _: [
            *([reloading] if reload else []),
            Route("GET", "/health/live", live, "Whether the process answers.", reply=Live, access="open"),
            Route("GET", "/health/ready", ready, "Whether models compute; 503 if not.", reply=Ready, access="open"),
            Route("GET", "/metrics", show_metrics, "What the server did and does, for Prometheus."),
        ],
        native.problem,
        failure=native.Failure,
    )
