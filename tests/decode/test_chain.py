"""Chains of decoders: the output does not depend on how the input is split, and states can be saved."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.stepping import actions, alone, outputs
from support.toys import GERMAN, tones
from support.trained import trained

from ernie.decode.chain import Chain, ChainState, timed
from ernie.decode.states import BatchState
from ernie.decode.stream import Stream, StreamDecoder, load_state, save_state
from ernie.errors import UserError
from ernie.outcome import Outcome
from inference.recognizer import SpeechRecognizer
from inference.speaker import TextSpeaker
from inference.translator import TextTranslator

WORDS = ("blue", "red", "green", "blue")


@cache
def recognizer() -> SpeechRecognizer:
    """Recognizes tones in chunks of two vectors."""
    return SpeechRecognizer(trained("streaming").model)


@cache
def text_translator() -> TextTranslator:
    """Translates color words to German."""
    return TextTranslator(trained("translate").model)


def translator() -> Chain[np.ndarray, str]:
    """A chain from spoken color words to written German ones."""
    return Chain(recognizer(), text_translator())


def sound(words: tuple[str, ...] = WORDS, seed: int = 3) -> np.ndarray:
    return np.array(tones(words, np.random.default_rng(seed))["array"], np.float32)


@pytest.mark.parametrize("size", [100, 801, 100_000])
def test_the_translation_does_not_depend_on_how_the_audio_is_split(size: int) -> None:
    samples, stream = sound(), Stream(translator())
    pieces = [samples[i : i + size] for i in range(0, len(samples), size)]
    assert ("".join(map(stream.push, pieces)) + stream.finish()).split() == [GERMAN[word] for word in WORDS]


def test_output_starts_before_the_audio_ends() -> None:
    samples, seconds = sound(), 0.05
    pieces = np.array_split(samples, round(len(samples) / 8000 / seconds))
    moments = timed(translator(), pieces, [len(piece) / 8000 for piece in pieces])
    assert "".join(moment.output for moment in moments).split() == [GERMAN[word] for word in WORDS]
    assert moments[0].heard < len(samples) / 8000
    assert [moment.heard for moment in moments] == sorted(moment.heard for moment in moments)
    assert [moment.computed for moment in moments] == sorted(moment.computed for moment in moments)


def test_states_can_be_joined_split_and_restored() -> None:
    chain = translator()
    samples = [sound(WORDS, 3), sound(WORDS[::-1], 4)]
    state, first = chain.push(chain.begin(2), [one[:1500] for one in samples])
    one, other = state.select([0]), state.select([1])
    joined = chain.from_arrays(other.concat([one]).arrays())
    assert isinstance(joined, ChainState)
    assert joined.streams == 2
    joined, more = chain.push(joined, [samples[1][1500:], samples[0][1500:]])
    _, rest = chain.finish(joined)
    found = [(first[n] + more[1 - n] + rest[1 - n]).split() for n in (0, 1)]
    assert found == [[GERMAN[word] for word in words] for words in (WORDS, WORDS[::-1])]


@settings(max_examples=6, deadline=None)
@given(
    st.sampled_from(["transcribe", "translate", "chain"]),
    st.lists(st.lists(st.sampled_from(WORDS), max_size=4), min_size=3, max_size=3),
    actions,
)
def test_steps_in_any_order_and_company_give_what_each_stream_gives_alone(
    kind: str, spoken: list[list[str]], calls: list[tuple[str, int]]
) -> None:
    """Text, cut between words, and sound, cut anywhere, in streams that are joined, split and saved in between."""
    decoder: StreamDecoder[Any, Any, str] = {
        "transcribe": recognizer,
        "translate": text_translator,
        "chain": translator,
    }[kind]()
    if kind == "translate":
        texts = [" ".join(words) for words in spoken]
        pieces = [[f" {word}" if n else word for n, word in enumerate(words)] for words in spoken]
        assert outputs(decoder, pieces, calls) == [alone(decoder, text) for text in texts]
    else:
        sounds = [sound(tuple(words), n) if words else np.zeros(0, np.float32) for n, words in enumerate(spoken)]
        cut = [np.array_split(samples, 4) for samples in sounds]
        assert outputs(decoder, cut, calls) == [alone(decoder, samples) for samples in sounds]


def test_a_stream_that_fails_in_any_decoder_is_over_and_harms_no_other() -> None:
    """Here the translator gets more words than it has learned from."""
    chain, words = translator(), ("red", "blue", "green") * 6
    state, _ = chain.accept(chain.begin(2), [sound(words), sound(WORDS)])
    state, texts, errors = chain.end(state), ["", ""], []
    while any(chain.pending(state)):
        state, outcomes = chain.step(state)
        for n, outcome in enumerate(outcomes):
            texts[n] += outcome.value or ""
            errors += [(n, str(outcome.error))] if outcome.error else []
    assert [n for n, _ in errors] == [0]
    assert "the most that this model has learned from" in errors[0][1]
    assert texts[1].split() == [GERMAN[word] for word in WORDS]
    assert chain.pending(state) == [False, False]
    _, refused = chain.accept(chain.begin().concat([state.select([0])]), [None, sound(WORDS)])
    assert "this stream has failed; begin another one" in str(refused[1])
    assert refused[1] is not None and refused[1].stream == 1


@dataclass(frozen=True)
class LetterState(BatchState):
    """The letters of each stream that wait, and whether it is over."""

    waiting: tuple[str, ...]
    ended: tuple[bool, ...]


class Letters(StreamDecoder[LetterState, str, str]):
    """Passes letters on, one a step; "!" fails, and nothing at all may be given to a stream that is over."""

    def begin(self, streams: int = 1) -> LetterState:
        return LetterState(("",) * streams, (False,) * streams)

    def accept(self, state: LetterState, pieces: Sequence[str | None]) -> tuple[LetterState, list[UserError | None]]:
        each = list(zip(state.ended, pieces, strict=True))
        errors = [UserError("over") if ended and piece is not None else None for ended, piece in each]
        waiting = (own + (piece or "") for own, piece in zip(state.waiting, pieces, strict=True))
        return replace(state, waiting=tuple(waiting)), errors

    def end(self, state: LetterState, streams: Sequence[bool] | None = None) -> LetterState:
        ends = streams or [True] * state.streams
        return replace(state, ended=tuple(own or end for own, end in zip(state.ended, ends, strict=True)))

    def pending(self, state: LetterState) -> list[bool]:
        return [bool(own) for own in state.waiting]

    def advance(self, state: LetterState, most: int | None) -> tuple[LetterState, list[Outcome[str]]]:
        taken = [own[:1] for own in state.waiting]
        outcomes = [Outcome[str](error=UserError("failed")) if own == "!" else Outcome(own) for own in taken]
        return replace(state, waiting=tuple(own[1:] for own in state.waiting)), outcomes

    def joined(self, outputs: Sequence[str]) -> str:
        return "".join(outputs)


def test_a_decoder_gets_nothing_after_its_end() -> None:
    chain: Chain[str, str] = Chain(Letters(), Letters(), Letters())
    state, _ = chain.accept(chain.begin(2), ["ab", "cdef"])
    assert chain.finish(state)[1] == ["ab", "cdef"]


def test_a_failed_stream_gives_one_error_and_nothing_after_it() -> None:
    chain: Chain[str, str] = Chain(Letters(), Letters())
    state, _ = chain.accept(chain.begin(2), ["a!b!c", "defghi"])
    given: list[list[str]] = [[], []]
    while any(chain.pending(state)):
        state, outcomes = chain.step(state)
        for own, outcome in zip(given, outcomes, strict=True):
            own.append("error" if outcome.error else outcome.get())
    assert [[each for each in own if each] for own in given] == [["a", "error"], [*"defghi"]]


def test_the_end_of_the_input_ends_each_decoder_after_the_one_before() -> None:
    chain = translator()
    state, _ = chain.accept(chain.begin(2), [sound(WORDS), sound(WORDS[:1])])
    state = chain.end(state, [True, False])
    while any(chain.pending(state)):
        state, _ = chain.step(state)
    assert state.ended == (2, 0)
    _, (_, more) = chain.push(state, [sound()[:0], sound(WORDS[:1])])
    assert isinstance(more, str)
    with pytest.raises(UserError, match="over; begin another one"):
        chain.push(state, [sound(WORDS), sound(WORDS)])


def test_a_chain_continues_from_a_file(tmp_path: Path) -> None:
    chain, samples = translator(), sound(WORDS, 3)
    state, (early,) = chain.push(chain.begin(), [samples[:1500]])
    save_state(state, tmp_path / "kept.npz")
    resumed, (more,) = chain.push(load_state(translator(), tmp_path / "kept.npz"), [samples[1500:]])
    (late,) = chain.finish(resumed)[1]
    assert (early + more + late).split() == [GERMAN[word] for word in WORDS]
    with pytest.raises(UserError, match="holds no state of the kind SpeechRecognizerState"):
        load_state(recognizer(), tmp_path / "kept.npz")


def test_states_of_chains_from_before_they_had_a_version_are_continued() -> None:
    chain, samples = translator(), sound(WORDS, 3)
    state, (early,) = chain.push(chain.begin(), [samples[:1500]])
    former = {f"{n}/{key}": value for n, own in enumerate(state.states) for key, value in own.arrays().items()}
    resumed, (more,) = chain.push(chain.from_arrays(former), [samples[1500:]])
    (late,) = chain.finish(resumed)[1]
    assert (early + more + late).split() == [GERMAN[word] for word in WORDS]


def test_a_state_of_a_longer_or_shorter_chain_is_refused() -> None:
    longer: Chain[np.ndarray, str] = Chain(recognizer(), text_translator(), text_translator())
    for one, other in ((translator(), longer), (longer, translator())):
        with pytest.raises(UserError, match=r"of a chain of \d, and this one has \d"):
            one.from_arrays(other.begin().arrays())
        with pytest.raises(UserError, match="chains of different lengths"):
            one.begin().concat([other.begin()])


def test_a_chain_can_end_with_speech() -> None:
    """From audio to text to audio: the output is the speech for the recognized text."""
    speaker = TextSpeaker(trained("synthesize").model)
    chain: Chain[np.ndarray, np.ndarray] = Chain(recognizer(), speaker)
    stream = Stream(chain)
    repeated = np.concatenate([stream.push(sound(("blue", "red"))), stream.finish()])
    np.testing.assert_array_equal(repeated, np.concatenate(list(speaker.speak("blue red"))))
