"""The server as an ASGI application: all protocols on one service, its health, and its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

import msgspec
from starlette.applications import Starlette
from starlette.routing import Route as StarletteRoute

from serving.access import Access
from serving.gate import Gate
from serving.heartbeat import Heartbeat
from serving.http import Call, Endpoint, Problem, Reply, encode
from serving.metrics import Metrics
from serving.protocols import native, openai, tei
from serving.protocols.registry import Protocol, Route
from serving.service import Service

PROTOCOLS: tuple[Protocol, ...] = (native.PROTOCOL, openai.PROTOCOL, tei.PROTOCOL)


class Live(msgspec.Struct):
    """Whether the process answers."""

    live: bool


class Ready(msgspec.Struct):
    """Whether every model computes, and which of them do."""

    ready: bool
    models: dict[str, bool]


def make_app(
    service: Service,
    body_limit: int = 10_000_000,
    protocols: Sequence[Protocol] = PROTOCOLS,
    access: Access | None = None,
) -> Starlette:
    """Return the application; its start and its end are those of the service's threads."""
    heartbeat, known = Heartbeat(), access or Access()
    metrics = Metrics(service, heartbeat)

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        loop = asyncio.get_running_loop()
        service.start(loop)
        heartbeat.start(loop)
        try:
            yield
        finally:
            heartbeat.stop()
            await asyncio.to_thread(service.stop)

    def answering(path: str, by_method: Sequence[Route], problem: Callable[[Problem], Reply]) -> StarletteRoute:
        (kind,) = {route.access for route in by_method} or {"key"}
        metrics.add_route(path)
        endpoint = Endpoint({route.method: route.handler for route in by_method}, problem, body_limit)
        return StarletteRoute(path, Gate(endpoint, path, kind, known, service.lifecycle, metrics))

    spoken = (_operation(service, metrics), *protocols)
    by_path: dict[str, list[Route]] = {}
    problems: dict[str, Callable[[Problem], Reply]] = {}
    for protocol in spoken:
        for route in protocol.routes(service):
            by_path.setdefault(route.path, []).append(route)
            problems.setdefault(route.path, protocol.problem)
    for protocol in sorted(spoken, key=lambda protocol: -len(protocol.prefix)):  # paths that lead nowhere
        by_path.setdefault(path := protocol.prefix + "/{path:path}", [])
        problems.setdefault(path, protocol.problem)
    return Starlette(
        routes=[answering(path, by_method, problems[path]) for path, by_method in by_path.items()],
        lifespan=lifespan,
    )


def _operation(service: Service, metrics: Metrics) -> Protocol:
    """Return the routes for whoever operates the server."""

    async def live(_: Call) -> Reply:
        return Reply(encode(Live(True)))

    async def ready(_: Call) -> Reply:
        models = await service.readiness()
        found = Ready(bool(models) and all(models.values()), models)
        return Reply(encode(found), 200 if found.ready else 503)

    async def show_metrics(_: Call) -> Reply:
        return Reply(await asyncio.to_thread(metrics.text), content_type=metrics.content_type)

    return Protocol(
        "operation",
        lambda _: [
            Route("GET", "/health/live", live, "Whether the process answers.", reply=Live, access="open"),
            Route("GET", "/health/ready", ready, "Whether models compute; 503 if not.", reply=Ready, access="open"),
            Route("GET", "/metrics", show_metrics, "What the server did and does, for Prometheus."),
        ],
        native.problem,
    )
