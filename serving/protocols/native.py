"""The library's own protocol for single requests: any operation of any model.

POST /models/MODEL/OPERATION {"inputs": [...], "settings": {...}, "timeout": seconds, "bulk": false}
answers {"results": [{"value": ..., "notes": [...]} or {"error": {...}}, ...]}, one for each input, in order.  With
"truncate": false, an input that is too long is an error instead of being cut.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np

from ernie.outcome import Outcome
from serving.http import Call, Problem, Reply, as_problem, encode, encoded_rows
from serving.models import ServedModel
from serving.protocols.registry import Protocol, Route
from serving.protocols.shared import Medium, check_settings
from serving.run_files import LatencyCurve
from serving.service import Service
from serving.sessions import ServedStream


class AskRequest(msgspec.Struct, forbid_unknown_fields=True):
    """Inputs for one operation; `timeout` is in seconds, and `bulk` requests wait for others."""

    inputs: list[Any]
    settings: dict[str, Any] = {}
    timeout: float | None = None
    bulk: bool | None = None
    truncate: bool = True


class Fault(msgspec.Struct):
    """What is wrong: a word for programs, and a sentence for people."""

    kind: str
    message: str


class Result(msgspec.Struct, omit_defaults=True):
    """What became of an input: its value with notes on what is unusual about it, or an error."""

    value: Any = msgspec.UNSET
    notes: list[str] = []
    error: Fault | msgspec.UnsetType = msgspec.UNSET


class Results(msgspec.Struct):
    """One result for each input, in order, and the number of tokens that were computed."""

    results: list[Result]
    tokens: int


class OperationInfo(msgspec.Struct):
    """What a request for an operation may set."""

    settings: list[str]


class StreamInfo(msgspec.Struct):
    """What the stream of a model takes and gives, and the settings that a session may change."""

    takes: Medium
    gives: Medium
    settings: dict[str, Any]


class ModelInfo(msgspec.Struct):
    """A served model: what it is asked for, and what it is.

    `columns` are those that rows for `predict` may have, by their role in the task.
    """

    name: str
    face: str
    precision: str
    operations: dict[str, OperationInfo]
    stream: StreamInfo | None
    loaded_at: float
    kind: str | None
    labels: list[str] | None
    columns: dict[str, list[str]] | None
    layers: int | None
    width: int | None
    weights: int | None
    examples: int
    latency: LatencyCurve | None


class ChainInfo(msgspec.Struct):
    """A chain of models, each of which takes what the one before gives."""

    name: str
    models: list[str]
    takes: Medium
    gives: Medium
    settings: dict[str, Any]


class Models(msgspec.Struct):
    """The served models, chains of them, and what the server says about them."""

    models: list[ModelInfo]
    chains: list[ChainInfo]
    notice: str = ""


class Failure(msgspec.Struct):
    """Why a request is not answered."""

    error: Fault


def problem(found: Problem) -> Reply:
    """Return a problem as JSON."""
    return Reply(encode(Failure(Fault(found.kind, found.sentence))), found.status)


def routes(service: Service) -> list[Route]:
    """Return the routes of the protocol."""

    async def list_models(call: Call) -> Reply:
        models = [_info(model) for model in service.models.values()]
        chains = [_chain(name, service.streams(name)) for name in service.chains]
        return Reply(encode(Models(models, chains, service.notice)))

    async def ask(call: Call) -> Reply:
        model = service.model(call.path["model"])
        operation, _ = service.operation(model, call.path["operation"])
        request = call.read(AskRequest)
        check_settings(request.settings, operation, "settings")
        asked = call.asked(request.timeout, request.bulk)
        if not request.truncate:
            asked = replace(asked, whole=True)
        answers = await service.ask(model, call.path["operation"], request.inputs, request.settings, asked)
        results = [_result(outcome) for outcome in answers.outcomes]
        arrays = [result for result in results if isinstance(result.value, np.ndarray)]
        for result, row in zip(arrays, await encoded_rows([result.value for result in arrays]), strict=True):
            result.value = row
        return Reply(encode(Results(results, answers.tokens)))

    return [
        Route("GET", "/models", list_models, "The served models, and what each is asked for.", reply=Models),
        Route("POST", "/models/{model}/{operation}", ask, "Ask a model for an operation.", AskRequest, Results),
    ]


def _info(model: ServedModel) -> ModelInfo:
    operations = {name: OperationInfo(sorted(operation.settings)) for name, operation in model.operations.items()}
    facts, stream = model.face.facts, None
    if model.stream is not None:
        stream = StreamInfo(Medium.of(model.stream.takes), Medium.of(model.stream.gives), dict(model.stream.settings))
    return ModelInfo(
        model.name,
        model.face.name,
        model.precision,
        operations,
        stream,
        model.loaded_at,
        facts.kind,
        facts.labels,
        facts.columns,
        facts.layers,
        facts.width,
        facts.weights,
        len(model.examples),
        model.curve,
    )


def _chain(name: str, streams: Sequence[ServedStream]) -> ChainInfo:
    settings = {key: value for stream in streams for key, value in stream.settings.items()}
    takes, gives = Medium.of(streams[0].takes), Medium.of(streams[-1].gives)
    return ChainInfo(name, [stream.name for stream in streams], takes, gives, settings)


def _result(outcome: Outcome[Any]) -> Result:
    if outcome.error is not None:
        found = as_problem(outcome.error)
        return Result(error=Fault(found.kind, found.sentence))
    return Result(_plain(outcome.value), [str(note) for note in outcome.notes])


def _plain(value: Any) -> Any:
    """Return a value in which what has named parts is an object of JSON."""
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return value._asdict()
    return [_plain(item) for item in value] if isinstance(value, list) else value


PROTOCOL = Protocol("native", routes, problem, failure=Failure)
