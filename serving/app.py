"""The server as an ASGI application: all protocols on one service, its health, and its metrics."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

from starlette.applications import Starlette
from starlette.routing import Route as StarletteRoute

from serving.access import Access
from serving.gate import Gate
from serving.http import Call, Endpoint, Reply, encode
from serving.metrics import Metrics
from serving.protocols import native
from serving.protocols.registry import Protocol, Route
from serving.service import Service

PROTOCOLS: tuple[Protocol, ...] = (native.PROTOCOL,)


def make_app(
    service: Service,
    body_limit: int = 10_000_000,
    protocols: Sequence[Protocol] = PROTOCOLS,
    access: Access | None = None,
) -> Starlette:
    """Return the application; its start and its end are those of the service's threads."""
    metrics, known = Metrics(service), access or Access()

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        service.start(asyncio.get_running_loop())
        try:
            yield
        finally:
            await asyncio.to_thread(service.stop)

    def answering(route: Route, protocol: Protocol) -> StarletteRoute:
        endpoint = Endpoint(route.handler, protocol.problem, body_limit)
        gate = Gate(endpoint, route.path, route.access, known, service.lifecycle, metrics)
        return StarletteRoute(route.path, gate, methods=[route.method])

    routes = [
        answering(route, protocol)
        for protocol in (_operation(service, metrics), *protocols)
        for route in protocol.routes(service)
    ]
    return Starlette(routes=routes, lifespan=lifespan)


def _operation(service: Service, metrics: Metrics) -> Protocol:
    """Return the routes for whoever operates the server."""

    async def live(_: Call) -> Reply:
        return Reply(encode({"live": True}))

    async def ready(_: Call) -> Reply:
        is_ready = await service.is_ready()
        return Reply(encode({"ready": is_ready}), 200 if is_ready else 503)

    async def show_metrics(_: Call) -> Reply:
        return Reply(metrics.text(), content_type=metrics.content_type)

    return Protocol(
        "operation",
        lambda _: [
            Route("GET", "/health/live", live, access="open"),
            Route("GET", "/health/ready", ready, access="open"),
            Route("GET", "/metrics", show_metrics),
        ],
        native.problem,
    )
