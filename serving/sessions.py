"""Sessions: streams of many clients, of which the engine advances all that can go on by one bounded step a turn.

A session is a chain of stages, each a stream of one model's decoder; what a stage commits is the input of the next.
All stages of a decoder share a lane, whoever their sessions belong to, so that their steps are computed together.  A
stage with something to compute has one job in its lane, of one step, and gets another after that.

Input waits in a stage's inbox until the engine's thread takes it.  States are immutable: a step that fails is computed
again from the same states, and each stage keeps its new one only if the step succeeds.
"""

from __future__ import annotations

import secrets
import statistics
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Literal, NamedTuple

import numpy as np
from paddle import no_grad

from ernie.errors import UserError
from ernie.outcome import Outcome
from inference.face import Following, Streaming
from serving.cost import CostModel
from serving.dispatcher import Job
from serving.engine import Computed, Engine, Work
from serving.saved_sessions import SavedSession, SavedStage, SessionFolder

_MOST_TEXT = 1024  # characters that a stage takes in a turn; of sound it takes a second
_PIECE_BYTES = 64  # that a piece takes besides its content
_ITEM_BYTES = 4  # a sample, or at most a character
_STEP_BYTES, _WORD_BYTES = 500, 300  # of what is told of a step, and of each of its words
_SIZES = (1, 4, 16, 64)  # streams of which steps are measured
_ROUNDS, _STEPS = 3, 4  # of each; the round in which the machine was the least busy counts
_UNKNOWN_COST = ((1, 0.02), (16, 0.05))  # streams and seconds of a step that cannot be tried, rather too slow
_MARGIN = 0.15  # seconds of sound that are to be there before its predecessor is played
_SOUND_TIMEOUT = 1.5  # how many times as long a step may take that gives sound: longer batches let more voices speak


class TooManySessions(Exception):
    """A session that is one too many for the server."""


class Overdue(Exception):
    """A session that ends because its client does nothing."""


class NoFolder(UserError):
    """A session that is to be kept by a server without a folder for it."""


@dataclass(frozen=True)
class SessionLimits:
    """What sessions may use.

    There are at most `sessions`.  In each of their stages, and behind the last one, at most `waiting_bytes` wait, and
    one piece more.  A session ends after `idle_seconds` in which nothing comes from its client or goes there.  A step
    is due `step_seconds` after its input, one of a bulk session `bulk_step_seconds` after it.
    """

    sessions: int = 1000
    waiting_bytes: int = 1_000_000
    idle_seconds: float = 60.0
    step_seconds: float = 0.1
    bulk_step_seconds: float = 10.0


class Event(NamedTuple):
    """Something that a session's client is told.

    It is output, a note, a step of a session that is followed, that all is done, an error, or that it moves away.
    """

    kind: Literal["output", "note", "step", "done", "error", "leave"]
    value: Any = None


class Step(NamedTuple):
    """A step of a stage of a followed session, which others did not see.

    The stage, by its number; how much input it has taken, in characters or samples; when the last of that arrived;
    when the step began and ended; how many stages were computed together; how much it gave, and of text what; and what
    its follower tells.  Times are those of the server's clock, in seconds.
    """

    stage: int
    taken: int
    arrived: float
    began: float
    ended: float
    together: int
    given: int
    text: str | None
    told: Mapping[str, Any]


class Place(NamedTuple):
    """Where a stream is: its number among the streams of a state."""

    state: Any
    stream: int

    def alone(self) -> Any:
        """Return the state of this stream only."""
        return self.state if self.state.streams == 1 else self.state.select([self.stream])


class Needs(NamedTuple):
    """What a stream waits for.

    Whether it has something to compute, whether it has room for input, and how many characters or samples it lacks
    before there is something to compute.
    """

    pending: bool
    has_room: bool
    missing: int


class Piece(NamedTuple):
    """A piece of input that waits, and when it arrived."""

    content: Any
    arrived: float


class StageInput(NamedTuple):
    """What a step begins with: the state, the next `size` characters or samples, and whether the input ends there.

    The last of them arrived at a time, 0 if there are none.  Settings are changed before the step.
    """

    place: Place | None
    piece: Any
    size: int
    ends: bool
    arrived: float
    changes: Mapping[str, Any]


class Steps:
    """A decoder of which many stages are stepped together."""

    def __init__(self, streaming: Streaming):
        self.streaming = streaming
        self._decoder = streaming.decoder
        self.beginning = Place(self._decoder.begin(), 0)
        (self.first_needs,) = self.needs(self.beginning.state)

    @property
    def most(self) -> int:
        """How many characters or samples a stage takes in a turn."""
        return self.streaming.takes or _MOST_TEXT

    @property
    def blocks(self) -> int:
        """How many blocks of input there are in what a stage takes in a turn, as far as that is known."""
        return max(1, self.most // max(1, self.first_needs.missing)) if self.streaming.takes else 1

    @property
    def nothing(self) -> Any:
        """An empty piece of input."""
        return "" if self.streaming.takes is None else np.zeros(0, np.float32)

    def compute(self, stages: Sequence[Stage]) -> list[Outcome[Any]]:
        """Advance stages by a step, together; return the outcome of each.

        Runs in the engine's thread.  If it raises, no stage has changed.
        """
        inputs = [stage.next_input() for stage in stages]
        outcomes = [Outcome[Any]()] * len(stages)
        here = [n for n, own in enumerate(inputs) if own.place is not None]  # the others were closed meanwhile
        if not here:
            return outcomes
        with no_grad():
            order, state = _together({n: place for n in here if (place := inputs[n].place) is not None})
            state, found = self._advanced(state, [inputs[n] for n in order], max(stages[n].tokens for n in here))
            needs = self.needs(state)
        for index, n in enumerate(order):
            outcomes[n] = found[index]
            stages[n].advanced(Place(state, index), inputs[n], needs[index])
        return outcomes

    def _advanced(self, state: Any, inputs: Sequence[StageInput], most: int) -> tuple[Any, list[Outcome[Any]]]:
        """Return the state after a step with more input, of at most so many blocks a stream, and the outcomes."""
        decoder, errors = self._decoder, list[UserError | None]([None] * len(inputs))
        if any(own.changes for own in inputs):
            state = decoder.change(state, [own.changes or None for own in inputs])
        if any(own.size for own in inputs):
            state, errors = decoder.accept(state, [own.piece if own.size else None for own in inputs])
        if any(ends := [own.ends for own in inputs]):
            state = decoder.end(state, ends)
        found = [Outcome(decoder.joined([]))] * len(inputs)
        if any(decoder.pending(state)):
            state, found = decoder.step(state, most)
        refused = zip(found, errors, strict=True)
        return state, [outcome if error is None else Outcome(error=error) for outcome, error in refused]

    def restored(self, saved: SavedStage) -> Place:
        """Return the place of a state that was saved.  Raises UserError if it is not of this model."""
        state = saved.state(self._decoder)
        with no_grad():
            self._decoder.accept(state, [None])
        return Place(state, 0)

    def changed(self, state: Any, changes: Mapping[str, Any]) -> Any:
        """Return the state of one stream with other settings.  Raises UserError for those that do not fit."""
        return self._decoder.change(state, [changes]) if changes else state

    def needs(self, state: Any) -> list[Needs]:
        """Return what each stream of a state waits for."""
        of = self._decoder
        return list(map(Needs, of.pending(state), of.has_room(state), of.missing(state)))

    def measured(self, engine: Engine | None = None) -> CostModel:
        """Measure how long steps of several streams take, on an engine if one runs."""
        if self.streaming.trial is None or not self._measured(_SIZES[0], engine):  # the first steps allocate memory
            return CostModel(_UNKNOWN_COST)
        rounds = [[self._measured(streams, engine) for streams in _SIZES] for _ in range(_ROUNDS)]
        return CostModel(list(zip(_SIZES, map(min, zip(*rounds, strict=True)), strict=True)))

    def _measured(self, streams: int, engine: Engine | None) -> float:
        """Return how long a step of so many streams takes, 0 if there is none."""
        decoder, times = self._decoder, list[float]()
        state = self.beginning.state.select([0] * streams)
        state = decoder.end(decoder.accept(state, [self.streaming.trial] * streams)[0])

        def step() -> Any:
            with no_grad():
                start = time.perf_counter()
                after, _ = decoder.step(state)
                times.append(time.perf_counter() - start)
                return after

        while any(decoder.pending(state)) and len(times) < _STEPS:
            state = engine.call(step) if engine else step()
        return statistics.median(times) if times else 0.0


@dataclass(frozen=True, eq=False)
class ServedStream:
    """A decoder under a name, and the lane of its steps."""

    name: str
    steps: Steps
    work: Work

    @property
    def takes(self) -> int | None:
        """The rate of the sound that it takes, None for text."""
        return self.steps.streaming.takes

    @property
    def gives(self) -> int | None:
        """The rate of the sound that it gives, None for text."""
        return self.steps.streaming.gives

    @property
    def settings(self) -> Mapping[str, Any]:
        """What a session may change, by name, with the values that it begins with."""
        return self.steps.streaming.decoder.settings


def serve_stream(
    name: str, streaming: Streaming, engine: Engine | None = None, most_streams: int = 1 << 30
) -> ServedStream:
    """Return a decoder ready to be served, after measuring its steps, on an engine if one runs.

    No step advances more than `most_streams`.
    """
    steps = Steps(streaming)
    work = Work(f"{name}/stream", steps.measured(engine), most_streams, compute=steps.compute)
    return ServedStream(name, steps, work)


def check_chain(name: str, streams: Sequence[ServedStream]) -> None:
    """Raise UserError unless each stream takes what the one before gives."""
    for before, after in pairwise(streams):
        if before.gives != after.takes:
            raise UserError(
                f"chains.{name}: {before.name} gives {_medium(before.gives)}, and {after.name} takes "
                f"{_medium(after.takes)}"
            )


class Stage:
    """A stream of one decoder in a session.  It is an item of jobs, whose `tokens` are the blocks of a step."""

    def __init__(self, session: Session, stream: ServedStream):
        self.tokens = 1
        self.session, self.stream = session, stream
        self.place: Place | None = stream.steps.beginning
        self.next: Stage | None = None
        self.job: Job | None = None
        self.ends = False  # no more input comes than the inbox has
        self.ended = False  # its decoder knows
        self.changes: dict[str, Any] = {}  # of settings, before the next step
        self.follower: Following | None = None
        self.told: Mapping[str, Any] = {}  # by the follower, of the last step
        self.taken, self.arrived = 0, 0.0  # characters or samples, and when the last of them arrived
        self._needs = stream.steps.first_needs
        self._inbox: deque[Piece] = deque()
        self._size = 0  # characters or samples that wait there
        self._played = 0.0  # when what it has given will have been played

    def hasten(self) -> None:
        """Let a step take all that a turn takes: input that is there as a whole, such as a file, needs fewer steps."""
        self.tokens = self.stream.steps.blocks

    @property
    def has_room(self) -> bool:
        """Whether its inbox has room for another piece."""
        waiting = _PIECE_BYTES * len(self._inbox) + _ITEM_BYTES * self._size
        return waiting < self.session.limits.waiting_bytes

    @property
    def is_over(self) -> bool:
        """Whether it gives no more output."""
        return self.ended and not self._needs.pending

    @property
    def is_due(self) -> bool:
        """Whether it has something to compute, and whatever follows has room for its output."""
        has_enough = bool(self._inbox) and (self._size >= self._needs.missing or not self.has_room)
        has_work = self._needs.pending or has_enough or bool(self.changes) or (self.ends and not self.ended)
        return has_work and self.session.has_room and (self.next is None or self.next.has_room)

    def put(self, content: Any, now: float) -> None:
        """Let a piece of input wait."""
        if len(content):
            self._inbox.append(Piece(content, now))
            self._size += len(content)

    def next_input(self) -> StageInput:
        """Return what the next step begins with; it stays in the inbox until `advanced`."""
        with self.session.lock:
            pieces, left = list[Any](), self.stream.steps.most if self._needs.has_room or not self._needs.pending else 0
            arrived = 0.0
            for piece in self._inbox:
                if left <= 0:
                    break
                pieces.append(piece.content[:left])
                left, arrived = left - len(pieces[-1]), piece.arrived
            size = sum(map(len, pieces))
            ends = self.ends and not self.ended and size == self._size
            return StageInput(self.place, _joined(pieces), size, ends, arrived, dict(self.changes))

    def advanced(self, place: Place, given: StageInput, needs: Needs) -> None:
        """Keep the state after a step, and drop the input that it took."""
        with self.session.lock:
            if self.place is None:  # closed meanwhile
                return
            self._follow(self.place, place)
            self.place, self._needs = place, needs
            self.taken, self.arrived = self.taken + given.size, given.arrived or self.arrived
            self.ended = self.ended or given.ends
            self._size -= given.size
            self.changes = dict(self.changes.items() - given.changes.items())  # those that came during the step
            left = given.size
            while left:
                content, arrived = self._inbox.popleft()
                if len(content) > left:
                    self._inbox.appendleft(Piece(content[left:], arrived))
                left -= min(left, len(content))

    def _follow(self, before: Place, after: Place) -> None:
        """Learn what the follower tells of a step; a followed session has that of the model, if there is one."""
        follow = self.stream.steps.streaming.follow
        if self.follower is None and self.session.is_followed and follow is not None:
            self.follower = follow(before.state, before.stream)
        if self.follower is not None:
            self.told = self.follower.add(after.state, after.stream)

    def gave(self, output: Any, now: float) -> None:
        """Learn that it has given output: of sound, the next must be there before this is played."""
        if self.stream.gives is not None:
            self._played = max(self._played, now) + len(output) / self.stream.gives

    def deadline(self, now: float) -> float:
        """Return when its next step is due: of sound, a margin before what is there has been played.

        So the voice with the least left to play goes first.  One that is late is due at once, and no earlier: it may
        not keep others waiting for longer than their steps may take.  A bulk session's sound is for later.
        """
        if not self._played or self.session.is_bulk:
            return now + self.session.step_seconds
        return max(now, self._played - _MARGIN)

    @property
    def timeout(self) -> float:
        """How long a step of it may take: whoever comes while a batch is computed waits for that batch, too."""
        return self.session.step_seconds * (1 if self.stream.gives is None else _SOUND_TIMEOUT)

    def separate(self) -> None:
        """Keep no other stream's state alive."""
        if self.place is not None and self.place.state.streams > 1:
            self.place = Place(self.place.alone(), 0)

    def release(self) -> None:
        """Forget everything."""
        self.place = self.follower = None
        self._inbox.clear()
        self._size = 0

    def saved(self) -> SavedStage:
        """Return what another process needs to go on."""
        assert self.place is not None
        inbox = _joined([self.stream.steps.nothing, *(piece.content for piece in self._inbox)])
        state = self.stream.steps.changed(self.place.alone(), self.changes)
        return SavedStage(state.arrays(), inbox, self.ends, self.ended)

    def restore(self, saved: SavedStage, now: float) -> None:
        """Go on where another process stopped.  Raises UserError for a state of another model."""
        self.place = self.stream.steps.restored(saved)
        (self._needs,) = self.stream.steps.needs(self.place.alone())
        self.put(saved.inbox, now)
        self.ends, self.ended = saved.ends, saved.ended


class Session:
    """A client's stream through one model, or through a chain of them.

    `put`, `end` and `close` are called by the event loop, or by any one thread; `notify` is called there after a step.
    `events` are what the client is to be told, in order.  Steps of a `bulk` session wait for those of others.  The
    client of a `followed` session is told of every step that gives or tells something.
    """

    def __init__(
        self,
        sessions: Sessions,
        streams: Sequence[ServedStream],
        client: str,
        bulk: bool = False,
        followed: bool = False,
    ):
        self.id, self.client, self.limits = secrets.token_hex(8), client, sessions.limits
        self.is_bulk, self.step_seconds = bulk, self.limits.bulk_step_seconds if bulk else self.limits.step_seconds
        self.is_followed, self.lock = followed, threading.RLock()
        self.stages = [Stage(self, stream) for stream in streams]
        for stage, after in pairwise(self.stages):
            stage.next = after
        self.received = 0  # characters or samples
        self.notify: Callable[[], None] = _nothing
        self._sessions, self._events = sessions, deque[Event]()
        self._unsent = 0  # bytes
        self._is_over = self._is_held = self._is_closed = False
        self._topics: set[str] = set()  # of notes
        self._active_at = sessions.clock()

    @property
    def takes(self) -> int | None:
        """The rate of the sound that it takes, None for text."""
        return self.stages[0].stream.takes

    @property
    def gives(self) -> int | None:
        """The rate of the sound that it gives, None for text."""
        return self.stages[-1].stream.gives

    @property
    def has_room(self) -> bool:
        """Whether little enough output waits for the client that more may be computed."""
        return self._unsent < self.limits.waiting_bytes

    @property
    def takes_more(self) -> bool:
        """Whether little enough input waits that the client may send more."""
        return self._is_over or self._is_closed or self.stages[0].has_room

    @property
    def is_settled(self) -> bool:
        """Whether nothing of it is being computed."""
        return all(stage.job is None for stage in self.stages)

    @property
    def is_idle(self) -> bool:
        """Whether there is nothing to compute until more input comes, or some output is sent."""
        with self.lock:
            return not any(stage.job is not None or stage.is_due for stage in self.stages)

    def put(self, piece: Any) -> None:
        """Take a piece of input.  Raises UserError after its end."""
        with self.lock:
            self._active_at = self._sessions.clock()
            if self.stages[0].ends:
                raise UserError("the input of this session is over; start another one")
            self.received += len(piece)
            if not self._is_over:
                self.stages[0].put(piece, self._active_at)
                self._submit()

    @property
    def settings(self) -> dict[str, Any]:
        """What `change` may change, by name, with the values that the session begins with."""
        return {name: value for stage in self.stages for name, value in stage.stream.settings.items()}

    def change(self, changes: Mapping[str, Any]) -> None:
        """Change settings of all stages that have them, from their next step on.

        Raises UserError for settings that no stage has, and for values that do not fit.
        """
        with self.lock:
            self._active_at = self._sessions.clock()
            if self._is_over or self._is_closed:
                return
            for name in changes:
                if name not in self.settings:
                    have = ", ".join(self.settings) or "none"
                    raise UserError(f"settings.{name}: this session has no such setting; it has {have}")
            for stage in self.stages:
                steps = stage.stream.steps
                own = {name: changes[name] for name in stage.stream.settings if name in changes}
                steps.changed(steps.beginning.alone(), own)  # raises UserError
                stage.changes |= own
            self._submit()

    def end(self) -> None:
        """End the input."""
        with self.lock:
            self._active_at = self._sessions.clock()
            self.stages[0].ends = True
            self._submit()

    def take_event(self) -> Event | None:
        """Return the next thing that the client is to be told; `sent` says that it was."""
        with self.lock:
            return self._events.popleft() if self._events else None

    def sent(self, event: Event) -> None:
        """Learn that an event was sent."""
        with self.lock:
            self._active_at = self._sessions.clock()
            if event.kind in ("output", "step"):
                self._unsent -= _bytes(event)
                self._submit()

    def tell(self, event: Event) -> None:
        """Have the client told of an event."""
        with self.lock:
            self._events.append(event)
        self.notify()

    def hold(self) -> None:
        """Begin no further step."""
        with self.lock:
            self._is_held = True

    def save(self) -> str:
        """Keep a session that is held and settled in a file; return the token for `Sessions.resume`.

        Raises NoFolder if the server has no folder for it.
        """
        return self._sessions.folder_of_states().save(
            SavedSession(
                tuple(stage.stream.name for stage in self.stages),
                self.received,
                tuple(stage.saved() for stage in self.stages),
            )
        )

    def close(self) -> None:
        """Free everything; what is being computed at this moment is dropped."""
        with self.lock:
            self._is_closed = True
            self.notify = _nothing
            self._events.clear()
            for stage in self.stages:
                self._drop(stage)
            self.stages = []  # each of which refers to this
        self._sessions.forget(self)

    def seconds_left(self) -> float:
        """Return after how many seconds without a change the session is overdue."""
        if not self.is_settled or self._unsent:
            return self.limits.idle_seconds
        return self._active_at + self.limits.idle_seconds - self._sessions.clock()

    def check_time(self) -> None:
        """Raise Overdue if the client has done nothing for too long."""
        if self.seconds_left() <= 0:
            raise Overdue(f"nothing was sent for {self.limits.idle_seconds:g} s")

    def stepped(self, stage: Stage, outcome: Outcome[Any], computed: Computed) -> None:
        """Pass on what a step has given, and submit the next ones; runs in the engine's thread."""
        with self.lock:
            stage.job = None
            if self._is_closed or self._is_over:
                stage.release()
                return
            for note in outcome.notes:
                if note.topic is None or note.topic not in self._topics:
                    self._events.append(Event("note", str(note)))
                    self._topics.update([note.topic] if note.topic else [])
            if outcome.error is not None:
                self._finish(Event("error", outcome.error))
                return
            if self.is_followed:
                self._tell_step(stage, outcome.value, computed)
            self._pass_on(stage, outcome.value)
            if not self._is_over:
                self._submit()
            if stage.job is None:
                stage.separate()

    def _tell_step(self, stage: Stage, output: Any, computed: Computed) -> None:
        batch, given = computed.batch, 0 if output is None else len(output)
        if batch is None or not (given or stage.told):
            return
        text = output if stage.stream.gives is None and given else None
        times = stage.arrived, batch.started, computed.ended
        number = self.stages.index(stage)
        self._add(Event("step", Step(number, stage.taken, *times, len(batch.items), given, text, stage.told)))

    def _add(self, event: Event) -> None:
        """Let an event wait that counts as output."""
        self._events.append(event)
        self._unsent += _bytes(event)

    def _pass_on(self, stage: Stage, output: Any) -> None:
        after = stage.next
        if output is not None and len(output):
            now = self._sessions.clock()
            stage.gave(output, now)
            if after is not None:
                after.put(output, now)
            else:
                self._add(Event("output", output))
        if stage.is_over and after is not None:
            after.ends = True
        elif stage.is_over:
            self._finish(Event("done"))

    def _finish(self, event: Event) -> None:
        self._is_over = True
        self._events.append(event)
        for stage in self.stages:
            self._drop(stage)

    def _drop(self, stage: Stage) -> None:
        if stage.job is not None:
            self._sessions.engine.cancel(stage.job)
            stage.job = None
        stage.release()

    def _submit(self) -> None:
        """Submit a step of each stage that is due and has none."""
        if self._is_held or self._is_closed or self._is_over:
            return
        for stage in self.stages:
            if stage.job is None and stage.is_due:
                now = self._sessions.clock()
                due, client = stage.deadline(now), self.client
                stage.job = Job(stage.stream.work, [stage], now, due, client=client, step=True, timeout=stage.timeout)
                self._sessions.engine.submit(stage.job)

    def resume(self, saved: SavedSession) -> None:
        """Go on where another process stopped.  Raises UserError for a session of other models."""
        names = tuple(stage.stream.name for stage in self.stages)
        if saved.names != names:
            raise UserError(f"this session is of {', '.join(saved.names)}, not of {', '.join(names)}")
        with self.lock:
            self.received = saved.received
            self.stages[0].taken = saved.received - len(saved.stages[0].inbox)
            for stage, own in zip(self.stages, saved.stages, strict=True):
                stage.restore(own, self._sessions.clock())
            self._submit()


class Sessions:
    """All sessions of a server."""

    def __init__(self, engine: Engine, limits: SessionLimits | None = None, folder: SessionFolder | None = None):
        self.engine, self.limits, self.clock = engine, limits or SessionLimits(), engine.clock
        self.live: dict[Session, None] = {}
        self._folder = folder

    @property
    def keeps(self) -> bool:
        """Whether sessions can be kept for another process."""
        return self._folder is not None

    def folder_of_states(self) -> SessionFolder:
        """Return the folder that keeps sessions.  Raises NoFolder if there is none."""
        if self._folder is None:
            raise NoFolder("this server keeps no sessions: its configuration has no sessions_folder")
        return self._folder

    def open(
        self, streams: Sequence[ServedStream], client: str = "", bulk: bool = False, followed: bool = False
    ) -> Session:
        """Begin a session.  Raises TooManySessions."""
        if len(self.live) >= self.limits.sessions:
            raise TooManySessions(f"this server has {self.limits.sessions:,} sessions, as many as it takes")
        session = Session(self, streams, client, bulk, followed)
        self.live[session] = None
        return session

    async def leave(self) -> None:
        """Have all clients told to go on elsewhere."""
        for session in list(self.live):
            session.tell(Event("leave"))

    def forget(self, session: Session) -> None:
        """Count a session no more."""
        self.live.pop(session, None)

    def stepped(self, computed: Computed) -> None:
        """Pass on what steps have given; runs in the engine's thread."""
        for stage, outcome in stages_of(computed):
            stage.session.stepped(stage, outcome, computed)

    def advanced(self, computed: Computed) -> list[Session]:
        """Return the sessions of a batch, which something has changed for."""
        return list({stage.session: None for stage, _ in stages_of(computed)})


def stages_of(computed: Computed) -> list[tuple[Stage, Outcome[Any]]]:
    """Return the stages of a batch, each with its outcome; none if it is of something else."""
    if computed.batch is None:
        return []
    items = [job.items[index] for job, index in computed.batch.items]
    return [(item, found) for item, found in zip(items, computed.outcomes, strict=True) if isinstance(item, Stage)]


def _together(places: Mapping[int, Place]) -> tuple[list[int], Any]:
    """Return the numbers of places in another order, and a state of their streams in that order.

    Streams of one state are neighbours, so that nothing has to be done if they are all of its streams.
    """
    groups: dict[int, tuple[Any, list[int]]] = {}
    for number, place in places.items():
        groups.setdefault(id(place.state), (place.state, []))[1].append(number)
    order, parts = list[int](), list[Any]()
    for state, numbers in groups.values():
        numbers.sort(key=lambda number: places[number].stream)
        chosen = [places[number].stream for number in numbers]
        parts.append(state if chosen == list(range(state.streams)) else state.select(chosen))
        order += numbers
    return order, parts[0] if len(parts) == 1 else parts[0].concat(parts[1:])


def _bytes(event: Event) -> int:
    """Return about how many bytes an event takes that waits for its client."""
    if event.kind == "output":
        return _PIECE_BYTES + _ITEM_BYTES * len(event.value)
    step: Step = event.value
    return _STEP_BYTES + _ITEM_BYTES * len(step.text or "") + sum(_WORD_BYTES * len(own) for own in _lists(step.told))


def _lists(told: Mapping[str, Any]) -> list[list[Any] | str]:
    return [own for own in told.values() if isinstance(own, list | str)]


def _joined(pieces: Sequence[Any]) -> Any:
    """Return consecutive pieces of text, or of sound, as one; None if there are none."""
    if not pieces or isinstance(pieces[0], str):
        return "".join(pieces) if pieces else None
    return np.concatenate(pieces)


def _medium(rate: int | None) -> str:
    return "text" if rate is None else f"sound with {rate:,} samples a second"


def _nothing() -> None:
    """Do nothing."""
