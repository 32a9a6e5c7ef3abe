"""What clients of OpenAI speak: vectors of texts, search in an index, and the list of models.

A model is asked by the name under which it is served.  Routes for sound belong to the same protocol.  See
developers.openai.com/api/reference.
"""

from __future__ import annotations

import base64
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Literal

import msgspec

from ernie.errors import UserError
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


class RankingOptions(msgspec.Struct):
    """`score_threshold` leaves out passages with a smaller score."""

    ranker: str | None = None
    score_threshold: float | None = None


class SearchRequest(msgspec.Struct):
    """A query to an index.  `by` is `hybrid`, `dense` or `bm25`, which is no part of OpenAI's API."""

    query: str | list[str]
    max_num_results: int = 10
    filters: Any = None
    ranking_options: RankingOptions = msgspec.field(default_factory=RankingOptions)
    rewrite_query: bool = False
    by: Literal["hybrid", "dense", "bm25"] | None = None


class Content(msgspec.Struct):
    """The text of a passage."""

    text: str
    type: Literal["text"] = "text"


class Found(msgspec.Struct):
    """A passage of a document with the id `file_id`; it begins in the line `line` of the file."""

    file_id: str
    filename: str
    score: float
    content: list[Content]
    attributes: dict[str, str | float | bool]


class SearchResults(msgspec.Struct, tag_field="object", tag="vector_store.search_results.page"):
    """The passages that answer a query, the best first."""

    search_query: list[str]
    data: list[Found]
    has_more: bool = False
    next_page: None = None


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

    async def search(call: Call) -> Reply:
        request = call.read(SearchRequest)
        model = choose(service, call.path["model"], "search")
        queries = [request.query] if isinstance(request.query, str) else request.query
        if len(queries) != 1:
            raise UserError(f"query: expected one query, found {len(queries)}")
        if request.filters is not None or request.rewrite_query:
            raise UserError("filters and rewrite_query are not offered here; leave them out")
        settings: dict[str, Any] = {"top": request.max_num_results, "by": request.by}
        answers = await service.ask(model, "search", queries, settings, replace(call.asked(), complete=True))
        (hits,) = answers.values()
        least = request.ranking_options.score_threshold
        found = [_found(hit) for hit in hits if least is None or hit["score"] >= least]
        return Reply(encode(SearchResults(queries, found)))

    async def list_models(call: Call) -> Reply:
        return Reply(encode(Models([_model(model) for model in service.models.values()])))

    async def show_model(call: Call) -> Reply:
        return Reply(encode(_model(service.model(call.path["model"]))))

    return [
        Route("POST", "/v1/embeddings", embed, "The vectors of texts.", EmbeddingsRequest, Embeddings),
        Route(
            "POST", "/v1/vector_stores/{model}/search", search, "Passages of an index.", SearchRequest, SearchResults
        ),
        Route("GET", "/v1/models", list_models, "The served models.", reply=Models),
        Route("GET", "/v1/models/{model}", show_model, "One of the served models.", reply=Model),
    ]


def _found(hit: Mapping[str, Any]) -> Found:
    kept = {name: cell for name, cell in hit.get("cells", {}).items() if isinstance(cell, str | int | float)}
    title = {"title": hit["title"]} if "title" in hit else {}
    attributes = {**kept, "line": hit["line"], **hit["scores"], **title}
    return Found(hit["id"], hit["file"], hit["score"], [Content(hit["text"])], attributes)


def _model(model: ServedModel) -> Model:
    return Model(model.name, int(model.loaded_at))


PROTOCOL = Protocol("OpenAI", routes, problem, "/v1", Failure)
