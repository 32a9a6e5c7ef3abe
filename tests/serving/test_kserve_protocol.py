"""The Open Inference Protocol, with Triton's own client."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import httpx
import numpy as np
import pytest
from support.served import encoder, predictor, served, service_of
from tritonclient.http import InferenceServerClient, InferInput, InferRequestedOutput
from tritonclient.utils import InferenceServerException

from serving.service import Limits

TEXTS = ["a blue film", "the red one", "it was v\u00e9ry great"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    faces = {
        "vectors": encoder(),
        **{kind: predictor(kind) for kind in ("classify", "rank", "tag", "choose", "extract")},
    }
    with served(service_of(faces, Limits(inputs=20, timeout=30.0))) as address:
        yield address


@pytest.fixture(scope="module")
def triton(address: str) -> Iterator[InferenceServerClient]:
    with InferenceServerClient(address.removeprefix("http://")) as client:
        yield client


def column(name: str, texts: Sequence[Any], binary: bool = True) -> InferInput:
    array = np.array(texts, object)
    tensor = InferInput(name, list(array.shape), "BYTES")
    tensor.set_data_from_numpy(array, binary_data=binary)
    return tensor


def test_a_server_and_its_models_describe_themselves(triton: InferenceServerClient) -> None:
    assert triton.is_server_live() and triton.is_server_ready()
    assert triton.is_model_ready("vectors") and triton.is_model_ready("vectors", "1")
    assert not triton.is_model_ready("none") and not triton.is_model_ready("vectors", "2")
    assert "binary_tensor_data" in triton.get_server_metadata()["extensions"]
    assert {entry["name"] for entry in triton.get_model_repository_index()} >= {"vectors", "tag"}
    found = triton.get_model_metadata("vectors")
    assert found["inputs"] == [{"name": name, "datatype": "BYTES", "shape": [-1]} for name in ("text", "text_pair")]
    assert found["outputs"] == [{"name": "embedding", "datatype": "FP32", "shape": [-1, 32]}]


@pytest.mark.parametrize(
    ("model", "inputs", "outputs"),
    [
        ("classify", {"text": [-1]}, {"label": "BYTES", "probability": "FP64"}),
        ("rank", {"query": [-1], "text": [-1]}, {"score": "FP64"}),
        ("tag", {"token": [-1, -1]}, {"tags": "BYTES"}),
        ("choose", {"text": [-1], "choices": [-1, -1]}, {"choice": "INT64", "probability": "FP64"}),
        ("extract", {"question": [-1], "context": [-1]}, {"answer": "BYTES"}),
    ],
)
def test_a_model_takes_the_columns_of_its_task(
    triton: InferenceServerClient, model: str, inputs: dict[str, list[int]], outputs: dict[str, str]
) -> None:
    found = triton.get_model_metadata(model, "1")
    assert {each["name"]: each["shape"] for each in found["inputs"]} == inputs
    assert {each["name"]: each["datatype"] for each in found["outputs"]}.items() >= outputs.items()


@pytest.mark.parametrize("binary_in", [True, False])
@pytest.mark.parametrize("binary_out", [True, False])
def test_texts_become_vectors(triton: InferenceServerClient, binary_in: bool, binary_out: bool) -> None:
    wanted = [InferRequestedOutput("embedding", binary_data=binary_out)]
    reply = triton.infer("vectors", [column("text", TEXTS, binary_in)], outputs=wanted, request_id="mine")
    found = reply.as_numpy("embedding")
    assert found.dtype == np.float32 and found.shape == (3, 32)
    assert np.allclose(found, encoder().encode(TEXTS), atol=1e-6)
    assert reply.get_response()["id"] == "mine" and reply.get_response()["model_version"] == "1"


@pytest.mark.parametrize("binary", [True, False])
def test_rows_are_labeled(triton: InferenceServerClient, binary: bool) -> None:
    wanted = [InferRequestedOutput(name, binary_data=binary) for name in ("probability", "label")]
    texts = [[text] for text in TEXTS]  # as for models with a batch
    reply = triton.infer("classify", [column("text", texts)], "1", outputs=wanted)
    expected = list(predictor("classify").predict(TEXTS))
    labels = [label.decode() if binary else label for label in reply.as_numpy("label")]
    assert labels == [answer["label"] for answer in expected]
    assert np.allclose(reply.as_numpy("probability"), [answer["probability"] for answer in expected])


def test_all_outputs_are_returned_in_binary_if_none_is_named(triton: InferenceServerClient) -> None:
    reply = triton.infer("classify", [column("text", TEXTS)], parameters={"all_labels": True})
    assert reply.as_numpy("probability").shape == (3,)
    scores = [json.loads(text) for text in reply.as_numpy("all_labels")]
    assert [max(each, key=each.__getitem__) for each in scores] == [x.decode() for x in reply.as_numpy("label")]


def test_rows_of_several_columns_and_of_lists_are_answered(triton: InferenceServerClient) -> None:
    ranks = triton.infer("rank", [column("text", TEXTS), column("query", ["q0"] * 3)])
    rows = [{"query": "q0", "text": text} for text in TEXTS]
    assert np.allclose(ranks.as_numpy("score"), [answer["score"] for answer in predictor("rank").predict(rows)])
    tokens = [["anna", "was"], ["new", "paris"]]
    tags = triton.infer("tag", [column("token", tokens)]).as_numpy("tags")
    assert [json.loads(each) for each in tags] == [
        a["tags"] for a in predictor("tag").predict([{"token": t} for t in tokens])
    ]


def test_another_operation_is_a_parameter(triton: InferenceServerClient) -> None:
    pairs = triton.infer("vectors", [column("text", TEXTS), column("text_pair", TEXTS)]).as_numpy("embedding")
    assert np.allclose(pairs, encoder().encode([(text, text) for text in TEXTS]), atol=1e-6)
    whole = triton.infer("vectors", [column("text", TEXTS)], parameters={"pooling": "cls", "operation": "encode"})
    assert np.allclose(whole.as_numpy("embedding"), encoder().encode(TEXTS, pooling="cls"), atol=1e-6)


@pytest.mark.parametrize("binary", [True, False])
def test_vectors_of_tokens_stand_below_one_another(triton: InferenceServerClient, binary: bool) -> None:
    wanted = [InferRequestedOutput(name, binary_data=binary) for name in ("embedding", "tokens")]
    reply = triton.infer("vectors", [column("text", TEXTS)], outputs=wanted, parameters={"operation": "encode_tokens"})
    expected = encoder().encode_tokens(TEXTS)
    assert reply.as_numpy("tokens").tolist() == [len(vectors) for vectors in expected]
    assert np.allclose(reply.as_numpy("embedding"), np.concatenate(expected), atol=1e-6)


def test_compressed_requests_priorities_and_timeouts_are_understood(triton: InferenceServerClient) -> None:
    expected = triton.infer("vectors", [column("text", TEXTS)]).as_numpy("embedding")
    for coding in ("gzip", "deflate"):
        reply = triton.infer(
            "vectors",
            [column("text", TEXTS)],
            priority=2,
            timeout=20_000_000,
            request_compression_algorithm=coding,
        )
        assert (reply.as_numpy("embedding") == expected).all()
    with pytest.raises(InferenceServerException) as caught:
        triton.infer("vectors", [column("text", TEXTS)], timeout=1)
    assert caught.value.status() in ("413", "429", "504")  # by what the microsecond was too short for


@pytest.mark.parametrize(
    ("model", "given", "options", "status", "sentence"),
    [
        ("none", {"text": ["a"]}, {}, "404", "there is no model 'none' here."),
        ("vectors", {"text": ["a"]}, {"model_version": "2"}, "404", "the model 'vectors' has no version '2', only 1"),
        ("vectors", {"texts": ["a"]}, {}, "400", "inputs: 'texts' is unknown; known: text, text_pair"),
        ("rank", {"text": ["a"]}, {}, "400", "inputs: 'query' is missing; expected query, text"),
        ("rank", {"text": ["a"], "query": ["b", "c"]}, {}, "400", "inputs: expected tensors of as many rows each, "),
        ("vectors", {"text": ["a"] * 21}, {}, "413", "expected at most 20 inputs at once, found 21"),
        ("vectors", {"text": ["a"]}, {"parameters": {"odd": 1}}, "400", "parameters: odd is unknown here; known for"),
        ("vectors", {"text": ["a"]}, {"parameters": {"operation": "predict"}}, "404", "the model 'vectors' has no ope"),
        ("vectors", {"text": ["a " * 99]}, {"parameters": {"truncate": False}}, "413", "input 0: it is too long"),
        ("vectors", {"text": ["a"]}, {"outputs": [InferRequestedOutput("odd")]}, "400", "outputs: 'odd' is unknown"),
        ("vectors", {"text": ["a"]}, {"outputs": [InferRequestedOutput("embedding", class_count=2)]}, "400", "outputs"),
    ],
)
def test_a_faulty_request_raises_the_error_of_the_client(
    triton: InferenceServerClient,
    model: str,
    given: dict[str, list[str]],
    options: dict[str, Any],
    status: str,
    sentence: str,
) -> None:
    inputs = [column(name, texts) for name, texts in given.items()]
    with pytest.raises(InferenceServerException) as caught:
        triton.infer(model, inputs, **options)
    assert caught.value.status() == status
    assert caught.value.message().startswith(sentence)


def binary(size: Any, data: bytes, shape: Sequence[int] = (1,), stated: Any = None, **more: Any) -> dict[str, Any]:
    """A request with one binary input."""
    tensor = {"name": "text", "shape": list(shape), "datatype": "BYTES", "parameters": {"binary_data_size": size}}
    header = json.dumps({"inputs": [{**tensor, **more}]}).encode()
    length = str(len(header) if stated is None else stated)
    return {"content": header + data, "headers": {"inference-header-content-length": length}}


def plain(**tensor: Any) -> dict[str, Any]:
    """A request with one input in JSON."""
    return {"content": json.dumps({"inputs": [{"name": "text", "shape": [1], "datatype": "BYTES", **tensor}]})}


TENSOR = {"name": "text", "shape": [1], "datatype": "BYTES", "data": ["a"]}
ONE = struct.pack("<I", 1) + b"a"


@pytest.mark.parametrize(
    ("request_", "status", "sentence"),
    [
        ({"content": b"{"}, 400, "the body is no JSON"),
        ({"content": b'{"inputs": [], "id": NaN}'}, 400, "the body is no JSON"),
        ({"content": b'{"inputs": []}'}, 400, "inputs: expected tensors of as many rows each, found none"),
        ({"content": b'{"inputs": [{"data": ' + b"[" * 100_000}, 400, "the body: its JSON is nested too deeply"),
        ({"content": b'{"input": []}'}, 400, "the request: Object missing required field `inputs`"),
        ({"content": b" " * 1_000_001}, 413, "the body: expected at most"),
        (plain(data=["a"], datatype="FP32"), 400, "inputs: 'text': expected the datatype BYTES, found FP32"),
        (plain(data=["a"], shape=[]), 400, "inputs: 'text': expected a shape of one or two axes"),
        (plain(data=["a"], shape=[0]), 400, "inputs: 'text': expected a shape of one or two axes, at least 1 long"),
        (plain(data=["a"], shape=[1, -1]), 400, "inputs: 'text': expected a shape of one or two axes, at least 1"),
        (plain(data=["a"], shape=[2]), 400, "inputs: 'text': expected 2 elements by its shape, found 1"),
        (plain(data=["a"], shape=[9, 10**4000]), 413, "inputs: 'text': expected at most 65,536 elements"),
        ({"content": json.dumps({"inputs": [TENSOR], "parameters": {"timeout": 10**400}})}, 400, "timeout: expected"),
        ({"content": json.dumps({"inputs": [TENSOR], "parameters": {"priority": "x"}})}, 400, "priority: expected a"),
        ({"content": json.dumps({"inputs": [TENSOR], "parameters": {"pooling": []}})}, 400, "the request: Expected"),
        (plain(data=[["a"]]), 400, "inputs: 'text': data: expected a list of texts"),
        (plain(data=[3]), 400, "inputs: 'text': data: expected a list of texts"),
        (plain(), 400, "inputs: 'text': data: expected a list of texts"),
        (binary(9, ONE), 400, "inputs: 'text': binary_data_size: expected the number of its bytes, found 9, and 5"),
        (binary("x", ONE), 400, "inputs: 'text': binary_data_size: expected the number of its bytes, found 'x'"),
        (binary(5, ONE, stated=10**6), 400, "inference-header-content-length: expected from 0 to"),
        (binary(5, ONE, stated="-1"), 400, "inference-header-content-length: expected from 0 to"),
        (binary(5, ONE + b"more"), 400, "the body: 4 bytes are left behind the last input"),
        (binary(5, ONE, [2]), 400, "inputs: 'text': its data ends in the element 1, of 2"),
        (binary(10, ONE + ONE), 400, "inputs: 'text': expected 1 elements by its shape, found more bytes behind them"),
        (binary(4, b"\xff" * 4), 400, "inputs: 'text': its data ends in the element 0, of 1"),
        (binary(5, ONE[:4] + b"\xff"), 400, "inputs: 'text': the element 0 is no text in UTF-8"),
    ],
)
def test_bytes_that_do_not_fit_are_refused_by_a_sentence(
    address: str, request_: dict[str, Any], status: int, sentence: str
) -> None:
    reply = httpx.post(f"{address}/v2/models/vectors/infer", **request_)
    assert reply.status_code == status, reply.text
    assert reply.json().keys() == {"error"} and reply.json()["error"].startswith(sentence), reply.text


def test_other_methods_and_paths_have_the_same_form(address: str) -> None:
    for reply, status in (
        (httpx.get(f"{address}/v2/models/vectors/infer"), 405),
        (httpx.get(f"{address}/v2/models/vectors/config"), 404),
        (httpx.get(f"{address}/v2/models/none"), 404),
    ):
        assert reply.status_code == status and reply.json().keys() == {"error"}
