"""Followed sessions: whoever watches learns what each model makes of the input, when, and what is not final yet."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.sessions import Server, output, served, sound, told
from support.trained import trained

from ernie.decode.latency import average_lagging
from ernie.decode.wait_k import WaitK
from ernie.errors import UserError
from ernie.text.scripts import words_in
from inference.recognizer import SpeechRecognizer
from inference.translator import TextTranslator
from serving.saved_sessions import SessionFolder
from serving.sessions import Event, Session, SessionLimits, Step

COLORS = ("blue", "red", "green")
words = st.lists(st.sampled_from(COLORS), min_size=1, max_size=5)
cuts = st.lists(st.integers(1, 4000), max_size=12)


def pieces_of(given_to: Any, sizes: Sequence[int]) -> list[Any]:
    """An input in pieces of these sizes, and the rest."""
    edges = np.cumsum([0, *sizes]).tolist()
    parts = [given_to[first:last] for first, last in zip(edges, [*edges[1:], None], strict=True)]
    return [part for part in parts if len(part)]


def followed(server: Server, kinds: Sequence[str], pieces: Sequence[Any], ends: bool = True) -> list[Event]:
    session = server.sessions.open([served(kind) for kind in kinds], followed=True)
    return pushed(server, session, pieces, ends)


def pushed(server: Server, session: Session, pieces: Sequence[Any], ends: bool = True) -> list[Event]:
    for piece in pieces:
        session.put(piece)
        server.run()
    if ends:
        session.end()
    server.run()
    return told(session)


def steps(events: Sequence[Event], stage: int = 0) -> list[Step]:
    return [event.value for event in events if event.kind == "step" and event.value.stage == stage]


def told_words(found: Sequence[Step]) -> list[dict[str, Any]]:
    return [word for step in found for word in step.told.get("words", [])]


@settings(max_examples=10, deadline=None)
@given(words, st.integers(0, 3), cuts)
def test_a_followed_transcript_has_the_words_and_the_times_of_the_whole_sound(
    spoken: list[str], seed: int, sizes: list[int]
) -> None:
    recognizer = SpeechRecognizer(trained("streaming").model)
    samples = sound(spoken, seed)
    (answer,) = recognizer.predict([{"audio": {"array": samples, "sampling_rate": recognizer.sample_rate}}])
    found = told_words(steps(followed(Server(), ["listen"], pieces_of(samples, sizes))))
    assert [word["text"] for word in found] == words_in(answer["transcript"])
    assert [word["start"] for word in found] == pytest.approx(answer["seconds"], abs=1e-3)
    assert [word["end"] for word in found] == pytest.approx(answer["ends"], abs=1e-3)
    assert [word["confidence"] for word in found] == pytest.approx(answer["confidences"], abs=1e-3)


@settings(max_examples=10, deadline=None)
@given(words, st.integers(0, 3), cuts)
def test_what_is_tentative_follows_the_words_told_and_is_empty_at_the_end(
    spoken: list[str], seed: int, sizes: list[int]
) -> None:
    events = followed(Server(), ["listen"], pieces_of(sound(spoken, seed), sizes))
    transcript, before = output(events), ""
    for step in steps(events):
        before += step.text or ""
        assert transcript.startswith(before)
        # Greedy tokens are not revised: a beginning of the next word is tentative until the word is complete.
        assert transcript[len(before) :].strip().startswith(step.told.get("tentative", ""))
    assert before == transcript
    last = [step for step in steps(events) if "tentative" in step.told]
    assert not last or last[-1].told["tentative"] == ""


@settings(max_examples=10, deadline=None)
@given(st.lists(words, min_size=1, max_size=3), cuts)
def test_a_followed_translation_says_after_which_word_each_of_its_words_was_begun(
    lines: list[list[str]], sizes: list[int]
) -> None:
    text = "".join(" ".join(line) + "\n" for line in lines)
    events = followed(Server(), ["translate"], pieces_of(text, [1 + size % 7 for size in sizes]))
    found = told_words(steps(events))
    translated = output(events).splitlines()
    for number, (source, target) in enumerate(zip(lines, translated, strict=True)):
        own = [word for word in found if word["line"] == number]
        assert [word["text"] for word in own] == words_in(target)
        after = [word["after"] for word in own]
        assert after == sorted(after)
        assert all(1 <= place <= len(source) for place in after)
        # wait-2: the first word is begun after two words, or after all there are.
        assert not after or after[0] == min(2, len(source))


def test_the_lagging_of_a_line_is_that_of_its_delays() -> None:
    events = followed(Server(), ["translate"], ["red blue green red\n"])
    (lagging,) = (step.told["lagging"] for step in steps(events) if "lagging" in step.told)
    translator = TextTranslator(trained("translate").model)
    state, _ = translator.push(translator.begin(), ["red blue green red"])
    (own,) = translator.finish(state)[0].progress
    assert lagging["line"] == 0
    assert lagging["tokens"] == pytest.approx(
        average_lagging(own.source_delays, own.source, len(own.written)), abs=1e-3
    )


def test_the_steps_of_a_chain_tell_all_that_each_of_its_models_gives() -> None:
    server, samples = Server(), sound(COLORS)
    events = followed(server, ["listen", "translate", "speak"], pieces_of(samples, [3000] * 20))
    heard = "".join(step.text or "" for step in steps(events, 0))
    translated = "".join(step.text or "" for step in steps(events, 1))
    alone = followed(Server(), ["listen"], [samples])
    assert heard == output(alone)
    assert translated == output(followed(Server(), ["translate"], [heard]))
    assert sum(step.given for step in steps(events, 2)) == len(output(events))
    assert steps(events, 0)[-1].taken == len(samples)


def test_the_times_of_a_step_are_in_order() -> None:
    for step in steps(followed(Server(), ["listen"], pieces_of(sound(COLORS), [3000] * 20))):
        assert 0 < step.arrived <= step.began < step.ended
        assert step.together == 1


def test_a_session_that_nobody_follows_has_no_steps() -> None:
    server = Server()
    session = server.sessions.open([served("listen")])
    assert {event.kind for event in pushed(server, session, [sound(COLORS)])} == {"output", "done"}


@pytest.mark.parametrize("kinds", [["listen"], ["translate"], ["listen", "translate"]])
def test_a_followed_session_that_is_resumed_tells_each_word_once(kinds: list[str], tmp_path: Path) -> None:
    given_to: Any = "red blue green red blue\ngreen red\n" if kinds == ["translate"] else sound([*COLORS, *COLORS])
    expected = followed(Server(), kinds, [given_to])
    server = Server(folder=SessionFolder(tmp_path))
    half = len(given_to) // 2
    session = server.sessions.open([served(kind) for kind in kinds], followed=True)
    before = pushed(server, session, [given_to[:half]], ends=False)
    session.hold()
    token = session.save()
    session.close()
    other = Server(folder=SessionFolder(tmp_path))
    resumed = other.sessions.open([served(kind) for kind in kinds], followed=True)
    resumed.resume(other.sessions.folder_of_states().take(token))
    after = pushed(other, resumed, [given_to[half:]])
    for stage in range(len(kinds)):
        texts = [word["text"] for part in (before, after) for word in told_words(steps(part, stage))]
        assert texts == [word["text"] for word in told_words(steps(expected, stage))]


@settings(max_examples=10, deadline=None)
@given(st.integers(1, 6), words)
def test_a_session_translates_as_a_translator_with_its_wait_k(k: int, line: list[str]) -> None:
    text = " ".join(line) + "\n"
    server = Server()
    session = server.sessions.open([served("translate")])
    session.change({"wait_k": k})
    found = output(pushed(server, session, [text, text]))
    model = trained("translate").model
    own = TextTranslator(model, WaitK(k, model.task.catch_up))
    state, (first,) = own.push(own.begin(), [text.strip()])
    _, (rest,) = own.finish(state)
    assert found == 2 * (first + rest + "\n")


@settings(max_examples=10, deadline=None)
@given(st.lists(st.sampled_from([1, 2, 5, None]), min_size=1, max_size=6))
def test_settings_change_while_a_line_goes_on_and_no_word_is_begun_before_an_earlier_one(
    values: list[int | None],
) -> None:
    server = Server()
    session = server.sessions.open([served("translate")], followed=True)
    for value in values:
        session.change({"wait_k": value})
        session.put("red blue ")
        server.run()
    events = pushed(server, session, ["\n"])
    after = [word["after"] for word in told_words(steps(events))]
    assert after == sorted(after)
    assert after and after[-1] <= 2 * len(values)


def test_a_smaller_wait_k_is_felt_before_more_is_read() -> None:
    server = Server()
    session = server.sessions.open([served("translate")])
    session.change({"wait_k": 6})
    assert output(pushed(server, session, ["red blue green red "], ends=False)) == ""
    session.change({"wait_k": 1})
    server.run()
    assert output(told(session)) != ""


def test_settings_that_no_model_has_are_refused() -> None:
    session = Server().sessions.open([served("listen"), served("translate")])
    with pytest.raises(UserError, match=r"settings\.beam: this session has no such setting; it has wait_k"):
        session.change({"beam": 4})
    with pytest.raises(UserError, match="wait_k"):
        session.change({"wait_k": 0})
    with pytest.raises(UserError, match="it has none"):
        Server().sessions.open([served("speak")]).change({"wait_k": 3})


def test_a_client_that_does_not_read_stops_the_steps_of_its_followed_session() -> None:
    server = Server(SessionLimits(waiting_bytes=4000))
    session = server.sessions.open([served("translate")], followed=True)
    for _ in range(300):
        session.put("red blue green\n")
    server.run()
    events = []
    while (event := session.take_event()) is not None:
        events.append(event)  # which is not sent yet
    assert 0 < len(events) < 60
    for event in events:
        session.sent(event)
    server.run()
    assert session.take_event() is not None
