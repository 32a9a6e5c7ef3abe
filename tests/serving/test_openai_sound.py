"""OpenAI's protocol on sound, with OpenAI's own client."""

from __future__ import annotations

import asyncio
import base64
import io
import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import openai
import pytest
from support.served import served, service_of_streams
from support.sessions import Loud, sound
from support.trained import trained

from ernie.audio.wave import of_pcm16, read_wave
from inference.captions import CaptionWriter
from inference.commands.transcribe_sound import from_files
from inference.face import Streaming
from inference.recognizer import SpeechRecognizer
from inference.speaker import TextSpeaker
from serving.service import Service
from serving.sessions import Session, SessionLimits, serve_stream

soundfile = pytest.importorskip("soundfile")
pytest.importorskip("soxr")
WORDS = ("blue", "red", "green")
LONG = "red blue. green red. " * 40


def make_service(limits: SessionLimits | None = None) -> Service:
    chains = {"interpreter": ("listen", "translate"), "reader": ("translate", "speak")}
    return service_of_streams(chains, limits, whole=SpeechRecognizer(trained("transcribe").model))


@pytest.fixture(scope="module")
def shared() -> Iterator[tuple[Service, str]]:
    service = make_service()
    with served(service) as address:
        yield service, address


@pytest.fixture
def client(shared: tuple[Service, str]) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(base_url=f"{shared[1]}/v1", api_key="none", max_retries=0) as client:
        yield client


@cache
def file_of(words: Sequence[str] = WORDS, kind: str = "wav", rate: int = 8000) -> bytes:
    """A sound file of some words."""
    out = io.BytesIO()
    soundfile.write(out, np.repeat(sound(words), rate // 8000), rate, format=kind)
    return out.getvalue()


def command(kind: str, model: str, data: bytes, folder: Path) -> str:
    """What `ernie transcribe` writes for a file."""
    (folder / "said").write_bytes(data)
    out = io.StringIO()
    captions = None if kind == "text" else CaptionWriter(kind, out)  # type: ignore[arg-type]
    found = trained("streaming" if model == "listen" else "transcribe").model
    from_files(found, [str(folder / "said")], False, out, None, captions)
    return out.getvalue()


def nothing_is_left(service: Service) -> bool:
    """Whether, within half a minute, nothing of any request is left."""
    for _ in range(3000):
        if not service.sessions.live and service.engine.waiting == (0, 0) and not service.lifecycle.open:
            return True
        time.sleep(0.01)
    return False


@pytest.mark.parametrize("model", ["listen", "whole"])
@pytest.mark.parametrize("kind", ["text", "srt", "vtt"])
def test_a_transcript_is_to_the_letter_that_of_the_command(
    client: openai.OpenAI, tmp_path: Path, model: str, kind: Any
) -> None:
    for rate in (8000, 16000):
        data = file_of(WORDS, rate=rate)
        found = client.audio.transcriptions.create(model=model, file=("said.wav", data), response_format=kind)
        assert found == command(kind, model, data, tmp_path)
        assert "blue" in found and "green" in found


@pytest.mark.parametrize("model", ["listen", "whole"])
@pytest.mark.parametrize("kind", ["wav", "flac", "ogg", "mp3"])
def test_a_sound_may_be_a_file_of_any_format(client: openai.OpenAI, tmp_path: Path, model: str, kind: str) -> None:
    data = file_of(WORDS, kind)
    found = client.audio.transcriptions.create(model=model, file=(f"said.{kind}", data))
    assert found.text + "\n" == command("text", model, data, tmp_path)
    assert found.text.split()[0] == "blue"
    assert found.usage.seconds == len(read_wave(io.BytesIO(data), 8000).samples) / 8000  # type: ignore[union-attr]


@pytest.mark.parametrize("model", ["listen", "whole"])
def test_words_and_lines_have_the_times_of_the_command(client: openai.OpenAI, tmp_path: Path, model: str) -> None:
    data = file_of()
    line = json.loads(command("jsonl", model, data, tmp_path))
    found = client.audio.transcriptions.create(
        model=model,
        file=data,
        response_format="verbose_json",
        timestamp_granularities=["word", "segment"],
        language="en",
    )
    assert found.words is not None and found.segments is not None
    assert [(word.word, word.start, word.end) for word in found.words] == [
        (word["word"], word["begin"], word["end"]) for word in line["words"]
    ]
    (segment,) = found.segments
    assert (segment.text, segment.start, segment.end) == (line["text"], line["begin"], line["end"])
    assert -1 < segment.avg_logprob <= 0
    assert (found.text, found.duration, found.language) == (line["text"], 0.3, "en")
    only = client.audio.transcriptions.create(model=model, file=data, response_format="verbose_json")
    assert only.words is None and only.segments


@pytest.mark.parametrize("model", ["listen", "whole"])
def test_text_comes_as_events_that_add_up_to_it(client: openai.OpenAI, model: str) -> None:
    data = file_of(WORDS * 8) if model == "listen" else file_of()
    whole = client.audio.transcriptions.create(model=model, file=data).text
    *deltas, done = client.audio.transcriptions.create(model=model, file=data, stream=True)
    assert all(event.type == "transcript.text.delta" for event in deltas)
    assert len(deltas) > (3 if model == "listen" else 0)
    assert "".join(event.delta for event in deltas) == done.text == whole  # type: ignore[union-attr]
    assert done.type == "transcript.text.done"


def test_many_files_at_once_get_what_each_gets_alone(shared: tuple[Service, str], tmp_path: Path) -> None:
    names = ["red", "blue", "green"]
    said = [tuple(np.random.default_rng(n).choice(names, 2 + n % 5)) for n in range(24)]
    files = [file_of(words) for words in said]

    async def ask_all() -> list[Any]:
        async with openai.AsyncOpenAI(base_url=f"{shared[1]}/v1", api_key="none", max_retries=0) as client:

            async def one(n: int) -> Any:
                if n % 2:
                    return await client.audio.transcriptions.create(
                        model="listen", file=files[n], response_format="text"
                    )
                events = await client.audio.transcriptions.create(model="listen", file=files[n], stream=True)
                *_, last = [event async for event in events]
                return f"{last.text}\n"  # type: ignore[union-attr]

            return await asyncio.gather(*(one(n) for n in range(len(files))))

    assert asyncio.run(ask_all()) == [command("text", "listen", data, tmp_path) for data in files]
    assert nothing_is_left(shared[0])


@pytest.mark.filterwarnings("ignore:deprecated")
def test_a_chain_translates_what_is_said(client: openai.OpenAI) -> None:
    found = client.audio.translations.create(model="interpreter", file=file_of(("blue", "red")))
    assert found.text == "blau rot"
    text = client.audio.translations.create(model="interpreter", file=file_of(("red",)), response_format="text")
    assert text == "rot\n"


def spoken(text: str) -> np.ndarray:
    """The samples of a text, as `ernie speak` writes them."""
    return np.concatenate(list(TextSpeaker(trained("synthesize").model).speak(text)))


@pytest.mark.parametrize("kind", ["wav", "flac"])
def test_a_spoken_text_has_the_samples_of_the_command(client: openai.OpenAI, tmp_path: Path, kind: Any) -> None:
    found = client.audio.speech.create(model="speak", voice="default", input=" red blue\n", response_format=kind)
    assert found.response.headers["content-type"] == f"audio/{kind}"
    soundfile.write(tmp_path / f"expected.{kind}", spoken("red blue"), 8000)
    expected, rate = soundfile.read(tmp_path / f"expected.{kind}", dtype="int16")
    (tmp_path / f"said.{kind}").write_bytes(found.content)
    samples, found_rate = soundfile.read(tmp_path / f"said.{kind}", dtype="int16")
    assert (samples.tolist(), found_rate) == (expected.tolist(), rate)
    assert len(read_wave(tmp_path / f"said.{kind}", 8000).samples) == len(expected)


def test_bare_samples_are_streamed_while_they_are_made(client: openai.OpenAI) -> None:
    with client.audio.speech.with_streaming_response.create(
        model="speak", voice="speak", input=LONG, response_format="pcm"
    ) as reply:
        assert reply.headers["content-type"] == "audio/pcm; rate=8000; channels=1"
        pieces = list(reply.iter_bytes())
    assert len(pieces) > 3
    expected = spoken(LONG.strip())
    samples = of_pcm16(b"".join(pieces))
    assert len(samples) == len(expected) and np.abs(samples - expected).max() < 1e-4


def test_speech_comes_as_events_too(client: openai.OpenAI) -> None:
    given: dict[str, Any] = {"model": "speak", "voice": "default", "input": "red blue", "response_format": "pcm"}
    whole = client.audio.speech.create(**given).content
    with client.audio.speech.with_streaming_response.create(**given, stream_format="sse") as reply:
        assert reply.headers["content-type"] == "text/event-stream; charset=utf-8"
        events = [json.loads(line.removeprefix("data: ")) for line in reply.iter_lines() if line]
    assert [event["type"] for event in events[-2:]] == ["speech.audio.delta", "speech.audio.done"]
    assert b"".join(base64.b64decode(event["audio"]) for event in events[:-1]) == whole


def test_a_chain_speaks_what_it_translates(client: openai.OpenAI) -> None:
    found = client.audio.speech.create(model="reader", voice="default", input="red", response_format="pcm")
    assert len(found.content) >= 800


def wav_of_floats(samples: Sequence[float]) -> bytes:
    out = io.BytesIO()
    soundfile.write(out, np.array(samples, np.float32), 8000, format="WAV", subtype="FLOAT")
    return out.getvalue()


@pytest.mark.parametrize(
    ("given", "status", "parameter", "sentence"),
    [
        ({"model": "nobody"}, 404, "model", "there is no model 'nobody' here"),
        ({"model": "vectors"}, 404, "model", "the model 'vectors' cannot transcribe"),
        ({"model": "speak"}, 404, "model", "the model 'speak' cannot transcribe"),
        ({"model": "interpreter"}, 404, "model", "'interpreter' is a chain of models, and cannot transcribe"),
        ({"file": b""}, 400, "file", "file: "),
        ({"file": b"just a text, which is named so\n" * 99}, 400, "file", "file: "),
        ({"file": file_of()[:40]}, 400, "file", "file: "),
        ({"file": wav_of_floats([0.1] * 900 + [np.nan])}, 400, "file", "file: holds samples that are not numbers"),
        ({"file": wav_of_floats([5e4] * 900)}, 400, "file", "file: expected samples between -1 and 1"),
        ({"file": wav_of_floats([0.1])}, 400, "file", "file: the sound has 1 sample, fewer than one window"),
        ({"response_format": "diarized_json"}, 400, "response_format", "the request: Invalid enum value"),
        ({"prompt": "colors"}, 400, "prompt", "prompt: the models here take none"),
        ({"temperature": 0.5}, 400, "temperature", "temperature: expected 0"),
        ({"temperature": "hot"}, 400, "temperature", "the request: Expected `float`"),
        ({"include": ["logprobs"]}, 400, "include", "include: is not offered here"),
        ({"timestamp_granularities": ["word"]}, 400, "timestamp_granularities", "timestamp_granularities: times are"),
        ({"response_format": "srt", "stream": True}, 400, "stream", "stream: events have no times"),
    ],
)
@pytest.mark.parametrize("model", ["listen", "whole"])
def test_what_is_wrong_with_a_request_for_a_transcript_is_told_in_a_sentence(
    shared: tuple[Service, str],
    client: openai.OpenAI,
    model: str,
    given: dict[str, Any],
    status: int,
    parameter: str,
    sentence: str,
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.audio.transcriptions.create(**{"model": model, "file": file_of(), **given})
    assert caught.value.body["message"].startswith(sentence), caught.value.body  # type: ignore[index]
    assert (caught.value.status_code, caught.value.param) == (status, parameter)
    assert nothing_is_left(shared[0])


def test_a_sound_that_is_too_long_for_a_model_of_whole_sounds_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match=r"longer than 0\.\d+ s, the most that this model takes"):
        client.audio.transcriptions.create(model="whole", file=file_of(WORDS * 20))


@pytest.mark.parametrize(
    ("given", "status", "parameter", "sentence"),
    [
        ({"model": "nobody"}, 404, "model", "there is no model 'nobody' here"),
        ({"model": "listen"}, 404, "model", "the model 'listen' cannot speak"),
        ({"model": "vectors"}, 404, "model", "the model 'vectors' cannot speak"),
        ({"input": " \u200b"}, 400, "input", "input: there is nothing in the text"),
        ({"input": "red @@@"}, 400, "input", "input: "),
        ({"input": "red " * 30_000}, 413, "input", "input: expected at most 100,000 characters"),
        ({"input": 3}, 400, "input", "the request: Expected `str`"),
        ({"voice": "alloy"}, 400, "voice", "voice: expected default, since a model has one voice, found 'alloy'"),
        ({"response_format": "mp3"}, 400, "response_format", "response_format: expected wav, flac, pcm, found mp3"),
        ({"speed": 2}, 400, "speed", "speed: expected 1"),
        ({"instructions": "sing"}, 400, "instructions", "instructions: the models here take none"),
    ],
)
def test_what_is_wrong_with_a_request_for_speech_is_told_in_a_sentence(
    shared: tuple[Service, str],
    client: openai.OpenAI,
    given: dict[str, Any],
    status: int,
    parameter: str,
    sentence: str,
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        client.audio.speech.create(**{"model": "speak", "voice": "default", "input": "red", **given})
    assert caught.value.body["message"].startswith(sentence), caught.value.body  # type: ignore[index]
    assert (caught.value.status_code, caught.value.param) == (status, parameter)
    assert nothing_is_left(shared[0])


@pytest.mark.parametrize(
    ("content_type", "body", "status", "sentence"),
    [
        (
            "application/json",
            b"{}",
            400,
            "the body: expected a form of the type multipart/form-data, with its boundary, found application",
        ),
        ("multipart/form-data", b"", 400, "the body: expected a form"),
        ("multipart/form-data; boundary=x", b"", 400, "the body is no form"),
        ("multipart/form-data; boundary=x", b"--x\r\n", 400, "the body is no form: its end is missing"),
        ("multipart/form-data; boundary=x", b"nothing", 400, "the body is no form"),
        ("multipart/form-data; boundary=x", b"--x--\r\n", 422, "file: the form has no such file"),
        ("multipart/form-data; boundary=x", b"--x\r\n\r\n\r\n" * 200 + b"--x--\r\n", 413, "the body: expected at most"),
        ("multipart/form-data; boundary=x", b" " * 26_000_000, 413, "the body: expected at most 25,000,000 bytes"),
    ],
)
def test_a_body_that_is_no_form_is_told_so(
    shared: tuple[Service, str], content_type: str, body: bytes, status: int, sentence: str
) -> None:
    url = f"{shared[1]}/v1/audio/transcriptions"
    reply = httpx.post(url, content=body, headers={"content-type": content_type}, timeout=30)
    assert reply.json()["error"]["message"].startswith(sentence), reply.text
    assert reply.status_code == (400 if status == 422 else status)


def test_a_compressed_form_is_refused(shared: tuple[Service, str]) -> None:
    headers = {"content-type": "multipart/form-data; boundary=x", "content-encoding": "gzip"}
    reply = httpx.post(f"{shared[1]}/v1/audio/transcriptions", content=b"x", headers=headers)
    assert reply.json()["error"]["message"] == "the body: expected no content encoding, found gzip"


def test_a_field_of_a_form_has_a_largest_size(shared: tuple[Service, str]) -> None:
    form: dict[str, Any] = {"files": {"file": file_of()}, "data": {"model": "listen", "language": "x" * 100_001}}
    reply = httpx.post(f"{shared[1]}/v1/audio/transcriptions", **form)
    assert reply.status_code == 413
    assert reply.json()["error"]["message"] == "language: expected at most 100,000 bytes"


def test_clients_that_go_away_leave_nothing_behind(shared: tuple[Service, str]) -> None:
    service, address = shared
    form = {"files": {"file": file_of(WORDS * 60)}, "data": {"model": "listen", "stream": "true"}}
    asked: list[dict[str, Any]] = [
        {"url": "transcriptions", **form},
        {"url": "transcriptions", **form, "data": {"model": "listen"}},
        {"url": "speech", "json": {"model": "speak", "input": LONG, "response_format": "pcm"}},
    ]

    def leave(seed: int) -> None:
        numbers = np.random.default_rng(seed)
        for _ in range(8):
            with httpx.Client(timeout=float(numbers.uniform(0.005, 0.3))) as client:
                given = dict(asked[int(numbers.integers(3))])
                try:
                    with client.stream("POST", f"{address}/v1/audio/{given.pop('url')}", **given) as reply:
                        next(reply.iter_raw())
                except httpx.TransportError:
                    pass

    threads = [threading.Thread(target=leave, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert nothing_is_left(service)


def test_a_reader_that_does_not_read_is_paused_and_then_cut_off() -> None:
    service = make_service(SessionLimits(waiting_bytes=20_000))
    drone = serve_stream("speak", Streaming(Loud(np.zeros(50_000, np.float32)), None, 8000))
    service.models["speak"] = replace(service.models["speak"], stream=drone)
    body = json.dumps({"model": "speak", "input": "red " * 1000, "response_format": "pcm"}).encode()
    head = f"POST /v1/audio/speech HTTP/1.1\r\nhost: a\r\ncontent-length: {len(body)}\r\n\r\n"
    with served(service) as address, socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(("127.0.0.1", int(address.rpartition(":")[2])))
        connection.sendall(head.encode() + body)
        assert connection.recv(17) == b"HTTP/1.1 200 OK\r\n"
        assert nothing_is_left(service)


def test_one_session_too_many_is_refused_for_now() -> None:
    service = make_service(SessionLimits(sessions=0))
    with served(service) as address, openai.OpenAI(base_url=f"{address}/v1", api_key="x", max_retries=0) as client:
        with pytest.raises(openai.RateLimitError) as caught:
            client.audio.transcriptions.create(model="listen", file=file_of())
        assert caught.value.response.headers["retry-after"] == "5"


@pytest.mark.parametrize("priority", ["bulk", "interactive"])
def test_the_priority_of_a_request_is_that_of_its_session(
    shared: tuple[Service, str], client: openai.OpenAI, priority: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    sessions, opened = shared[0].sessions, list[Session]()
    begin = sessions.open
    monkeypatch.setattr(sessions, "open", lambda *given: opened.append(begin(*given)) or opened[-1])
    headers, data = {"x-priority": priority}, ("said.wav", file_of())
    client.audio.transcriptions.create(model="listen", file=data, extra_headers=headers)
    client.audio.translations.create(model="interpreter", file=data, extra_headers=headers)
    client.audio.speech.create(model="speak", voice="default", input="red blue", extra_headers=headers).read()
    limits = sessions.limits
    expected = limits.bulk_step_seconds if priority == "bulk" else limits.step_seconds
    assert [session.step_seconds for session in opened] == [expected] * 3


def test_an_unknown_priority_of_sound_is_refused(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="x-priority: expected interactive or bulk, found 'odd'"):
        client.audio.speech.create(model="speak", voice="default", input="red", extra_headers={"x-priority": "odd"})
