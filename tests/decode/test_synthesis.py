"""Speech synthesis: sample by sample and piece by piece, the same as all at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.helpers import perturbed
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.audio.pitch import PULSE_FEATURES, pulses
from ernie.audio.voice import WaveNetConfig
from ernie.data import seeded_rng
from ernie.data.batch import Layout, pack
from ernie.data.document import Sample
from ernie.decode.sampler import Sampler
from ernie.decode.states import arrays_of
from ernie.decode.synthesis import (
    ConditionerReader,
    FlowVocoder,
    Synthesizer,
    Utterance,
    Vocoder,
    WaveNetVocoder,
)
from ernie.errors import NotFinite
from ernie.kernels.cpu.library import library
from ernie.kernels.precision import Precision, batch_invariant, precision
from ernie.model.voice import DecoderPast, FrameDecoder, Pitch, ReadTexts
from ernie.model.wavenet import Flow, WaveNet
from inference.task_model import TaskModel
from tasks.downstream.synthesize import Synthesize

needs_kernels = pytest.mark.skipif(library() is None, reason="only the kernels in C++ promise the same last bits")
needs_bf16 = pytest.mark.skipif(not getattr(library(), "has_bf16", False), reason="no products in bfloat16 here")
H, S = 3, 40
CONFIG = WaveNetConfig(channels=6, stacks=2, depth=3, taps=3)
pieces = st.lists(st.integers(1, 15), min_size=1, max_size=6).map(lambda sizes: [0, *np.cumsum(sizes).clip(max=S), S])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def vocoder(name: str) -> Vocoder:
    if name == "wavenet":
        return WaveNetVocoder(network())
    return FlowVocoder(flow(), seed=1) if name == "flow" else FlowVocoder(flow(PULSE_FEATURES), 1, pulse_rate=8000)


def given_to(name: str, sounds: int) -> np.ndarray:
    """Conditioners of sounds, followed by F0 where the vocoder is given pulses of it."""
    conditioner = normal(sounds, S, H, seed=2)
    f0 = np.random.default_rng(4).choice([0.0, 90.0, 213.7], (sounds, S, 1)).astype(np.float32)
    return np.concatenate([conditioner, f0], axis=-1) if name == "flow with pulses" else conditioner


def network() -> WaveNet:
    """A WaveNet whose output for silence is not zero."""
    paddle.seed(5)
    network = WaveNet(CONFIG, H)
    perturbed(network)
    return network


def flow(more: int = 0) -> Flow:
    paddle.seed(5)
    flow = Flow(CONFIG, H + more, flows=2)
    perturbed(flow)
    return flow


def test_sequential_samples_follow_the_networks_distribution() -> None:
    """Given the samples, the network predicts the Gaussians that the noise was applied to."""
    predicting, noise, conditioner = network(), normal(1, S), normal(1, S, H, seed=1)
    sampler = Sampler(predicting)
    _, found = sampler.draw([sampler.begin()], conditioner, noise)
    silence = np.zeros((1, CONFIG.context), np.float32)
    inputs = np.concatenate([silence, found], axis=1)[:, :-1]
    padded = np.concatenate([np.zeros((1, CONFIG.context - 1, H), np.float32), conditioner], axis=1)
    gaussian = predicting(paddle.to_tensor(inputs), paddle.to_tensor(padded))
    expected = gaussian.from_noise(paddle.to_tensor(noise)).numpy().clip(-1, 1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_sampling_continues_from_a_given_sound() -> None:
    sampler, noise, conditioner = Sampler(network()), normal(1, S), normal(1, S, H, seed=1)
    states, first = sampler.draw([sampler.begin()], conditioner[:, :25], noise[:, :25])
    fed = sampler.feed(sampler.begin(), first[0], conditioner[0, :25])
    from_state, from_sound = (sampler.draw(start, conditioner[:, 25:], noise[:, 25:])[1] for start in (states, [fed]))
    np.testing.assert_array_equal(from_state, from_sound)


@needs_kernels
@pytest.mark.parametrize("name", ["wavenet", "flow", "flow with pulses"])
@settings(max_examples=20, deadline=None)
@given(cuts=pieces, sounds=st.integers(1, 9))
def test_a_sound_in_pieces_and_among_others_is_the_same_bit_for_bit(name: str, cuts: list[int], sounds: int) -> None:
    conditioner, noise, own = given_to(name, sounds), normal(sounds, S, seed=3), vocoder(name)
    with batch_invariant():
        pasts, parts = [own.begin()] * sounds, []
        for a, b in pairwise(cuts):
            if b > a:
                pasts, samples = own.more(pasts, conditioner[:, a:b], noise[:, a:b])
                parts.append(samples)
        for n, found in enumerate(np.concatenate(parts, axis=1)):
            _, (alone,) = own.more([own.begin()], conditioner[n : n + 1], noise[n : n + 1])
            np.testing.assert_array_equal(found, alone)


def test_a_flow_begins_after_noise_without_a_conditioner_and_its_samples_are_clipped() -> None:
    own, conditioner, noise = flow(), normal(1, S, H, seed=2), normal(1, S)
    made = FlowVocoder(own, seed=1)
    _, found = made.more([made.begin()], conditioner, noise)
    before = seeded_rng.generator(1, "noise before").standard_normal((1, own.context), np.float32)
    padded = np.concatenate([np.zeros((1, own.context, H), np.float32), conditioner], axis=1)
    all_noise = np.concatenate([before, noise], axis=1)
    expected = own(paddle.to_tensor(all_noise), paddle.to_tensor(padded))[0].numpy()
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected.clip(-1, 1), atol=1e-5)


def test_a_flow_is_given_pulses_whose_phase_goes_on() -> None:
    own, noise, given = flow(PULSE_FEATURES), normal(1, S), given_to("flow with pulses", 1)
    made = FlowVocoder(own, 1, pulse_rate=8000)
    past, first = made.more([made.begin()], given[:, :9], noise[:, :9])
    _, second = made.more(past, given[:, 9:], noise[:, 9:])
    plain = FlowVocoder(own, 1)
    with_pulses = np.concatenate([given[:, :, :H], pulses(given[0, :, H], 8000)[0][None]], axis=-1)
    _, expected = plain.more([plain.begin()], with_pulses, noise)
    np.testing.assert_allclose(np.concatenate([first, second], axis=1), expected, atol=1e-6)


# -------------------------------------------------------------------------------------------------- a whole voice


def voice() -> tuple[TaskModel, Synthesize]:
    task = TOYS["synthesize"].task
    assert isinstance(task, Synthesize)
    paddle.seed(2)
    model = TaskModel(tiny_encoder(), task)
    task.initialize(model.ernie, model.head)
    paddle.assign(paddle.to_tensor([-100.0]), model.head.decoder.last.bias)  # so that it never stops early
    model.eval()
    return model, task


def ids(text: str) -> np.ndarray:
    return np.array([TOKENIZER.cls_id, *TOKENIZER.encode(text).ids, TOKENIZER.sep_id])


def synthesizer(model: TaskModel, name: str = "wavenet", *, chunk: int = 3, seed: int = 0) -> Synthesizer:
    head, task = model.head, model.task
    assert isinstance(task, Synthesize)
    if name == "wavenet":
        return task.synthesizer(model.ernie, head, 0, seed=seed, chunk=chunk)
    paddle.seed(5)
    has_pulses = name == "flow with pulses"
    fast = Flow(CONFIG, task.voice.conditioner + PULSE_FEATURES * has_pulses, flows=2)
    perturbed(fast)
    if not has_pulses:
        return Synthesizer(model.ernie, head, 0, FlowVocoder(fast, seed), chunk, seed=seed)
    pitch = Pitch(model.ernie.config.hidden_size, task.voice)
    perturbed(pitch)
    reader = ConditionerReader(head.bridge, pitch)
    return Synthesizer(model.ernie, head, 0, FlowVocoder(fast, seed, pulse_rate=8000), chunk, reader, seed=seed)


def spoken(own: Synthesizer, utterances: list[Utterance]) -> list[list[np.ndarray]]:
    """The stretches of utterances, all spoken at once."""
    sounds: list[list[np.ndarray]] = [[] for _ in utterances]
    going = dict(enumerate(utterances))
    with own.context():
        while going:
            for n, (after, sound) in zip(list(going), own.advance(list(going.values())), strict=True):
                sounds[n].append(sound.get())
                going[n] = after  # type: ignore[assignment]
            going = {n: utterance for n, utterance in going.items() if utterance is not None}
    return sounds


def begun(own: Synthesizer, texts: list[str]) -> list[Utterance]:
    with own.context():
        return own.begin([ids(text) for text in texts])


@pytest.mark.parametrize(("last", "least"), [(0.9, 1), (0.1, 7), (0.03, 23), (1e-4, None)])
def test_speech_ends_once_it_is_probably_over_and_all_of_the_text_is_spoken(last: float, least: int | None) -> None:
    """Each step is the last with the same probability: after 7 steps of 0.1 one of them probably was."""
    model, _ = voice()
    decoder = model.head.decoder
    with paddle.no_grad():
        paddle.assign(paddle.zeros_like(decoder.last.weight), decoder.last.weight)
        paddle.assign(paddle.to_tensor([np.log(last / (1 - last))], "float32"), decoder.last.bias)
    own = synthesizer(model)
    with own.context():
        (utterance,) = own.begin([ids("red blue")])
        frames = own.frames(ids("red blue"))
        notes = []
        while utterance is not None:
            ((utterance, sound),) = own.advance([utterance])
            notes += [note.text for note in sound.notes]
        text = decoder.read(
            model.ernie.encode_packed(pack([Sample(ids("red blue"), np.zeros(4, np.int64))])),
            ids("red blue"),
            Layout.of_lengths([4]),
        )
        before = np.concatenate([np.zeros_like(frames[:1]), frames[:-1]])[None]
        attended = decoder(paddle.to_tensor(before), text).attention.numpy()[0].argmax(-1)
    if least is None:
        assert len(frames) > 23
        assert len(notes) == 1
        assert notes[0].startswith(f"the voice did not stop by itself and was cut after {len(frames)} steps")
        return
    at_the_end = next(number for number, token in enumerate(attended, 1) if token >= 2)
    assert len(frames) == max(least, at_the_end)
    assert not notes


@needs_kernels
@pytest.mark.parametrize("name", ["wavenet", "flow", "flow with pulses"])
@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
def test_stretches_of_any_length_give_the_same_speech_to_the_last_bit(name: str, chunk: int) -> None:
    model, task = voice()
    whole, parts = (
        spoken(own, begun(own, ["red blue"]))[0]
        for own in (synthesizer(model, name, chunk=length) for length in (1000, chunk))
    )
    assert len(parts[0]) == min(chunk, 2) * task.step_samples  # a listener waits for it
    assert all(len(part) == chunk * task.step_samples for part in parts[1:-1])
    np.testing.assert_array_equal(np.concatenate(parts), np.concatenate(whole))


TEXTS = ["red", "red blue", "green red blue", "blue . green ? red", "a film it the very was"]


@needs_kernels
@pytest.mark.parametrize("choice", ["fp32", pytest.param("bf16", marks=needs_bf16)])
@pytest.mark.parametrize("name", ["wavenet", "flow", "flow with pulses"])
@settings(max_examples=6, deadline=None)
@given(data=st.data())
def test_an_utterance_is_the_same_in_any_company(name: str, choice: Precision, data: st.DataObject) -> None:
    """At each step any of the utterances go on, up to more than the decoder computes in one block of rows."""
    model, _ = voice()
    paddle.assign(paddle.to_tensor([-2.0]), model.head.decoder.last.bias)  # they end at different times
    own = synthesizer(model, name)
    texts = data.draw(st.lists(st.sampled_from(TEXTS), min_size=1, max_size=20))
    with precision(choice):
        alone = {text: np.concatenate(spoken(own, begun(own, [text]))[0]) for text in set(texts)}
        going: dict[int, Utterance] = dict(enumerate(begun(own, texts)))
        sounds: list[list[np.ndarray]] = [[] for _ in texts]
        with own.context():
            while going:
                chosen = data.draw(st.lists(st.sampled_from(sorted(going)), min_size=1, unique=True))
                for n, (after, sound) in zip(chosen, own.advance([going[n] for n in chosen]), strict=True):
                    sounds[n].append(sound.get())
                    going.pop(n)
                    going |= {} if after is None else {n: after}
    for text, found in zip(texts, sounds, strict=True):
        np.testing.assert_array_equal(np.concatenate(found), alone[text])


def test_a_stretch_takes_a_bounded_number_of_steps_and_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counted where they are computed: steps in the decoder, samples in the sampler."""
    model, task = voice()
    own, steps, samples = synthesizer(model, chunk=3), [0], [0]
    decoder_step, sampler_draw = FrameDecoder.step, Sampler.draw

    def counted_step(self, past, texts):  # type: ignore[no-untyped-def]
        steps[-1] += len(past.position)
        return decoder_step(self, past, texts)

    def counted_draw(self, states, conditioner, noise):  # type: ignore[no-untyped-def]
        samples[-1] += noise.size
        return sampler_draw(self, states, conditioner, noise)

    monkeypatch.setattr(FrameDecoder, "step", counted_step)
    monkeypatch.setattr(Sampler, "draw", counted_draw)
    going: list[Utterance | None] = list(begun(own, ["red blue", "green red blue"]))
    with own.context():
        while any(going):
            steps.append(0)
            samples.append(0)
            going = [after for after, _ in own.advance([utterance for utterance in going if utterance is not None])]
    assert steps[1] == 2 * (2 + model.head.bridge.reach)  # before the last step is computed there is sound
    assert samples[1] == 2 * 2 * task.step_samples
    assert max(steps[2:]) == 2 * 3
    assert max(samples) == 2 * 3 * task.step_samples
    assert len(steps) > 3


def test_what_an_utterance_keeps_does_not_grow() -> None:
    model, _ = voice()
    own = synthesizer(model, chunk=2)
    (utterance,), sizes = begun(own, ["red blue green red"]), []
    with own.context():
        while utterance is not None:
            ((utterance, _),) = own.advance([utterance])
            if utterance is not None:
                sizes.append(sum(array.nbytes for array in arrays_of(utterance).values()))
    kept = 2 * model.head.bridge.reach * 4 * 32  # states on both sides of a step
    assert len(sizes) > 5
    assert max(sizes) < sizes[0] + kept


@needs_kernels
def test_an_utterance_that_is_not_finite_ends_alone() -> None:
    model, _ = voice()
    own = synthesizer(model)
    table = model.ernie.embedding.token.weight
    with paddle.no_grad():
        table[TOKENIZER.tokens.index("green")] = float("nan")
    together = begun(own, ["red blue", "green red", "blue"])
    with own.context():
        (first, _), (failed, outcome), (last, _) = own.advance(together)
    assert failed is None
    assert isinstance(outcome.error, NotFinite)
    assert first is not None and last is not None
    for utterance, text in ((first, "red blue"), (last, "blue")):
        rest, (alone,) = spoken(own, [utterance])[0], spoken(own, begun(own, [text]))
        np.testing.assert_array_equal(np.concatenate(rest), np.concatenate(alone[1:]))


def test_the_seed_determines_the_noise() -> None:
    model, _ = voice()
    made = (synthesizer(model, seed=seed) for seed in (1, 1, 2))
    first, same, other = (np.concatenate(spoken(own, begun(own, ["red"]))[0]) for own in made)
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - other).max() > 0.01


@paddle.no_grad()
def test_decoding_step_by_step_equals_decoding_at_once() -> None:
    """The decoder gives the same frames for all steps at once, as in training, as step by step."""
    model, task = voice()
    decoder = model.head.decoder
    encoded, tokens, layout = paddle.to_tensor(normal(9, 32)), [ids("red blue"), ids("green red blue")], [4, 5]
    given = encoded, np.concatenate(tokens), Layout.of_lengths(layout)
    before = normal(2, 9, decoder.frames.weight.shape[1])
    whole = decoder(paddle.to_tensor(before), decoder.read(*given))
    texts, past = ReadTexts.of(decoder.read_each(*given)), DecoderPast.of([decoder.beginning] * 2)
    states, stops, attended = [], [], []
    for step in range(9):
        frames = DecoderPast.of([decoder.beginning._replace(frames=own[step]) for own in before]).frames
        prediction, past = decoder.step(past._replace(frames=frames), texts)
        states.append(prediction.states)
        stops.append(prediction.stop_logits)
        attended.append(prediction.most_attended)
    np.testing.assert_allclose(np.stack(states, axis=1), whole.states.numpy(), atol=1e-5)
    np.testing.assert_allclose(np.stack(stops, axis=1), whole.stop_logits.numpy(), atol=1e-5)
    np.testing.assert_array_equal(np.stack(attended, axis=1), whole.attention.numpy().argmax(-1))
    assert task.voice.reduction * task.features.features == before.shape[2]


@paddle.no_grad()
def attended_positions(model: TaskModel, steps: int) -> tuple[np.ndarray, np.ndarray]:
    """The number of letters before the middle of the token that each step attends to most, and of each token."""
    decoder = model.head.decoder
    text = decoder.read(paddle.zeros([6, 32]), ids("red blue green red"), Layout.of_lengths([6]))
    output = decoder(paddle.to_tensor(normal(1, steps, decoder.frames.weight.shape[1])), text)
    return text.middles[0][output.attention.numpy()[0].argmax(-1)], text.middles[0]


def test_initial_attention_moves_through_the_text_at_the_average_pace() -> None:
    model, _ = voice()
    found_F, middles_L = attended_positions(model, 30)
    expected_F = model.head.decoder.pace * np.arange(1, 31)
    np.testing.assert_allclose(np.abs(found_F - expected_F), np.abs(middles_L[:, None] - expected_F).min(0), atol=1e-5)
    assert found_F[-1] == middles_L[-1]


@pytest.mark.parametrize("seed", range(5))
def test_attention_never_moves_back_for_any_weights_and_inputs(seed: int) -> None:
    model, _ = voice()
    weight = model.head.decoder.moves.weight
    paddle.assign(paddle.to_tensor(3 * normal(*weight.shape, seed=seed)), weight)
    found_F, _ = attended_positions(model, 60)
    assert (np.diff(found_F) >= 0).all()
    assert found_F[0] < found_F[-1]
