"""What clients of OpenAI speak on sound: transcripts and translations of files, and spoken texts.

See developers.openai.com/api/reference/resources/audio.  Each request is a session, so that the steps of all are
computed together.  A model that reads only whole sounds gets them as rows instead.
"""

from __future__ import annotations

import asyncio
import base64
import math
import struct
import zlib
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import closing
from dataclasses import replace
from io import BytesIO, StringIO
from typing import Annotated, Any, BinaryIO, Literal, TypeVar
from typing import Protocol as Interface

import msgspec
import numpy as np

from ernie.audio.convert import require
from ernie.audio.lengths import vector_count
from ernie.audio.wave import Selection, WaveReader, to_pcm16
from ernie.errors import UserError
from ernie.formatting import plural
from ernie.text.blank import is_blank
from inference.captions import CaptionWriter, Line, lines_of
from inference.recognizer import SpeechRecognizer, TimedTranscript, channel_of_files, transcribe_task
from inference.speaker import TextSpeaker
from serving.http import Call, Problem, Reply, Streamed, as_problem, encode
from serving.models import ServedModel
from serving.protocols import openai
from serving.protocols.exchange import Exchange
from serving.protocols.forms import read_form
from serving.protocols.registry import Protocol, Route
from serving.service import Expired, Service, UnknownModel, Unsuitable
from serving.sessions import ServedStream
from tasks.downstream.base import Answer

T = TypeVar("T")
_PIECE_SECONDS = 1.0  # of a file that are read at a time
_MOST_TEXT = 100_000  # characters of a text to speak
_UNKNOWN_SIZE = 0xFFFFFFFF  # of a WAV file that is sent before its length is known
_EVENTS = b"text/event-stream; charset=utf-8"
_PLAIN = b"text/plain; charset=utf-8"
Upload = Annotated[str, msgspec.Meta(extra_json_schema={"format": "binary"})]
Format = Literal["json", "text", "srt", "verbose_json", "vtt"]


class TranscriptionRequest(msgspec.Struct):
    """A file of sound, in any format that libsndfile reads, and the form of its transcript.

    `language` is what the sound is said to be in.  A model knows the language that it was trained on, and the field
    changes nothing.  Fields that would change something else, such as `prompt`, are refused.
    """

    model: str
    response_format: Format = "json"
    stream: bool = False
    timestamp_granularities: list[Literal["word", "segment"]] = []
    language: str = ""
    prompt: str = ""
    temperature: float = 0.0
    include: list[str] = []
    keywords: list[str] = []
    known_speaker_names: list[str] = []
    known_speaker_references: list[str] = []


class TranscriptionForm(TranscriptionRequest, kw_only=True):
    """A transcription request with its file."""

    file: Upload


class TranslationRequest(msgspec.Struct):
    """A file of sound, and the chain of models that writes what is said in it in another language."""

    model: str
    response_format: Format = "json"
    prompt: str = ""
    temperature: float = 0.0


class TranslationForm(TranslationRequest, kw_only=True):
    """A translation request with its file."""

    file: Upload


class Duration(msgspec.Struct, tag_field="type", tag="duration"):
    """How long a sound is."""

    seconds: float


class Transcription(msgspec.Struct):
    """What is said in a sound."""

    text: str
    usage: Duration


class TimedWord(msgspec.Struct):
    """A word, and the seconds at which it begins and ends."""

    word: str
    start: float
    end: float


class Segment(msgspec.Struct):
    """A line of a transcript, and the seconds at which it begins and ends.

    `avg_logprob` is the mean of the logarithms of its words' confidences.  `no_speech_prob`, `seek`, `temperature` and
    `tokens` say nothing here: clients expect them.
    """

    id: int
    start: float
    end: float
    text: str
    avg_logprob: float
    compression_ratio: float
    seek: int = 0
    tokens: list[int] = []
    temperature: float = 0.0
    no_speech_prob: float = 0.0


class VerboseTranscription(msgspec.Struct):
    """What is said in a sound of `duration` seconds, by lines or by words; `language` repeats that of the request."""

    text: str
    language: str
    duration: float
    usage: Duration
    segments: list[Segment] | msgspec.UnsetType = msgspec.UNSET
    words: list[TimedWord] | msgspec.UnsetType = msgspec.UNSET
    task: Literal["transcribe"] = "transcribe"


class Translation(msgspec.Struct):
    """What is said in a sound, in another language."""

    text: str


class VoiceId(msgspec.Struct):
    """A voice by its name."""

    id: str


class SpeechRequest(msgspec.Struct):
    """A text to speak.  `voice` is default or the model's name: a model has one voice.

    The answer is sent while it is made: as a file (`audio`), or in events that contain its pieces in base64 (`sse`).
    """

    model: str
    input: str
    voice: str | VoiceId = "default"
    response_format: Literal["mp3", "opus", "aac", "flac", "wav", "pcm"] = "wav"
    stream_format: Literal["audio", "sse"] = "audio"
    speed: float = 1.0
    instructions: str = ""


def routes(service: Service) -> list[Route]:
    """Return the routes of the protocol."""

    async def transcribe(call: Call) -> Reply | Streamed:
        request, file = await asyncio.to_thread(read_form, call, TranscriptionRequest)
        model, recognizer = _model(service, request.model, SpeechRecognizer, "transcribe")
        _check_transcription(request)
        asked = call.asked()
        call.notes.update(model=model.name)
        if model.stream is None:
            return await whole(call, request, model, _Sound(file, recognizer))
        exchange = Exchange(service.sessions, [model.stream], call.client, asked.bulk)
        try:
            transcript, sound = TimedTranscript(recognizer), _Sound(file, recognizer)
            exchange.session.stages[0].follower = transcript
            exchange.session.stages[0].hasten()
            exchange.feed(sound.next)
            if request.stream:
                return await _streamed(exchange, _deltas)
            async for _ in _within(asked.timeout, exchange.outputs()):
                pass
            answer = await asyncio.to_thread(transcript.answer)
        except BaseException:
            exchange.close()
            raise
        exchange.close()
        return _written(request, answer, sound.seconds)

    async def whole(call: Call, request: TranscriptionRequest, model: ServedModel, sound: _Sound) -> Reply | Streamed:
        """Answer by a model that reads only whole sounds."""
        row = await asyncio.to_thread(sound.row)
        asked = replace(call.asked(), complete=True)
        (answer,) = (await service.ask(model, "predict", [row], asked=asked)).values()
        if not request.stream:
            return _written(request, answer, sound.seconds)

        async def text() -> AsyncGenerator[str, None]:
            yield answer["transcript"]

        return Streamed(_deltas(text()), _EVENTS, lambda: None)

    async def translate(call: Call) -> Reply:
        request, file = await asyncio.to_thread(read_form, call, TranslationRequest)
        streams = _streams(service, request.model, is_sound=(True, False), what="translate sound")
        if request.model not in service.chains:
            raise Unsuitable(f"the model '{request.model}' cannot translate sound; a chain of models can")
        if request.response_format not in ("json", "text"):
            raise UserError("response_format: translations have no times here; expected json or text")
        _check_decoding(request)
        asked = call.asked()
        call.notes.update(model=request.model)
        _, first = _model(service, service.chains[request.model][0], SpeechRecognizer, "hear")
        with closing(Exchange(service.sessions, streams, call.client, asked.bulk)) as exchange:
            exchange.session.stages[0].hasten()
            exchange.feed(_Sound(file, first).next)
            text = "".join([piece async for piece in _within(asked.timeout, exchange.outputs())]).strip()
        if request.response_format == "text":
            return Reply(f"{text}\n".encode(), content_type=_PLAIN)
        return Reply(encode(Translation(text)))

    async def speak(call: Call) -> Streamed:
        request = call.read(SpeechRequest)
        streams = _streams(service, request.model, is_sound=(False, True), what="speak")
        text = request.input.strip()
        _check_speech(request, text)
        call.notes.update(model=request.model)
        if request.model in service.models:
            _, speaker = _model(service, request.model, TextSpeaker, "speak")
            if problem := await service.aside(len(text), lambda: speaker.problem(text)):
                raise UserError(f"input: {problem}")
        exchange = Exchange(service.sessions, streams, call.client, call.asked().bulk)
        exchange.session.put(text)
        exchange.session.end()
        rate = exchange.session.gives
        assert rate is not None
        encoder = _ENCODERS[request.response_format](rate)
        if request.stream_format == "audio":
            return await _streamed(exchange, lambda sounds: _encoded(sounds, encoder), encoder.content_type)
        return await _streamed(exchange, lambda sounds: _spoken(sounds, encoder, len(text)))

    return [
        Route(
            "POST",
            "/v1/audio/transcriptions",
            transcribe,
            "What is said in a sound.",
            TranscriptionForm,
            Transcription,
            form=True,
        ),
        Route(
            "POST",
            "/v1/audio/translations",
            translate,
            "What is said in a sound, in another language.",
            TranslationForm,
            Translation,
            form=True,
        ),
        Route("POST", "/v1/audio/speech", speak, "A spoken text, sent while it is made.", SpeechRequest),
    ]


def _model(service: Service, name: str, face: type[T], what: str) -> tuple[ServedModel, T]:
    """Return the model of a name, and its face.  Raises UnknownModel, and Unsuitable for one with another face."""
    if name in service.chains:
        raise Unsuitable(f"'{name}' is a chain of models, and cannot {what}")
    model = service.model(name)
    if not isinstance(model.face, face):
        raise Unsuitable(f"the model '{name}' cannot {what}")
    return model, model.face


def _streams(service: Service, name: str, is_sound: tuple[bool, bool], what: str) -> Sequence[ServedStream]:
    """Return the streams of a model or a chain, of which sound or text is asked at both ends.

    Raises UnknownModel, and Unsuitable for others.
    """
    try:
        streams = service.streams(name)
    except UnknownModel:
        raise
    except UserError:
        streams = []
    if not streams or is_sound != (streams[0].takes is not None, streams[-1].gives is not None):
        raise Unsuitable(f"the model '{name}' cannot {what}")
    return streams


def _check_transcription(request: TranscriptionRequest) -> None:
    """Raise UserError for what is not offered."""
    _check_decoding(request)
    for name in ("include", "keywords", "known_speaker_names", "known_speaker_references"):
        if getattr(request, name):
            raise UserError(f"{name}: is not offered here; leave it out")
    if request.timestamp_granularities and request.response_format != "verbose_json":
        raise UserError("timestamp_granularities: times are in the response_format verbose_json")
    if request.stream and request.response_format not in ("json", "text"):
        raise UserError("stream: events have no times; expected the response_format json or text")


def _check_decoding(request: TranscriptionRequest | TranslationRequest) -> None:
    """Raise UserError for what would change how a sound is read."""
    if request.prompt:
        raise UserError("prompt: the models here take none; leave it out")
    if request.temperature:
        raise UserError(f"temperature: expected 0, as transcripts are not sampled, found {request.temperature:g}")


def _check_speech(request: SpeechRequest, text: str) -> None:
    """Raise UserError for what is not offered, and Problem for no text or far too much."""
    if is_blank(text):
        raise Problem(400, "empty", "input: there is nothing in the text that could be said")
    if len(text) > _MOST_TEXT:
        raise Problem(413, "too_large", f"input: expected at most {_MOST_TEXT:,} characters, found {len(text):,}")
    voice = request.voice if isinstance(request.voice, str) else request.voice.id
    if voice not in ("default", request.model):
        raise UserError(f"voice: expected default, since a model has one voice, found '{voice:.40}'")
    if request.response_format not in _ENCODERS:
        raise UserError(f"response_format: expected {', '.join(_ENCODERS)}, found {request.response_format}")
    if request.speed != 1:
        raise UserError(f"speed: expected 1, the speed of the voice, found {request.speed:g}")
    if request.instructions:
        raise UserError("instructions: the models here take none; leave them out")


class _Sound:
    """The sound of a file as a recognizer hears it, read piece by piece in a thread."""

    def __init__(self, file: BinaryIO, recognizer: SpeechRecognizer):
        task = transcribe_task(recognizer.model)
        self.rate, self._task, self._count = recognizer.sample_rate, task, 0
        selection = Selection(channel=channel_of_files(task))
        self._blocks = iter(WaveReader(file, self.rate, "file", selection))

    @property
    def seconds(self) -> float:
        """How long the sound is, as far as it was read."""
        return self._count / self.rate

    async def next(self) -> np.ndarray | None:
        """Return more samples (S,), None at the end.  Raises UserError for a file that cannot be read."""
        return await asyncio.to_thread(self._next)

    def row(self) -> dict[str, Any]:
        """Return all of it as a row.  Raises UserError for more than a model of whole sounds takes."""
        pieces = list[np.ndarray]()
        while (piece := self._next()) is not None:
            pieces.append(piece)
            if vector_count(self._task.features.frames(self._count)) > self._task.max_len:
                longest = self._task.max_len * self._task.vector_seconds
                raise UserError(f"file: the sound is longer than {longest:.3g} s, the most that this model takes")
        return {self._task.audio: {"array": np.concatenate(pieces), "sampling_rate": self.rate}}

    def _next(self) -> np.ndarray | None:
        blocks, count = list[np.ndarray](), 0
        for block in self._blocks:
            blocks.append(block)
            count += len(block)
            if count >= _PIECE_SECONDS * self.rate:
                break
        self._count += count
        if count:
            return np.concatenate(blocks)
        if not vector_count(self._task.features.frames(self._count)):
            window = self._task.features.window_samples
            raise UserError(
                f"file: the sound has {plural(self._count, 'sample')}, fewer than one window of the model, {window}"
            )
        return None


async def _within(seconds: float | None, outputs: AsyncGenerator[T, None]) -> AsyncGenerator[T, None]:
    """Yield outputs, as long as they come in time.  Raises Expired."""
    loop = asyncio.get_running_loop()
    end = math.inf if seconds is None else loop.time() + seconds
    while True:
        try:
            yield await asyncio.wait_for(anext(outputs), None if end == math.inf else max(0.0, end - loop.time()))
        except StopAsyncIteration:
            return
        except asyncio.TimeoutError:
            raise Expired("its timeout was over before it was computed") from None


async def _streamed(
    exchange: Exchange,
    written: Callable[[AsyncGenerator[Any, None]], AsyncGenerator[bytes, None]],
    kind: bytes = _EVENTS,
) -> Streamed:
    """Return the answer with the outputs of a session, once it is known that there is one.

    Raises the error of a session that fails before its first output.
    """
    outputs = exchange.outputs()
    try:
        first = await anext(outputs, None)
    except BaseException:
        exchange.close()
        raise

    async def all_of_them() -> AsyncGenerator[Any, None]:
        if first is not None:
            yield first
        async for output in outputs:
            yield output

    return Streamed(written(all_of_them()), kind, exchange.close)


def _event(kind: str, **values: Any) -> bytes:
    return b"data: " + encode({"type": kind, **values}) + b"\n\n"


def _error_event(error: Exception) -> bytes:
    return b"data: " + openai.problem(as_problem(error)).body + b"\n\n"


async def _deltas(texts: AsyncGenerator[str, None]) -> AsyncGenerator[bytes, None]:
    """Yield the events of a transcript; its pieces together are the text, which has no space around it."""
    pieces, held = list[str](), ""
    try:
        async for text in texts:
            text = held + text if pieces else text.lstrip()
            new = text.rstrip()
            held = text[len(new) :]
            if new:
                pieces.append(new)
                yield _event("transcript.text.delta", delta=new)
    except Exception as error:
        yield _error_event(error)
    else:
        yield _event("transcript.text.done", text="".join(pieces))


def _written(request: TranscriptionRequest, answer: Answer, seconds: float) -> Reply:
    """Return a transcript in the form that was asked for."""
    kind, text = request.response_format, answer["transcript"]
    if kind == "text":
        return Reply(f"{text}\n".encode(), content_type=_PLAIN)
    if kind == "json":
        return Reply(encode(Transcription(text, Duration(seconds))))
    lines = lines_of(answer)
    if kind == "verbose_json":
        wanted = request.timestamp_granularities or ["segment"]
        segments = [_segment(n, line) for n, line in enumerate(line for line in lines if line.words)]
        words = [TimedWord(word.word, word.begin, word.end) for line in lines for word in line.words]
        return Reply(
            encode(
                VerboseTranscription(
                    text,
                    request.language,
                    seconds,
                    Duration(seconds),
                    segments if "segment" in wanted else msgspec.UNSET,
                    words if "word" in wanted else msgspec.UNSET,
                )
            )
        )
    out = StringIO()
    captions = CaptionWriter(kind, out)
    for line in lines:
        captions.write(line)
    return Reply(out.getvalue().encode(), content_type=b"text/vtt; charset=utf-8" if kind == "vtt" else _PLAIN)


def _segment(number: int, line: Line) -> Segment:
    """Return a line with words as a segment."""
    mean = sum(math.log(max(word.confidence, 1e-9)) for word in line.words) / len(line.words)
    text = line.text.encode()
    return Segment(
        number, line.words[0].begin, line.words[-1].end, line.text, mean, len(text) / len(zlib.compress(text))
    )


class _Encoder(Interface):
    """Writes sound as a file, piece by piece; the first bytes come with the first piece."""

    content_type: bytes

    def add(self, samples: np.ndarray) -> bytes:
        """Return what follows in the file with more samples (S,)."""

    def rest(self) -> bytes:
        """Return the end of the file."""


class _Pcm:
    """Bare samples of 16 bits, little endian, as `ernie speak` writes them to standard output."""

    def __init__(self, rate: int):
        self.content_type = f"audio/pcm; rate={rate}; channels=1".encode()

    def add(self, samples: np.ndarray) -> bytes:
        return to_pcm16(samples)

    def rest(self) -> bytes:
        return b""


class _Wav(_Pcm):
    """A WAV file that does not say how long it is, with the samples of one that `ernie speak` writes."""

    def __init__(self, rate: int):
        self.content_type, self._rate = b"audio/wav", rate
        size, mono, depth = _UNKNOWN_SIZE, 1, 16
        head = (b"RIFF", size, b"WAVE", b"fmt ", 16, 1, mono, rate, 2 * rate, 2, depth, b"data", size)
        self._head = struct.pack("<4sI4s4sIHHIIHH4sI", *head)

    def add(self, samples: np.ndarray) -> bytes:
        head, self._head = self._head, b""
        out = BytesIO()
        require("soundfile").write(out, samples, self._rate, format="RAW", subtype="PCM_16", endian="LITTLE")
        return head + out.getvalue()


class _Flac:
    """A FLAC file, which comes whole at the end: many readers need to know its length."""

    def __init__(self, rate: int):
        self.content_type = b"audio/flac"
        self._whole = BytesIO()
        self._file = require("soundfile").SoundFile(self._whole, "w", rate, 1, format="FLAC", subtype="PCM_16")

    def add(self, samples: np.ndarray) -> bytes:
        self._file.write(samples)
        return b""

    def rest(self) -> bytes:
        self._file.close()
        return self._whole.getvalue()


_ENCODERS: dict[str, Callable[[int], _Encoder]] = {"wav": _Wav, "flac": _Flac, "pcm": _Pcm}


async def _encoded(sounds: AsyncGenerator[np.ndarray, None], encoder: _Encoder) -> AsyncGenerator[bytes, None]:
    """Yield a file of sound as it is made."""
    async for samples in sounds:
        if piece := encoder.add(samples):
            yield piece
    yield encoder.rest()


async def _spoken(
    sounds: AsyncGenerator[np.ndarray, None], encoder: _Encoder, characters: int
) -> AsyncGenerator[bytes, None]:
    """Yield a file of sound in events."""
    try:
        async for piece in _encoded(sounds, encoder):
            if piece:
                yield _event("speech.audio.delta", audio=base64.b64encode(piece).decode())
    except Exception as error:
        yield _error_event(error)
    else:
        usage = {"input_tokens": characters, "output_tokens": 0, "total_tokens": characters}
        yield _event("speech.audio.done", usage=usage)


PROTOCOL = Protocol("OpenAI: sound", routes, openai.problem, failure=openai.Failure)
