"""The protocol for sessions, over real WebSockets."""

from __future__ import annotations

import asyncio
import gc
import json
import random
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from support.helpers import ROOT
from support.served import served, service_of_streams
from support.sessions import Loud, sound
from support.trained import trained
from websockets.asyncio.client import connect as asyncio_connect
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from ernie.audio.wave import of_pcm16, to_pcm16
from inference.face import Streaming
from inference.speaker import TextSpeaker
from inference.translator import TextTranslator
from serving.lifecycle import Phase
from serving.models import serve_model
from serving.saved_sessions import SessionFolder
from serving.service import Service
from serving.sessions import SessionLimits, serve_stream

LONG = "red blue. green red. " * 40


def make_service(limits: SessionLimits | None = None, folder: Path | None = None) -> Service:
    chains = {"interpreter": ("listen", "translate", "speak")}
    return service_of_streams(chains, limits, folder and SessionFolder(folder))


@contextmanager
def serving(limits: SessionLimits | None = None, folder: Path | None = None) -> Iterator[tuple[Service, str]]:
    service = make_service(limits, folder)
    with served(service) as address:
        yield service, address.replace("http", "ws")


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Service, str]]:
    with serving() as found:
        yield found


@contextmanager
def opened(address: str, model: str, **start: Any) -> Iterator[tuple[ClientConnection, dict[str, Any]]]:
    """A connection that has begun, and the server's first message."""
    with connect(f"{address}/models/{model}/stream") as client:
        client.send(json.dumps({"type": "start", **start}))
        yield client, json.loads(client.recv())


def say(client: ClientConnection, kind: str, **values: Any) -> None:
    client.send(json.dumps({"type": kind, **values}))


def heard(client: ClientConnection) -> tuple[Any, list[dict[str, Any]], int | None]:
    """Everything until the connection closes: the output, the other messages, and the code."""
    output: list[Any] = []
    messages: list[dict[str, Any]] = []
    try:
        while True:
            message = client.recv(timeout=60)
            found = message if isinstance(message, bytes) else json.loads(message)
            if isinstance(found, bytes) or found["type"] == "output":
                output.append(found if isinstance(found, bytes) else found["text"])
            else:
                messages.append(found)
    except ConnectionClosed as closed:
        code = closed.rcvd.code if closed.rcvd is not None else None
    return (b"" if output and isinstance(output[0], bytes) else "").join(output), messages, code


def settled(service: Service) -> bool:
    """Whether, within half a minute, nothing of any session is left."""
    for _ in range(3000):
        if not service.sessions.live and service.engine.waiting == (0, 0):
            return True
        time.sleep(0.01)
    return False


def test_text_comes_back_translated(shared: tuple[Service, str]) -> None:
    with opened(shared[1], "translate") as (client, ready):
        assert ready["type"] == "ready"
        assert (ready["takes"], ready["gives"], ready["received"]) == ({"kind": "text"}, {"kind": "text"}, 0)
        for piece in ("re", "d bl", "ue\ngreen"):
            say(client, "text", text=piece)
        say(client, "end")
        assert heard(client) == ("rot blau\ngruen\n", [{"type": "done"}], 1000)


def test_sound_comes_back_as_text_however_its_bytes_are_cut(shared: tuple[Service, str]) -> None:
    data = to_pcm16(sound(("blue", "red", "green")))
    with opened(shared[1], "listen") as (client, ready):
        assert ready["takes"] == {"kind": "sound", "sample_rate": 8000}
        for first in range(0, len(data), 1001):
            client.send(data[first : first + 1001])
        client.send(b"x")
        say(client, "end")
        text, messages, code = heard(client)
    assert text.split() == ["blue", "red", "green"]
    assert messages == [
        {"type": "note", "message": "half a sample after the last whole one is left out"},
        {"type": "done"},
    ]
    assert code == 1000


def test_a_voice_answers_with_samples(shared: tuple[Service, str]) -> None:
    with opened(shared[1], "speak") as (client, ready):
        assert ready["gives"] == {"kind": "sound", "sample_rate": 8000}
        say(client, "text", text="red blue")
        say(client, "end")
        samples, messages, _ = heard(client)
    expected = np.concatenate(list(TextSpeaker(trained("synthesize").model).speak("red blue")))
    assert samples == to_pcm16(expected)
    assert messages == [{"type": "done"}]


def test_a_chain_takes_sound_and_gives_sound(shared: tuple[Service, str]) -> None:
    with opened(shared[1], "interpreter") as (client, ready):
        assert (ready["takes"]["kind"], ready["gives"]["kind"]) == ("sound", "sound")
        client.send(to_pcm16(sound(("blue", "red"))))
        say(client, "end")
        samples, messages, code = heard(client)
    assert samples
    assert (messages[-1], code) == ({"type": "done"}, 1000)


def test_sound_at_another_rate_is_resampled(shared: tuple[Service, str]) -> None:
    pytest.importorskip("soxr")
    samples = np.repeat(sound(("blue", "red", "green")), 2)
    with opened(shared[1], "listen", sample_rate=16000) as (client, ready):
        assert ready["takes"]["sample_rate"] == 16000
        assert ready["resumable"] is False
        client.send(to_pcm16(samples))
        say(client, "end")
        assert heard(client)[0].split() == ["blue", "red", "green"]


# It keeps a session busy until the next messages are there.
MUCH = json.dumps({"type": "text", "text": "red blue green\n" * 200})


@pytest.mark.parametrize(
    ("model", "start", "sent", "code", "reason"),
    [
        ("nobody", {}, [], 1008, "there is no model 'nobody' here"),
        ("vectors", {}, [], 1008, "vectors: a model with the face encode takes no streams; those that transcribe"),
        ("translate", {"sample_rate": 8000}, [], 1008, "sample_rate: this session takes text"),
        ("listen", {"sample_rate": 3}, [], 1008, "sample_rate: expected .* samples a second, found 3"),
        ("listen", {"sample_rate": "x"}, [], 1008, "Expected `int"),
        ("listen", {"speed": 1}, [], 1008, "speed"),
        ("translate", {"resume": "x"}, [], 1008, "this server keeps no sessions"),
        ("translate", {}, [b"1234"], 1003, "this session takes text"),
        ("listen", {}, ['{"type": "text", "text": "red"}'], 1003, "this session takes sound"),
        ("translate", {}, ["{"], 1007, "the message is no JSON"),
        ("translate", {}, ['{"x": ' + "[" * 100_000], 1007, "the message is no JSON"),
        ("translate", {}, ['{"type": "sing"}'], 1008, "sing"),
        ("translate", {}, ['{"type": "text", "text": 7}'], 1008, "Expected `str`"),
        ("translate", {}, [MUCH, '{"type": "end"}', '{"type": "text", "text": "red"}'], 1008, "the input .* is over"),
        ("translate", {}, ['{"type": "save"}'], 1008, "this server keeps no sessions"),
    ],
)
def test_what_is_wrong_is_told_in_a_sentence_and_closes_the_connection(
    shared: tuple[Service, str], model: str, start: dict[str, Any], sent: Sequence[Any], code: int, reason: str
) -> None:
    service, address = shared
    with connect(f"{address}/models/{model}/stream") as client:
        say(client, "start", **start)
        for message in sent:
            client.send(message)
        _, messages, found = heard(client)
    assert messages[-1]["type"] == "error", messages
    assert re.search(reason, messages[-1]["message"]), messages
    assert found == code
    assert settled(service)


def test_the_first_message_has_to_be_a_start(shared: tuple[Service, str]) -> None:
    for message, code in ((b"1234", 1003), ('{"type": "end"}', 1008), ("start", 1007), ("{}", 1008)):
        with connect(f"{shared[1]}/models/translate/stream") as client:
            client.send(message)
            _, messages, found = heard(client)
        assert (messages[0]["type"], found) == ("error", code), message


def test_a_message_that_is_too_long_closes_the_connection(shared: tuple[Service, str]) -> None:
    service, address = shared
    with opened(address, "listen") as (client, _), pytest.raises(ConnectionClosed):
        client.send(bytes(20_000_000))
        client.recv()
    assert settled(service)


def test_sessions_beside_one_another_get_what_each_gets_alone(shared: tuple[Service, str]) -> None:
    texts = [" ".join(np.random.default_rng(n).choice(["red", "blue", "green"], 1 + n % 6)) for n in range(24)]
    found: dict[int, Any] = {}

    def one(n: int) -> None:
        with opened(shared[1], "translate") as (client, _):
            for word in texts[n].split():
                say(client, "text", text=word + " ")
            say(client, "end")
            found[n] = heard(client)[0]

    threads = [threading.Thread(target=one, args=(n,)) for n in range(len(texts))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    translator = TextTranslator(trained("translate").model)
    assert [found[n] for n in range(len(texts))] == [f"{text}\n" for text, _ in translator.translate(texts)]


@pytest.mark.parametrize("moment", range(8))
def test_a_client_that_goes_away_at_any_moment_leaves_nothing_behind(shared: tuple[Service, str], moment: int) -> None:
    service, address = shared
    host, port = address.removeprefix("ws://").split(":")
    for model, piece in (("speak", LONG), ("listen", to_pcm16(sound(("blue", "red") * 6)))):
        client = connect(f"{address}/models/{model}/stream").__enter__()
        if moment > 0:
            say(client, "start")
        if moment > 1:
            client.recv()
        if moment > 2:
            client.send(piece if isinstance(piece, bytes) else json.dumps({"type": "text", "text": piece}))
        if moment > 3:
            time.sleep(0.01 * moment)
        if moment > 5:
            say(client, "end")
        if moment % 2:
            client.socket.shutdown(socket.SHUT_RDWR)
        else:
            client.close_socket() if hasattr(client, "close_socket") else client.socket.close()
    with httpx.Client(base_url=f"http://{host}:{port}") as http:
        assert http.get("/health/ready").status_code == 200
    assert settled(service)
    gc.collect()


def test_a_reader_that_does_not_read_is_paused_and_then_closed() -> None:
    service = make_service(SessionLimits(waiting_bytes=200_000))
    loud = serve_stream("loud", Streaming(Loud("x" * 20_000), None, None))
    service.models["loud"] = replace(service.models["translate"], stream=loud)
    with served(service) as address:
        streams = f"{address.replace('http', 'ws')}/models"
        client = connect(f"{streams}/loud/stream", max_queue=1, compression=None).__enter__()
        say(client, "start")
        client.recv()
        say(client, "text", text="x" * 1000)
        most = 0
        while not service.sessions.live:
            time.sleep(0.01)
        while service.sessions.live:
            most = max([most, *(session._unsent for session in list(service.sessions.live))])
            time.sleep(0.01)
        assert 200_000 < most < 300_000
        assert settled(service)
        with pytest.raises(ConnectionClosed):
            while True:
                client.recv(timeout=30)
        with opened(address.replace("http", "ws"), "translate") as (other, _):
            say(other, "text", text="red")
            say(other, "end")
            assert heard(other)[0] == "rot\n"


def test_a_client_that_does_nothing_is_closed() -> None:
    with serving(SessionLimits(idle_seconds=1.5)) as (service, address):
        with opened(address, "translate") as (client, _):
            say(client, "text", text="red ")
            _, messages, code = heard(client)
        assert messages == [{"type": "error", "kind": "overdue", "message": "nothing was sent for 1.5 s"}]
        assert code == 1008
        assert settled(service)


def test_one_session_too_many_is_told_to_try_again_later() -> None:
    with serving(SessionLimits(sessions=1)) as (service, address):
        with opened(address, "translate") as (first, _):
            with opened(address, "translate") as (second, refused):
                assert refused["kind"] == "overloaded"
                assert heard(second)[2] == 1013
            say(first, "end")
            assert heard(first)[2] == 1000
        assert settled(service)


def test_a_saved_session_goes_on_at_another_server(tmp_path: Path) -> None:
    with serving(folder=tmp_path) as (_, address), opened(address, "translate") as (client, ready):
        assert ready["resumable"] is True
        say(client, "text", text="red blue gre")
        say(client, "save")
        before, messages, code = heard(client)
    (state,) = messages
    assert (state["type"], state["received"], code) == ("state", len("red blue gre"), 1000)
    with serving(folder=tmp_path) as (_, address):
        with opened(address, "translate", resume=state["token"]) as (client, ready):
            assert ready["received"] == len("red blue gre")
            say(client, "text", text="en blue")
            say(client, "end")
            after, _, _ = heard(client)
        assert before + after == "rot blau gruen blau\n"
        with opened(address, "translate", resume=state["token"]) as (client, answer):
            assert "it was resumed before, or is too old" in answer["message"]


def test_at_the_end_of_a_server_sessions_get_a_token(tmp_path: Path) -> None:
    data = to_pcm16(sound(("blue", "red", "green")))
    with serving(folder=tmp_path) as (service, address), opened(address, "listen") as (client, _):
        client.send(data[:4001])
        while not service.sessions.live or not next(iter(service.sessions.live)).received:
            time.sleep(0.01)
        assert service._loop is not None
        asyncio.run_coroutine_threadsafe(service.lifecycle.leave(0, 5.0), service._loop).result()
        before, messages, code = heard(client)
        assert service.lifecycle.phase is Phase.DRAINING
        assert (messages[0]["type"], messages[0]["received"], code) == ("state", 2000, 1001)
        assert settled(service)
    token = messages[0]["token"]
    with serving(folder=tmp_path) as (_, address), opened(address, "listen", resume=token) as (client, ready):
        client.send(data[2 * ready["received"] :])
        say(client, "end")
        assert (before + heard(client)[0]).split() == ["blue", "red", "green"]


def test_at_the_end_of_a_server_without_a_folder_sessions_are_told_so() -> None:
    with serving() as (service, address), opened(address, "translate") as (client, _):
        assert service._loop is not None
        asyncio.run_coroutine_threadsafe(service.lifecycle.leave(0, 5.0), service._loop).result()
        _, messages, code = heard(client)
        assert (messages[0]["kind"], code) == ("leaving", 1001)


def test_live_sessions_and_the_sizes_of_steps_are_counted(shared: tuple[Service, str]) -> None:
    service, address = shared
    with httpx.Client(base_url=address.replace("ws", "http")) as http, opened(address, "translate") as (client, _):
        say(client, "text", text="red ")
        assert "ernie_sessions 1.0" in http.get("/metrics").text
        say(client, "end")
        heard(client)
        assert settled(service)
        text = http.get("/metrics").text
    assert "ernie_sessions 0.0" in text
    line = next(line for line in text.splitlines() if line.startswith('ernie_batch_inputs_count{work="translate/'))
    assert float(line.split()[1]) > 0


def test_samples_of_16_bits_are_read_as_they_were_written() -> None:
    numbers = np.array([-32768, -1, 0, 1, 32767], "<i2")
    assert (of_pcm16(numbers.tobytes()) * 32768).tolist() == numbers.tolist()
    assert np.abs(of_pcm16(to_pcm16(np.array([-1.0, 0.5, 1.0]))) - [-1, 0.5, 1]).max() < 1e-4


def test_a_session_goes_on_with_its_model_when_another_takes_its_place() -> None:
    with serving() as (service, address):
        old = service.models["translate"]
        with opened(address, "translate") as (client, _):
            say(client, "text", text="red blue ")
            model = deepcopy(trained("translate").model)
            for weight in model.head.parameters():
                weight.set_value(0 * weight)
            service.put(serve_model("translate", "new", TextTranslator(model), 1 << 14, service.engine))
            with opened(address, "translate") as (other, _):
                say(other, "text", text="red blue\n")
                say(other, "end")
                assert heard(other)[0] != "rot blau\n"
            assert service.is_busy_with(old)
            say(client, "text", text="green\n")
            say(client, "end")
            assert heard(client)[0] == "rot blau gruen\n"
        assert settled(service)
        assert not service.is_busy_with(old)


async def gone_at_some_point(address: str, seed: int) -> None:
    """Talk to a model for a random time, and go away in one of two ways."""
    numbers = random.Random(seed)
    model = numbers.choice(["listen", "translate", "speak", "interpreter"])
    data = to_pcm16(sound(("blue", "red", "green")))
    client = await asyncio_connect(f"{address}/models/{model}/stream", compression=None)

    async def talk() -> None:
        await client.send('{"type": "start"}')
        await client.recv()
        for n in range(6):
            is_sound = model in ("listen", "interpreter")
            await client.send(data[801 * n : 801 * (n + 1)] if is_sound else '{"type": "text", "text": "red blue.\\n"}')
            await asyncio.sleep(0.005 * numbers.random())
        await client.send('{"type": "end"}')
        async for _ in client:
            pass

    with suppress(asyncio.TimeoutError):
        await asyncio.wait_for(talk(), 0.2 * numbers.random())
    if numbers.random() < 0.5:
        client.transport.abort()
    await client.close()


def test_many_clients_that_go_away_at_random_leave_nothing_behind(shared: tuple[Service, str]) -> None:
    service, address = shared

    async def all_of_them() -> None:
        for first in range(0, 120, 12):
            await asyncio.gather(*(gone_at_some_point(address, first + n) for n in range(12)))

    asyncio.run(all_of_them())
    assert settled(service)
    assert service.lifecycle.open == 0


def test_a_session_that_cannot_be_written_ends_with_the_reason(
    shared: tuple[Service, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setattr(shared[0].sessions, "_folder", SessionFolder(tmp_path / "file"))
    with connect(f"{shared[1]}/models/translate/stream") as client:
        say(client, "start")
        say(client, "save")
        _, messages, code = heard(client)
    sentence = "the session could not be kept: File exists"
    assert (messages[-1], code) == ({"type": "error", "kind": "not_kept", "message": sentence}, 1011)
    assert [record.exc_info for record in caplog.records if "could not be kept" in record.message] == [None]


def test_the_example_client_sends_a_sound_and_writes_what_is_said(shared: tuple[Service, str], tmp_path: Path) -> None:
    soundfile = pytest.importorskip("soundfile")
    soundfile.write(tmp_path / "said.wav", sound(("blue", "red", "green")), 8000)
    command = [sys.executable, str(ROOT / "examples" / "live_stream.py")]
    said = subprocess.run(
        [*command, f"{shared[1]}/models/listen/stream", str(tmp_path / "said.wav")], capture_output=True, text=True
    )
    assert (said.stdout.split(), said.returncode) == (["blue", "red", "green"], 0), said.stderr
    url = f"{shared[1]}/models/translate/stream"
    text = subprocess.run([*command, url], input="red\nblue green\n", capture_output=True, text=True)
    assert (text.stdout, text.returncode) == ("rot\nblau gruen\n", 0), text.stderr
    wrong = [
        (f"{shared[1]}/models/nobody/stream", "", "there is no model 'nobody' here"),
        (f"{shared[1]}/models/listen", "", "there are no sessions at /models/listen; expected /models/MODEL/stream"),
        (f"{shared[1]}/models/listen/stream", "none.wav", "error: none.wav: there is no such file"),
    ]
    for address, file, sentence in wrong:
        found = subprocess.run([*command, address, file], capture_output=True, text=True)
        assert (found.returncode, sentence in found.stderr) == (1, True), found.stderr
        assert "Traceback" not in found.stderr
