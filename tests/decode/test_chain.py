"""Chains of decoders: the output does not depend on how the input is split, and states can be saved."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from support.toys import GERMAN, tones
from support.trained import trained

from ernie.decode.chain import Chain, ChainState, timed
from ernie.decode.stream import Stream, load_state, save_state
from ernie.errors import UserError
from inference.recognizer import SpeechRecognizer
from inference.speaker import TextSpeaker
from inference.translator import TextTranslator

WORDS = ("blue", "red", "green", "blue")


@cache
def recognizer() -> SpeechRecognizer:
    """Recognizes tones in chunks of two vectors."""
    return SpeechRecognizer(trained("streaming").model)


def translator() -> Chain[np.ndarray, str]:
    """A chain from spoken color words to written German ones."""
    return Chain(recognizer(), TextTranslator(trained("translate").model))


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


def test_a_chain_continues_from_a_file(tmp_path: Path) -> None:
    chain, samples = translator(), sound(WORDS, 3)
    state, (early,) = chain.push(chain.begin(), [samples[:1500]])
    save_state(state, tmp_path / "kept.npz")
    resumed, (more,) = chain.push(load_state(translator(), tmp_path / "kept.npz"), [samples[1500:]])
    (late,) = chain.finish(resumed)[1]
    assert (early + more + late).split() == [GERMAN[word] for word in WORDS]
    with pytest.raises(UserError, match="holds no state of the kind SpeechRecognizerState"):
        load_state(recognizer(), tmp_path / "kept.npz")


def test_a_chain_can_end_with_speech() -> None:
    """From audio to text to audio: the output is the speech for the recognized text."""
    speaker = TextSpeaker(trained("synthesize").model)
    chain: Chain[np.ndarray, np.ndarray] = Chain(recognizer(), speaker)
    stream = Stream(chain)
    repeated = np.concatenate([stream.push(sound(("blue", "red"))), stream.finish()])
    np.testing.assert_array_equal(repeated, np.concatenate(list(speaker.speak("blue red"))))
