"""What clients of text-embeddings-inference speak: vectors, labels, ranks, tokens; and /v1/rerank of Cohere and Jina.

That server has one model.  Here /embed, /predict and the others mean the only model that suits, and /tei/MODEL/embed
that of a name.  The base URL http://HOST/tei/MODEL is therefore such a server for clients.
See huggingface.github.io/text-embeddings-inference.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from itertools import groupby
from typing import Any, Literal

import msgspec
import numpy as np

import ernie
from ernie.errors import UserError
from ernie.model.sentence import SentenceConfig
from ernie.text.frame import frame
from ernie.text.tokenizer import Tokenizer
from serving.http import Call, Problem, Reply, encode, encoded_rows
from serving.models import ServedModel
from serving.protocols import openai
from serving.protocols.registry import Protocol, Route
from serving.protocols.shared import as_inputs, choose, shortened
from serving.service import Answers, Service, TooLong, TooManyInputs, Unsuitable
from tasks.downstream.base import FinetuneTask, LogitsTask
from tasks.downstream.rank import Rank
from tasks.downstream.regress import Regress

_MOST_TOKENS = 10_000  # of a text that is only tokenized, or made of tokens
# By the kind of a problem: the type of error that these clients know.  The others are errors of validation.
_TYPES = {
    "overloaded": "Overloaded",
    "expired": "Overloaded",
    "model_failed": "Backend",
    "internal": "Backend",
    "leaving": "Unhealthy",
    "unhealthy": "Unhealthy",
    "empty": "Empty",
    "unsuitable": "Backend",
}
Direction = Literal["Right", "right", "Left", "left"]


class EmbedAllRequest(msgspec.Struct):
    """Texts, or the token ids of texts, whose tokens become vectors.

    A text that is too long is cut at its end, or an error if `truncate` is false.
    """

    inputs: str | list[str | int | list[int]]
    truncate: bool | None = None
    truncation_direction: Direction = "Right"
    prompt_name: str | None = None


class EmbedRequest(EmbedAllRequest):
    """Texts, or the token ids of texts, that become vectors, of length 1 unless `normalize` is false.

    A text that is too long is cut at its end, or an error if `truncate` is false.
    """

    normalize: bool = True
    dimensions: int | None = None


class Parameters(msgspec.Struct):
    """Further wishes, in the place where clients for the hosted service put them."""

    truncate: bool | None = None
    truncation_direction: Direction = "Right"
    prompt_name: str | None = None
    top_k: int | None = None
    function_to_apply: str | None = None


class PredictRequest(msgspec.Struct):
    """A text, a pair of texts, or a list of lists with one text or two each.

    Raw scores are logits; a number that a model answers with is one.  `function_to_apply` is `none` for the same.
    """

    inputs: str | list[str | list[str]]
    truncate: bool | None = None
    truncation_direction: Direction = "Right"
    raw_scores: bool = False
    parameters: Parameters | None = None


class Prediction(msgspec.Struct):
    """A label and how probable it is; of a model that answers with a number, the number and what it is."""

    label: str
    score: float


class RerankRequest(msgspec.Struct):
    """Texts that are ranked by how well each answers the query; raw scores are logits."""

    query: str
    texts: list[str]
    truncate: bool | None = None
    truncation_direction: Direction = "Right"
    raw_scores: bool = False
    return_text: bool = False


class Ranked(msgspec.Struct):
    """How well a text answers the query."""

    index: int
    score: float
    text: str | msgspec.UnsetType = msgspec.UNSET


class Document(msgspec.Struct):
    """A text in an object."""

    text: str


class DocumentsRequest(msgspec.Struct):
    """Documents that are ranked by how well each answers the query, in the form of Cohere and Jina."""

    query: str
    documents: list[str | Document]
    model: str | None = None
    top_n: int | None = None
    return_documents: bool = False


class Relevance(msgspec.Struct):
    """How well a document answers the query."""

    index: int
    relevance_score: float
    document: Document | msgspec.UnsetType = msgspec.UNSET


class Relevances(msgspec.Struct):
    """The best documents, the best one first."""

    id: str
    model: str
    results: list[Relevance]
    usage: openai.Usage


class Sentences(msgspec.Struct):
    """A sentence, and those that it is compared with."""

    source_sentence: str
    sentences: list[str]


class SimilarityRequest(msgspec.Struct):
    """Sentences that are compared by the cosine of their vectors."""

    inputs: Sentences
    parameters: Parameters | None = None


class TokenizeRequest(msgspec.Struct):
    """Texts that are split into tokens.  `model` names one whose tokenizer it is."""

    inputs: str | list[str]
    add_special_tokens: bool = True
    prompt_name: str | None = None
    model: str | None = None


class Token(msgspec.Struct):
    """A token and the characters of the text that it covers; a special one covers none."""

    id: int
    text: str
    special: bool
    start: int | None
    stop: int | None


class DecodeRequest(msgspec.Struct):
    """Token ids of a text, or of several texts, that become text."""

    ids: list[int | list[int]]
    skip_special_tokens: bool = True
    model: str | None = None


class Info(msgspec.Struct):
    """A model and its limits.  `auto_truncate` says that texts are cut unless a request forbids it."""

    model_id: str
    model_dtype: str
    model_type: dict[str, dict[str, Any]]
    max_input_length: int
    max_batch_tokens: int
    max_client_batch_size: int
    version: str
    model_sha: None = None
    auto_truncate: bool = True
    max_batch_requests: None = None
    sha: None = None
    docker_label: None = None


Truncating = EmbedAllRequest | Parameters | RerankRequest  # which say how texts are cut


class Failure(msgspec.Struct):
    """Why a request is not answered."""

    error: str
    error_type: Literal["Unhealthy", "Backend", "Overloaded", "Validation", "Tokenizer", "Empty"]


def problem(found: Problem) -> Reply:
    """Return a problem in the form of text-embeddings-inference."""
    kind: Any = _TYPES.get(found.kind, "Tokenizer" if found.status == 422 else "Validation")
    return Reply(encode(Failure(found.sentence, kind)), 424 if found.kind == "unsuitable" else found.status)


def routes(service: Service) -> list[Route]:
    """Return the routes of the protocol."""

    async def embed(call: Call) -> Reply:
        request = call.read(EmbedRequest)
        model = choose(service, call.path.get("model"), "encode", what="embed")
        settings = {"normalize": request.normalize, "prompt_name": request.prompt_name}
        inputs = as_inputs(request.inputs, "inputs")
        answers = await ask(call, model, "encode", inputs, settings, request)
        vectors = [shortened(vector, request.dimensions) for vector in answers.values()]
        return _reply(await encoded_rows(vectors), answers)

    async def embed_all(call: Call) -> Reply:
        request = call.read(EmbedAllRequest)
        model = choose(service, call.path.get("model"), "encode_tokens", what="embed tokens")
        inputs = as_inputs(request.inputs, "inputs")
        answers = await ask(call, model, "encode_tokens", inputs, {"prompt_name": request.prompt_name}, request)
        return _reply(await encoded_rows(answers.values()), answers)

    async def embed_sparse(call: Call) -> Reply:
        call.read(EmbedAllRequest)
        choose(service, call.path.get("model"), "encode", what="embed")
        raise Unsuitable("the models here give dense vectors: ask /embed")

    async def predict(call: Call) -> Reply:
        request = call.read(PredictRequest)
        model = choose(service, call.path.get("model"), "predict", _labels, "predict labels")
        wishes = request.parameters or Parameters()
        if wishes.function_to_apply not in (None, "none"):
            sentence = "function_to_apply: expected none, for logits; without it there are probabilities"
            raise Problem(422, "invalid", sentence)
        if request.truncate is not None:  # which counts more than that of the parameters
            wishes.truncate = request.truncate
        if request.truncation_direction.lower() != "right":
            wishes.truncation_direction = request.truncation_direction
        task = _task(model)
        rows = [_row(task, texts) for texts in _sequences(request.inputs)]
        is_raw = request.raw_scores or wishes.function_to_apply == "none"
        answers = await ask(call, model, "predict", rows, _scores_of(model, is_raw), wishes)
        found = [_predictions(answer)[: wishes.top_k] for answer in answers.values()]
        is_single = isinstance(request.inputs, str) or isinstance(request.inputs[0], str)
        return _reply(found[0] if is_single else found, answers)

    async def scores(
        call: Call, name: str | None, query: str, texts: Sequence[str], wishes: Truncating, raw: bool = False
    ) -> tuple[ServedModel, Answers, list[float]]:
        model = choose(service, name, "predict", _ranks, "rank texts")
        if not texts:
            raise Problem(400, "empty", "expected at least one text, found none")
        rows = [_row(_task(model), (query, text)) for text in texts]
        answers = await ask(call, model, "predict", rows, {"raw_scores": True} if raw else {}, wishes)
        return model, answers, [answer["raw_score" if raw else "score"] for answer in answers.values()]

    async def rerank(call: Call) -> Reply:
        request = call.read(RerankRequest)
        name, raw = call.path.get("model"), request.raw_scores
        _, answers, found = await scores(call, name, request.query, request.texts, request, raw)
        shown = request.texts if request.return_text else [msgspec.UNSET] * len(found)
        return _reply([Ranked(row, found[row], shown[row]) for row in _best(found)], answers)

    async def rerank_documents(call: Call) -> Reply:
        request = call.read(DocumentsRequest)
        if request.top_n is not None and request.top_n < 0:
            raise UserError(f"top_n: expected at least 0, found {request.top_n}")
        texts = [document if isinstance(document, str) else document.text for document in request.documents]
        model, answers, found = await scores(call, request.model, request.query, texts, Parameters())
        best = _best(found)[: request.top_n]
        results = [
            Relevance(row, found[row], Document(texts[row]) if request.return_documents else msgspec.UNSET)
            for row in best
        ]
        usage = openai.Usage(answers.tokens, answers.tokens)
        return Reply(encode(Relevances(call.id, model.name, results, usage)))

    async def similarity(call: Call) -> Reply:
        request = call.read(SimilarityRequest)
        model = choose(service, call.path.get("model"), "encode", what="embed")
        wishes = request.parameters or Parameters()
        if not request.inputs.sentences:
            raise Problem(400, "empty", "sentences: expected at least one, found none")
        settings: dict[str, Any] = {"normalize": True, "prompt_name": wishes.prompt_name}
        texts = [request.inputs.source_sentence, *request.inputs.sentences]
        answers = await ask(call, model, "encode", texts, settings, wishes)
        source, *others = answers.values()
        return _reply([float(np.dot(source, other)) for other in others], answers)

    async def ask(
        call: Call,
        model: ServedModel,
        operation: str,
        inputs: Sequence[Any],
        settings: dict[str, Any],
        wishes: Truncating,
    ) -> Answers:
        if wishes.truncation_direction.lower() != "right":
            raise Problem(422, "invalid", "truncation_direction: texts are cut at their ends here")
        asked = replace(call.asked(), whole=wishes.truncate is False, complete=True)
        return await service.ask(model, operation, inputs, settings, asked)

    def tokenizer(name: str | None) -> Tokenizer:
        found = {model.face.tokenizer.fingerprint: model for model in service.models.values()}
        if name or len(found) != 1:
            return service.model(name).face.tokenizer
        return next(iter(found.values())).face.tokenizer

    def counted(items: Sequence[Any]) -> None:
        if not items:
            raise Problem(400, "empty", "expected at least one text, found none")
        if len(items) > service.limits.inputs:
            raise TooManyInputs(f"expected at most {service.limits.inputs:,} inputs at once, found {len(items):,}")

    async def tokenize(call: Call) -> Reply:
        request = call.read(TokenizeRequest)
        texts = [request.inputs] if isinstance(request.inputs, str) else request.inputs
        counted(texts)
        if request.prompt_name is not None:
            raise Problem(422, "invalid", "prompt_name: put the prompt before the text instead")
        chosen = tokenizer(call.path.get("model") or request.model)
        return Reply(
            await service.aside(
                len(call.body), lambda: encode([_tokens(chosen, text, request.add_special_tokens) for text in texts])
            )
        )

    async def decode(call: Call) -> Reply:
        request = call.read(DecodeRequest)
        if not request.ids:
            raise Problem(400, "empty", "ids: expected at least one, found none")
        rows: list[Any] = request.ids if isinstance(request.ids[0], list) else [request.ids]
        counted(rows)
        chosen = tokenizer(call.path.get("model") or request.model)
        return Reply(
            await service.aside(
                len(call.body), lambda: encode([_text(chosen, row, request.skip_special_tokens) for row in rows])
            )
        )

    async def info(call: Call) -> Reply:
        model = service.model(call.path.get("model"))
        return Reply(encode(_info(service, model)))

    async def health(call: Call) -> Reply:
        if not await service.is_ready():
            raise Problem(503, "unhealthy", "a model does not compute, or the server is ending")
        return Reply(b"")

    async def default(call: Call) -> Reply:
        model = service.model(call.path.get("model"))
        handler = embed if "encode" in model.operations else rerank if _ranks(model) else predict
        return await handler(call)

    described: list[tuple[str, Callable[[Call], Awaitable[Reply]], str, Any, Any]] = [
        ("/embed", embed, "The vectors of texts.", EmbedRequest, list[list[float]]),
        ("/embed_all", embed_all, "The vectors of all tokens of texts.", EmbedAllRequest, list[list[list[float]]]),
        ("/embed_sparse", embed_sparse, "Sparse vectors, which are not offered.", EmbedAllRequest, None),
        ("/predict", predict, "The labels of texts.", PredictRequest, list[Prediction | list[Prediction]]),
        ("/rerank", rerank, "Texts in the order in which they answer a query.", RerankRequest, list[Ranked]),
        ("/similarity", similarity, "How alike sentences are to one.", SimilarityRequest, list[float]),
        ("/tokenize", tokenize, "The tokens of texts.", TokenizeRequest, list[list[Token]]),
        ("/decode", decode, "The texts of token ids.", DecodeRequest, list[str]),
    ]
    found = []
    for prefix, of in (("", "the only model that suits"), ("/tei/{model}", "this model")):
        for path, handler, what, message, reply in described:
            found.append(Route("POST", prefix + path, handler, f"{what[:-1]}, by {of}.", message, reply))
        found.append(Route("GET", f"{prefix}/info", info, f"The limits of {of}.", reply=Info))
        found.append(Route("GET", f"{prefix}/health", health, "Whether models compute; 503 if not.", access="open"))
        found.append(Route("POST", prefix or "/", default, f"What {of} is made for: /embed, /rerank or /predict.", Any))
    return [
        *found,
        Route("POST", "/v1/rerank", rerank_documents, "The best documents.", DocumentsRequest, Relevances),
        Route("POST", "/v2/rerank", rerank_documents, "The best documents.", DocumentsRequest, Relevances),
    ]


def _reply(value: Any, answers: Answers) -> Reply:
    return Reply(encode(value), headers=((b"x-compute-tokens", str(answers.tokens).encode()),))


def _task(model: ServedModel) -> FinetuneTask:
    task: FinetuneTask = model.face.model.task
    return task


def _ranks(model: ServedModel) -> bool:
    return isinstance(_task(model), Rank)


def _labels(model: ServedModel) -> bool:
    """Whether a model answers texts with labels, or with one number."""
    return "all_labels" in model.operations["predict"].settings or isinstance(_task(model), Rank | Regress)


def _scores_of(model: ServedModel, is_raw: bool) -> dict[str, Any]:
    """Return the setting for a score of every label; a model that answers with a number has none.

    Raises Unsuitable for a model whose labels have no raw scores.
    """
    known, wanted = model.operations["predict"].settings, "raw_scores" if is_raw else "all_labels"
    if "all_labels" in known and wanted not in known:
        raise Unsuitable(f"the model '{model.name}' gives probabilities only: leave raw_scores out")
    return {wanted: True} if wanted in known else {}


def _row(task: FinetuneTask, texts: Sequence[str]) -> dict[str, str]:
    """Return the row of a text or of a pair of texts.  Raises UserError if the model takes the other."""
    columns = task.texts if isinstance(task, LogitsTask) else ()
    if len(columns) != len(texts):
        takes = "a pair of texts" if len(columns) == 2 else "one text"
        raise UserError(f"inputs: the model takes {takes}, found {len(texts)}")
    return dict(zip(columns, texts, strict=True))


def _sequences(given: str | list[Any]) -> list[Sequence[str]]:
    """Return the texts, or pairs of texts, of a request.  Raises Problem for none, and UserError for others."""
    if isinstance(given, str):
        return [(given,)]
    if not given:
        raise Problem(400, "empty", "inputs: expected at least one text, found none")
    if all(isinstance(item, str) for item in given):
        given = [given]
    for item in given:
        if isinstance(item, str) or len(item) not in (1, 2):
            raise UserError("inputs: expected a text, a pair of texts, or a list of lists with one text or two each")
    return given


def _predictions(answer: dict[str, Any]) -> list[Prediction]:
    """Return the labels of an answer, the most probable first, or its number under its name."""
    if (by_label := answer.get("raw_scores") or answer.get("all_labels")) is not None:
        found = [Prediction(label, score) for label, score in by_label.items()]
        return sorted(found, key=lambda prediction: -prediction.score)
    name, value = next(iter(answer.items()))
    return [Prediction(name, answer.get("raw_score", value))]


def _best(scores: Sequence[float]) -> list[int]:
    """Return the rows in the order of their scores, the best first."""
    return sorted(range(len(scores)), key=lambda row: -scores[row])


def _tokens(tokenizer: Tokenizer, text: str, special: bool) -> list[Token]:
    """Return the tokens of a text.  Raises TooLong for too many."""
    encoding = tokenizer.encode(text, _MOST_TOKENS + 1)
    _check_length(len(encoding.ids))
    found = [
        Token(i, text[start:end], False, start, end)
        for i, (start, end) in zip(encoding.ids.tolist(), encoding.offsets.tolist(), strict=True)
    ]
    if not special:
        return found
    first, *_, last = frame(tokenizer, encoding.ids)[0].tolist()
    around = [Token(i, tokenizer.tokens[i], True, None, None) for i in (first, last)]
    return [around[0], *found, around[1]]


def _check_length(tokens: int) -> None:
    if tokens > _MOST_TOKENS:
        raise TooLong(f"expected at most {_MOST_TOKENS:,} tokens of a text, found more")


def _text(tokenizer: Tokenizer, ids: Any, skip_special: bool) -> str:
    """Return the text of token ids, special ones by their names or not at all."""
    if not isinstance(ids, list) or any(type(item) is not int for item in ids):
        raise UserError("ids: expected the token ids of one text, or lists of them")
    _check_length(len(ids))
    special = tokenizer.special_ids
    if skip_special:
        return tokenizer.decode([i for i in ids if i not in special])
    parts = list[str]()
    for is_special, run in groupby(ids, lambda i: i in special):
        own = [*run]
        parts += [tokenizer.tokens[i] for i in own] if is_special else [tokenizer.decode(own)]
    return " ".join(parts)


def _info(service: Service, model: ServedModel) -> Info:
    """Return what is known of a model, as an embedding model, a classifier, a reranker or another kind."""
    operation = next(iter(model.operations.values()), None)
    if "encode" in model.operations:
        config = model.face.model.ernie.sentence_config or SentenceConfig()
        kind: dict[str, dict[str, Any]] = {"embedding": {"pooling": "+".join(config.pooling)}}
    elif "predict" in model.operations:
        task = _task(model)
        labels = list(getattr(task, "labels", ())) or [next(iter(task.answer_fields))]
        by_label = {label: number for number, label in enumerate(labels)}
        named = "reranker" if _ranks(model) else "classifier" if _labels(model) else str(task.variant_name)
        kind = {named: {"id2label": {str(number): label for label, number in by_label.items()}, "label2id": by_label}}
    else:
        kind = {model.face.name: {}}
    return Info(
        model.name,
        model.precision,
        kind,
        operation.longest if operation else 0,
        max((work.limit for work in model.work.values()), default=0),
        service.limits.inputs,
        ernie.__version__,
    )


PROTOCOL = Protocol("text-embeddings-inference", routes, problem, "/tei", Failure)
