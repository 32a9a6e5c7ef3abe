"""A server that cannot start says why in a sentence, with exit status 2."""

from __future__ import annotations

import os
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.processes import run_ernie
from support.serving_process import save_model
from support.trained import trained

from ernie.cli import main
from ernie.errors import UserError
from serving.config import LimitsConfig, ModelConfig, ServeConfig
from serving.run import bind, make_service


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("startup")
    save_model(folder / "model")
    (folder / "empty").mkdir()
    (folder / "bad.pem").write_text("no certificate\n")
    (folder / "keys").write_text("a-key-0123456789\n")
    (folder / "keys").chmod(0o644)
    (folder / "mistake.yaml").write_text("models: {loud: {path: model}}\nprot: 80\n")
    return folder


@pytest.fixture
def taken() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["model", "--port", "{taken}"], "cannot listen on port {taken} of 127.0.0.1: address already in use"),
        (["model", "--host", "203.0.113.1", "--port", "0"], "cannot listen on port 0 of 203.0.113.1: cannot assign"),
        (["nowhere", "--port", "0"], "models.nowhere: nowhere: "),
        (["empty", "--port", "0"], "models.empty: "),
        (["model", "--port", "0", "--api-key-file", "keys"], "other users may read or change these keys"),
        (["model", "--port", "0", "--set", "tls_certificate=bad.pem", "--set", "tls_key=bad.pem"], "tls_certificate"),
        (["model", "--port", "0", "--set", "replicas=2"], "several replicas need a port from which to count"),
        (["mistake.yaml"], "mistake.yaml:2: prot: unknown key. Did you mean 'port'?"),
        (["a=model", "a=empty"], "two models are called 'a'"),
    ],
)
def test_what_keeps_a_server_from_starting_is_one_sentence(
    words: list[str], expected: str, folder: Path, taken: int
) -> None:
    done = run_ernie(["serve", *(word.replace("{taken}", str(taken)) for word in words)], folder)
    assert done.returncode == 2, done.stderr
    assert "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-1].startswith("ernie: error: ")
    assert expected.replace("{taken}", str(taken)) in done.stderr


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (["=model"], "=model: expected a name before the =, such as films=model"),
        (["model", "a.yaml"], "a.yaml: give one YAML file, which has all models, or else folders of models"),
        (["a.yaml", "--precision", "fp32"], "--precision: is for folders of models; each model in a.yaml has a key"),
        (["a.yaml", "--plugin", "math"], "--plugin: is for folders of models; each model in a.yaml has a key trust"),
    ],
)
def test_arguments_that_contradict_each_other_are_refused(
    words: list[str], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", *words]) == 2
    assert capsys.readouterr().err.startswith(f"ernie: error: {expected}")


def test_a_folder_of_sessions_that_cannot_be_written_to_is_refused_before_there_are_sessions(folder: Path) -> None:
    for path in (folder / "keys", folder / "keys" / "below"):
        with pytest.raises(UserError, match=f"sessions_folder: {path}: cannot be written to: "):
            make_service(ServeConfig(models={"a": ModelConfig("nowhere")}, sessions_folder=path))


def test_a_missing_package_is_named_with_the_way_to_install_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import serving.commands.serve as command

    monkeypatch.setattr(command, "find_spec", lambda name: None if name == "uvicorn" else object())
    assert main(["serve", "model"]) == 2
    assert capsys.readouterr().err == ("ernie: error: a server needs uvicorn: pip install 'ernie-continual[serving]'\n")


@pytest.mark.parametrize(("kind", "package"), [("transcribe", "soxr"), ("synthesize", "soundfile")])
def test_a_server_of_sound_names_the_extra_that_it_needs(kind: str, package: str, tmp_path: Path) -> None:
    trained(kind).model.save(tmp_path / "sound")
    (tmp_path / f"{package}.py").write_text("raise ImportError('it is not here')\n")
    done = run_ernie(["serve", "sound", "--port", "0"], tmp_path)
    assert (done.returncode, "Traceback" in done.stderr) == (2, False), done.stderr
    assert done.stderr.splitlines()[-1] == (
        f"ernie: error: models.sound: sound needs the package {package} (it is not here): install the extra, "
        "pip install 'ernie-continual[speech]'"
    )


def test_a_port_is_given_back_by_a_server_that_has_ended() -> None:
    first = bind("127.0.0.1", 0)
    port = first.getsockname()[1]
    first.close()
    second = bind("127.0.0.1", port)
    assert second.getsockname()[1] == port
    second.close()


def test_a_host_may_be_a_name() -> None:
    listener = bind("localhost", 0)
    assert listener.getsockname()[0] in ("127.0.0.1", "::1")
    listener.close()


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ({"port": 65536}, "port: expected at most 65535"),
        ({"port": 65534, "replicas": 4}, "port: expected at most 65532"),
        ({"models": {}}, "models: expected at least one"),
        ({"models": {"a/b": ModelConfig("x")}}, "expected a name without slashes"),
        ({"tls_key": Path("key")}, "give both or neither"),
        ({"grace_seconds": -1.0}, "grace_seconds: expected at least 0"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(keys: dict[str, object], expected: str) -> None:
    with pytest.raises(UserError, match=expected):
        ServeConfig(**{"models": {"a": ModelConfig("x")}, **keys})  # type: ignore[arg-type]


def test_limits_that_make_no_sense_are_refused() -> None:
    for name in ("connections", "head_kb", "head_seconds", "body_seconds", "idle_seconds", "timeout"):
        with pytest.raises(UserError, match=f"{name}: expected at least"):
            LimitsConfig(**{name: 0})  # type: ignore[arg-type]


def test_a_replica_finds_its_number_in_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    from serving.replica import VARIABLE, Replica

    assert Replica.of_environment() is None
    monkeypatch.setenv(VARIABLE, "2 17")
    replica = Replica.of_environment()
    assert replica is not None
    assert (replica.index, replica.file) == (2, 17)
    assert VARIABLE not in os.environ  # nothing that this process starts is a replica, too
