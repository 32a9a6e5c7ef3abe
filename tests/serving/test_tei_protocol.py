"""The protocol of text-embeddings-inference, with the Hub's and Cohere's own clients."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import cohere
import httpx
import numpy as np
import pytest
from huggingface_hub import InferenceClient
from huggingface_hub.errors import HfHubHTTPError
from support.served import encoder, predictor, served, service_of

from ernie.model.sentence import normalized
from serving.service import Limits

TEXTS = ["a blue film", "the red one", "it was very great"]


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    faces = {"vectors": encoder(), **{kind: predictor(kind) for kind in ("classify", "rank", "regress", "tag")}}
    with served(service_of(faces, Limits(inputs=20, timeout=30.0))) as address:
        yield address


@pytest.fixture(scope="module")
def http(address: str) -> Iterator[httpx.Client]:
    with httpx.Client(base_url=address, timeout=60.0) as client:
        yield client


def post(http: httpx.Client, path: str, **body: Any) -> Any:
    reply = http.post(path, json=body)
    assert reply.status_code == 200, reply.text
    return reply.json()


# -------------------------------------------------------------------------------------------- clients of the Hub


def test_features_of_a_text_are_its_vector_of_length_1(address: str) -> None:
    expected = normalized(encoder().encode(TEXTS))
    for url in (f"{address}/embed", f"{address}/tei/vectors/embed", f"{address}/tei/vectors"):
        found = InferenceClient(model=url, token="none").feature_extraction(TEXTS[0])
        assert found.dtype == np.float32 and found.shape == (1, 32)
        assert np.allclose(found, expected[:1], atol=1e-6)
    client = InferenceClient(model=f"{address}/embed", token="none")
    assert np.allclose(client.feature_extraction(TEXTS, normalize=False), encoder().encode(TEXTS), atol=1e-6)  # type: ignore[arg-type]


def test_all_tokens_of_a_text_have_vectors_before_the_pooling(http: httpx.Client, address: str) -> None:
    expected = encoder().encode_tokens(TEXTS)
    found = post(http, "/embed_all", inputs=TEXTS)
    assert [len(vectors) for vectors in found] == [5, 5, 6]  # with [CLS] and [SEP]
    for vectors, own in zip(found, expected, strict=True):
        assert np.allclose(vectors, own, atol=1e-6)
    assert np.allclose([np.mean(vectors, axis=0) for vectors in found], encoder().encode(TEXTS), atol=1e-6)
    assert post(http, "/tei/vectors/embed_all", inputs=TEXTS[0]) == found[:1]
    (own,) = InferenceClient(model=f"{address}/embed_all", token="none").feature_extraction(TEXTS[0])
    assert np.allclose(own, expected[0], atol=1e-6)


def test_an_answer_with_too_many_vectors_of_tokens_is_refused(
    http: httpx.Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("inference.encoder._MOST_NUMBERS", 12 * 32)
    with served(service_of({"vectors": encoder()})) as address, httpx.Client(base_url=address) as few:
        assert post(few, "/embed_all", inputs=TEXTS[:2]) == post(http, "/embed_all", inputs=TEXTS[:2])
        reply = few.post("/embed_all", json={"inputs": TEXTS})
        assert reply.status_code == 413
        assert reply.json()["error"] == (
            "vectors/encode_tokens: expected at most 12 tokens at once, as many as one answer has room for, found 16"
        )
        assert few.post("/models/vectors/encode_tokens", json={"inputs": TEXTS}).status_code == 413
        assert post(few, "/embed", inputs=TEXTS) == post(http, "/embed", inputs=TEXTS)


def test_similar_sentences_have_a_cosine_near_1(address: str) -> None:
    client = InferenceClient(model=f"{address}/tei/vectors/similarity", token="none")
    found = client.sentence_similarity(TEXTS[0], other_sentences=TEXTS)
    unit = normalized(encoder().encode(TEXTS))
    assert np.allclose(found, unit @ unit[0], atol=1e-6)


def test_a_text_is_classified(address: str) -> None:
    for url in (f"{address}/tei/classify/predict", f"{address}/tei/classify"):
        best: Any = InferenceClient(model=url, token="none").text_classification("it was blue")
        expected = next(predictor("classify").predict("it was blue"))
        assert (best.label, best.score) == (expected["label"], expected["probability"])


def test_a_client_learns_of_the_server_and_its_health(address: str) -> None:
    client = InferenceClient(model=f"{address}/tei/classify", provider="hf-inference", token="none")
    info = client.get_endpoint_info()
    assert info["model_id"] == "classify" and info["max_input_length"] == 16 and info["auto_truncate"]
    assert info["model_type"]["classifier"]["id2label"] == {"0": "blue", "1": "green"}
    assert client.health_check()
    kinds = {
        name: next(iter(httpx.get(f"{address}/tei/{name}/info").json()["model_type"]))
        for name in ("vectors", "rank", "regress", "tag")
    }
    assert kinds == {"vectors": "embedding", "rank": "reranker", "regress": "classifier", "tag": "tag"}


def test_a_problem_reaches_the_client(address: str) -> None:
    client = InferenceClient(model=f"{address}/tei/classify/embed", token="none")
    with pytest.raises(HfHubHTTPError) as caught:
        client.feature_extraction("blue")
    assert caught.value.response.status_code == 424
    assert caught.value.response.json() == {
        "error": "the model 'classify' has no operation 'encode'. Known: predict.",
        "error_type": "Backend",
    }


# ----------------------------------------------------------------------------------------------------- each route


def test_the_only_model_that_suits_needs_no_name(http: httpx.Client) -> None:
    assert post(http, "/embed", inputs=TEXTS) == post(http, "/tei/vectors/embed", inputs=TEXTS)
    ranks = post(http, "/rerank", query="q0", texts=TEXTS)
    assert ranks == post(http, "/tei/rank/rerank", query="q0", texts=TEXTS)
    assert ranks == post(http, "/tei/rank", query="q0", texts=TEXTS)
    reply = http.post("/predict", json={"inputs": "blue"})
    assert reply.status_code == 404
    assert reply.json()["error"] == "which model? Several predict labels: classify, rank, regress"


def test_every_label_of_a_text_has_a_score_the_best_first(http: httpx.Client) -> None:
    (labels,) = post(http, "/tei/classify/predict", inputs=[["it was blue"]])
    assert {item["label"] for item in labels} == {"blue", "green"}
    assert labels[0]["score"] >= labels[1]["score"]
    assert post(http, "/tei/classify/predict", inputs="it was blue") == labels
    assert post(http, "/tei/classify/predict", inputs="it was blue", parameters={"top_k": 1}) == labels[:1]
    number = post(http, "/tei/regress/predict", inputs="it was poor")
    assert number[0]["label"] == "value"
    assert post(http, "/tei/regress/predict", inputs="it was poor", raw_scores=True) == number


def test_raw_scores_of_labels_are_logits(http: httpx.Client, address: str) -> None:
    labels = post(http, "/tei/classify/predict", inputs="it was blue")
    raw = post(http, "/tei/classify/predict", inputs="it was blue", raw_scores=True)
    powers = np.exp([item["score"] for item in raw])
    assert [item["label"] for item in raw] == [item["label"] for item in labels]
    assert np.allclose(powers / powers.sum(), [item["score"] for item in labels], atol=2e-6)
    assert not np.allclose(powers.sum(), 1)
    client = InferenceClient(model=f"{address}/tei/classify", token="none")
    best: Any = client.text_classification("it was blue", function_to_apply="none")
    assert {"label": best.label, "score": best.score} == raw[0]


def test_texts_are_ranked_by_their_scores(http: httpx.Client) -> None:
    rows = [{"query": "q0", "text": text} for text in TEXTS]
    scores = [answer["score"] for answer in predictor("rank").predict(rows)]
    ranks = post(http, "/rerank", query="q0", texts=TEXTS, return_text=True)
    assert np.allclose([rank["score"] for rank in ranks], sorted(scores, reverse=True))
    assert [rank["text"] for rank in ranks] == [TEXTS[rank["index"]] for rank in ranks]
    raw = post(http, "/rerank", query="q0", texts=TEXTS, raw_scores=True)
    assert np.allclose([1 / (1 + np.exp(-rank["score"])) for rank in raw], sorted(scores, reverse=True))
    assert "text" not in raw[0]
    pair = post(http, "/tei/rank/predict", inputs=["q0", TEXTS[0]])
    assert pair == [{"label": "score", "score": pytest.approx(scores[0])}]
    pair = post(http, "/tei/rank/predict", inputs=["q0", TEXTS[0]], raw_scores=True)
    assert pair == [{"label": "score", "score": next(rank["score"] for rank in raw if rank["index"] == 0)}]


def test_documents_are_ranked_for_clients_of_cohere(address: str, http: httpx.Client) -> None:
    scores = [answer["score"] for answer in predictor("rank").predict([{"query": "q0", "text": t} for t in TEXTS])]
    best = int(np.argmax(scores))
    new = cohere.ClientV2(api_key="none", base_url=address).rerank(model="rank", query="q0", documents=TEXTS, top_n=1)
    assert [item.index for item in new.results] == [best]
    assert new.results[0].relevance_score == pytest.approx(scores[best])
    old = cohere.Client(api_key="none", base_url=address).rerank(
        query="q0", documents=[{"text": text} for text in TEXTS], return_documents=True
    )
    assert len(old.results) == 3
    less = http.post("/v2/rerank", json={"query": "q0", "documents": TEXTS, "top_n": -1})
    assert (less.status_code, less.json()["error"]) == (422, "top_n: expected at least 0, found -1")
    assert old.results[0].document is not None and old.results[0].document.text == TEXTS[best]


def test_tokens_of_a_text_cover_its_characters(http: httpx.Client) -> None:
    (tokens,) = post(http, "/tokenize", inputs="a blue film")
    assert [token["text"] for token in tokens] == ["[CLS]", "a", "blue", "film", "[SEP]"]
    assert [token["special"] for token in tokens] == [True, False, False, False, True]
    assert [(token["start"], token["stop"]) for token in tokens[1:-1]] == [(0, 1), (2, 6), (7, 11)]
    plain = post(http, "/tokenize", inputs=["a blue film"], add_special_tokens=False)
    assert plain == [tokens[1:-1]]
    ids = [token["id"] for token in tokens]
    assert post(http, "/decode", ids=ids) == post(http, "/decode", ids=[ids]) == ["a blue film"]
    assert post(http, "/decode", ids=ids, skip_special_tokens=False) == ["[CLS] a blue film [SEP]"]


def test_a_long_text_is_cut_unless_the_client_forbids_it(http: httpx.Client) -> None:
    long = "blue " * 99
    reply = http.post("/embed", json={"inputs": [long, "blue"]})
    assert reply.status_code == 200 and reply.headers["x-compute-tokens"] == "67"
    reply = http.post("/embed", json={"inputs": [long, "blue"], "truncate": False})
    assert reply.status_code == 413
    assert reply.json() == {
        "error": "input 0: it is too long, and the model would read 64 tokens of it",
        "error_type": "Validation",
    }
    for wish, status in (({}, 200), ({"truncate": False}, 413), ({"parameters": {"truncate": False}}, 413)):
        assert http.post("/tei/classify/predict", json={"inputs": long, **wish}).status_code == status
    both = {"truncate": True, "parameters": {"truncate": False}}
    assert http.post("/tei/classify/predict", json={"inputs": long, **both}).status_code == 200


@pytest.mark.parametrize(
    ("path", "body", "status", "kind", "sentence"),
    [
        ("/embed", b"{", 400, "Validation", "the body is no JSON"),
        ("/embed", b'{"inputs": [NaN]}', 400, "Validation", "the body is no JSON"),
        ("/embed", b'{"inputs": "\\ud800"}', 400, "Validation", "the body is no JSON"),
        ("/embed", b'{"inputs": ' + b"[" * 100_000, 422, "Tokenizer", "the request: Expected"),
        ("/embed", b'{"inputs": 3}', 422, "Tokenizer", "the request: Expected"),
        ("/embed", b'{"inputs": []}', 400, "Empty", "inputs: expected at least one text"),
        ("/embed", b'{"inputs": [""]}', 400, "Empty", "inputs: expected texts or lists of token ids"),
        ("/embed", b'{"inputs": [99999]}', 422, "Tokenizer", "text 0: 99999 is no token id"),
        ("/embed", b'{"inputs": "a", "prompt_name": "odd"}', 422, "Tokenizer", "prompt"),
        ("/embed", b'{"inputs": "a", "truncation_direction": "Left"}', 422, "Tokenizer", "truncation_direction"),
        ("/embed", b'{"inputs": "a", "dimensions": 99}', 422, "Tokenizer", "dimensions: expected from 1 to 32"),
        ("/embed", b'{"inputs": [' + b'"a",' * 20 + b'"a"]}', 413, "Validation", "expected at most 20 inputs"),
        ("/embed_all", b'{"inputs": []}', 400, "Empty", "inputs: expected at least one text"),
        ("/embed_all", b'{"inputs": "a", "prompt_name": "odd"}', 422, "Tokenizer", "prompt"),
        ("/embed_all", b'{"inputs": ["' + b"a " * 99 + b'"], "truncate": false}', 413, "Validation", "input 0: it is"),
        ("/tei/classify/embed_all", b'{"inputs": "a"}', 424, "Backend", "the model 'classify' has no operation"),
        (
            "/tei/vectors/embed_sparse",
            b'{"inputs": "a"}',
            424,
            "Backend",
            "the models here give dense vectors: ask /em",
        ),
        ("/tei/odd/embed", b'{"inputs": "a"}', 404, "Validation", "there is no model 'odd' here"),
        ("/tei/tag/predict", b'{"inputs": "a"}', 424, "Backend", "the model 'tag' cannot predict labels"),
        ("/tei/classify/rerank", b'{"query": "a", "texts": ["b"]}', 424, "Backend", "the model 'classify' cannot rank"),
        ("/tei/classify/predict", b'{"inputs": ["a", "b"]}', 422, "Tokenizer", "inputs: the model takes one text"),
        ("/tei/classify/predict", b'{"inputs": [["a", "b", "c"]]}', 422, "Tokenizer", "inputs: expected a text, a "),
        ("/tei/classify/predict", b'{"inputs": []}', 400, "Empty", "inputs: expected at least one text"),
        (
            "/tei/classify/predict",
            b'{"inputs": "a", "parameters": {"function_to_apply": "softmax"}}',
            *(422, "Tokenizer", "function_to_apply: expected none, for logits"),
        ),
        ("/rerank", b'{"query": "a", "texts": []}', 400, "Empty", "expected at least one text"),
        ("/tei/vectors/similarity", b'{"inputs": {"source_sentence": "a", "sentences": []}}', 400, "Empty", "sentenc"),
        ("/tokenize", b'{"inputs": []}', 400, "Empty", "expected at least one text"),
        ("/decode", b'{"ids": []}', 400, "Empty", "ids: expected at least one"),
        ("/tokenize", b'{"inputs": "' + b"a " * 10_001 + b'"}', 413, "Validation", "expected at most 10,000 tokens"),
        ("/decode", b'{"ids": [' + b"7," * 10_000 + b"7]}", 413, "Validation", "expected at most 10,000 tokens of a"),
        ("/decode", b'{"ids": [[1], 2]}', 422, "Tokenizer", "ids: expected the token ids of one text"),
        ("/decode", b'{"ids": [99999]}', 422, "Tokenizer", "decode: 99999 is no token id"),
        ("/tei/classify/odd", b"{}", 404, "Validation", "there is nothing at /tei/classify/odd"),
    ],
)
def test_a_bad_request_is_answered_in_the_form_of_this_server(
    http: httpx.Client, path: str, body: bytes, status: int, kind: str, sentence: str
) -> None:
    reply = http.post(path, content=body)
    found = reply.json()
    assert (reply.status_code, found["error_type"]) == (status, kind), reply.text
    assert found.keys() == {"error", "error_type"} and found["error"].startswith(sentence)


def test_a_wrong_method_is_answered_in_the_form_of_this_server(http: httpx.Client) -> None:
    reply = http.get("/embed")
    assert reply.status_code == 405 and reply.headers["allow"] == "POST"
    assert reply.json()["error_type"] == "Validation"
