"""What SimulEval's remote evaluator speaks: one session each for a model or chain, by /reset, /input and /output.

The evaluator knows an address and a port, and puts both into its URLs, so that the path of a model may follow the port.
It sends a segment, waits for the output that is committed by then, and so on until that is finished.  It knows no
sessions: those of one client at one path are one after another, and /simuleval/MODEL/NAME is a path for another one.
See Ma et al., 2020, arXiv 2007.16193, and github.com/facebookresearch/SimulEval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import numpy as np

from ernie.audio.convert import Resampler, check_rate
from ernie.audio.wave import as_samples
from ernie.errors import UserError
from serving.http import Call, Problem, Reply, encode
from serving.protocols.exchange import Exchange
from serving.protocols.registry import Protocol, Route
from serving.service import Service
from serving.sessions import Overdue, TooManySessions

_PATHS_FOR_EACH = 2  # paths that are known for each session that may be live
_FEW = 1 << 13  # samples that are encoded at once


class Input(msgspec.Struct):
    """More of a source: a word, or samples between -1 and 1; `finished` says that it is the last."""

    content: str | list[float] = ""
    finished: bool = False
    is_empty: bool = False
    data_type: str | None = None
    index: float = 0
    sample_rate: int = -1
    tgt_lang: Any = None
    config: Any = None


class Output(msgspec.Struct):
    """What was committed since the last time; the last one is never empty, which some evaluators would not read."""

    content: str | list[float]
    finished: bool
    is_empty: bool
    data_type: str | None
    sample_rate: int | msgspec.UnsetType = msgspec.UNSET


class Info(msgspec.Struct):
    """What a path evaluates."""

    info: str


def problem(found: Problem) -> Reply:
    """Return a problem in a form with which the evaluator ends, and shows the sentence.

    It reads no status.  It makes an object of the answer's fields, and its error names the one that is unexpected.
    """
    return Reply(encode({"data_type": None, found.sentence: found.kind}), found.status)


class _Evaluation:
    """A client's session at a path, from one reset to the next.  After a failure it only tells that."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.timer: asyncio.TimerHandle | None = None
        self._exchange: Exchange | None = None
        self._resampler: tuple[int, Resampler] | None = None
        self._is_done = False

    @property
    def is_live(self) -> bool:
        """Whether it has a session."""
        return self._exchange is not None

    def read(self, segment: Input, begin: Callable[[], Exchange]) -> None:
        """Take a segment, the first one after `begin`.  Raises UserError for one that the model does not take."""
        if self._exchange is None and not self._is_done:
            self._exchange = begin()
        if self._exchange is None or self._exchange.session.stages[0].ends:
            return  # the evaluator says more than once that a source is over
        session = self._exchange.session
        if not session.takes_more:
            raise Problem(429, "overloaded", "too much input waits: ask for the output of each segment")
        if not segment.is_empty:
            session.put(_word(segment) if session.takes is None else self._samples(segment, session.takes))
        if segment.finished:
            if self._resampler is not None:
                session.put(self._resampler[1].rest())
            session.end()

    def _samples(self, segment: Input, takes: int) -> np.ndarray:
        if isinstance(segment.content, str):
            raise UserError("content: this model takes sound, found text; evaluate it with --source-type speech")
        check_rate(segment.sample_rate, "sample_rate")
        if self._resampler is None:
            self._resampler = segment.sample_rate, Resampler(segment.sample_rate, takes)
        if segment.sample_rate != self._resampler[0]:
            raise UserError(f"sample_rate: expected {self._resampler[0]:,}, as before, found {segment.sample_rate:,}")
        return self._resampler[1].more(as_samples(segment.content))

    async def written(self) -> Output:
        """Return what is committed by now, and was not returned before."""
        if self._exchange is None:
            return Output("", True, False, "text") if self._is_done else Output("", False, True, None)
        gives = self._exchange.session.gives
        found, finished = await self._exchange.available()
        if finished:
            self._is_done = True
            self.free()
        if gives is None:
            text = " ".join("".join(found).split())
            return Output(text, finished, False, "text") if text or finished else Output("", False, True, None)
        samples = np.concatenate([np.zeros(0, np.float32), *found]).tolist()
        return (
            Output(samples, finished, False, "speech", gives) if samples or finished else Output("", False, True, None)
        )

    def fail(self, error: Exception) -> None:
        """End the session; `error` is told until the next reset."""
        self.failure = error
        self.free()

    def free(self) -> None:
        """Free everything."""
        if self._exchange is not None:
            self._exchange.close()
        self._exchange = None


def _word(segment: Input) -> str:
    """Return the text of a segment; the space after a word says that it is whole."""
    if not isinstance(segment.content, str):
        raise UserError("content: this model takes text, found samples; evaluate it with --source-type text")
    word = " ".join(segment.content.split())
    return f"{word} " if word and not segment.finished else word


class _Evaluations:
    """The evaluations of a service, by client, model and name."""

    def __init__(self, service: Service):
        self._service = service
        self._known: dict[tuple[str, ...], _Evaluation] = {}

    def reset(self, call: Call) -> None:
        """End the evaluation at a path, if there is one.  Raises UnknownModel, and UserError for other models."""
        self._service.streams(call.path["model"])
        if (evaluation := self._known.pop(_key(call), None)) is not None:
            _stop(evaluation)
            evaluation.free()

    def of(self, call: Call) -> _Evaluation:
        """Return the evaluation at a path, perhaps a new one.  Raises as `reset`, and TooManySessions."""
        self._service.streams(call.path["model"])
        if (evaluation := self._known.get(_key(call))) is None:
            most = _PATHS_FOR_EACH * self._service.sessions.limits.sessions
            if len(self._known) >= most:
                over = next((key for key, each in self._known.items() if not each.is_live), None)
                if over is None:
                    raise TooManySessions(f"this server has {most:,} evaluations, as many as it takes")
                _stop(self._known.pop(over))
            evaluation = self._known[_key(call)] = _Evaluation()
        return evaluation

    @contextmanager
    def at_work(self, evaluation: _Evaluation) -> Iterator[None]:
        """Tell a failure, or note one; an evaluation at which nobody works for long ends."""
        if evaluation.failure is not None:
            raise evaluation.failure
        _stop(evaluation)
        try:
            yield
        except Exception as error:
            evaluation.fail(error)
            raise
        except BaseException:
            evaluation.fail(Overdue("the evaluator went away before it had the output"))
            raise
        idle = self._service.sessions.limits.idle_seconds
        overdue = Overdue(f"nothing was sent for {idle:g} s")
        evaluation.timer = asyncio.get_running_loop().call_later(idle, evaluation.fail, overdue)


def _key(call: Call) -> tuple[str, ...]:
    return call.client, call.path["model"], call.path.get("name", "")


def _stop(evaluation: _Evaluation) -> None:
    if evaluation.timer is not None:
        evaluation.timer.cancel()


def routes(service: Service) -> list[Route]:
    """Return the routes of the protocol."""
    evaluations = _Evaluations(service)

    async def info(call: Call) -> Reply:
        streams = service.streams(call.path["model"])
        return Reply(encode(Info(f"ernie: {', '.join(stream.name for stream in streams)}")))

    async def reset(call: Call) -> Reply:
        evaluations.reset(call)
        return Reply(b"")

    async def read(call: Call) -> Reply:
        evaluation = evaluations.of(call)
        with evaluations.at_work(evaluation):
            segment = await asyncio.to_thread(call.read, Input)
            streams = service.streams(call.path["model"])
            evaluation.read(segment, lambda: Exchange(service.sessions, streams, call.client))
        return Reply(b"")

    async def write(call: Call) -> Reply:
        evaluation = evaluations.of(call)
        with evaluations.at_work(evaluation):
            output = await evaluation.written()
            return Reply(encode(output) if len(output.content) <= _FEW else await asyncio.to_thread(encode, output))

    found = []
    for path, of in (("/simuleval/{model}", "this path"), ("/simuleval/{model}/{name}", "this name")):
        found += [
            Route("POST", f"{path}/reset", reset, f"Begin the evaluation of {of} anew."),
            Route("PUT", f"{path}/input", read, f"Take a segment of a source, for {of}.", Input),
            Route("GET", f"{path}/output", write, f"What is committed by now, for {of}.", reply=Output),
        ]
    return [*found, Route("GET", "/simuleval/{model}", info, "What is evaluated here.", reply=Info)]


PROTOCOL = Protocol("SimulEval", routes, problem, "/simuleval", dict[str, str | None])
