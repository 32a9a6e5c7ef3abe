"""Decoders one behind the other: what goes through is the same in whatever pieces, and states are states."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
from toys import FARBEN, TOKENIZER, TOYS, said, tiny_encoder

from ernie.data.labeled.read import Split
from ernie.decode.chain import Chain, ChainState, timed
from ernie.decode.stream import Stream, load_state, save_state
from ernie.errors import UserError
from ernie.train.settings import RateConfig
from finetune.config import TrainConfig
from finetune.loop import finetune
from finetune.model import FinetunedModel
from finetune.prepare import prepare
from finetune.recognizer import SpeechRecognizer, SpeechRecognizerState
from finetune.speaker import TextSpeaker, TextSpeakerState
from finetune.translator import TextTranslator, TextTranslatorState

WORDS = ("blue", "red", "green", "blue")


@cache
def learnt(kind: str, **changes: object) -> FinetunedModel:
    from dataclasses import replace

    from ernie.audio.features import FeatureConfig

    toy = TOYS[kind]
    task = toy.task
    if kind == "transcribe":
        heard = FeatureConfig(bins=20, normalize="global")
        task = replace(task, features=heard, encoder="chunks", chunk=2, before=4, max_len=40).adapted_to(toy.rows(60))
    train, dev = (
        prepare(task, Split(name, toy.rows(count, seed)), TOKENIZER)
        for name, count, seed in (("train", toy.lessons, 0), ("dev", 10, 1))
    )
    settings = TrainConfig(epochs=10, batch=16, evaluations=0, rate=RateConfig(peak=4e-3))
    return finetune(tiny_encoder(), task, train, dev, settings)[0]


def translator() -> Chain[np.ndarray, str]:
    """From spoken colours to written Farben."""
    hears, translates = SpeechRecognizer(learnt("transcribe")), TextTranslator(learnt("translate"))
    return Chain(hears, translates, kinds=(SpeechRecognizerState, TextTranslatorState))


def sound(words: tuple[str, ...] = WORDS, seed: int = 3) -> np.ndarray:
    return np.array(said(words, np.random.default_rng(seed))["array"], np.float32)


@pytest.mark.parametrize("size", [100, 801, 100_000])
def test_what_is_said_is_translated_in_whatever_pieces_it_comes(size: int) -> None:
    samples, stream = sound(), Stream(translator())
    pieces = [samples[i : i + size] for i in range(0, len(samples), size)]
    assert ("".join(map(stream.push, pieces)) + stream.finish()).split() == [FARBEN[word] for word in WORDS]


def test_some_of_it_comes_while_one_still_speaks() -> None:
    samples, seconds = sound(), 0.05
    pieces = np.array_split(samples, round(len(samples) / 8000 / seconds))
    moments = timed(translator(), pieces, [len(piece) / 8000 for piece in pieces])
    assert "".join(moment.output for moment in moments).split() == [FARBEN[word] for word in WORDS]
    assert moments[0].heard < len(samples) / 8000
    assert [moment.heard for moment in moments] == sorted(moment.heard for moment in moments)
    assert [moment.computed for moment in moments] == sorted(moment.computed for moment in moments)


def test_states_are_merged_split_and_kept() -> None:
    chain = translator()
    samples = [sound(WORDS, 3), sound(WORDS[::-1], 4)]
    state, first = chain.push(chain.begin(2), [one[:1500] for one in samples])
    one, other = state.chosen([0]), state.chosen([1])
    kept = chain.of_arrays(other.with_others([one]).arrays())
    assert isinstance(kept, ChainState)
    assert kept.streams == 2
    kept, more = chain.push(kept, [samples[1][1500:], samples[0][1500:]])
    _, rest = chain.finish(kept)
    found = [(first[n] + more[1 - n] + rest[1 - n]).split() for n in (0, 1)]
    assert found == [[FARBEN[word] for word in words] for words in (WORDS, WORDS[::-1])]


def test_a_chain_goes_on_from_a_file(tmp_path: Path) -> None:
    chain, samples = translator(), sound(WORDS, 3)
    state, (early,) = chain.push(chain.begin(), [samples[:1500]])
    save_state(state, tmp_path / "kept.npz")
    again, (more,) = chain.push(load_state(translator(), tmp_path / "kept.npz"), [samples[1500:]])
    (late,) = chain.finish(again)[1]
    assert (early + more + late).split() == [FARBEN[word] for word in WORDS]
    untold: Chain[np.ndarray, str] = Chain(SpeechRecognizer(learnt("transcribe")))
    with pytest.raises(UserError, match=r"holds no state of the kind Chain .*given the kinds"):
        load_state(untold, tmp_path / "kept.npz")


def test_speech_comes_out_where_a_speaker_stands_at_the_end() -> None:
    """From sound to text to sound: what is repeated is that which the voice says to the recognizer's text."""
    speaker = TextSpeaker(learnt("synthesize"))
    chain: Chain[np.ndarray, np.ndarray] = Chain(
        SpeechRecognizer(learnt("transcribe")), speaker, kinds=(SpeechRecognizerState, TextSpeakerState)
    )
    stream = Stream(chain)
    repeated = np.concatenate([stream.push(sound(("blue", "red"))), stream.finish()])
    np.testing.assert_array_equal(repeated, np.concatenate(list(speaker.speak("blue red"))))
