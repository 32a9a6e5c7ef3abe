"""What clients of OpenAI speak: vectors of texts, and the list of models.  See developers.openai.com/api/reference.

A model is asked by the name under which it is served.  Routes for sound belong to the same protocol.
"""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any, Literal

import msgspec

from serving.http import Call, Problem, Reply, encode, encoded_rows
from serving.models import ServedModel
from serving.protocols.registry import Protocol, Route
from serving.protocols.shared import as_inputs, choose, shortened
from serving.service import Service

_PARAMETER = re.compile(r"at `\$\.(\w+)|field `(\w+)`|^(\w+): ")
# By the kind of a problem: the status, the type and the code that these clients know.
_FORMS = {
    "empty": (400, "invalid_request_error", None),
    "malformed": (400, "invalid_request_error", None),
    "invalid": (400, "invalid_request_error", None),
    "too_long": (400, "invalid_request_error", "context_length_exceeded"),
    "too_large": (413, "invalid_request_error", None),
    "not_found": (404, "invalid_request_error", "model_not_found"),
    "unsuitable": (404, "invalid_request_error", "model_not_found"),
    "unauthorized": (401, "authentication_error", "invalid_api_key"),
    "forbidden": (403, "permission_error", None),
    "overloaded": (429, "rate_limit_error", "rate_limit_exceeded"),
    "model_failed": (500, "server_error", "model_failed"),
    "internal": (500, "server_error", None),
}


class EmbeddingsRequest(msgspec.Struct):
    """Texts, or the token ids of texts by the model's own tokenizer, that become vectors.

    Clients of OpenAI that count tokens use another tokenizer: give such clients texts.  `dimensions` keeps so many
    numbers at the beginning of each vector, and scales the rest to length 1 if the whole has it.  That serves only
    models that were trained for it.  A text that is too long is an error, unless `truncate` asks to cut its end, which
    is no part of OpenAI's API.
    """

    input: str | list[str | int | list[int]]
    model: str
    encoding_format: Literal["float", "base64"] = "float"
    dimensions: int | None = None
    user: str | None = None
    truncate: bool = False


class Embedding(msgspec.Struct, tag_field="object", tag="embedding"):
    """A vector: numbers, or the base64 of float32 in little-endian order."""

    index: int
    embedding: list[float] | str


class Usage(msgspec.Struct):
    """The tokens of all texts, special ones included."""

    prompt_tokens: int
    total_tokens: int


class Embeddings(msgspec.Struct, tag_field="object", tag="list"):
    """The vectors of the texts, in order."""

    data: list[Embedding]
    model: str
    usage: Usage


class Model(msgspec.Struct, tag_field="object", tag="model"):
    """A served model; `created` is when it was loaded, in seconds since 1970."""

    id: str
    created: int
    owned_by: str = "ernie"


class Models(msgspec.Struct, tag_field="object", tag="list"):
    """The served models."""

    data: list[Model]


class Fault(msgspec.Struct):
    """Why a request is not answered, and which of its fields is to blame."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class Failure(msgspec.Struct):
    """Why a request is not answered."""

    error: Fault


def problem(found: Problem) -> Reply:
    """Return a problem in OpenAI's form."""
    other = "server_error" if found.status >= 500 else "invalid_request_error"
    status, kind, code = _FORMS.get(found.kind, (found.status, other, None))
    named = _PARAMETER.search(found.sentence.removeprefix("the request: ")) if status in (400, 413) else None
    parameter = next(filter(None, named.groups()), None) if named else "model" if code == "model_not_found" else None
    never = ((b"x-should-retry", b"false"),) if status == 500 else ()
    return Reply(encode(Failure(Fault(found.sentence, kind, parameter, code))), status, headers=never)


def routes(service: Service) -> list[Route]:
    """Return the routes of the protocol."""

    async def embed(call: Call) -> Reply:
        request = call.read(EmbeddingsRequest)
        model = choose(service, request.model, "encode")
        inputs = as_inputs(request.input, "input")
        asked = replace(call.asked(), whole=not request.truncate, complete=True)
        answers = await service.ask(model, "encode", inputs, asked=asked)
        vectors = [shortened(vector, request.dimensions) for vector in answers.values()]
        numbers: list[Any]
        if request.encoding_format == "base64":
            numbers = [base64.b64encode(vector.astype("<f4").tobytes()).decode() for vector in vectors]
        else:
            numbers = await encoded_rows(vectors)
        data = [Embedding(index, row) for index, row in enumerate(numbers)]
        return Reply(encode(Embeddings(data, model.name, Usage(answers.tokens, answers.tokens))))

    async def list_models(call: Call) -> Reply:
        return Reply(encode(Models([_model(model) for model in service.models.values()])))

    async def show_model(call: Call) -> Reply:
        return Reply(encode(_model(service.model(call.path["model"]))))

    return [
        Route("POST", "/v1/embeddings", embed, "The vectors of texts.", EmbeddingsRequest, Embeddings),
        Route("GET", "/v1/models", list_models, "The served models.", reply=Models),
        Route("GET", "/v1/models/{model}", show_model, "One of the served models.", reply=Model),
    ]


def _model(model: ServedModel) -> Model:
    return Model(model.name, int(model.loaded_at))


PROTOCOL = Protocol("OpenAI", routes, problem, "/v1", Failure)
