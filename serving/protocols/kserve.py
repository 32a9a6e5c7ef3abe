"""The Open Inference Protocol, version 2 of KServe, with Triton's extensions for binary tensors and priorities.

An input tensor is a column: its elements along the first axis are those of the rows, texts as BYTES in UTF-8.  A second
axis gives each row a list.  An encoder takes `text` and perhaps `text_pair`; other models take the columns of their
task.  See github.com/kserve/open-inference-protocol.  Legend: N rows, D width.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any
from weakref import WeakKeyDictionary

import msgspec
import numpy as np

import ernie
from ernie.errors import UserError
from serving.http import Call, Problem, Reply, encode, encoded_rows
from serving.models import ServedModel
from serving.protocols.registry import Protocol, Route
from serving.protocols.shared import check_settings
from serving.service import Answers, Asked, Service, TooManyInputs, UnknownModel
from tasks.downstream.base import LogitsTask
from tasks.downstream.choose import Choose
from tasks.downstream.tag import Tag

_VERSION = "1"  # the only one of every model
_LARGEST = 1 << 53  # of priorities and microseconds
_MOST = 1 << 16  # elements of an input
_LENGTH = struct.Struct("<I")  # before each element of binary BYTES
_HEADER = b"inference-header-content-length"
_EXTENSIONS = ("binary_tensor_data", "schedule_policy", "model_repository")
_OWN = {"operation", "truncate", "priority", "timeout", "binary_data_output"}  # parameters that are no settings
_TYPES = ((bool, "BOOL", "?"), (int, "INT64", "<i8"), ((int, float), "FP64", "<f8"))
_STATUSES = {"malformed": 400, "invalid": 400, "empty": 400, "model_failed": 500}

Parameters = dict[str, str | int | float | bool]


class InputTensor(msgspec.Struct):
    """A column of BYTES.  Its elements are `data`, or stand behind the JSON if `binary_data_size` is a parameter."""

    name: str
    shape: list[int]
    datatype: str
    parameters: Parameters = {}
    data: Any = msgspec.UNSET


class RequestedOutput(msgspec.Struct):
    """An output that is wanted; with the parameter `binary_data`, behind the JSON."""

    name: str
    parameters: Parameters = {}


class InferRequest(msgspec.Struct):
    """Columns of rows, and the outputs that are wanted, by default all.

    Parameters are `operation`, by default the first of the model; `timeout` in microseconds; `priority`, from 2 on that
    of bulk requests; `truncate`, false to refuse inputs that are too long; `binary_data_output`; and the settings of
    the operation.
    """

    inputs: list[InputTensor]
    id: str = ""
    outputs: list[RequestedOutput] | None = None
    parameters: Parameters = {}


class OutputTensor(msgspec.Struct, omit_defaults=True):
    """An output of N rows, in row-major order."""

    name: str
    datatype: str
    shape: list[int]
    parameters: Parameters = {}
    data: Any = msgspec.UNSET


class InferReply(msgspec.Struct, omit_defaults=True):
    """The outputs for the rows, and the number of tokens that were computed, as a parameter."""

    model_name: str
    model_version: str
    outputs: list[OutputTensor]
    parameters: Parameters
    id: str = ""


class TensorInfo(msgspec.Struct):
    """A tensor that a model takes or returns; -1 is any number of rows, or of items of a list."""

    name: str
    datatype: str
    shape: list[int]


class ModelInfo(msgspec.Struct):
    """A served model, and the tensors of its first operation."""

    name: str
    versions: list[str]
    platform: str
    inputs: list[TensorInfo]
    outputs: list[TensorInfo]


class ServerInfo(msgspec.Struct):
    """This server."""

    name: str
    version: str
    extensions: list[str]


class ServerLive(msgspec.Struct):
    """Whether the server answers."""

    live: bool


class ServerReady(msgspec.Struct):
    """Whether all models compute."""

    ready: bool


class ModelReady(msgspec.Struct):
    """Whether a model computes."""

    name: str
    ready: bool


class IndexEntry(msgspec.Struct):
    """A model in the index of the repository."""

    name: str
    version: str
    state: str


class Failure(msgspec.Struct):
    """Why a request is not answered."""

    error: str


def problem(found: Problem) -> Reply:
    """Return a problem in the protocol's form."""
    return Reply(encode(Failure(found.sentence)), _STATUSES.get(found.kind, found.status))


def routes(service: Service) -> list[Route]:
    """Return the routes of the protocol."""
    outputs: WeakKeyDictionary[ServedModel, list[TensorInfo]] = WeakKeyDictionary()

    def model_of(call: Call) -> ServedModel:
        model = service.model(call.path["model"])
        if (version := call.path.get("version", _VERSION)) != _VERSION:
            raise UnknownModel(f"the model '{model.name}' has no version '{version:.40}', only {_VERSION}")
        return model

    async def server(call: Call) -> Reply:
        return Reply(encode(ServerInfo("ernie", ernie.__version__, list(_EXTENSIONS))))

    async def live(call: Call) -> Reply:
        return Reply(encode(ServerLive(True)))

    async def ready(call: Call) -> Reply:
        is_ready = await service.is_ready()
        return Reply(encode(ServerReady(is_ready)), 200 if is_ready else 503)

    async def model_ready(call: Call) -> Reply:
        model = model_of(call)
        is_ready = await service.is_ready(model.name)
        return Reply(encode(ModelReady(model.name, is_ready)), 200 if is_ready else 503)

    async def index(call: Call) -> Reply:
        return Reply(encode([IndexEntry(name, _VERSION, "READY") for name in service.models]))

    async def describe(call: Call) -> Reply:
        model = model_of(call)
        name = next(iter(model.operations), "")
        if name and model not in outputs:
            row = {column: ["a", "a"] if takes_list else "a" for column, takes_list in _columns(model, name).items()}
            answers = await service.ask(model, name, [_given(name, row)])
            found = _outputs(name, answers) if answers.outcomes[0].error is None else []
            outputs[model] = [TensorInfo(each.name, each.datatype, [-1, *each.shape[1:]]) for each in found]
        inputs = [
            TensorInfo(column, "BYTES", [-1, -1] if takes_list else [-1])
            for column, takes_list in _columns(model, name).items()
        ]
        return Reply(encode(ModelInfo(model.name, [_VERSION], "ernie", inputs, outputs.get(model, []))))

    async def infer(call: Call) -> Reply:
        model = model_of(call)
        header, behind = _parts(call)
        request = call.read(InferRequest, header)
        chosen = str(request.parameters.get("operation") or next(iter(model.operations), ""))
        operation, _ = service.operation(model, chosen)
        settings = {name: value for name, value in request.parameters.items() if name not in _OWN}
        check_settings(settings, operation, "parameters", f" for '{chosen}'")
        rows = _rows(request.inputs, behind, service.limits.inputs, [*_columns(model, chosen)])
        given = [_given(chosen, row) for row in rows]
        answers = await service.ask(model, chosen, given, settings, _asked(call, request.parameters))
        return await _reply(request, model, _outputs(chosen, answers), answers)

    one = "/v2/models/{model}"
    described = []
    for path in (one, f"{one}/versions/{{version}}"):
        described += [
            Route("GET", path, describe, "The tensors of a model.", reply=ModelInfo),
            Route("GET", f"{path}/ready", model_ready, "Whether a model computes.", reply=ModelReady, access="open"),
            Route("POST", f"{path}/infer", infer, "Ask a model.", InferRequest, InferReply),
        ]
    return [
        Route("GET", "/v2", server, "This server.", reply=ServerInfo),
        Route("GET", "/v2/health/live", live, "Whether the server answers.", reply=ServerLive, access="open"),
        Route("GET", "/v2/health/ready", ready, "Whether all models compute.", reply=ServerReady, access="open"),
        Route("POST", "/v2/repository/index", index, "The served models.", Any, list[IndexEntry]),
        *described,
    ]


def _columns(model: ServedModel, operation: str) -> Mapping[str, bool]:
    """Return the columns that an operation takes, and whether each row has a list in it."""
    if operation == "predict":
        task = model.face.model.task
        columns = task.texts if isinstance(task, LogitsTask) else ()
        lists = (task.tokens,) if isinstance(task, Tag) else task.choices if isinstance(task, Choose) else ()
        return {column: column in lists and len(lists) == 1 for column in columns}
    return {"text": False, **({"text_pair": False} if operation == "encode" else {})}


def _given(operation: str, row: Mapping[str, Any]) -> Any:
    """Return a row as its operation takes it."""
    if operation == "predict":
        return row
    pair = row.get("text_pair")
    return row["text"] if pair is None else [row["text"], pair]


def _parts(call: Call) -> tuple[bytes, bytes]:
    """Return the JSON of a request and what stands behind it.  Raises UserError for a length that is none."""
    if (stated := call.headers.get(_HEADER)) is None:
        return call.body, b""
    if not stated.isdigit() or len(stated) > 20 or int(stated) > len(call.body):
        found = stated.decode("latin-1")
        raise UserError(f"inference-header-content-length: expected from 0 to {len(call.body)}, found {found:.40}")
    length = int(stated)
    return call.body[:length], call.body[length:]


def _asked(call: Call, parameters: Parameters) -> Asked:
    """Return how a request is to be treated.  Raises UserError for parameters that say it otherwise."""
    timeout, priority = parameters.get("timeout"), parameters.get("priority", 0)
    for name, value in (("timeout", timeout), ("priority", priority)):
        if value is not None and (type(value) is not int or not 0 <= value < _LARGEST):
            raise UserError(f"{name}: expected a whole number from 0, found {value!r:.40}")
    seconds = timeout / 1_000_000 if isinstance(timeout, int) and timeout else None
    bulk = priority > 1 if isinstance(priority, int) and priority else None
    return replace(call.asked(seconds, bulk), whole=parameters.get("truncate") is False, complete=True)


def _rows(inputs: Sequence[InputTensor], behind: bytes, most: int, known: Sequence[str]) -> list[dict[str, Any]]:
    """Return the rows of all inputs.  Raises UserError for tensors that do not fit one another or their data."""
    columns: dict[str, list[Any]] = {}
    for tensor in inputs:
        if tensor.name in columns or (known and tensor.name not in known):
            what = "comes twice" if tensor.name in columns else f"is unknown; known: {', '.join(known)}"
            raise UserError(f"inputs: '{tensor.name:.60}' {what}")
        cells, behind = _cells(tensor, behind, most)
        columns[tensor.name] = cells
    counts = {len(cells) for cells in columns.values()}
    if len(counts) != 1:
        found = f"found {' and '.join(map(str, sorted(counts)))} of them" if counts else "found none"
        raise UserError(f"inputs: expected tensors of as many rows each, {found}")
    if behind:
        raise UserError(f"the body: {len(behind):,} bytes are left behind the last input")
    if known and (missing := [name for name in known if name not in columns and name != "text_pair"]):
        raise UserError(f"inputs: '{missing[0]}' is missing; expected {', '.join(known)}")
    return [dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True)]


def _cells(tensor: InputTensor, behind: bytes, most: int) -> tuple[list[Any], bytes]:
    """Return the cells of a column, and the bytes that stand behind those of its elements."""
    name, shape = f"inputs: '{tensor.name:.60}'", tensor.shape
    if tensor.datatype != "BYTES":
        raise UserError(f"{name}: expected the datatype BYTES, found {tensor.datatype:.20}")
    if not 1 <= len(shape) <= 2 or min(shape) < 1:
        raise UserError(f"{name}: expected a shape of one or two axes, at least 1 long, found {shape!r:.60}")
    if shape[0] > most:
        raise TooManyInputs(f"expected at most {most:,} inputs at once, found {shape[0]:,}")
    count = math.prod(shape)
    if count > _MOST:
        raise TooManyInputs(f"{name}: expected at most {_MOST:,} elements")
    if (size := tensor.parameters.get("binary_data_size")) is not None:
        if type(size) is not int or not 0 <= size <= len(behind):
            found = f"found {size!r:.40}, and {len(behind):,} bytes"
            raise UserError(f"{name}: binary_data_size: expected the number of its bytes, {found}")
        elements, behind = _binary_elements(behind[:size], count, name), behind[size:]
    else:
        elements = _json_elements(tensor.data, len(shape), name)
    if len(elements) != count:
        raise UserError(f"{name}: expected {count} elements by its shape, found {len(elements)}")
    width = shape[1] if len(shape) == 2 else 1
    return elements if width == 1 else [elements[i : i + width] for i in range(0, count, width)], behind


def _json_elements(data: Any, axes: int, name: str) -> list[str]:
    """Return the elements of data that are flat, or as nested as the shape.  Raises UserError for others."""
    if axes == 2 and isinstance(data, list) and all(isinstance(row, list) for row in data):
        data = [item for row in data for item in row]
    if not isinstance(data, list) or any(type(item) is not str for item in data):
        raise UserError(f"{name}: data: expected a list of texts")
    return data


def _binary_elements(data: bytes, count: int, name: str) -> list[str]:
    """Return so many elements, each with its length before it.  Raises UserError for data of another form."""
    elements, start = list[str](), 0
    for number in range(count):
        end = start + _LENGTH.size
        length = _LENGTH.unpack_from(data, start)[0] if end <= len(data) else len(data)
        start = end + length
        if start > len(data):
            raise UserError(f"{name}: its data ends in the element {number}, of {count}")
        try:
            elements.append(data[end:start].decode())
        except UnicodeDecodeError:
            raise UserError(f"{name}: the element {number} is no text in UTF-8") from None
    if start < len(data):
        raise UserError(f"{name}: expected {count} elements by its shape, found more bytes behind them")
    return elements


class _Output(msgspec.Struct):
    """An output before it is written: numbers in an array, or texts."""

    name: str
    datatype: str
    values: Any

    @property
    def shape(self) -> list[int]:
        return list(np.shape(self.values)) if self.datatype != "BYTES" else [len(self.values)]

    def binary(self) -> bytes:
        """Return the values as bytes."""
        if self.datatype != "BYTES":
            found: bytes = self.values.tobytes()
            return found
        texts = [text.encode() for text in self.values]
        return b"".join(part for text in texts for part in (_LENGTH.pack(len(text)), text))


def _outputs(operation: str, answers: Answers) -> list[_Output]:
    """Return the outputs of an operation.  Raises the first error of a row."""
    values = answers.values()
    if operation == "encode":
        return [_Output("embedding", "FP32", np.stack(values).astype("<f4", copy=False))]
    if operation == "encode_tokens":  # which are as many as a text has: one after the other
        vectors = np.concatenate(values).astype("<f4", copy=False)
        return [_Output("embedding", "FP32", vectors), _output("tokens", [len(value) for value in values])]
    if operation == "fill_mask":
        values = [{"candidates": [[filled._asdict() for filled in mask] for mask in masks]} for masks in values]
    if operation == "search":
        values = [{"hits": hits} for hits in values]
    names = {name: None for value in values for name in value}
    return [_output(name, [value.get(name) for value in values]) for name in names]


def _output(name: str, values: list[Any]) -> _Output:
    """Return an output of numbers or texts; what is neither is written as JSON."""
    if all(isinstance(value, str) for value in values):
        return _Output(name, "BYTES", values)
    for kind, datatype, layout in _TYPES:
        if all(isinstance(value, kind) and (kind is bool or type(value) is not bool) for value in values):
            return _Output(name, datatype, np.array(values, layout))
    return _Output(name, "BYTES", [encode(value).decode() for value in values])


async def _reply(request: InferRequest, model: ServedModel, found: Sequence[_Output], answers: Answers) -> Reply:
    """Return the outputs that a request wants, in JSON or behind it.  Raises UserError for one that there is not."""
    by_name = {output.name: output for output in found}
    wanted = request.outputs or [RequestedOutput(name) for name in by_name]
    default = request.parameters.get("binary_data_output") is True
    tensors, binaries = list[OutputTensor](), list[bytes]()
    for each in wanted:
        if each.name not in by_name:
            raise UserError(f"outputs: '{each.name:.60}' is unknown; known: {', '.join(by_name)}")
        if others := sorted(each.parameters.keys() - {"binary_data"}):
            raise UserError(f"outputs: the parameter '{others[0]:.60}' is not offered here")
        output = by_name[each.name]
        tensor = OutputTensor(output.name, output.datatype, output.shape)
        if each.parameters.get("binary_data", default) is True:
            binaries.append(output.binary())
            tensor.parameters = {"binary_data_size": len(binaries[-1])}
        elif output.datatype == "BYTES":
            tensor.data = output.values
        else:
            tensor.data = await encoded_rows(output.values) if output.values.ndim == 2 else output.values.tolist()
        tensors.append(tensor)
    reply = InferReply(model.name, _VERSION, tensors, {"tokens": answers.tokens}, request.id)
    header = encode(reply)
    if not binaries:
        return Reply(header)
    length = (_HEADER, str(len(header)).encode())
    return Reply(b"".join([header, *binaries]), content_type=b"application/octet-stream", headers=(length,))


PROTOCOL = Protocol("Open Inference Protocol", routes, problem, "/v2", Failure)
