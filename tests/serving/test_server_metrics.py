"""The metrics count a known load and a known backlog, and exist before both."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator

import httpx
import pytest
from prometheus_client.parser import text_string_to_metric_families
from support.echoing import Echo, echo_model, echo_service, running, until

from ernie.errors import UserError
from serving.app import make_app
from serving.heartbeat import Heartbeat
from serving.metrics import Metrics
from serving.service import REASONS, Service

WORK = (("work", "loud/echo"),)


def read(text: str) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    """Values by name and labels."""
    return {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


class Server:
    """A server whose batches wait for the event `goes_on`."""

    def __init__(self, service: Service, client: httpx.Client, goes_on: threading.Event):
        self.service, self.client, self.goes_on = service, client, goes_on

    def metrics(self) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
        return read(self.client.get("/metrics").text)


@pytest.fixture
def server() -> Iterator[Server]:
    goes_on = threading.Event()
    goes_on.set()
    service = echo_service(Echo({"bad": UserError("bad")}, before=goes_on.wait))
    with running(make_app(service)) as client:
        yield Server(service, client, goes_on)
        goes_on.set()


def test_all_series_exist_at_zero_before_the_first_request(server: Server) -> None:
    found = server.metrics()
    for name in ("expired_total", "cancelled_total", "batch_seconds_count", "batch_tokens_sum", "wait_seconds_count"):
        assert found[f"ernie_{name}", WORK] == 0
    for reason in REASONS:
        assert found["ernie_refused_total", (("reason", reason), *WORK)] == 0
    for outcome in ("value", "error"):
        assert found["ernie_inputs_total", (("outcome", outcome), *WORK)] == 0
    for status in ("200", "429", "503"):
        label = (("route", "/models/{model}/{operation}"), ("status", status))
        assert found["ernie_http_requests_total", label] == 0
    assert found["ernie_cost_token_seconds", WORK] > 0
    assert found["ernie_model_loads_total", (("model", "loud"), ("outcome", "loaded"))] == 1
    assert not any("_created" in name for name, _ in found)


def test_a_known_load_is_counted(server: Server) -> None:
    before = server.metrics()
    for _ in range(7):
        server.client.post("/models/loud/echo", json={"inputs": ["a b c", "d", "bad"]})
    server.client.post("/models/quiet/echo", json={"inputs": ["a"]})
    found = server.metrics()
    assert found["ernie_inputs_total", (("outcome", "value"), *WORK)] == 14
    assert found["ernie_inputs_total", (("outcome", "error"), *WORK)] == 7
    assert found["ernie_batch_tokens_sum", WORK] == 35
    assert found["ernie_batch_inputs_sum", WORK] == 21
    assert found["ernie_wait_seconds_count", WORK] == found["ernie_prepare_seconds_count", WORK] == 7
    route = ("route", "/models/{model}/{operation}")
    assert found["ernie_http_requests_total", (route, ("status", "200"))] == 7
    assert found["ernie_http_requests_total", (route, ("status", "404"))] == 1
    assert found["ernie_request_seconds_count", WORK] == 7
    assert found.keys() == before.keys()


def test_a_known_backlog_is_shown_while_it_waits(server: Server) -> None:
    server.goes_on.clear()

    def ask() -> None:
        httpx.post(server.client.base_url.join("/models/loud/echo"), json={"inputs": ["a b", "c"], "timeout": 20})

    threads = [threading.Thread(target=ask) for _ in range(9)]
    for number, thread in enumerate(threads):
        thread.start()
        if not number:  # of which all the rest wait for the end
            until(lambda: server.service.waiting == 1 and not server.service.engine.waiting[0])
    until(lambda: server.service.waiting == 9 and server.service.engine.waiting[0] == 8)
    found = server.metrics()
    assert found["ernie_waiting_requests", ()] == 8
    assert found["ernie_waiting_tokens", ()] == 24
    assert found["ernie_open_calls", ()] == 9 + 1  # and that for the metrics
    server.goes_on.set()
    for thread in threads:
        thread.join()
    found = server.metrics()
    assert found["ernie_waiting_requests", ()] == found["ernie_waiting_tokens", ()] == 0
    assert found["ernie_open_calls", ()] == 1


def test_refused_cancelled_and_expired_requests_are_counted(server: Server) -> None:
    server.goes_on.clear()
    url = server.client.base_url.join("/models/loud/echo")
    first = threading.Thread(target=lambda: httpx.post(url, json={"inputs": ["a"], "timeout": 20}))
    first.start()
    until(lambda: server.service.waiting == 1 and not server.service.engine.waiting[0])
    with pytest.raises(httpx.ReadTimeout):
        httpx.post(url, json={"inputs": ["b"], "timeout": 20}, timeout=0.3)
    expiring = threading.Thread(target=lambda: httpx.post(url, json={"inputs": ["c"], "timeout": 0.5}))
    expiring.start()
    until(lambda: server.service.engine.waiting[0] == 1)
    refused = httpx.post(url, json={"inputs": ["d"] * 1000, "timeout": 0.00001})
    assert refused.status_code in (413, 429)
    threading.Event().wait(0.6)
    server.goes_on.set()
    first.join()
    expiring.join()
    found = server.metrics()
    assert found["ernie_cancelled_total", WORK] == 1
    assert found["ernie_expired_total", WORK] == 1
    assert sum(found["ernie_refused_total", (("reason", reason), *WORK)] for reason in REASONS) == 1


def test_nothing_that_a_client_names_becomes_a_label(server: Server) -> None:
    before = server.metrics().keys()
    for path in ("/models/films/other", "/models/a%20b/c", "/nothing", "/metrics/more"):
        server.client.get(path, headers={"x-request-id": "abc", "x-priority": "x"})
        server.client.post(path, json={"inputs": []})
    assert server.metrics().keys() == before


def test_a_model_that_is_dropped_takes_its_series_along_and_a_new_one_has_its_own() -> None:
    service = echo_service()
    metrics = Metrics(service)
    service.put(echo_model(Echo(), "another"))
    assert 'work="another/echo"' in metrics.text().decode()
    assert 'model="another"' in metrics.text().decode()
    service.drop("another")
    assert "another" not in metrics.text().decode()
    service.put(echo_model(Echo(), "loud"))
    assert 'ernie_model_loads_total{model="loud",outcome="loaded"} 2.0' in metrics.text().decode()


def test_the_heartbeat_shows_what_kept_the_event_loop() -> None:
    import asyncio
    import time

    async def main() -> tuple[float, float]:
        heartbeat = Heartbeat(0.001, window=1000.0)
        heartbeat.start(asyncio.get_running_loop())
        await asyncio.sleep(0.05)
        before = heartbeat.largest
        time.sleep(0.3)
        await asyncio.sleep(0.05)
        heartbeat.stop()
        return before, heartbeat.largest

    before, after = asyncio.run(main())
    assert before < 0.29 <= after


def test_help_of_each_metric_is_a_sentence() -> None:
    text = Metrics(echo_service()).text().decode()
    helps = re.findall(r"^# HELP ernie_\w+ (.*)$", text, re.MULTILINE)
    assert len(helps) > 15
    assert [line for line in helps if not line.endswith(".")] == []
