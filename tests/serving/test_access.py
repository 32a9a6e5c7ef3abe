"""Keys, encryption and origins: who may ask a server, and what its log tells of it."""

from __future__ import annotations

import base64
import json
import signal
import ssl
import subprocess
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from support.echoing import echo_service, running, until
from support.serving_process import Server, save_model, serving
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect
from websockets.typing import Origin, Subprotocol

from ernie.errors import UserError
from serving.access import Access, Keys
from serving.app import make_app
from serving.http import Problem

ADA, ROOT = "ada-key-0123456789", "root-key-0123456789"
SECRET = "a very private text"


def write(file: Path, *lines: str, mode: int = 0o600) -> Path:
    file.write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    file.chmod(mode)
    return file


def bearer(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


def certificate(folder: Path) -> None:
    """Write cert.pem and key.pem for this machine, which have signed themselves."""
    names = ["-subj", "/CN=localhost", "-addext", "subjectAltName=DNS:localhost,IP:127.0.0.1"]
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", *names]
    done = subprocess.run([*command, "-keyout", "key.pem", "-out", "cert.pem"], cwd=folder, capture_output=True)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A server with TLS, and with the keys of Ada and of an admin."""
    folder = tmp_path_factory.mktemp("access")
    save_model(folder / "model")
    certificate(folder)
    write(folder / "keys", "# who may ask", f"{ADA} ada", "", f"{ROOT} root admin")
    tls = ["--set", "tls_certificate=cert.pem", "--set", "tls_key=key.pem"]
    with serving(folder, "loud=model", "--port", "0", "--api-key-file", "keys", *tls) as server:
        yield server


@pytest.fixture
def client(server: Server) -> Iterator[httpx.Client]:
    context = ssl.create_default_context(cafile=server.folder / "cert.pem")
    with server.client(verify=context) as client:
        yield client


def test_a_request_without_a_known_key_is_refused_in_the_form_of_its_protocol(client: httpx.Client) -> None:
    for headers in ({}, bearer("unknown-key-0123456789"), {"authorization": f"Basic {ADA}"}, {"x-api-key": "other"}):
        answer = client.post("/models/loud/encode", json={"inputs": ["p"]}, headers=headers)
        assert answer.status_code == 401
        assert answer.headers["www-authenticate"] == "Bearer"
        assert answer.json()["error"]["kind"] == "unauthorized"
    answer = client.post("/v1/embeddings", json={"model": "loud", "input": "p"})
    assert answer.status_code == 401
    assert {"message", "type", "code"} <= answer.json()["error"].keys()


@pytest.mark.parametrize("headers", [bearer(ADA), {"x-api-key": ADA}, {"authorization": f"bearer  {ADA}"}])
def test_a_key_may_come_in_two_headers(client: httpx.Client, headers: dict[str, str]) -> None:
    assert client.post("/models/loud/encode", json={"inputs": ["p"]}, headers=headers).status_code == 200


def test_a_session_needs_a_key_at_its_handshake(server: Server) -> None:
    context = ssl.create_default_context(cafile=server.folder / "cert.pem")
    url = server.url.replace("https", "wss") + "/models/loud/stream"
    with pytest.raises(InvalidStatus) as caught:
        connect(url, ssl=context)
    assert caught.value.response.status_code == 401
    assert b"a key is needed here" in (caught.value.response.body or b"")
    with pytest.raises(InvalidStatus) as caught:
        connect(url, ssl=context, additional_headers=bearer(ADA), origin=Origin("https://other.example"))
    assert caught.value.response.status_code == 403
    with connect(url, ssl=context, additional_headers=bearer(ADA)) as connection:
        connection.send("{}")
        assert json.loads(connection.recv())["type"] == "error"


def offered(key: str) -> list[Subprotocol]:
    """The subprotocols that a page offers to show a key."""
    written = base64.urlsafe_b64encode(key.encode()).decode().rstrip("=")
    return [Subprotocol("ernie"), Subprotocol(f"ernie.key.{written}")]


def test_a_page_shows_its_key_as_a_subprotocol_of_a_session_and_nowhere_else(
    server: Server, client: httpx.Client
) -> None:
    context = ssl.create_default_context(cafile=server.folder / "cert.pem")
    url = server.url.replace("https", "wss") + "/models/loud/stream"
    with connect(url, ssl=context, subprotocols=offered(ADA), origin=Origin(server.url)) as connection:
        assert connection.subprotocol == "ernie"
        connection.send("{}")
        assert json.loads(connection.recv())["type"] == "error"
    until(lambda: any(line.get("status") == 101 and line["client"] == "ada" for line in server.log))
    for shown in (offered("unknown-key-0123456789"), [Subprotocol("ernie"), Subprotocol("ernie.key.!")]):
        with pytest.raises(InvalidStatus) as caught:
            connect(url, ssl=context, subprotocols=shown)
        assert caught.value.response.status_code == 401
    assert offered(ADA)[1] not in server.text
    shown_elsewhere = {"sec-websocket-protocol": ", ".join(offered(ADA))}
    assert client.get("/models", headers=shown_elsewhere).status_code == 401


def test_probes_need_no_key_and_metrics_do(client: httpx.Client) -> None:
    assert client.get("/health/live").status_code == 200
    assert client.get("/").status_code == 200
    assert client.get("/page/app.js").status_code == 200
    assert client.get("/models/films/card").status_code == 401
    assert client.post("/", json={"inputs": "a"}).status_code == 401
    assert client.get("/health/ready").status_code == 200
    assert client.get("/metrics").status_code == 401
    assert client.get("/metrics", headers=bearer(ADA)).status_code == 200


def test_only_an_admin_reloads_a_model(client: httpx.Client) -> None:
    assert client.post("/models/loud/reload").status_code == 401
    assert client.post("/models/loud/reload", headers=bearer(ADA)).status_code == 403
    assert client.post("/models/loud/reload", headers=bearer(ROOT)).json()["name"] == "loud"
    assert client.post("/models/quiet/reload", headers=bearer(ROOT)).status_code == 404


def test_the_log_tells_who_asked_for_what_and_never_a_text_or_a_key(server: Server, client: httpx.Client) -> None:
    ids = {"x-request-id": "trace-7"}
    answer = client.post("/models/loud/encode", json={"inputs": [SECRET, SECRET]}, headers={**bearer(ADA), **ids})
    assert answer.headers["x-request-id"] == "trace-7"
    client.post("/models/loud/encode", json={"inputs": [SECRET], "wrong": 1}, headers=bearer(ADA))
    client.post("/models/loud/encode", content=f'{{"inputs": ["{SECRET}', headers=bearer(ADA))
    client.post("/models/loud/encode", json={"inputs": [SECRET]}, headers=bearer("x" + ADA))
    bad = client.get("/models", headers={**bearer(ADA), "x-request-id": "a b " + "c" * 200})
    assert len(bad.headers["x-request-id"]) == 32
    until(lambda: any(line.get("id") == bad.headers["x-request-id"] for line in server.log))
    (line,) = [line for line in server.log if line.get("id") == "trace-7"]
    expected = {"method": "POST", "route": "/models/{model}/{operation}", "status": 200, "client": "ada"}
    expected |= {"model": "loud", "operation": "encode", "rows": 2, "message": "request", "level": "info"}
    assert line.items() >= expected.items()
    assert line["tokens"] > 2
    assert line["seconds"] >= line["queue_seconds"] + line["compute_seconds"] > 0
    assert [line["problem"] for line in server.log if line.get("status") in (400, 422)] != []
    for private in (SECRET, ADA, ROOT):
        assert private not in server.text
    assert "/health" not in server.text


def test_sighup_reads_the_keys_again_and_keeps_them_if_they_cannot_be_read(
    server: Server, client: httpx.Client
) -> None:
    keys = server.folder / "keys"
    before = keys.read_text(encoding="utf-8")
    try:
        write(keys, f"{ROOT} root admin", "new-key-0123456789 new")
        server.send(signal.SIGHUP)
        until(lambda: client.get("/models", headers=bearer("new-key-0123456789")).status_code == 200)
        assert client.get("/models", headers=bearer(ADA)).status_code == 401
        write(keys, "short")
        server.send(signal.SIGHUP)
        until(lambda: server.says("nothing was read again"))
        assert client.get("/models", headers=bearer("new-key-0123456789")).status_code == 200
    finally:
        write(keys, before)
        server.send(signal.SIGHUP)
        until(lambda: client.get("/models", headers=bearer(ADA)).status_code == 200)


@pytest.mark.parametrize(
    ("lines", "mode", "expected"),
    [
        ([f"{ADA} ada"], 0o644, "keys: other users may read or change these keys; run: chmod 600"),
        ([f"{ADA} ada"], 0o660, "keys: other users may read or change these keys"),
        (["# only this"], 0o600, "keys: expected a key a line, found none"),
        (["", "short name"], 0o600, "keys:2: expected a key of at least 16 ASCII characters, found 5 characters"),
        ([f"{ADA} ada lovelace"], 0o600, "keys:1: expected the client's name in one word"),
        ([f"{ADA} a/b"], 0o600, "keys:1: expected the client's name in one word"),
        ([f"{ADA} ada", f"{ADA} eve"], 0o600, "keys:2: this key stands here twice, before for ada"),
    ],
)
def test_a_file_of_keys_that_is_no_use_says_why_without_a_key(
    tmp_path: Path, lines: list[str], mode: int, expected: str
) -> None:
    file = write(tmp_path / "keys", *lines, mode=mode)
    with pytest.raises(UserError) as caught:
        Keys.read(file)
    assert expected in str(caught.value)
    assert ADA not in str(caught.value)


def test_a_missing_file_of_keys_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="keys: cannot be read: No such file"):
        Keys.read(tmp_path / "keys")


def test_keys_without_a_name_are_called_by_their_line(tmp_path: Path) -> None:
    keys = Keys.read(write(tmp_path / "keys", "", ADA, f"{ROOT} admin"))
    ada, root = keys.holder(ADA.encode()), keys.holder(ROOT.encode())
    assert ada is not None and (ada.client, ada.is_admin) == ("key-2", False)
    assert root is not None and (root.client, root.is_admin) == ("key-3", True)
    assert keys.holder(ADA[:-1].encode()) is None


@pytest.mark.parametrize(
    ("address", "headers", "allowed"),
    [
        ("127.0.0.1", {}, True),
        ("::1", {}, True),
        ("10.0.0.7", {}, False),
        ("127.0.0.1", {b"x-forwarded-for": b"10.0.0.7"}, False),
        ("127.0.0.1", {b"origin": b"https://other.example", b"host": b"127.0.0.1:8000"}, False),
        ("127.0.0.1", {b"origin": b"http://127.0.0.1:8000", b"host": b"127.0.0.1:8000"}, True),
    ],
)
def test_without_keys_only_programs_of_the_same_machine_reload(
    address: str, headers: dict[bytes, bytes], allowed: bool
) -> None:
    if allowed:
        assert Access().client("admin", address, headers) == address
    else:
        with pytest.raises(Problem, match="only for programs of the same machine"):
            Access().client("admin", address, headers)


def test_a_page_of_another_origin_opens_no_session_unless_it_is_allowed() -> None:
    headers = {b"origin": b"https://other.example", b"host": b"127.0.0.1:8000"}
    with pytest.raises(Problem, match="pages of this origin may not ask"):
        Access().client("key", "127.0.0.1", headers, is_socket=True)
    allowed = Access(origins=("https://other.example",))
    assert allowed.client("key", "127.0.0.1", headers, is_socket=True) == "127.0.0.1"


def test_pages_of_other_origins_are_told_nothing_unless_asked() -> None:
    asked = {"origin": "https://pages.example", "access-control-request-method": "POST"}
    with running(make_app(echo_service())) as client:
        assert "access-control-allow-origin" not in client.options("/models", headers=asked).headers
        assert "access-control-allow-origin" not in client.get("/models", headers=asked).headers
    with running(make_app(echo_service(), access=Access(origins=("https://pages.example",)))) as client:
        assert client.options("/models", headers=asked).status_code == 200
        answer = client.get("/models", headers=asked)
        assert answer.headers["access-control-allow-origin"] == "https://pages.example"
        other = client.get("/models", headers={"origin": "https://other.example"})
        assert "access-control-allow-origin" not in other.headers


def test_json_in_the_log_is_one_object_a_line(server: Server) -> None:
    lines = [line for line in server.text.splitlines() if line]
    assert all(isinstance(json.loads(line), dict) for line in lines)
