"""What protocols call: one request to one operation of a model, from any event loop task, answered by the engine.

A request takes this way: the event loop hands it to a preparing thread, which tokenizes it and submits it to the
engine; what takes hardly any time the event loop does itself.  The engine computes the request in a batch, and wakes
the event loop once for the whole batch.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeVar, cast

from ernie.errors import UserError, about, nearest
from ernie.outcome import Outcome
from inference.operation import Addressed, Operation, Prepared
from serving.dispatcher import Dispatcher, Job, Refused, TooLarge
from serving.engine import Computed, Engine, EngineFailure, Work
from serving.lifecycle import Lifecycle, Phase
from serving.models import PROBE, Bases, ServedModel
from serving.preparing import Preparers
from serving.sessions import ServedStream, Sessions, check_chain
from serving.turns import Turns

T = TypeVar("T")
_log = logging.getLogger("ernie.serving")
# Why a request may be refused, in a word.
REASONS = ("busy", "share", "promised", "preparing", "too_large")
_PROBE_AGE = 1.0  # seconds for which the answer to is_ready is kept
_PROBE_TIMEOUT = 10.0
_AT_ONCE = 16  # clients that are answered in a turn of the event loop: a few milliseconds
_STOP_SECONDS = 5.0  # for each thread: one that is stuck does not keep the process from ending


class Expired(Exception):
    """A request whose time was over before it was computed."""


class UnknownModel(UserError):
    """A request for a model, or for an operation of a model, that is not served."""


class Unsuitable(UnknownModel):
    """A request for what a model, or any model that is served, cannot do."""


class TooManyInputs(UserError):
    """A request with more inputs than the server allows."""


class TooLong(UserError):
    """An input whose end would be cut off, for a client that does not want that."""


@dataclass(frozen=True)
class Limits:
    """What one request may ask for."""

    inputs: int = 1000
    timeout: float = 1.0  # seconds, of interactive requests that name none
    bulk_timeout: float = 60.0
    longest_timeout: float = 600.0
    waiting_characters: int = 50_000_000


@dataclass(frozen=True)
class Asked:
    """How a request is to be treated: its class, its timeout in seconds, and whose it is.

    `notes` learns what the log says of it: its model, and its size and times.  `size` is about how many characters it
    has, if that is known.  With `whole`, an input that is too long is an error instead of being cut.  With `complete`,
    the first faulty input is raised, and nothing is computed.  With `may_wait`, a request that takes longer than an
    interactive one may becomes a bulk one.
    """

    bulk: bool = False
    timeout: float | None = None
    client: str = ""
    notes: dict[str, Any] = field(default_factory=dict)
    size: int = 0
    whole: bool = False
    complete: bool = False
    may_wait: bool = False


@dataclass(frozen=True)
class Answers:
    """The outcome of each input of a request, and how many tokens were computed for all of them."""

    outcomes: list[Outcome[Any]]
    tokens: int

    def values(self) -> list[Any]:
        """Return all values.  Raises the first error there is."""
        return [outcome.get() for outcome in self.outcomes]


@dataclass(eq=False)
class _Request:
    """A request on its way: what it waits for, and the outcomes so far."""

    future: asyncio.Future[list[Outcome[Any]]]
    work: Work
    outcomes: list[Outcome[Any]]
    rows: list[int] = field(default_factory=list)  # of the job's items
    tokens: int = 0
    left: int = 0
    job: Job | None = None
    cancelled: bool = False
    notes: dict[str, Any] = field(default_factory=dict)
    started: float = 0.0  # its first batch, 0 before that


class Observer:
    """What learns what happens to models and requests, in the event loop's thread."""

    def loaded(self, model: ServedModel) -> None:
        """A model is served from now on, perhaps in place of another one of that name."""

    def failed_to_load(self, name: str) -> None:
        """A model could not be loaded, and the one before is still served."""

    def dropped(self, model: ServedModel) -> None:
        """A model is served no more."""

    def connection_refused(self, status: int) -> None:
        """A connection was answered and closed before it had a request, or the whole of one."""

    def prepared(self, work: str, seconds: float) -> None:
        """A request was tokenized so many seconds after it arrived; called in any thread."""

    def computed(self, computed: Computed) -> None:
        """A batch was computed, or jobs have expired."""

    def answered(self, work: str, seconds: float) -> None:
        """A request was answered so many seconds after it arrived."""

    def refused(self, work: str, reason: str) -> None:
        """A request for this work was refused, for one of REASONS."""

    def cancelled(self, work: str) -> None:
        """A request for this work was taken back."""


class Service:
    """The models of a server, and the engine that computes for all of them."""

    def __init__(self, limits: Limits | None = None, bulk_share: float = 0.1, preparing_threads: int = 2):
        self.limits = limits or Limits()
        self.models: dict[str, ServedModel] = {}
        self.bases = Bases()
        self.lifecycle = Lifecycle()
        self.engine = Engine(self._report, Dispatcher(bulk_share))
        self.sessions = Sessions(self.engine)
        self.chains: dict[str, tuple[str, ...]] = {}  # of models, by name
        self.notice = ""  # about its models, for people
        self.lifecycle.on_drain(lambda seconds: self.sessions.leave())
        self.preparers = Preparers(preparing_threads, self.limits.waiting_characters)
        self._requests: dict[Job, _Request] = {}
        self._turns = Turns(_AT_ONCE)
        self._loop: asyncio.AbstractEventLoop | None = None
        self.observers: list[Observer] = []
        self._probed: tuple[float, asyncio.Future[dict[str, bool]]] | None = None

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        """Start the threads; answers are delivered to this event loop."""
        self._loop = loop
        self.preparers.start()
        self.engine.start()

    def stop(self) -> None:
        """End the threads.  Requests that wait are not answered."""
        self.preparers.stop(_STOP_SECONDS)
        self.engine.stop(_STOP_SECONDS)

    @property
    def waiting(self) -> int:
        """The number of requests that are not answered yet."""
        return len(self._requests)

    @property
    def is_idle(self) -> bool:
        """Whether nothing is computed, or waits to be."""
        return not self._requests and all(session.is_settled for session in self.sessions.live)

    def put(self, model: ServedModel) -> None:
        """Serve a model from now on, perhaps in place of one of that name; requests to that one end there."""
        self.models[model.name] = model
        self._probed = None  # which knows nothing of this one
        for observer in self.observers:
            observer.loaded(model)

    def drop(self, name: str) -> None:
        """Serve a model no more; requests to it are still answered."""
        model = self.models.pop(name)
        self._probed = None
        for observer in self.observers:
            observer.dropped(model)

    def failed_to_load(self, name: str) -> None:
        """Tell the observers that a model could not be loaded."""
        for observer in self.observers:
            observer.failed_to_load(name)

    def connection_refused(self, status: int) -> None:
        """Tell the observers that a connection was answered without a request, or the whole of one."""
        for observer in self.observers:
            observer.connection_refused(status)

    def is_busy_with(self, model: ServedModel) -> bool:
        """Whether requests to a model are not answered yet, or sessions go on with it."""
        if any(stage.stream is model.stream for session in self.sessions.live for stage in session.stages):
            return True
        return any(request.work in model.lanes for request in self._requests.values())

    def abandon(self, error: Exception) -> None:
        """Answer all requests that wait with an error, and compute nothing more of them."""
        for job, request in list(self._requests.items()):
            self.engine.cancel(job)
            self._settle_one(request, error)
        self._requests.clear()

    def model(self, name: str | None) -> ServedModel:
        """Return the model of this name, or the only one.  Raises UnknownModel."""
        if not name and len(self.models) == 1:
            return next(iter(self.models.values()))
        if name not in self.models:
            asked = f"there is no model '{name}' here." if name else "which model? The request names none."
            raise UnknownModel(f"{asked}{nearest(name or '', self.models)}")
        return self.models[name]

    def streams(self, name: str) -> list[ServedStream]:
        """Return the streams of a session with a model, or with the models of a chain, in order.

        Raises UnknownModel, and UserError for models that take no streams, or that do not fit together.
        """
        if name not in self.models and name not in self.chains:
            raise UnknownModel(f"there is no model '{name}' here.{nearest(name, {**self.models, **self.chains})}")
        models = [self.model(each) for each in self.chains.get(name, (name,))]
        for model in models:
            if model.stream is None:
                with about(f"chains.{name}: {model.name}" if name in self.chains else name):
                    _ = model.face.streaming  # raises why
        streams = [model.stream for model in models if model.stream is not None]
        check_chain(name, streams)
        return streams

    def operation(self, model: ServedModel, name: str) -> tuple[Operation, Work]:
        """Return an operation of a model, and its lane.  Raises Unsuitable."""
        if name not in model.operations:
            raise Unsuitable(f"the model '{model.name}' has no operation '{name}'.{nearest(name, model.operations)}")
        return model.operations[name], model.work[name]

    async def ask(
        self,
        model: ServedModel,
        operation_name: str,
        inputs: Sequence[Any],
        settings: Mapping[str, Any] | None = None,
        asked: Asked | None = None,
    ) -> Answers:
        """Return the outcome of each input, all at once.

        Raises UnknownModel, TooManyInputs, Refused, TooLarge or Expired, and the error of an input as `asked` says.
        When the task is cancelled, nothing more of the request is computed.
        """
        assert self._loop is not None
        asked = asked or Asked()
        operation, work = self.operation(model, operation_name)
        if len(inputs) > self.limits.inputs:
            raise TooManyInputs(f"expected at most {self.limits.inputs:,} inputs at once, found {len(inputs):,}")
        if not inputs:
            return Answers([], 0)
        asked.notes.update(model=model.name, operation=operation_name, rows=len(inputs))
        request = _Request(self._loop.create_future(), work, [Outcome()] * len(inputs), notes=asked.notes)
        arrived = self.engine.clock()
        default = self.limits.bulk_timeout if asked.bulk else self.limits.timeout
        deadline = arrived + min(asked.timeout or default, self.limits.longest_timeout)

        prepare = partial(self._prepare, request, operation, work, inputs, settings or {}, arrived, deadline, asked)
        try:
            if (late := self.preparers.wait - (deadline - arrived)) > 0:
                raise _too_much_text(late)
            if not self.preparers.submit(asked.size or sum(map(_characters, inputs)), prepare, work.name):
                raise _too_much_text()
            answers = Answers(await request.future, request.tokens)
            for observer in self.observers:
                observer.answered(work.name, self.engine.clock() - arrived)
            return answers
        except (Refused, TooLarge) as error:
            reason = error.kind if isinstance(error, Refused) else "too_large"
            for observer in self.observers:
                observer.refused(work.name, reason)
            raise
        except asyncio.CancelledError:
            self._cancel(request)
            for observer in self.observers:
                observer.cancelled(work.name)
            raise
        finally:  # an error's traceback has this frame: what leads back to the error would keep both
            del request, prepare

    async def aside(self, size: int, work: Callable[[], T]) -> T:
        """Return what some work on a text of this many characters returns; it runs in a preparing thread.

        Raises Refused, and what the work raises.
        """
        assert self._loop is not None
        future: asyncio.Future[T] = self._loop.create_future()

        def settle(result: T | None, error: Exception | None) -> None:
            if future.done():
                return
            if error is not None:
                future.set_exception(error)
            else:
                future.set_result(cast(T, result))

        def run() -> None:
            try:
                result = work()
            except Exception as error:
                self._call(settle, None, error)
            else:
                self._call(settle, result, None)

        if not self.preparers.submit(size, run):
            raise _too_much_text()
        return await future

    async def is_ready(self, name: str | None = None) -> bool:
        """Return whether every model computes, or the one of this name.

        Each gets a small batch, through the engine, at most once a second.  A server that leaves is not ready.
        """
        ready = await self.readiness()
        return ready.get(name, False) if name else bool(ready) and all(ready.values())

    async def readiness(self) -> dict[str, bool]:
        """Return by name which models compute."""
        assert self._loop is not None
        if self.lifecycle.phase is not Phase.SERVING or not self.engine.is_alive:
            return dict.fromkeys(self.models, False)
        now = self.engine.clock()
        if self._probed is None or (self._probed[1].done() and now - self._probed[0] > _PROBE_AGE):
            self._probed = now, asyncio.ensure_future(self._probe())
        with suppress(asyncio.TimeoutError):
            return await asyncio.wait_for(asyncio.shield(self._probed[1]), _PROBE_TIMEOUT)
        return dict.fromkeys(self.models, False)

    async def _probe(self) -> dict[str, bool]:
        assert self._loop is not None
        futures = {}
        for model in self.models.values():
            request = _Request(self._loop.create_future(), model.probe, [Outcome()], [0], left=1)
            now = self.engine.clock()
            request.job = Job(model.probe, [PROBE], now, now, step=True)
            self._requests[request.job] = request
            self.engine.submit(request.job)
            futures[model.name] = request.future
        found = {}
        for name, future in futures.items():
            (outcome,) = await future
            found[name] = outcome.error is None
            if outcome.error is not None:
                _log.error("the model '%s' does not compute: %s", name, outcome.error)
        return found

    def _prepare(
        self,
        request: _Request,
        operation: Operation,
        work: Work,
        inputs: Sequence[Any],
        settings: Mapping[str, Any],
        arrived: float,
        deadline: float,
        asked: Asked,
    ) -> None:
        """Tokenize the inputs of a request and submit them; runs in a preparing thread, or in the event loop."""
        items: list[Prepared | Addressed] = []
        try:
            if self.engine.clock() > deadline:
                raise _too_much_text()
            for row, given in enumerate(inputs):
                if request.cancelled:
                    return
                try:
                    prepared = _prepared(operation, given, row, settings, asked.whole)
                    items.append(Addressed(operation, prepared) if work.shared else prepared)
                    request.rows.append(row)
                except UserError as error:
                    error.row = row
                    if asked.complete:
                        raise
                    request.outcomes[row] = Outcome(error=error.with_traceback(None))
                except BaseException as error:  # such as a panic of the tokenizer's Rust code
                    _log.exception("%s failed to prepare an input", work.name)
                    found = EngineFailure(f"the model failed on this input: {type(error).__name__}", row=row)
                    request.outcomes[row] = Outcome(error=found)
            for observer in self.observers:
                observer.prepared(work.name, self.engine.clock() - arrived)
            if items:
                request.left, request.tokens = len(items), sum(item.tokens for item in items)
                request.notes["tokens"] = request.tokens
                job = partial(Job, work.lane, items, arrived, client=asked.client, work=work.name)
                try:
                    self._submit(request, job(deadline, asked.bulk))
                except TooLarge:
                    if asked.bulk or not asked.may_wait:
                        raise
                    deadline = arrived + self.limits.bulk_timeout
                    self._submit(request, job(deadline, True))
            else:
                self._call(self._settle_one, request, None)
        except (Refused, TooLarge, UserError) as error:
            self._call(self._settle_one, request, error.with_traceback(None))
        except BaseException as error:
            _log.exception("a request for %s could not be submitted", work.name)
            failure = EngineFailure(f"the server failed on this request: {type(error).__name__}")
            self._call(self._settle_one, request, failure)

    def _submit(self, request: _Request, job: Job) -> None:
        """Hand a job to the engine, unless its request was taken back.  Raises Refused, TooLarge or TooManyInputs."""
        if (most := request.work.most_asked) is not None and request.tokens > most:
            raise TooManyInputs(
                f"{request.work.name}: expected at most {most:,} tokens at once, as many as one answer has room for, "
                f"found {request.tokens:,}"
            )
        self._requests[job] = request
        request.job = job
        if request.cancelled:  # perhaps before it had a job
            self._requests.pop(job, None)
            return
        try:
            self.engine.submit(job)
        except (Refused, TooLarge):
            self._requests.pop(job, None)
            raise

    def _cancel(self, request: _Request) -> None:
        request.cancelled = True
        if request.job is not None and self._requests.pop(request.job, None) is not None:
            self.engine.cancel(request.job)

    def _report(self, computed: Computed) -> None:
        """Hand a batch's outcomes to the event loop, once; runs in the engine's thread."""
        self.sessions.stepped(computed)
        self._call(self._settle, computed)

    def _call(self, function: Any, *arguments: Any) -> None:
        assert self._loop is not None
        try:
            self._loop.call_soon_threadsafe(function, *arguments)
        except RuntimeError:  # the event loop is closed: nobody waits any more
            _log.debug("an outcome came after the end of the event loop")

    def _settle_one(self, request: _Request, error: Exception | None) -> None:
        if request.future.done():
            return
        if error is not None:
            request.future.set_exception(error)
        else:
            request.future.set_result(request.outcomes)

    def _settle(self, computed: Computed) -> None:
        """Answer the requests that a batch completes; runs in the event loop."""
        for observer in self.observers:
            observer.computed(computed)
        ended: list[tuple[_Request, Exception | None]] = [(request, None) for request in self._completed(computed)]
        for job in computed.expired:
            if (request := self._requests.pop(job, None)) is not None:
                ended.append((request, Expired("its timeout was over before it was computed")))
        self._turns.run(partial(self._settle_one, *each) for each in ended)
        self._turns.run(session.notify for session in self.sessions.advanced(computed))

    def _completed(self, computed: Computed) -> Iterator[_Request]:
        """Keep the outcomes of a batch; yield the requests that it completes."""
        if computed.batch is None:
            return
        for (job, index), outcome in zip(computed.batch.items, computed.outcomes, strict=True):
            if (request := self._requests.get(job)) is None:  # cancelled, or expired in part
                continue
            request.outcomes[request.rows[index]] = outcome
            request.left -= 1
            request.started = request.started or computed.batch.started
            if not request.left:
                del self._requests[job]
                request.notes["queue_seconds"] = round(request.started - job.arrived, 6)
                request.notes["compute_seconds"] = round(computed.ended - request.started, 6)
                yield request


def _too_much_text(retry_after: float = 1.0) -> Refused:
    return Refused("too much text waits to be tokenized", retry_after, "preparing")


def _prepared(operation: Operation, given: Any, row: int, settings: Mapping[str, Any], whole: bool) -> Prepared:
    """Return an input that is ready to be computed.  Raises UserError for a faulty one."""
    try:
        prepared = operation.prepare(given, row, **settings)
    except RecursionError:
        raise UserError(f"input {row}: it is nested too deeply") from None
    if whole and prepared.is_cut:
        raise TooLong(f"input {row}: it is too long, and the model would read {prepared.tokens} tokens of it")
    return prepared


def _characters(given: Any) -> int:
    """Return about how many characters an input has, at least one."""
    if isinstance(given, str):
        return len(given) + 1
    if isinstance(given, Mapping):
        return 1 + sum(map(_characters, given.values()))
    if isinstance(given, list | tuple):
        return 1 + sum(map(_characters, given))
    return 1
