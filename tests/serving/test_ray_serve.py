"""The example for Ray Serve runs: a whole server in each replica of a local cluster."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import pytest
from support.finished import finished_run
from support.helpers import ROOT

pytestmark = pytest.mark.slow


def asked(port: int, path: str, body: object = None) -> object:
    content = None if body is None else json.dumps(body).encode()
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", content, timeout=60) as answer:
        return json.loads(answer.read())


def is_ready(port: int) -> bool:
    try:
        return asked(port, "/health/ready") == {"ready": True, "models": {"model": True}}
    except OSError:  # also a status of an error
        return False


def test_the_example_answers_as_the_model_itself_does(tmp_path: Path) -> None:
    pytest.importorskip("ray.serve", reason="needs ray[serve], which pip installs")
    run = finished_run(tmp_path) / "done"
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        [sys.executable, str(ROOT / "examples" / "ray_serve.py"), str(run), "--port", str(port)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "RAY_AUTH_MODE": "disabled"},
        cwd=tmp_path,
        start_new_session=True,
    )
    try:
        end = time.monotonic() + 180
        while not is_ready(port):
            assert process.poll() is None
            assert time.monotonic() < end
            time.sleep(1)
        import inference

        expected = next(inference.load(run).predict(["a fine film"]))
        assert asked(port, "/models/model/predict", {"inputs": ["a fine film"]})["results"] == [{"value": expected}]  # type: ignore[index]
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            process.wait(30)
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
