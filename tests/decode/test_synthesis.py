"""Speech synthesis: sample by sample and piece by piece, the same as all at once."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import paddle
import pytest
from helpers import perturbed
from hypothesis import given, settings
from hypothesis import strategies as st
from toys import TOKENIZER, TOYS, tiny_encoder

from ernie.audio.voice import WaveNetConfig
from ernie.data.batch import Layout
from ernie.decode.sampler import Sampler
from ernie.decode.synthesis import FlowVocoder, Vocoder, WaveNetVocoder, steps_of
from ernie.errors import Remark
from ernie.model.wavenet import Flow, WaveNet
from inference.task_model import TaskModel
from tasks.downstream.synthesize import Synthesize

H, S = 3, 40
CONFIG = WaveNetConfig(channels=6, stacks=2, depth=3, taps=3)
pieces = st.lists(st.integers(1, 15), min_size=1, max_size=6).map(lambda sizes: [0, *np.cumsum(sizes).clip(max=S), S])


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def vocoder(name: str) -> Vocoder:
    if name == "wavenet":
        return WaveNetVocoder(network(), np.random.default_rng(1))
    return FlowVocoder(flow(), np.random.default_rng(1))


def network() -> WaveNet:
    """A WaveNet whose output for silence is not zero."""
    paddle.seed(5)
    network = WaveNet(CONFIG, H)
    perturbed(network)
    return network


def flow() -> Flow:
    paddle.seed(5)
    flow = Flow(CONFIG, H, flows=2)
    perturbed(flow)
    return flow


def test_sequential_samples_follow_the_networks_distribution() -> None:
    """Given the samples, the network predicts the Gaussians that the noise was applied to."""
    predicting, noise, conditioner = network(), normal(S), normal(S, H, seed=1)
    sampler = Sampler(predicting)
    _, found = sampler.draw(sampler.begin(), conditioner, noise)
    silence = np.zeros(CONFIG.context, np.float32)
    inputs = np.concatenate([silence, found])[None, :-1]
    padded = np.concatenate([np.zeros((CONFIG.context - 1, H), np.float32), conditioner])[None]
    gaussian = predicting(paddle.to_tensor(inputs), paddle.to_tensor(padded))
    expected = gaussian.from_noise(paddle.to_tensor(noise[None])).numpy()[0].clip(-1, 1)
    np.testing.assert_allclose(found, expected, atol=1e-5)


def test_sampling_continues_from_a_given_sound() -> None:
    sampler, noise, conditioner = Sampler(network()), normal(S), normal(S, H, seed=1)
    state, first = sampler.draw(sampler.begin(), conditioner[:25], noise[:25])
    fed = sampler.feed(sampler.begin(), first, conditioner[:25])
    from_state, from_sound = (sampler.draw(start, conditioner[25:], noise[25:])[1] for start in (state, fed))
    np.testing.assert_array_equal(from_state, from_sound)


@pytest.mark.parametrize("name", ["wavenet", "flow"])
@settings(max_examples=20, deadline=None)
@given(cuts=pieces)
def test_a_conditioner_in_pieces_gives_the_same_sound(name: str, cuts: list[int]) -> None:
    conditioner = normal(S, H, seed=2)
    whole, incremental = vocoder(name).more(conditioner), vocoder(name)
    parts = [incremental.more(conditioner[a:b]) for a, b in pairwise(cuts) if b > a]
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-5)


def test_a_flow_begins_after_noise_without_a_conditioner_and_its_samples_are_clipped() -> None:
    own, conditioner = flow(), normal(S, H, seed=2)
    found = FlowVocoder(own, np.random.default_rng(1)).more(conditioner)
    noise = np.random.default_rng(1).standard_normal(own.context + S).astype(np.float32)
    padded = np.concatenate([np.zeros((own.context, H), np.float32), conditioner])
    expected = own(paddle.to_tensor(noise[None]), paddle.to_tensor(padded[None]))[0].numpy()[0]
    assert np.abs(expected).max() > 1
    np.testing.assert_allclose(found, expected.clip(-1, 1), atol=1e-5)


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


@pytest.mark.parametrize(("last", "least"), [(0.9, 1), (0.1, 7), (0.03, 23), (1e-4, None)])
def test_speech_ends_once_it_is_probably_over_and_all_of_the_text_is_spoken(last: float, least: int | None) -> None:
    """Each step is the last with the same probability: after 7 steps of 0.1 one of them probably was."""
    model, _ = voice()
    decoder = model.head.decoder
    with paddle.no_grad():
        paddle.assign(paddle.zeros_like(decoder.last.weight), decoder.last.weight)
        paddle.assign(paddle.to_tensor([np.log(last / (1 - last))], "float32"), decoder.last.bias)
        text = decoder.read(paddle.zeros([4, 32]), ids("red blue"), Layout.of_lengths([4]))
    if least is None:
        with pytest.warns(Remark, match="did not stop by itself and was cut after"):
            assert len(list(steps_of(model.head, text))) > 23
        return
    attended = [int(step.attention.argmax()) for step in steps_of(model.head, text)]
    at_the_end = next(number for number, token in enumerate(attended, 1) if token >= 2)
    assert len(attended) == max(least, at_the_end)


@pytest.mark.filterwarnings("ignore:the voice did not stop")
@pytest.mark.parametrize("chunk", [1, 2, 7, 1000])
def test_pieces_of_any_length_give_the_same_speech(chunk: int) -> None:
    model, task = voice()
    given = model.ernie, model.head, ids("red blue"), 0
    whole = np.concatenate(list(task.spoken(*given, chunk=1000)))
    parts = list(task.spoken(*given, chunk=chunk))
    assert all(len(part) == chunk * task.step_samples for part in parts[:-1])
    np.testing.assert_allclose(np.concatenate(parts), whole, atol=1e-4)


def test_the_first_piece_is_returned_before_the_last_step_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    from ernie.decode import synthesis

    model, task = voice()
    steps = []

    def counted(*given: object) -> object:
        for step in steps_of(*given):  # type: ignore[arg-type]
            steps.append(1)
            yield step

    monkeypatch.setattr(synthesis, "steps_of", counted)
    parts = task.spoken(model.ernie, model.head, ids("red blue green red"), 0, chunk=2)
    next(parts)
    assert len(steps) == 2 + model.head.bridge.reach
    assert list(parts)
    assert len(steps) > 2 + model.head.bridge.reach


def test_the_seed_determines_the_noise() -> None:
    model, task = voice()
    given = model.ernie, model.head, ids("red"), 0
    first, same, other = (np.concatenate(list(task.spoken(*given, seed=seed))) for seed in (1, 1, 2))
    np.testing.assert_array_equal(first, same)
    assert np.abs(first - other).max() > 0.01


@paddle.no_grad()
def test_decoding_step_by_step_equals_decoding_at_once() -> None:
    """The decoder gives the same frames for all steps at once, as in training, as step by step."""
    model, task = voice()
    decoder = model.head.decoder
    text = decoder.read(paddle.to_tensor(normal(4, 32)), ids("red blue"), Layout.of_lengths([4]))
    before = paddle.to_tensor(normal(1, 9, decoder.frames.weight.shape[1]))
    whole = decoder(before, text)
    cache, found = None, []
    for step in range(9):
        step_output, cache = decoder.forward_cached(before[:, step : step + 1], text, cache)
        found.append(step_output.states.numpy())
    np.testing.assert_allclose(np.concatenate(found, axis=1), whole.states.numpy(), atol=1e-5)
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
