"""The library's own protocol for single requests: any operation of any model.

POST /models/MODEL/OPERATION {"inputs": [...], "settings": {...}, "timeout": seconds, "bulk": false}
answers {"results": [{"value": ..., "notes": [...]} or {"error": {...}}, ...]}, one for each input, in order.
"""

from __future__ import annotations

from typing import Any

import msgspec
import numpy as np

from ernie.outcome import Outcome
from serving.http import Call, Problem, Reply, as_problem, encode
from serving.protocols.registry import Protocol, Route
from serving.service import Service


class Request(msgspec.Struct, forbid_unknown_fields=True):
    """What the native protocol asks."""

    inputs: list[Any]
    settings: dict[str, Any] = {}
    timeout: float | None = None
    bulk: bool | None = None


def problem(found: Problem) -> bytes:
    """Return a problem as JSON."""
    return encode({"error": {"kind": found.kind, "message": found.sentence}})


def routes(service: Service) -> list[Route]:
    """Return the routes of the protocol."""

    async def list_models(call: Call) -> Reply:
        models = [
            {
                "name": model.name,
                "face": model.face.name,
                "precision": model.precision,
                "operations": {name: {"settings": sorted(op.settings)} for name, op in model.operations.items()},
            }
            for model in service.models.values()
        ]
        return Reply(encode({"models": models}))

    async def ask(call: Call) -> Reply:
        model = service.model(call.path["model"])
        operation, _ = service.operation(model, call.path["operation"])
        request = call.read(Request)
        if unknown := sorted(request.settings.keys() - operation.settings):
            known = ", ".join(sorted(operation.settings)) or "none"
            raise Problem(422, "invalid", f"settings: {unknown[0]} is unknown here; known: {known}")
        asked = call.asked(request.timeout, request.bulk)
        outcomes = await service.ask(model, call.path["operation"], request.inputs, request.settings, asked)
        return Reply(encode({"results": [result(outcome) for outcome in outcomes]}))

    return [
        Route("GET", "/models", list_models),
        Route("POST", "/models/{model}/{operation}", ask, Request),
    ]


def result(outcome: Outcome[Any]) -> dict[str, Any]:
    """Return an outcome as JSON data."""
    if outcome.error is not None:
        found = as_problem(outcome.error)
        return {"error": {"kind": found.kind, "message": found.sentence}}
    value = outcome.value.tolist() if isinstance(outcome.value, np.ndarray) else outcome.value
    return {"value": value} | ({"notes": [str(note) for note in outcome.notes]} if outcome.notes else {})


PROTOCOL = Protocol("native", routes, problem)
