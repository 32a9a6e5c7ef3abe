"""A served search index: in the server's own protocol, for OpenAI's client, and for Triton's."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import BadRequestError, NotFoundError, OpenAI
from support.served import encoder, notes, predictor, served, service_of

from inference.search.searching import SearchIndex


@pytest.fixture(scope="module")
def index(tmp_path_factory: pytest.TempPathFactory) -> SearchIndex:
    return notes(tmp_path_factory.mktemp("notes"))


@pytest.fixture(scope="module")
def address(index: SearchIndex) -> Iterator[str]:
    with served(service_of({"notes": index, "vectors": encoder()})) as address:
        yield address


@pytest.fixture(scope="module")
def client(address: str) -> OpenAI:
    return OpenAI(base_url=f"{address}/v1", api_key="none", max_retries=0)


def plain(index: SearchIndex, query: str, **how: Any) -> list[dict[str, Any]]:
    (hits,) = index.search([query], **how)
    return [hit.as_dict(rank) for rank, hit in enumerate(hits, 1)]


def close(hits: list[dict[str, Any]]) -> list[Any]:
    return [pytest.approx(hit["scores"], abs=1e-5) for hit in hits]


def test_a_query_has_the_passages_that_the_index_finds(address: str, index: SearchIndex) -> None:
    body = {"inputs": ["a blue film", "paris"], "settings": {"top": 2}}
    results = httpx.post(f"{address}/models/notes/search", json=body).json()["results"]
    for query, result in zip(body["inputs"], results, strict=True):
        expected = plain(index, query, top=2)
        assert [hit["id"] for hit in result["value"]] == [hit["id"] for hit in expected]
        assert [hit["scores"] for hit in result["value"]] == close(expected)
        assert result["value"][0]["text"] == expected[0]["text"]
    body = {"inputs": ["film", " "], "settings": {"by": "bm25"}}
    found, empty = httpx.post(f"{address}/models/notes/search", json=body).json()["results"]
    assert [hit["id"] for hit in found["value"]] == ["film"]
    assert empty["error"]["message"] == "text 1: expected a query, found ' '"


def test_openais_client_searches_as_in_a_vector_store(client: OpenAI, index: SearchIndex) -> None:
    found = client.vector_stores.search("notes", query="a river in winter", max_num_results=2).data
    expected = plain(index, "a river in winter", top=2)
    assert [each.file_id for each in found] == [hit["id"] for hit in expected]
    assert [each.score for each in found] == pytest.approx([hit["score"] for hit in expected])
    assert found[0].content[0].text == "a blue river in winter"
    assert found[0].attributes is not None
    assert (found[0].attributes["line"], found[0].attributes["page"]) == (1, "river")
    threshold: Any = {"score_threshold": expected[0]["score"]}
    assert len(client.vector_stores.search("notes", query="a river in winter", ranking_options=threshold).data) == 1
    words = client.vector_stores.search("notes", query="paris", extra_body={"by": "bm25"}).data
    assert [each.file_id for each in words] == ["city"]


def test_what_is_not_offered_is_told(client: OpenAI) -> None:
    with pytest.raises(NotFoundError, match="the model 'vectors' has no operation 'search'"):
        client.vector_stores.search("vectors", query="x")
    with pytest.raises(BadRequestError, match="expected one query, found 2"):
        client.vector_stores.search("notes", query=["x", "y"])
    with pytest.raises(BadRequestError, match="filters and rewrite_query are not offered"):
        client.vector_stores.search("notes", query="x", rewrite_query=True)
    with pytest.raises(BadRequestError, match="top: expected at most 1,000, found 5,000"):
        client.vector_stores.search("notes", query="x", max_num_results=5000)


def test_an_index_is_asked_in_the_open_inference_protocol(address: str) -> None:
    body = {"inputs": [{"name": "text", "datatype": "BYTES", "shape": [1], "data": ["paris"]}]}
    reply = httpx.post(f"{address}/v2/models/notes/infer", json={**body, "parameters": {"by": "bm25"}})
    assert reply.status_code == 200, reply.text
    (hits,) = reply.json()["outputs"]
    assert hits["name"] == "hits" and '"id":"city"' in hits["data"][0].replace(" ", "")
    assert httpx.get(f"{address}/v2/models/notes").json()["outputs"][0]["name"] == "hits"


def test_a_served_index_ranks_again_with_a_model(tmp_path: Path) -> None:
    predictor("rank").model.save(tmp_path / "rank")
    (tmp_path / "notes").mkdir()
    index = notes(tmp_path / "notes", rerank=tmp_path / "rank")
    with served(service_of({"notes": index})) as address:
        reply = httpx.post(f"{address}/models/notes/search", json={"inputs": ["a film"]})
    (result,) = reply.json()["results"]
    assert [hit["scores"] for hit in result["value"]] == close(plain(index, "a film"))
    assert all("rerank" in hit["scores"] for hit in result["value"])
