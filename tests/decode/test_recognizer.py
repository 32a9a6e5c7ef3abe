"""Recognition of sound in pieces: the same however it comes, and blind to what was not heard."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import paddle
import pytest
from helpers import numbered
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.audio.features import FeatureConfig, features
from ernie.audio.lengths import STRIDE, vector_count
from ernie.audio.recurrent import RecurrentConfig
from ernie.data.batch import Frames, Layout
from ernie.decode.ctc import Beam, Hypothesis, Spike, greedy
from ernie.decode.recognizer import RecognitionState, StreamState, TokenRecognizer, _committed
from ernie.decode.segmentation import Segmentation, align
from ernie.decode.stream import load_state, save_state
from ernie.decode.truncated_attention import SegmentDecoder, SegmentDecoderState, attention_loss
from ernie.errors import UserError
from ernie.kernels.mask import Mask
from ernie.kernels.precision import computing
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.inference import evaluating
from ernie.model.initialization import initialize
from ernie.model.recurrent import RecurrentEncoder
from ernie.model.speech import SpeechHead

CONFIG = FeatureConfig(bins=12, normalize="streaming")
BLANK, VOCABULARY = 0, 12
CHUNK, BEFORE = 3, 2
BEGIN, END = 1, 2  # what a decoder begins with, and what ends a piece
CUTTING = Segmentation(back=2, ahead=1, longest=6)
HISTORY = 5  # tokens that a decoder remembers
ABSTRACTIONS = 3  # of what it has read before a piece
# CTC alone, attention to pieces, to pieces encoded with abstractions of those before, and CTC of a recurrent encoder.
KINDS = ("ctc", "attention", "abstractions", "recurrent")


@cache
def model(period: int | None = None, kind: str = "ctc") -> tuple[ErnieModel, SpeechHead]:
    """An encoder that knows nothing, whose tokens differ from vector to vector all the same."""
    paddle.seed(7)
    tiny = replace(EncoderConfig.preset("tiny"), hidden_size=32, heads=4, intermediate_size=48, max_positions=60)
    ernie = ErnieModel(replace(tiny, vocab_size=VOCABULARY, initializer_range=0.3))
    ernie.tokenizer = numbered(VOCABULARY)
    shape = RecurrentConfig(layers=2, units=20, ahead=2)
    recurrent = RecurrentEncoder(32, shape, CHUNK) if kind == "recurrent" else None
    layers, abstractions = 2 * (kind in ("attention", "abstractions")), ABSTRACTIONS * (kind == "abstractions")
    head = SpeechHead(ernie, CONFIG.features, BLANK, period, layers, HISTORY, recurrent, abstractions)
    initialize(head, 0.8)
    return ernie, head


def writer(head: SpeechHead) -> SegmentDecoder | None:
    return None if head.writer is None else SegmentDecoder(head, CUTTING, BEGIN, END, [BLANK])


def recognizer(period: int | None = None, kind: str = "ctc") -> TokenRecognizer:
    """One of the kinds."""
    ernie, head = model(period, kind)
    return TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, decoder=writer(head))


def sound(samples: int, seed: int = 0) -> np.ndarray:
    """Tones that change every few hundredths of a second, and noise."""
    rng = np.random.default_rng(seed)
    pitch = np.repeat(rng.uniform(200, 3500, samples // 500 + 1), 500)[:samples]
    return (0.3 * np.sin(2 * np.pi * np.cumsum(pitch) / 8000) + rng.normal(0, 0.01, samples)).astype(np.float32)


def whole(samples: np.ndarray, period: int | None = None, kind: str = "ctc") -> list[Spike]:
    """What the model tells of a sound that is there as a whole, as in learning."""
    if not CONFIG.frames(len(samples)):
        return []
    _, head = model(period, kind)
    with evaluating(head):
        hidden = hidden_of(samples, kind, period)
        spikes = greedy(head(hidden).numpy(), BLANK)
        reader = writer(head)
        if reader is None:
            return spikes
        return reader.push(SegmentDecoderState.begin(), hidden, [spike.vector for spike in spikes], ended=True)[1]


def hidden_of(samples: np.ndarray, kind: str = "ctc", period: int | None = None) -> paddle.Tensor:
    """The encoder's vectors of a sound that is there as a whole."""
    ernie, head = model(period, kind)
    found_FM = features(CONFIG, samples)
    with evaluating(ernie), evaluating(head):
        x_TD, layout = head.frontend(Frames(found_FM, Layout.of_lengths([len(found_FM)])))
        if head.recurrent is not None:
            return head.recurrent(x_TD, layout)
        return ernie.encoder(x_TD, layout, mask=Mask.chunk(layout, CHUNK, BEFORE))


def in_pieces(pieces: list[np.ndarray], period: int | None = None, kind: str = "ctc") -> list[Spike]:
    decoder, told = recognizer(period, kind), []
    state = decoder.begin()
    for piece in pieces:
        state, (new,) = decoder.push(state, [piece])
        told += new
    state, (new,) = decoder.finish(state)
    assert list(state.stream_states[0].spikes) == told + new
    return told + new


def plain(spikes: list[Spike]) -> list[tuple[int, int]]:
    return [(spike.token, spike.vector) for spike in spikes]


@pytest.fixture(autouse=True)
def full_precision():
    with computing("fp32"):
        yield


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 1500), min_size=1, max_size=10), st.sampled_from(KINDS), st.integers(0, 10**6))
def test_it_tells_the_same_in_whatever_pieces_the_sound_comes(sizes: list[int], kind: str, seed: int) -> None:
    samples = sound(sum(sizes), seed)
    found = in_pieces(np.split(samples, np.cumsum(sizes)[:-1]), kind=kind)
    assert plain(found) == plain(in_pieces([samples], kind=kind))
    assert plain(found) == plain(whole(samples, kind=kind))


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 1500), min_size=1, max_size=10), st.sampled_from([2, 8]), st.integers(0, 10**6))
def test_a_beam_tells_its_best_reading_of_the_whole_in_whatever_pieces(sizes: list[int], width: int, seed: int) -> None:
    samples, beam = sound(sum(sizes), seed), Beam(BLANK, width)
    ernie, head = model()
    decoder = TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, beam=beam)
    state, told = decoder.begin(), []
    for piece in np.split(samples, np.cumsum(sizes)[:-1]):
        state, (new,) = decoder.push(state, [piece])
        told += new
        past = one_of(state).trimmed
        sure = tuple(spike.token for spike in told[past:])
        assert all(each.tokens[: len(sure)] == sure for each in one_of(state).hypotheses)
        assert len(sure) <= 1  # what nothing depends on any more is not kept
    state, (new,) = decoder.finish(RecognitionState.of_arrays(state.arrays()))
    told += new
    best = beam.extend([Hypothesis()], scores_of(samples))[0]
    assert tuple(spike.token for spike in told) == best.tokens
    assert list(one_of(state).spikes) == told


def test_a_token_is_never_told_before_the_one_that_it_follows_though_another_reading_was_the_best_by_then() -> None:
    ernie, head = model()
    decoder = TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, beam=Beam(BLANK, 2))
    (one,) = decoder.begin().stream_states
    # Committed of a reading that heard the first token late, gone on with by one that heard both early.
    late, early = Hypothesis((5,), (10,)), Hypothesis((5, 6), (8, 9))
    one = _committed(replace(one, hypotheses=(late, early)), 1)
    one = _committed(replace(one, hypotheses=(early,)), 2)
    assert [spike[:2] for spike in one.spikes] == [(5, 10), (6, 10)]


def one_of(state: RecognitionState) -> StreamState:
    (one,) = state.stream_states
    return one


def scores_of(samples: np.ndarray) -> np.ndarray:
    """The scores of a sound that is there as a whole."""
    if not CONFIG.frames(len(samples)):
        return np.zeros((0, VOCABULARY), np.float32)
    _, head = model()
    with evaluating(head):
        return head(hidden_of(samples)).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_something_is_told_at_all(kind: str) -> None:
    assert sum(len(whole(sound(9000, seed), kind=kind)) for seed in range(5)) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_what_was_told_does_not_depend_on_what_comes_later(kind: str) -> None:
    decoder, samples = recognizer(kind=kind), sound(8000)
    for cut in (1000, 3000, 5555):
        _, (told,) = decoder.push(decoder.begin(), [samples[:cut]])
        other = np.concatenate([samples[:cut], sound(4000, seed=9)])
        assert plain(in_pieces([other], kind=kind)[: len(told)]) == plain(told)


def test_a_token_is_told_at_most_a_chunk_and_three_frames_after_it_was_said() -> None:
    decoder, samples = recognizer(), sound(9000)
    state, heard, late = decoder.begin(), 0, []
    for piece in np.split(samples, np.arange(80, len(samples), 80)):
        state, (new,) = decoder.push(state, [piece])
        heard += len(piece)
        late += [CONFIG.frames(heard) - STRIDE * spike.vector for spike in new]
    assert late
    assert max(late) <= STRIDE * CHUNK + 1


@pytest.mark.parametrize("kind", KINDS)
def test_streams_of_a_batch_do_not_disturb_each_other(kind: str) -> None:
    decoder, sounds = (
        recognizer(kind=kind),
        [sound(size, seed) for seed, size in enumerate((5000, 0, 900, 7000, 150))],
    )
    state, early = decoder.push(decoder.begin(5), [one[:1000] for one in sounds])
    state, late = decoder.push(state, [one[1000:] for one in sounds])
    _, rest = decoder.finish(state)
    for samples, *parts in zip(sounds, early, late, rest, strict=True):
        assert plain([spike for one in parts for spike in one]) == plain(in_pieces([samples], kind=kind))


@pytest.mark.parametrize("kind", KINDS)
def test_streams_can_be_put_together_taken_apart_and_kept_in_a_file(tmp_path: Path, kind: str) -> None:
    decoder, a, b = recognizer(kind=kind), sound(6000), sound(4000, 1)
    one, (early,) = decoder.push(decoder.begin(), [a[:2345]])
    other, (first,) = decoder.push(decoder.begin(), [b[:1111]])
    save_state(one.with_others([other]), tmp_path / "kept.npz")
    both = load_state(RecognitionState, tmp_path / "kept.npz")
    other, one = both.chosen([1]), both.chosen([0])
    one, (more,) = decoder.push(one, [a[2345:]])
    other, (second,) = decoder.push(other, [b[1111:]])
    assert plain(early + more + decoder.finish(one)[1][0]) == plain(in_pieces([a], kind=kind))
    assert plain(first + second + decoder.finish(other)[1][0]) == plain(in_pieces([b], kind=kind))


def test_the_state_of_another_model_is_a_sentence(tmp_path: Path) -> None:
    save_state(recognizer(kind="attention").begin(), tmp_path / "kept.npz")
    other, decoder = load_state(RecognitionState, tmp_path / "kept.npz"), recognizer()
    for go_on in (lambda: decoder.push(other, [sound(3000)]), lambda: decoder.finish(other)):
        with pytest.raises(UserError, match="this state is of another model"):
            go_on()
    with pytest.raises(UserError, match="this state is of another model"):
        decoder.begin().with_others([other])


def test_a_state_that_follows_no_readings_is_of_another_model_than_a_beam() -> None:
    ernie, head = model()
    beam = TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, beam=Beam(BLANK, 4))
    for decoder, other in ((beam, recognizer()), (recognizer(), beam)):
        with pytest.raises(UserError, match="this state is of another model"):
            decoder.push(other.begin(), [sound(3000)])


def test_sound_beyond_the_positions_and_after_the_end_is_a_sentence() -> None:
    decoder = recognizer()
    with pytest.raises(UserError, match="more than 60 vectors"):
        decoder.push(decoder.begin(), [sound(30_000)])
    state, _ = decoder.finish(decoder.begin())
    with pytest.raises(UserError, match="is over"):
        decoder.push(state, [sound(10)])


def test_with_positions_that_begin_anew_sound_may_go_on_for_ever() -> None:
    period = 2 * CHUNK * (BEFORE + 1)
    samples = sound(40_000)
    assert vector_count(CONFIG.frames(len(samples))) > 60
    found = in_pieces(np.array_split(samples, 7), period)
    assert plain(found) == plain(whole(samples, period))
    assert found[-1].vector > 100


def test_a_decoder_knows_where_a_piece_begins_though_all_that_it_sees_is_alike() -> None:
    """Else a token said twice and one that CTC told twice are the same to it: more of the same vectors."""
    _, head = model(kind="attention")
    layout, labels = Layout.of_lengths([12]), [np.array([5, 5, 6])]
    same_TD = paddle.expand(
        paddle.to_tensor(np.random.default_rng(0).normal(size=(1, 32)).astype(np.float32)), [12, 32]
    )

    def loss(back: int) -> float:
        with evaluating(head):
            cutting = Segmentation(back, ahead=1, longest=6)
            return attention_loss(head, same_TD, layout, labels, cutting, BEGIN, END, np.array([0])).total.item()

    assert abs(loss(0) - loss(4)) > 0.1


@pytest.mark.parametrize("kind", ["attention", "abstractions"])
def test_a_decoder_learns_the_probabilities_that_it_writes_by(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All pieces of two sounds at once, beside piece after piece and token after token of each."""
    monkeypatch.setattr("ernie.decode.truncated_attention.SMOOTHING", 0.0)
    _, head = model(kind=kind)
    labels = [np.array([5, 6, 7, 7, 8, 5, 9, 10]), np.array([4, 11])]
    before = np.array([0, 3])
    with evaluating(head):
        hidden = [hidden_of(sound(size, size), kind) for size in (9000, 2500)]
        layout = Layout.of_lengths([len(one) for one in hidden])
        loss = attention_loss(head, paddle.concat(hidden), layout, labels, CUTTING, BEGIN, END, before)
        found = []
        for hidden_TD, own, count in zip(hidden, labels, before, strict=True):
            scores_TV = head(hidden_TD).numpy()
            spikes = [spike.vector for spike in greedy(scores_TV, BLANK)]
            cuts = CUTTING.training_cuts(spikes, align(scores_TV, own.tolist(), BLANK), len(scores_TV))
            left = iter(own.tolist())
            forced = [token for _, number in cuts for token in (*(next(left) for _ in range(number)), END)]
            scores, after = head.writer.scores, iter(forced)

            def told(x_UD: paddle.Tensor, scores=scores, after=after) -> np.ndarray:
                token, every = next(after), scores(x_UD)
                found.append(-float(every[0, token]))
                return np.where(np.arange(VOCABULARY) == token, 0.0, -np.inf)[None]

            monkeypatch.setattr(head.writer, "scores", told)
            begun = replace(SegmentDecoderState.begin(), count=int(count))
            _, spoken = writer(head).push(begun, hidden_TD, [cut for cut, _ in cuts], ended=True)
            monkeypatch.setattr(head.writer, "scores", scores)
            assert [spike.token for spike in spoken] == own.tolist()
            assert next(after, None) is None
    assert len(cuts) > 1
    assert loss.count == len(found)
    assert loss.total.item() == pytest.approx(sum(found), rel=1e-5)


@pytest.mark.parametrize("kind", ["attention", "abstractions"])
def test_a_decoder_remembers_no_more_of_a_long_sound_than_of_a_short_one_and_writes_two_tokens_a_piece_at_most(
    kind: str,
) -> None:
    period = 2 * CHUNK * (BEFORE + 1)
    decoder = recognizer(period, kind)
    state, kept, cuts = decoder.begin(), [], []
    for second in range(4):
        state, (new,) = decoder.push(state, [sound(4000, seed=second)])
        cuts += [spike.vector for spike in new]
        writing = state.stream_states[0].decoder_state
        assert writing is not None
        kept.append(writing.hidden.shape[0])
        assert writing.cache.layout.tokens < HISTORY
        assert writing.abstractions.layout.tokens == (ABSTRACTIONS if kind == "abstractions" else 0)
    assert max(kept) <= CUTTING.back + CUTTING.longest + CUTTING.ahead + CHUNK
    assert max(cuts.count(cut) for cut in cuts) <= 2


def test_repeated_tokens_count_once_unless_a_blank_stands_between() -> None:
    best = [0, 3, 3, 0, 3, 5, 5, 4, 0]
    scores = np.full((len(best), 6), -4.0)
    scores[np.arange(len(best)), best] = 4.0
    assert plain(greedy(scores, 0)) == [(3, 1), (3, 4), (5, 5), (4, 7)]
    assert plain(greedy(scores[1:], 0, last=3, first=1)) == [(3, 4), (5, 5), (4, 7)]
    assert greedy(scores, 0)[0].probability == pytest.approx(np.exp(4) / (np.exp(4) + 5 * np.exp(-4)))


def test_vectors_are_a_quarter_of_the_frames_rounded_up() -> None:
    assert [vector_count(frames) for frames in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]
