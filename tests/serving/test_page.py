"""What the page of a server asks for: its own files, and what describes a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.served import predictor, served, service_of

from ernie.decode.latency import Latency
from finetune.report.latency import Point, write_latency
from serving.models import serve_model
from serving.run_files import read_curve


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


def test_a_translator_has_the_curve_that_its_run_has_measured(tmp_path: Path, caplog: Any) -> None:
    write_latency(tmp_path, [Point(k, k == 3, *2 * [Latency(2.5, 0, 0, 0, 0)], 20.0, 5, 0, 0.01) for k in (1, 3, None)])
    service, translator = service_of({"german": predictor("translate")}), predictor("translate")
    curve = read_curve(str(tmp_path / "model"), translator)
    service.models["german"] = replace(service.models["german"], curve=curve)
    with served(service) as address:
        (model,) = httpx.get(f"{address}/models").json()["models"]
    assert model["latency"]["metric"] == "bleu"
    assert [tuple(point.values()) for point in model["latency"]["points"]] == [
        (1, False, 20.0, 2.5),
        (3, True, 20.0, 2.5),
        (None, False, 20.0, 2.5),
    ]
    (tmp_path / "latency.json").write_text('[{"wait_k": 1}]', encoding="utf-8")
    assert read_curve(str(tmp_path), translator) is None
    assert "the page shows no curve" in caplog.text


def test_nothing_but_the_files_of_the_page_is_given(client: httpx.Client) -> None:
    assert client.get("/page/style.css").headers["content-type"].startswith("text/css")
    for name in ("nothing.js", "..%2fapp.py", "%2e%2e/app.py", "__init__.py"):
        assert client.get(f"/page/{name}").status_code == 404


def test_operations_are_still_asked_by_post(client: httpx.Client) -> None:
    assert client.post("/models/films/predict", json={"inputs": ["blue"]}).status_code == 200
    assert client.get("/models/films/predict").status_code == 405
