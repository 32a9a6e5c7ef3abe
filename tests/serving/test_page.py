"""What the page of a server asks for: its own files, and what describes a model."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.served import predictor, served, service_of

from serving.models import serve_model


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    run: Path = tmp_path_factory.mktemp("run")
    (run / "model").mkdir()
    (run / "README.md").write_text("# A card\n", encoding="utf-8")
    (run / "report.html").write_text("<p>A report", encoding="utf-8")
    service = service_of({"bare": predictor("classify")})
    for name, folder in {"films": run, "inner": run / "model"}.items():
        service.models[name] = serve_model(name, str(folder), predictor("classify"), 1 << 14)
    with served(service) as address, httpx.Client(base_url=address) as found:
        yield found


@pytest.mark.parametrize("model", ["films", "inner"])
def test_a_model_has_the_card_and_the_report_of_its_run(client: httpx.Client, model: str) -> None:
    assert client.get(f"/models/{model}/card").text == "# A card\n"
    report = client.get(f"/models/{model}/report")
    assert report.text == "<p>A report"
    assert report.headers["content-security-policy"].startswith("sandbox;")


@pytest.mark.parametrize("what", ["card", "report"])
def test_a_folder_without_them_is_named(client: httpx.Client, what: str) -> None:
    reply = client.get(f"/models/bare/{what}")
    assert reply.status_code == 404
    assert f"the folder of 'bare' has no {what}" in reply.json()["error"]["message"]


def test_nothing_but_the_files_of_the_page_is_given(client: httpx.Client) -> None:
    assert client.get("/page/style.css").headers["content-type"].startswith("text/css")
    for name in ("nothing.js", "..%2fapp.py", "%2e%2e/app.py", "__init__.py"):
        assert client.get(f"/page/{name}").status_code == 404


def test_operations_are_still_asked_by_post(client: httpx.Client) -> None:
    assert client.post("/models/films/predict", json={"inputs": ["blue"]}).status_code == 200
    assert client.get("/models/films/predict").status_code == 405
