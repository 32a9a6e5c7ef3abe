"""Streaming recognition: independent of how the audio is split and of audio that has not arrived."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise, product
from pathlib import Path
from typing import BinaryIO

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.recognizers import (
    ABSTRACTIONS,
    BEFORE,
    BEGIN,
    BLANK,
    CHUNK,
    CONFIG,
    END,
    HISTORY,
    KINDS,
    SEGMENTATION,
    VOCABULARY,
    WITH_PAUSES,
    model,
    recognizer,
    segment_decoder,
    sound,
)

from ernie.audio.features import features
from ernie.audio.lengths import STRIDE, vector_count
from ernie.data.batch import Frames, Layout
from ernie.decode.ctc import LINE_END, Beam, Hypothesis, Spike, greedy
from ernie.decode.paths import AcousticPath, Branch, committed, merged, shared_tokens
from ernie.decode.recognizer import Pauses, RecognitionState, StreamState, TokenRecognizer
from ernie.decode.segmentation import Segmentation, align
from ernie.decode.stream import load_state, save_state
from ernie.decode.truncated_attention import SegmentDecoder, SegmentDecoderState, attention_loss
from ernie.errors import Remark, UserError
from ernie.kernels.mask import Mask
from ernie.kernels.precision import precision, resolve
from ernie.model.inference import evaluating
from ernie.model.speech import SpeechHead


def whole(samples: np.ndarray, period: int | None = None, kind: str = "ctc") -> list[Spike]:
    """The tokens that the model recognizes in a sound as a whole, as in training."""
    if not CONFIG.frames(len(samples)):
        return []
    _, head = model(period, kind)
    with evaluating(head):
        hidden = hidden_of(samples, kind, period)
        spikes = greedy(head(hidden).numpy(), BLANK)
        decoder = segment_decoder(head, kind)
        if decoder is None:
            return spikes
        return decoder.push(SegmentDecoderState.begin(), hidden, [spike.vector for spike in spikes], ended=True)[1]


def hidden_of(samples: np.ndarray, kind: str = "ctc", period: int | None = None) -> paddle.Tensor:
    """The encoder's vectors of a sound as a whole."""
    ernie, head = model(period, kind)
    found_FM = features(CONFIG, samples)
    with evaluating(ernie), evaluating(head):
        x_TD, layout = head.frontend(Frames(found_FM, Layout.of_lengths([len(found_FM)])))
        return head.encoder(ernie)(x_TD, layout, mask=Mask.chunk(layout, CHUNK, BEFORE))


def in_pieces(
    pieces: list[np.ndarray], period: int | None = None, kind: str = "ctc", forgetting: bool = False
) -> list[Spike]:
    decoder, spikes = recognizer(period, kind), []
    state = decoder.begin()
    for piece in pieces:
        state, (new,) = decoder.push(state.forget([len(spikes)]) if forgetting else state, [piece])
        kept = len(spikes[-1:] + new) if forgetting else len(spikes + new)
        spikes += new
        assert len(single_stream(state).spikes) == kept
    state, (new,) = decoder.finish(state)
    assert list(single_stream(state).since(len(spikes))) == new
    return spikes + new


def pairs(spikes: list[Spike]) -> list[tuple[int, int]]:
    return [(spike.token, spike.vector) for spike in spikes]


@pytest.fixture(autouse=True)
def full_precision():
    with precision("fp32"):
        yield


@settings(max_examples=12, deadline=None)
@given(st.lists(st.integers(0, 1500), min_size=1, max_size=10), st.sampled_from(KINDS), st.integers(0, 10**6))
def test_the_output_does_not_depend_on_how_the_sound_is_split(sizes: list[int], kind: str, seed: int) -> None:
    samples = sound(sum(sizes), seed)
    found = in_pieces(np.split(samples, np.cumsum(sizes)[:-1]), kind=kind)
    assert pairs(found) == pairs(in_pieces([samples], kind=kind))
    assert pairs(found) == pairs(whole(samples, kind=kind))
    assert found == in_pieces(np.split(samples, np.cumsum(sizes)[:-1]), kind=kind, forgetting=True)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 1500), min_size=1, max_size=10), st.sampled_from([2, 8]), st.integers(0, 10**6))
def test_a_beam_returns_the_best_hypothesis_for_any_split(sizes: list[int], width: int, seed: int) -> None:
    samples, beam = sound(sum(sizes), seed), Beam(BLANK, width)
    ernie, head = model()
    decoder = TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, beam=beam)
    state, spikes = decoder.begin(), []
    for piece in np.split(samples, np.cumsum(sizes)[:-1]):
        state, (new,) = decoder.push(state, [piece])
        spikes += new
        trimmed = single_stream(state).trimmed
        committed = tuple(spike.token for spike in spikes[trimmed:])
        assert all(hypothesis.tokens[: len(committed)] == committed for hypothesis in single_stream(state).hypotheses)
        assert len(committed) <= 1  # tokens that nothing depends on any more are dropped
    state, (new,) = decoder.finish(RecognitionState.from_arrays(state.arrays()))
    spikes += new
    best = beam.extend([Hypothesis()], scores_of(samples))[0]
    assert tuple(spike.token for spike in spikes) == best.tokens
    assert list(single_stream(state).spikes) == spikes


def test_tokens_are_in_order_even_when_another_hypothesis_becomes_the_best() -> None:
    ernie, head = model()
    decoder = TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, beam=Beam(BLANK, 2))
    (one,) = decoder.begin().stream_states
    # The first token is committed from a hypothesis with a late position, the next from one with early positions.
    late, early = Hypothesis((5,), (10,)), Hypothesis((5, 6), (8, 9))
    one = replace(one, hypotheses=(late, early)).commit(1)
    one = replace(one, hypotheses=(early,)).commit(2)
    assert [spike[:2] for spike in one.spikes] == [(5, 10), (6, 10)]


def single_stream(state: RecognitionState) -> StreamState:
    (one,) = state.stream_states
    return one


def scores_of(samples: np.ndarray) -> np.ndarray:
    """The scores of a sound as a whole."""
    if not CONFIG.frames(len(samples)):
        return np.zeros((0, VOCABULARY), np.float32)
    _, head = model()
    with evaluating(head):
        return head(hidden_of(samples)).numpy()


@pytest.mark.parametrize("kind", KINDS)
def test_the_model_recognizes_some_tokens(kind: str) -> None:
    assert sum(len(whole(sound(9000, seed), kind=kind)) for seed in range(5)) > 30


@pytest.mark.parametrize("kind", KINDS)
def test_output_does_not_depend_on_later_audio(kind: str) -> None:
    decoder, samples = recognizer(kind=kind), sound(8000)
    for cut in (1000, 3000, 5555):
        _, (early,) = decoder.push(decoder.begin(), [samples[:cut]])
        other = np.concatenate([samples[:cut], sound(4000, seed=9)])
        assert pairs(in_pieces([other], kind=kind)[: len(early)]) == pairs(early)


@settings(max_examples=25, deadline=None)
@given(st.lists(st.integers(0, 900), min_size=1, max_size=6), st.integers(0, 5))
def test_what_a_stream_misses_is_exactly_what_its_next_chunk_needs(sizes: list[int], seed: int) -> None:
    one, samples = recognizer(), sound(20_000, seed)
    state, start = one.begin(2), 0
    for size in sizes:
        state, _ = one.accept(state, [samples[start : start + size], None])
        start += size
        while any(one.pending(state)):
            state, _ = one.step(state)
    for _ in range(2):
        missing, untouched = one.missing(state)
        assert untouched == CONFIG.window_samples + (CHUNK * STRIDE - 1) * CONFIG.hop_samples
        nearly, _ = one.accept(state, [samples[start : start + missing - 1], None])
        assert one.pending(nearly) == [False, False]
        assert one.missing(nearly) == [1, untouched]
        state, _ = one.accept(state, [samples[start : start + missing], None])
        start += missing
        assert one.pending(state) == [True, False]
        assert one.missing(state) == [0, untouched]
        state, _ = one.step(state)


def test_a_token_is_returned_within_a_chunk_and_one_frame() -> None:
    decoder, samples = recognizer(), sound(9000)
    state, received, latencies = decoder.begin(), 0, []
    for piece in np.split(samples, np.arange(80, len(samples), 80)):
        state, (new,) = decoder.push(state, [piece])
        received += len(piece)
        latencies += [CONFIG.frames(received) - STRIDE * spike.vector for spike in new]
    assert latencies
    assert max(latencies) <= STRIDE * CHUNK + 1


@pytest.mark.parametrize("kind", KINDS)
def test_streams_of_a_batch_are_independent(kind: str) -> None:
    decoder, sounds = (
        recognizer(kind=kind),
        [sound(size, seed) for seed, size in enumerate((5000, 0, 900, 7000, 150))],
    )
    state, early = decoder.push(decoder.begin(5), [part[:1000] for part in sounds])
    state, late = decoder.push(state, [part[1000:] for part in sounds])
    _, rest = decoder.finish(state)
    for samples, *parts in zip(sounds, early, late, rest, strict=True):
        assert pairs([spike for part in parts for spike in part]) == pairs(in_pieces([samples], kind=kind))


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((kind, "fp32") for kind in (*KINDS, "ctc by beam", *WITH_PAUSES)),
        *(
            (kind, name)
            for kind in ("ctc", "abstractions by beam", "recurrent", "convolution")
            for name in ("bf16", "int8")
        ),
        *(
            pytest.param(kind, name, marks=pytest.mark.slow)
            for kind in ("attention", "abstractions", "attention by beam", "ctc by beam", *WITH_PAUSES)
            for name in ("bf16", "int8")
        ),
    ],
)
def test_files_in_a_batch_and_streams_in_pieces_are_bit_identical_in_every_precision(kind: str, name: str) -> None:
    if name == "bf16" and resolve("auto") != "bf16":
        pytest.skip("this processor has no instructions for bf16")
    decoder, period = recognizer(2 * CHUNK * (BEFORE + 1), kind), 2100
    sounds = [sound(size, seed) for seed, size in enumerate((9000, 700, 0, 5300, 12_000))]
    with precision(name), warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)  # that int8 is for whole texts
        files = [own.spikes for own in decoder.recognize(sounds)]
        for samples, of_file in zip(sounds, files, strict=True):
            state, of_stream = decoder.begin(), []
            for piece in np.split(samples, np.arange(period, len(samples), period)):
                state, (new,) = decoder.push(state, [piece])
                of_stream += new
            assert of_stream + decoder.finish(state)[1][0] == of_file  # tokens, vectors and all bits of probabilities
    assert sum(map(len, files)) > 10


def test_a_line_ends_at_a_pause_and_no_token_is_lost() -> None:
    period = 2 * CHUNK * (BEFORE + 1)
    (plain,) = recognizer(period).recognize([sound(30_000, 4)])
    (lines,) = recognizer(period, "ctc with pauses").recognize([sound(30_000, 4)])
    assert pairs(plain.spikes) == pairs([spike for spike in lines.spikes if spike.token != LINE_END])
    ends = [n for n, spike in enumerate(lines.spikes) if spike.token == LINE_END]
    assert 1 <= len(ends) < len(plain.spikes)
    assert all(last - first > 1 for first, last in pairwise(ends))  # no line is empty
    for n in ends:
        before, end = lines.spikes[n - 1], lines.spikes[n]
        assert before.begin <= end.quiet <= end.begin
        assert end.vector - before.vector >= 1


def test_a_line_that_is_long_ends_at_a_shorter_pause() -> None:
    pauses = Pauses(20, 500)
    assert [pauses.end_line(*each) for each in ((19, 100), (20, 100), (5, 499), (5, 500), (4, 900))] == [
        *(False, True),
        *(False, True, False),
    ]


@pytest.mark.parametrize("kind", [*KINDS, *WITH_PAUSES])
def test_streams_can_be_joined_split_and_saved(tmp_path: Path, kind: str) -> None:
    decoder, a, b = recognizer(kind=kind), sound(6000), sound(4000, 1)
    state_a, (early,) = decoder.push(decoder.begin(), [a[:2345]])
    state_b, (first,) = decoder.push(decoder.begin(), [b[:1111]])
    save_state(state_a.concat([state_b]), tmp_path / "kept.npz")
    both = load_state(RecognitionState, tmp_path / "kept.npz")
    state_b, state_a = both.select([1]), both.select([0])
    state_a, (more,) = decoder.push(state_a, [a[2345:]])
    state_b, (second,) = decoder.push(state_b, [b[1111:]])
    assert pairs(early + more + decoder.finish(state_a)[1][0]) == pairs(in_pieces([a], kind=kind))
    assert pairs(first + second + decoder.finish(state_b)[1][0]) == pairs(in_pieces([b], kind=kind))


def test_an_interrupted_save_leaves_the_earlier_state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = recognizer()
    state, _ = decoder.push(decoder.begin(), [sound(3000)])
    save_state(state, tmp_path / "kept.npz")
    before = (tmp_path / "kept.npz").read_bytes()

    def interrupted(file: BinaryIO, **arrays: np.ndarray) -> None:
        file.write(b"half of it")
        raise KeyboardInterrupt

    monkeypatch.setattr(np, "savez", interrupted)
    with pytest.raises(KeyboardInterrupt):
        save_state(decoder.begin(), tmp_path / "kept.npz")
    assert (tmp_path / "kept.npz").read_bytes() == before


def test_the_state_of_another_model_raises_a_user_error(tmp_path: Path) -> None:
    save_state(recognizer(kind="attention").begin(), tmp_path / "kept.npz")
    other, decoder = load_state(RecognitionState, tmp_path / "kept.npz"), recognizer()
    for call in (lambda: decoder.push(other, [sound(3000)]), lambda: decoder.finish(other)):
        with pytest.raises(UserError, match="this state is of another model"):
            call()
    with pytest.raises(UserError, match="this state is of another model"):
        decoder.begin().concat([other])


def test_states_with_and_without_a_beam_are_not_interchangeable() -> None:
    ernie, head = model()
    beam = TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, beam=Beam(BLANK, 4))
    for decoder, other in ((beam, recognizer()), (recognizer(), beam)):
        with pytest.raises(UserError, match="this state is of another model"):
            decoder.push(other.begin(), [sound(3000)])


def test_sound_that_is_too_long_or_follows_the_end_raises_a_user_error() -> None:
    decoder = recognizer()
    with pytest.raises(UserError, match="more than 60 vectors"):
        decoder.push(decoder.begin(), [sound(30_000)])
    state, _ = decoder.finish(decoder.begin())
    with pytest.raises(UserError, match="is over"):
        decoder.push(state, [sound(10)])


def test_with_periodic_positions_the_length_of_a_sound_is_not_limited() -> None:
    period = 2 * CHUNK * (BEFORE + 1)
    samples = sound(40_000)
    assert vector_count(CONFIG.frames(len(samples))) > 60
    found = in_pieces(np.array_split(samples, 7), period)
    assert pairs(found) == pairs(whole(samples, period))
    assert found[-1].vector > 100


def test_a_decoder_uses_the_segment_start_even_when_all_vectors_are_equal() -> None:
    """Otherwise it could not distinguish a token spoken twice from one that CTC predicts twice."""
    _, head = model(kind="attention")
    layout, labels = Layout.of_lengths([12]), [np.array([5, 5, 6])]
    same_TD = paddle.expand(
        paddle.to_tensor(np.random.default_rng(0).normal(size=(1, 32)).astype(np.float32)), [12, 32]
    )

    def loss(back: int) -> float:
        with evaluating(head):
            segmentation = Segmentation(back, ahead=1, longest=6)
            return attention_loss(head, same_TD, layout, labels, segmentation, BEGIN, END, np.array([0])).total.item()

    assert abs(loss(0) - loss(4)) > 0.1


def forced_decoding(
    head: SpeechHead,
    start: SegmentDecoderState,
    hidden_TD: paddle.Tensor,
    cuts: list[int],
    symbols: Sequence[int],
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[list[float], list[Spike]]:
    """Decode given symbols, each segment's tokens and its end; return the nats of each, and the decoded tokens."""
    scores, after, nats = head.writer.scores, iter(symbols), []

    def forced_scores(x_UD: paddle.Tensor) -> np.ndarray:
        symbol, log_probabilities = next(after), scores(x_UD)
        nats.append(-float(log_probabilities[0, symbol]))
        return np.where(np.arange(VOCABULARY) == symbol, 0.0, -np.inf)[None]

    with monkeypatch.context() as patch:
        patch.setattr(head.writer, "scores", forced_scores)
        _, spikes = segment_decoder(head).push(start, hidden_TD, cuts, ended=True)
    assert next(after, None) is None
    return nats, spikes


@pytest.mark.parametrize("kind", ["attention", "abstractions"])
@pytest.mark.parametrize("seed", range(3))
def test_a_wide_beam_finds_the_likeliest_text_over_all_ways_to_divide_it_into_segments(
    kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, head = model(kind=kind)
    allowed, cuts = (5, 6), [4, 9]
    segments = [(), *product(allowed, repeat=1), *product(allowed, repeat=2)]
    expected: dict[tuple[int, ...], float] = {}
    with evaluating(head):
        hidden_TD = hidden_of(sound(3300, seed), kind)
        assert hidden_TD.shape[0] == cuts[-1] + 1
        for one, other in product(segments, repeat=2):
            symbols = [*one, END, *other, END]
            nats, _ = forced_decoding(head, SegmentDecoderState.begin(), hidden_TD, cuts, symbols, monkeypatch)
            expected[one + other] = float(np.logaddexp(expected.get(one + other, -np.inf), -sum(nats)))
        never = [token for token in range(VOCABULARY) if token not in (*allowed, BEGIN, END)]
        decoder = SegmentDecoder(head, SEGMENTATION, BEGIN, END, never, Beam(BLANK, 1000))
        state, spikes = decoder.push(SegmentDecoderState.begin(), hidden_TD, cuts, ended=True)
    best = max(expected, key=expected.__getitem__)
    assert tuple(spike.token for spike in spikes) == best
    assert state.paths[0].log_probability == pytest.approx(expected[best], abs=1e-4)


@pytest.mark.parametrize("kind", ["attention by beam", "abstractions by beam"])
def test_caches_belong_to_the_paths_that_are_kept(kind: str) -> None:
    decoder, counts = recognizer(kind=kind), set[int]()
    for seed in range(12):
        if seed > 3 and counts >= {1, 2, 4}:
            break
        state = decoder.begin()
        for piece in np.split(sound(6000, seed), 6):
            state, _ = decoder.push(state, [piece])
            found = single_stream(state).decoder_state
            assert found is not None
            assert found.cache.layout.sequences == found.abstractions.layout.sequences == len(found.paths)
            counts.add(len(found.paths))
        state, _ = decoder.finish(state)
        found = single_stream(state).decoder_state
        assert found is not None
        assert found.abstractions.layout.sequences == len(found.paths) == 1
    assert counts >= {1, 2, 4}


def test_paths_that_end_alike_are_merged_and_the_best_of_them_is_kept() -> None:
    def branch(tokens: tuple[int, ...], log_probability: float, row: int, at: int = 10) -> Branch:
        spikes = tuple(Spike(token, at, 1.0) for token in tokens)
        return Branch(AcousticPath(spikes, (), tokens[-2:], len(tokens), log_probability), 0, row)

    beam = Beam(BLANK, 8, patience=100)
    found = merged([branch((4, 7, 8), -2.0, 0), branch((5, 7, 8), -1.0, 1), branch((5, 8, 7), -3.0, 2)], beam, 10)
    assert [each.row for each in found] == [1, 2]
    twice = merged([branch((5, 6), -1.0, 0), branch((5, 6), -1.0, 1), branch((7, 8), -0.5, 2)], beam, 10)
    assert [each.row for each in twice] == [0, 2]
    assert twice[0].path.log_probability == pytest.approx(-1.0 + np.log(2))
    old = merged([branch((4, 7), -1.0, 0), branch((5, 8), -2.0, 1)], beam, 111)
    assert [each.row for each in old] == [0]


def test_committed_tokens_are_in_order_even_when_another_path_becomes_the_best() -> None:
    late, early = (AcousticPath((Spike(5, at, 0.9), Spike(last, at + 1, 0.9))) for at, last in ((10, 6), (7, 8)))
    assert shared_tokens((late, early)) == 1
    (_, after), new = committed((late, early), 1, 2, 0)
    assert new == [Spike(5, 10, 0.9)]
    assert after.text == (5, 8)
    _, more = committed((after,), 1, 2, new[-1].vector)
    assert more == [Spike(8, 10, 0.9)]


@pytest.mark.parametrize("kind", ["attention", "abstractions"])
def test_the_training_loss_equals_the_probabilities_in_decoding(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """All segments of two sounds at once, against segment after segment and token after token of each."""
    monkeypatch.setattr("ernie.decode.truncated_attention.SMOOTHING", 0.0)
    _, head = model(kind=kind)
    labels = [np.array([5, 6, 7, 7, 8, 5, 9, 10]), np.array([4, 11])]
    before = np.array([0, 3])
    with evaluating(head):
        hidden = [hidden_of(sound(size, size), kind) for size in (9000, 2500)]
        layout = Layout.of_lengths([len(vectors) for vectors in hidden])
        loss = attention_loss(head, paddle.concat(hidden), layout, labels, SEGMENTATION, BEGIN, END, before)
        found = []
        for hidden_TD, tokens, count in zip(hidden, labels, before, strict=True):
            scores_TV = head(hidden_TD).numpy()
            spikes = [spike.vector for spike in greedy(scores_TV, BLANK)]
            cuts = SEGMENTATION.training_cuts(spikes, align(scores_TV, tokens.tolist(), BLANK), len(scores_TV))
            remaining = iter(tokens.tolist())
            forced = [token for _, number in cuts for token in (*(next(remaining) for _ in range(number)), END)]
            start = replace(SegmentDecoderState.begin(), paths=(AcousticPath(symbols=int(count)),))
            nats, spikes_found = forced_decoding(head, start, hidden_TD, [cut for cut, _ in cuts], forced, monkeypatch)
            found += nats
            assert [spike.token for spike in spikes_found] == tokens.tolist()
    assert len(cuts) > 1
    assert loss.count == len(found)
    assert loss.total.item() == pytest.approx(sum(found), rel=1e-5)


@pytest.mark.parametrize("kind", ["attention", "abstractions", "attention by beam"])
@pytest.mark.parametrize("block", [1, 5, 256])
def test_a_whole_sound_is_decoded_in_blocks_of_any_size(kind: str, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    ernie, head = model(None, kind)
    decoder, hidden_TD = segment_decoder(head, kind), hidden_of(sound(6000), kind)
    assert decoder is not None
    with paddle.no_grad(), evaluating(ernie), evaluating(head):
        vectors = [spike.vector for spike in greedy(head(hidden_TD).numpy(), BLANK)]
        _, expected = decoder.push(SegmentDecoderState.begin(), hidden_TD, vectors, ended=True)
        monkeypatch.setattr("ernie.decode.truncated_attention._BLOCK", block)
        assert pairs(decoder.decode(hidden_TD, vectors)) == pairs(expected) != []


@pytest.mark.parametrize("kind", ["attention", "abstractions"])
def test_a_decoder_has_bounded_memory_and_writes_at_most_two_tokens_a_segment(
    kind: str,
) -> None:
    period = 2 * CHUNK * (BEFORE + 1)
    decoder = recognizer(period, kind)
    state, sizes, cuts = decoder.begin(), [], []
    for second in range(4):
        state, (new,) = decoder.push(state, [sound(4000, seed=second)])
        cuts += [spike.vector for spike in new]
        decoder_state = state.stream_states[0].decoder_state
        assert decoder_state is not None
        sizes.append(decoder_state.hidden.shape[0])
        assert decoder_state.cache.layout.tokens < HISTORY
        assert decoder_state.abstractions.layout.tokens == (ABSTRACTIONS if kind == "abstractions" else 0)
        assert decoder_state.abstractions.layout.sequences == len(decoder_state.paths) == 1
    assert max(sizes) <= SEGMENTATION.back + SEGMENTATION.longest + SEGMENTATION.ahead + CHUNK
    assert max(cuts.count(cut) for cut in cuts) <= 2


def test_repeated_tokens_count_once_unless_separated_by_a_blank() -> None:
    best = [0, 3, 3, 0, 3, 5, 5, 4, 0]
    scores = np.full((len(best), 6), -4.0)
    scores[np.arange(len(best)), best] = 4.0
    assert pairs(greedy(scores, 0)) == [(3, 1), (3, 4), (5, 5), (4, 7)]
    assert pairs(greedy(scores[1:], 0, last=3, first=1)) == [(3, 4), (5, 5), (4, 7)]
    assert greedy(scores, 0)[0].probability == pytest.approx(np.exp(4) / (np.exp(4) + 5 * np.exp(-4)))


def test_vectors_are_a_quarter_of_the_frames_rounded_up() -> None:
    assert [vector_count(frames) for frames in (0, 1, 4, 5, 8, 9)] == [0, 1, 1, 2, 2, 3]
