"""Sessions: whatever is beside them, their output is that of the commands, and nothing of them is left behind."""

from __future__ import annotations

import gc
import io
import weakref
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sessions import Server, output, served, sound, told
from support.trained import trained

from ernie.audio.wave import to_pcm16
from ernie.data.read_lines import Line
from ernie.errors import NotFinite, UserError
from inference.commands.speak_lines import into_stream
from inference.commands.transcribe_sound import from_samples
from inference.commands.translate_lines import by_word
from inference.speaker import TextSpeaker
from inference.translator import TextTranslator
from serving.config import ModelConfig, ServeConfig
from serving.engine import EngineFailure
from serving.saved_sessions import SessionFolder
from serving.sessions import (
    Event,
    Overdue,
    Place,
    Session,
    SessionLimits,
    Stage,
    Steps,
    TooManySessions,
    check_chain,
    serve_stream,
)

WORDS = ("blue", "red", "green")
KINDS = ("listen", "translate", "speak")
lines = st.lists(st.lists(st.sampled_from(WORDS), max_size=4), max_size=3)


@cache
def written(kind: str, spoken: tuple[tuple[str, ...], ...], seed: int) -> Any:
    """What a command writes for an input: `ernie transcribe`, `translate` or `speak`."""
    given = given_to(kind, spoken, seed)
    if kind == "listen":
        text = io.StringIO()
        if not len(given):
            return ""
        from_samples(trained("streaming").model, io.BytesIO(to_pcm16(given)), False, text, None)
        return text.getvalue().removesuffix("\n")
    if kind == "translate":
        text = io.StringIO()
        by_word(TextTranslator(trained("translate").model), io.StringIO(given), text)
        return text.getvalue()
    if not given.strip():
        return b""
    samples = io.BytesIO()
    spoken_lines = [Line(n, line) for n, line in enumerate(given.split("\n"), 1)]
    into_stream(TextSpeaker(trained("synthesize").model), spoken_lines, samples, None)
    return samples.getvalue()


@cache
def given_to(kind: str, spoken: tuple[tuple[str, ...], ...], seed: int) -> Any:
    if kind == "listen":
        words = [word for line in spoken for word in line]
        samples = sound(words, seed) if words else np.zeros(0, np.float32)
        return np.frombuffer(to_pcm16(samples), "<i2").astype(np.float32) / 32768
    return "\n".join(" ".join(line) for line in spoken)


def got(kind: str, events: Sequence[Event]) -> Any:
    assert events[-1] == Event("done"), events
    found = output(events)
    return to_pcm16(np.zeros(0) if isinstance(found, str) else found) if kind == "speak" else found


@settings(max_examples=12, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(KINDS), lines, st.integers(0, 9)), min_size=2, max_size=6),
    st.lists(st.tuples(st.sampled_from(["put", "put", "turn", "turn", "tell"]), st.integers(0, 5)), max_size=60),
    st.integers(1, 9),
)
def test_output_is_that_of_the_commands_whatever_is_beside_a_session_and_however_input_is_cut(
    asked: list[tuple[str, list[list[str]], int]], calls: list[tuple[str, int]], cuts: int
) -> None:
    server = Server()
    inputs = [(kind, tuple(map(tuple, spoken)), seed % 3) for kind, spoken, seed in asked]
    sessions = [server.sessions.open([served(kind)]) for kind, _, _ in inputs]
    pieces = [cut(given_to(*own), cuts) for own in inputs]
    events: list[list[Event]] = [[] for _ in inputs]
    for call, n in calls:
        if call == "turn":
            server.turn()
        elif n < len(inputs) and call == "tell":
            events[n] += told(sessions[n])
        elif n < len(inputs) and pieces[n]:
            sessions[n].put(pieces[n].pop(0))
    for session, rest in zip(sessions, pieces, strict=True):
        for piece in rest:
            session.put(piece)
        session.end()
    server.run()
    for session, (kind, spoken, seed), own in zip(sessions, inputs, events, strict=True):
        assert got(kind, own + told(session)) == written(kind, spoken, seed)


def cut(given: Any, pieces: int) -> list[Any]:
    size = max(1, -(-len(given) // pieces))
    return [given[first : first + size] for first in range(0, len(given), size)]


LINES = (WORDS, ("green", "blue"), WORDS)


def begin(server: Server, kinds: Sequence[str]) -> list[Session]:
    """Sessions of these kinds, each with a few lines of input that have ended."""
    sessions = [server.sessions.open([served(kind)]) for kind in kinds]
    for session, kind in zip(sessions, kinds, strict=True):
        session.put(given_to(kind, LINES, 0))
        session.end()
    return sessions


@pytest.mark.parametrize("kind", KINDS)
def test_the_steps_of_all_sessions_are_computed_together(kind: str) -> None:
    server = Server()
    begin(server, [kind] * 5)
    server.run()
    assert server.batches[0] == 5
    assert len(server.batches) < 2 * max(1, len(alone(kind).batches))


def alone(kind: str) -> Server:
    server = Server()
    begin(server, [kind])
    server.run()
    return server


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_takes_at_most_one_step_a_turn(kind: str) -> None:
    server = Server()
    first, second = begin(server, [kind] * 2)
    seen = [0, 0]
    while server.turn():
        for n, session in enumerate((first, second)):
            seen[n] += len([event for event in told(session) if event.kind == "output"])
        assert abs(seen[0] - seen[1]) <= 1
    assert server.engine.waiting == (0, 0)


def test_sound_that_is_there_as_a_whole_takes_few_steps_beside_live_sound() -> None:
    said = sound(("blue", "red", "green") * 20)  # six seconds
    server = Server()
    fast, live = (server.sessions.open([served("listen")]) for _ in range(2))
    fast.stages[0].hasten()
    fast.put(said)
    fast.end()
    steps, heard, cut = 0, list[Event](), 800
    while not heard or heard[-1].kind != "done":
        live.put(said[steps * cut : (steps + 1) * cut])
        assert server.turn()
        heard += told(fast)
        steps += 1
    assert steps < 15
    live.put(said[steps * cut :])
    live.end()
    server.run()
    assert output(told(live)) == output(heard)
    assert set(server.batches) == {1, 2}


def test_what_is_no_sound_harms_only_its_own_session() -> None:
    server = Server()
    good, bad = begin(server, ["listen"] * 2)
    bad = server.sessions.open([served("listen")])
    bad.put(np.full(10_000, np.nan, np.float32))
    server.run()
    (event,) = told(bad)
    assert event.kind == "error"
    assert isinstance(event.value, UserError)
    assert got("listen", told(good)) == written("listen", LINES, 0)


@pytest.mark.parametrize("kind", ["listen", "translate"])
def test_a_session_with_a_damaged_state_fails_alone(kind: str) -> None:
    server = Server()
    sessions = begin(server, [kind] * 3)
    for _ in range(2):
        server.turn()
    stage = sessions[1].stages[0]
    assert stage.place is not None
    arrays = stage.place.alone().arrays()
    damaged = {
        name: np.full_like(value, np.nan) if "values." in name or name.endswith("frames") else value
        for name, value in arrays.items()
    }
    stage.place = Place(type(stage.place.state).from_arrays(damaged), 0)
    server.run()
    *_, last = told(sessions[1])
    assert last.kind == "error"
    assert isinstance(last.value, NotFinite)
    for session in (sessions[0], sessions[2]):
        assert got(kind, told(session)) == written(kind, LINES, 0)


class Broken(Exception):
    """An error of the model's code."""


@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_ends_only_the_session_that_causes_it(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    server = Server()
    sessions = begin(server, [kind] * 4)
    server.turn()
    culprit, compute = sessions[2].stages[0], Steps._advanced
    at = [culprit.place]

    def broken(steps: Steps, state: Any, inputs: Sequence[Any], most: int) -> Any:
        found = compute(steps, state, inputs, most)  # after the step: nothing of it may be kept
        if any(own.place is at[0] for own in inputs):
            raise Broken
        return found

    monkeypatch.setattr(Steps, "_advanced", broken)
    server.run()
    (*_, last) = told(sessions[2])
    assert last.kind == "error"
    assert isinstance(last.value, EngineFailure)
    for n in (0, 1, 3):
        assert got(kind, told(sessions[n])) == written(kind, LINES, 0)


@settings(max_examples=16, deadline=None)
@given(
    st.lists(st.sampled_from([*KINDS, "chain"]), min_size=1, max_size=5),
    st.lists(
        st.tuples(st.sampled_from(["put", "end", "turn", "turn", "tell", "close"]), st.integers(0, 4)), max_size=40
    ),
)
def test_a_session_that_is_closed_at_any_time_leaves_nothing_behind(
    kinds: list[str], calls: list[tuple[str, int]]
) -> None:
    server = Server()
    sessions: list[Session | None] = [server.sessions.open(streams_of(kind)) for kind in kinds]
    watched = [weakref.ref(session) for session in sessions]
    states = list[weakref.ref[Any]]()
    for call, n in calls:
        session = sessions[n] if n < len(sessions) else None
        if call == "turn":
            server.turn()
            states += [weakref.ref(stage.place.state) for stage in stages(sessions) if is_own(stage)]
        elif session is None:
            pass
        elif call == "put" and not session.stages[0].ends:
            session.put(given_to("translate" if session.takes is None else "listen", LINES, 0))
        elif call == "end":
            session.end()
        elif call == "tell":
            told(session)
        elif call == "close":
            session.close()
            sessions[n] = None
    for session in sessions:
        if session is not None:
            session.close()
    sessions, session = [], None
    assert server.engine.waiting == (0, 0)
    assert not server.sessions.live
    gc.collect()
    assert [each() for each in watched] == [None] * len(kinds)
    assert [each() for each in states if each() is not None] == []


def streams_of(kind: str) -> list[Any]:
    return [served(each) for each in KINDS] if kind == "chain" else [served(kind)]


def stages(sessions: Sequence[Session | None]) -> list[Stage]:
    return [stage for session in sessions if session is not None for stage in session.stages]


def is_own(stage: Stage) -> bool:
    return stage.place is not None and stage.place.state is not stage.stream.steps.beginning.state


def test_what_a_closed_session_held_is_free_after_one_turn_of_the_others() -> None:
    server = Server()
    first, second = begin(server, ["translate"] * 2)
    server.turn()
    (stage,) = first.stages
    assert stage.place is not None and stage.place.state.streams == 2
    state = weakref.ref(stage.place.state)
    first.close()
    server.turn()
    gc.collect()
    assert state() is None
    server.run()
    assert got("translate", told(second)) == written("translate", LINES, 0)


def test_a_session_that_waits_for_input_keeps_no_other_session_alive() -> None:
    server = Server()
    first, second = (server.sessions.open([served("listen")]) for _ in range(2))
    for session in (first, second):
        session.put(sound(WORDS))
    server.run()
    assert [stage.place.state.streams for stage in stages([first, second]) if stage.place] == [1, 1]


@settings(max_examples=6, deadline=None)
@given(lines, st.integers(1, 9), st.integers(0, 9))
def test_a_chain_gives_what_the_commands_give_one_after_the_other(
    spoken: list[list[str]], cuts: int, turns: int
) -> None:
    server = Server()
    given_samples = given_to("listen", tuple(map(tuple, spoken)), 1)
    session, other = (server.sessions.open(streams_of("chain")) for _ in range(2))
    begin(server, KINDS)
    other.put(given_samples)
    for piece in cut(given_samples, cuts):
        session.put(piece)
        for _ in range(turns):
            server.turn()
    session.end()
    server.run()
    heard = written("listen", tuple(map(tuple, spoken)), 1)
    text = io.StringIO()
    by_word(TextTranslator(trained("translate").model), io.StringIO(heard), text)
    samples = io.BytesIO()
    if text.getvalue().strip():
        spoken_lines = [Line(n, line) for n, line in enumerate(text.getvalue().split("\n"), 1)]
        into_stream(TextSpeaker(trained("synthesize").model), spoken_lines, samples, None)
    assert got("speak", told(session)) == samples.getvalue()


@settings(max_examples=10, deadline=None)
@given(
    st.lists(st.sampled_from([*KINDS, "chain"]), min_size=1, max_size=3),
    st.integers(0, 12),
    st.integers(1, 5),
    st.integers(0, 5),
)
def test_a_session_that_is_saved_at_any_time_and_resumed_elsewhere_continues_bit_for_bit(
    tmp_path_factory: pytest.TempPathFactory, kinds: list[str], turns: int, cuts: int, early: int
) -> None:
    folder = SessionFolder(tmp_path_factory.mktemp("states"))
    here, there = Server(folder=folder), Server(folder=folder)
    sessions = [here.sessions.open(streams_of(kind)) for kind in kinds]
    pieces = [cut(given_to("listen" if kind == "chain" else kind, LINES, 0), cuts) for kind in kinds]
    for session, own in zip(sessions, pieces, strict=True):
        for piece in own[:early]:
            session.put(piece)
        if early >= len(own):
            session.end()
    for _ in range(turns):
        here.turn()
    for session in sessions:
        session.hold()
    here.run()
    for kind, session, own in zip(kinds, sessions, pieces, strict=True):
        events = told(session)
        if events[-1:] != [Event("done")]:
            token = session.save()
            session.close()
            moved = there.sessions.open(streams_of(kind))
            moved.resume(folder.take(token))
            assert moved.received == sum(map(len, own[:early]))
            for piece in own[early:]:
                moved.put(piece)
            moved.end()
            there.run()
            events += told(moved)
        plain = there.sessions.open(streams_of(kind))
        for piece in own:
            plain.put(piece)
        plain.end()
        there.run()
        assert np.array_equal(output(events), output(told(plain)))
        if kind != "chain":
            assert got(kind, events) == written(kind, LINES, 0)


def test_a_saved_session_is_resumed_once_and_only_with_its_own_models(tmp_path: Path) -> None:
    folder = SessionFolder(tmp_path)
    server = Server(folder=folder)
    session = server.sessions.open([served("listen")])
    session.hold()
    token = session.save()
    saved = folder.take(token)
    with pytest.raises(UserError, match="this token is of no session that is kept here"):
        folder.take(token)
    with pytest.raises(UserError, match="no session that is kept here"):
        folder.take("../../etc/passwd")
    with pytest.raises(UserError, match="this session is of listen, not of translate"):
        server.sessions.open([served("translate")]).resume(saved)
    assert list(tmp_path.iterdir()) == []


def test_a_session_of_a_model_that_was_replaced_is_refused(tmp_path: Path) -> None:
    server = Server(folder=SessionFolder(tmp_path))
    (session,) = begin(server, ["translate"])
    session.hold()
    server.run()
    token = session.save()
    model = deepcopy(trained("translate").model)
    bias = next(iter(model.head.parameters()))
    bias.set_value(bias + 1)
    stream = replace(served("translate"), steps=Steps(TextTranslator(model).streaming))
    with pytest.raises(UserError, match="this state is of another model"):
        server.sessions.open([stream]).resume(SessionFolder(tmp_path).take(token))


def test_a_session_of_another_version_is_refused_in_a_sentence(tmp_path: Path) -> None:
    server = Server(folder=SessionFolder(tmp_path))
    (session,) = begin(server, ["speak"])
    session.hold()
    server.run()
    saved = SessionFolder(tmp_path).take(session.save())
    (stage,) = saved.stages
    for name in stage.arrays:
        without = replace(stage, arrays={each: array for each, array in stage.arrays.items() if each != name})
        fresh = server.sessions.open([served("speak")])
        with pytest.raises(UserError, match="the saved session: holds no state of the kind"):
            fresh.resume(replace(saved, stages=(without,)))


def test_saved_sessions_are_forgotten_after_some_time(tmp_path: Path) -> None:
    server = Server(folder=SessionFolder(tmp_path, seconds=-1))
    session = server.sessions.open([served("translate")])
    session.hold()
    first, second = session.save(), session.save()
    assert [path.stem for path in tmp_path.iterdir()] == [second]
    assert first != second


def test_without_a_folder_a_session_cannot_be_saved() -> None:
    server = Server()
    session = server.sessions.open([served("translate")])
    session.hold()
    with pytest.raises(UserError, match="has no sessions_folder"):
        session.save()


def test_there_are_at_most_as_many_sessions_as_allowed() -> None:
    server = Server(SessionLimits(sessions=2))
    first, _ = (server.sessions.open([served("translate")]) for _ in range(2))
    with pytest.raises(TooManySessions, match="has 2 sessions, as many as it takes"):
        server.sessions.open([served("translate")])
    first.close()
    server.sessions.open([served("translate")])


def test_a_voice_whose_sound_is_not_read_pauses_and_goes_on_later() -> None:
    server = Server(SessionLimits(waiting_bytes=300))
    (session,) = begin(server, ["speak"])
    server.run()
    first = session.take_event()
    assert first is not None and first.kind == "output"
    assert session.take_event() is None
    assert not session.has_room and server.engine.waiting == (0, 0)
    events = [first]
    session.sent(first)
    while events[-1].kind != "done":
        server.run()
        events += told(session)
    assert got("speak", events) == written("speak", LINES, 0)


def test_input_that_is_not_computed_fills_the_inbox_and_no_more() -> None:
    server = Server(SessionLimits(waiting_bytes=10_000))
    session = server.sessions.open([served("listen")])
    put = 0
    while session.takes_more:
        session.put(np.zeros(500, np.float32))
        put += 1
    assert put == 5
    server.run()
    assert session.takes_more


def test_sound_waits_until_there_is_a_chunk_of_it_and_then_is_taken_at_once() -> None:
    server, samples = Server(), sound(WORDS)
    session = server.sessions.open([served("listen")])
    decoder = served("listen").steps.streaming.decoder
    (whole,) = decoder.missing(decoder.begin())
    assert whole > 100
    for start in range(0, whole - 1, 10):
        session.put(samples[start : min(start + 10, whole - 1)])
        assert server.engine.waiting == (0, 0)
    session.put(samples[whole - 1 : whole])
    server.run()
    assert server.batches == [1]
    session.end()
    server.run()
    assert [event.kind for event in told(session)][-1] == "done"


def test_sound_of_which_no_whole_chunk_has_room_is_taken_in_parts() -> None:
    server, samples = Server(SessionLimits(waiting_bytes=1000)), sound(WORDS)
    session = server.sessions.open([served("listen")])
    for start in range(0, len(samples), 200):
        assert session.takes_more
        session.put(samples[start : start + 200])
        server.run()
    session.end()
    server.run()
    assert got("listen", told(session)) == written("listen", (WORDS,), 3)


def test_long_text_waits_in_the_inbox_and_not_in_the_state() -> None:
    server = Server()
    session = server.sessions.open([served("translate")])
    session.put("red blue green\n" * 2000)
    session.end()
    most = 0
    for _ in range(200):
        server.turn()
        (stage,) = session.stages
        assert stage.place is not None
        most = max(most, len(stage.place.alone().words[0]))
    assert 0 < most < 1300


def test_a_client_that_does_nothing_is_overdue() -> None:
    server, now = Server(SessionLimits(idle_seconds=60)), [0.0]
    server.sessions.clock = lambda: now[0]
    session = server.sessions.open([served("speak")])
    now[0] = 59.0
    session.check_time()
    session.put("red.\n")
    now[0] = 120.0
    session.check_time()  # it is being computed
    server.run()
    session.check_time()  # nobody has taken the output
    assert told(session)
    now[0] = 179.0
    session.check_time()
    now[0] = 181.0
    with pytest.raises(Overdue, match="nothing was sent for 60 s"):
        session.check_time()


def test_input_after_the_end_is_an_error() -> None:
    server = Server()
    (session,) = begin(server, ["translate"])
    with pytest.raises(UserError, match="the input of this session is over"):
        session.put("red")


def test_a_note_is_told_once_for_each_topic() -> None:
    server = Server()
    session = server.sessions.open([served("translate")])
    session.put("\u4e00 red\n\u4e8c blue\n")
    session.end()
    server.run()
    notes = [event.value for event in told(session) if event.kind == "note"]
    assert len(notes) == 1
    assert "characters that the vocabulary lacks" in notes[0]


def test_a_line_that_is_too_long_is_translated_up_to_there_and_the_next_lines_too() -> None:
    long = " ".join(["red", "blue", "green"] * 12)
    text = io.StringIO()
    given_text = f"red blue\n{long}\ngreen\n"
    with pytest.raises(UserError, match="line 2"), pytest.warns(UserWarning):
        by_word(TextTranslator(trained("translate").model), io.StringIO(given_text), text)
    server = Server()
    session = server.sessions.open([served("translate")])
    session.put(given_text)
    session.end()
    server.run()
    events = told(session)
    assert output(events) == text.getvalue()
    assert ["line 2 could not be translated to the end" in e.value for e in events if e.kind == "note"] == [True]


def test_a_voice_is_due_before_the_sound_that_it_has_given_was_played() -> None:
    (stage,) = Server(SessionLimits(step_seconds=0.1)).sessions.open([served("speak")]).stages
    assert stage.deadline(50.0) == pytest.approx(50.1)
    for _ in range(2):
        stage.gave(np.zeros(8000), 50.0)
    assert 51.5 < stage.deadline(50.0) < 52.0


@pytest.mark.parametrize("bulk", [True, False])
def test_a_bulk_session_waits_until_others_have_nothing_to_compute(bulk: bool) -> None:
    server = Server()
    early = server.sessions.open([served("listen")], bulk=bulk)
    early.put(given_to("listen", LINES, 0))
    early.end()
    late = server.sessions.open([served("translate")])
    late.put(given_to("translate", LINES, 0))
    late.end()
    (stage,) = early.stages
    has_begun = []
    while not late.is_idle:
        assert server.turn()
        has_begun.append(stage.place is not stage.stream.steps.beginning)
    assert any(has_begun) is not bulk
    server.run()
    assert got("listen", told(early)) == written("listen", LINES, 0)
    assert got("translate", told(late)) == written("translate", LINES, 0)


def test_a_step_of_a_bulk_session_is_due_at_last() -> None:
    server = Server(SessionLimits(step_seconds=0.1, bulk_step_seconds=7.0))
    for kind in ("listen", "speak"):
        (stage,) = server.sessions.open([served(kind)], bulk=True).stages
        assert stage.deadline(50.0) == 57.0
    stage.gave(np.zeros(800), 50.0)
    assert stage.deadline(50.0) == 57.0


def test_a_voice_that_has_nothing_left_to_play_is_due_at_once_and_no_earlier() -> None:
    (stage,) = Server(SessionLimits(step_seconds=0.1)).sessions.open([served("speak")]).stages
    stage.gave(np.zeros(800), 50.0)
    assert stage.deadline(50.0) == 50.0
    assert stage.deadline(60.0) == 60.0


def test_the_voice_with_the_least_left_to_play_goes_first() -> None:
    one = replace(served("speak").work, limit=1, queues=([], []), tokens=[0, 0])  # a step advances one voice
    server, voice = Server(), replace(served("speak"), work=one)
    sessions = [server.sessions.open([voice]) for _ in range(3)]
    for session, seconds in zip(sessions, (3, 1, 2), strict=True):
        session.stages[0].gave(np.zeros(8000 * seconds), server.sessions.clock())
        session.put("red blue")
        session.end()
    spoken = []
    while server.turn():
        spoken += [n for n, session in enumerate(sessions) if len(output(told(session)))]
    assert list(dict.fromkeys(spoken)) == [1, 2, 0]


def test_sound_may_take_longer_than_text_so_that_batches_are_larger() -> None:
    server = Server(SessionLimits(step_seconds=0.1))
    (voice,), (words,) = (server.sessions.open([served(kind)]).stages for kind in ("speak", "listen"))
    assert voice.timeout > words.timeout == 0.1


def test_a_chain_of_models_that_do_not_fit_is_refused() -> None:
    with pytest.raises(UserError, match=r"chains\.odd: listen gives text, and listen takes sound with 8,000 samples"):
        check_chain("odd", [served("listen"), served("listen")])
    check_chain("interpreter", streams_of("chain"))


@pytest.mark.parametrize(
    ("chains", "message"),
    [
        ({"a": ("a",)}, r"chains: there is a model 'a', too; give the chain another name"),
        ({"both": ()}, r"chains\.both: expected names of models"),
        ({"both": ("a", "bb")}, r"chains\.both: there is no model 'bb'\. Did you mean 'b'\?"),
        ({"a/b": ("a",)}, r"expected a name without slashes, found 'a/b'"),
    ],
)
def test_a_chain_of_the_configuration_has_a_name_of_its_own_and_models_that_are_there(
    chains: dict[str, tuple[str, ...]], message: str
) -> None:
    models = {name: ModelConfig(name) for name in ("a", "b")}
    with pytest.raises(UserError, match=message):
        ServeConfig(models, chains)
    assert ServeConfig(models, {"both": ("a", "b")}).chains == {"both": ("a", "b")}


@pytest.mark.parametrize(("most", "first"), [(2, 2), (1 << 30, 3)])
def test_a_step_advances_no_more_streams_than_it_may(most: int, first: int) -> None:
    server = Server()
    streaming = TextTranslator(trained("translate").model).streaming
    stream = serve_stream("translate", streaming, most_streams=most)
    sessions = [server.sessions.open([stream]) for _ in range(3)]
    for session in sessions:
        session.put("red blue")
        session.end()
    server.run()
    assert server.batches[0] == max(server.batches) == first
    written_by = {output(told(session)) for session in sessions}
    assert len(written_by) == 1
    assert written_by != {""}
