"""The example for KServe: what its controller and the kubelet would do with the YAML, done on this machine."""

from __future__ import annotations

import asyncio
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from support.finished import finished_run
from support.helpers import ROOT

pytestmark = pytest.mark.slow
kserve = pytest.importorskip("kserve", reason="needs kserve, which pip installs")
NAME, MODELS, PORT = "films", "/mnt/models", 8080
TEXTS = ["a fine film", "a dull one"]


@pytest.fixture(scope="module")
def resources() -> dict[str, dict[str, Any]]:
    """The resources of the file by their kinds."""
    text = (ROOT / "examples" / "kserve.yaml").read_text(encoding="utf-8")
    return {each["kind"]: each for each in yaml.safe_load_all(text)}


class Pod:
    """The container of the runtime, as a process."""

    def __init__(self, container: dict[str, Any], model: Path, folder: Path):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        (program,), args = container["command"], container["args"]
        assert program == "ernie"
        args = [arg.replace("{{.Name}}", NAME).replace(MODELS, str(model)) for arg in args]
        args = [arg.replace(str(PORT), str(self.port)) for arg in args]
        self.process = subprocess.Popen([sys.executable, "-m", "ernie.cli", *args], cwd=folder)
        self._container = container

    def probe(self, kind: str) -> bool:
        """The answer to a probe, as the kubelet sees it."""
        asked = self._container[f"{kind}Probe"]["httpGet"]
        assert asked["port"] == PORT
        try:
            return httpx.get(f"http://127.0.0.1:{self.port}{asked['path']}", timeout=5).is_success
        except httpx.TransportError:
            return False


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return finished_run(tmp_path_factory.mktemp("finetune")) / "done"


@pytest.fixture
def pod(resources: dict[str, dict[str, Any]], run: Path, tmp_path: Path) -> Iterator[Pod]:
    (container,) = resources["ServingRuntime"]["spec"]["containers"]
    pod = Pod(container, run, tmp_path)
    yield pod
    pod.process.kill()
    pod.process.wait()


def unknown_fields(value: Any, kind: str, place: str) -> list[str]:
    """The places in a value that its kind lacks, by the classes of KServe and Kubernetes."""
    if parts_of := re.fullmatch(r"(?:list\[|dict\(str, )(.*)[])]", kind):
        parts = value.items() if isinstance(value, dict) else enumerate(value)
        return [each for name, part in parts for each in unknown_fields(part, parts_of[1], f"{place}.{name}")]
    client = pytest.importorskip("kubernetes.client")
    if (known := getattr(kserve, kind, None) or getattr(client, kind, None)) is None:
        return []  # a text or a number
    names = {written: name for name, written in known.attribute_map.items()}
    found = [f"{place}.{name}" for name in value if name not in names]
    for name in value.keys() & names.keys():
        found += unknown_fields(value[name], known.openapi_types[names[name]], f"{place}.{name}")
    return found


@pytest.mark.parametrize("kind", ["ServingRuntime", "InferenceService"])
def test_kserve_knows_every_field_of_the_resources(kind: str, resources: dict[str, dict[str, Any]]) -> None:
    resource = resources[kind]
    version = resource["apiVersion"].rpartition("/")[2].capitalize()
    assert unknown_fields(resource, f"{version}{kind}", kind) == []


def test_the_client_of_kserve_has_the_answers_of_the_model_itself(pod: Pod, run: Path) -> None:
    import inference

    end = time.monotonic() + 120
    while not pod.probe("readiness"):
        assert pod.process.poll() is None and time.monotonic() < end
        time.sleep(0.5)
    assert pod.probe("startup") and pod.probe("liveness")

    async def ask() -> tuple[bool, bool, bool, list[str]]:
        url = f"http://127.0.0.1:{pod.port}"
        async with kserve.InferenceRESTClient(kserve.RESTConfig(protocol="v2")) as client:
            given = kserve.InferInput("text", [len(TEXTS)], "BYTES", data=TEXTS)
            answer = await client.infer(url, kserve.InferRequest(NAME, [given]), model_name=NAME)
            labels = {output.name: output.data for output in answer.outputs}["label"]
            found = [await client.is_server_live(url), await client.is_server_ready(url)]
            return found[0], found[1], await client.is_model_ready(url, NAME), labels

    expected = [each["label"] for each in inference.load(run).predict(TEXTS)]
    assert asyncio.run(ask()) == (True, True, True, expected)


def test_a_pod_is_not_ready_before_it_ends_and_ends_in_time(pod: Pod, resources: dict[str, dict[str, Any]]) -> None:
    while not pod.probe("readiness"):
        assert pod.process.poll() is None
        time.sleep(0.5)
    seconds = resources["InferenceService"]["spec"]["predictor"]["terminationGracePeriodSeconds"]
    pod.process.send_signal(signal.SIGTERM)
    while pod.probe("readiness"):
        time.sleep(0.05)
    assert pod.probe("liveness")
    assert pod.process.wait(seconds) == 0
