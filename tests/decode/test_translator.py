"""Simultaneous translation: independent of how the source is split and of tokens not yet read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.translators import model, texts, translator

from ernie.data.batch import Layout
from ernie.decode.translator import Progress, Search, TokenTranslator, TranslationState
from ernie.decode.wait_k import WaitK
from ernie.errors import Remark, UserError
from ernie.kernels.cpu.library import library
from ernie.kernels.precision import precision, resolve
from ernie.model.inference import evaluating
from ernie.model.prefix_source import SourceView, source_lengths, sources_of

FIXED = [WaitK(1), WaitK(3), WaitK(2, 0.3), WaitK(2, -0.5), WaitK(None)]
ADAPTIVE = [WaitK(1, confidence=0.25, most=9), WaitK(2, 0.3, confidence=0.1), WaitK(1, -0.5, 0.15, most=6)]
ADAPTIVE += [WaitK(1, agreement=1, most=6), WaitK(2, agreement=2), WaitK(1, confidence=0.1, most=9, agreement=1)]
POLICIES = [*FIXED, *ADAPTIVE]


def translate(decoder: TokenTranslator, sources: list[np.ndarray]) -> TranslationState:
    state, _ = decoder.push(decoder.begin(len(sources)), sources)
    return decoder.finish(state)[0]


@pytest.fixture(autouse=True)
def full_precision():
    with precision("fp32"):
        yield


@settings(max_examples=25)
@given(
    st.sampled_from(POLICIES),
    st.booleans(),
    st.lists(st.integers(0, 3), min_size=1, max_size=8),
    st.integers(0, 10**6),
)
def test_the_translation_does_not_depend_on_how_the_source_is_split(
    policy: WaitK, causal: bool, pieces: list[int], seed: int
) -> None:
    decoder, (source,) = translator(policy, causal), texts([sum(pieces)], seed)
    state, written = decoder.begin(), []
    for piece in np.split(source, np.cumsum(pieces)[:-1]):
        state, (new,) = decoder.push(state, [piece])
        written += new
    state, (new,) = decoder.finish(state)
    (whole,) = translate(decoder, [source]).progress
    assert tuple(written + new) == whole.written == state.progress[0].written
    assert state.progress[0].delays == whole.delays
    assert whole.done


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("policy", POLICIES, ids=str)
def test_streams_of_a_batch_are_independent(policy: WaitK, causal: bool) -> None:
    decoder, sources = translator(policy, causal), texts([4, 1, 9, 0, 6])
    together = translate(decoder, sources)
    for source, progress in zip(sources, together.progress, strict=True):
        assert translate(decoder, [source]).progress == (progress,)


def test_an_empty_source_has_an_empty_translation() -> None:
    (progress,) = translate(translator(WaitK(1)), texts([0])).progress
    assert progress.written == ()
    assert progress.done


@pytest.mark.parametrize("causal", [True, False])
def test_streams_can_be_joined_and_split_at_any_time(causal: bool) -> None:
    decoder, (a, b) = translator(WaitK(2), causal), texts([7, 5])
    first, _ = decoder.push(decoder.begin(), [a[:4]])
    second, _ = decoder.push(decoder.begin(), [b[:2]])
    both, _ = decoder.push(first.concat([second]), [a[4:6], b[2:]])
    second, first = both.select([1]), both.select([0])
    first, _ = decoder.push(first, [a[6:]])
    for state, source in ((first, a), (second, b)):
        assert decoder.finish(state)[0].progress == translate(decoder, [source]).progress


def test_a_state_can_be_continued_twice() -> None:
    decoder, (source,) = translator(WaitK(2)), texts([6])
    middle, _ = decoder.push(decoder.begin(), [source[:3]])
    first, second = (decoder.finish(decoder.push(middle, [source[3:]])[0])[0] for _ in range(2))
    assert first.progress == second.progress == translate(decoder, [source]).progress


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("policy", FIXED, ids=str)
def test_delays_follow_the_policy(policy: WaitK, causal: bool) -> None:
    (progress,) = translate(translator(policy, causal), texts([9])).progress
    steps = np.arange(len(progress.written))
    assert progress.written
    assert progress.waited == 0
    assert progress.delays == tuple(policy.reads(steps, np.full(len(steps), 10)))


@contextmanager
def raised_bias(amount: float, token: str = "sep_id") -> Iterator[None]:
    """Temporarily raise the bias of the end token, or of another special token."""
    ernie, head = model()
    original = head.bias.numpy().copy()
    raised = original.copy()
    raised[getattr(ernie.tokenizer, token)] += amount
    head.bias.set_value(paddle.to_tensor(raised))
    try:
        yield
    finally:
        head.bias.set_value(paddle.to_tensor(original))


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("policy", [*FIXED[:4], *ADAPTIVE], ids=str)
def test_where_the_end_is_most_probable_it_reads_another_token_and_continues(policy: WaitK, causal: bool) -> None:
    sources, continued = texts([9, 6, 9, 4, 7]), 0
    for more in (1.0, 2.0):
        with raised_bias(more):
            decoder = translator(policy, causal)
            for source, progress in zip(sources, translate(decoder, sources).progress, strict=True):
                assert (progress.written, progress.delays, progress.waited) == translated_without_cache(
                    policy, causal, source
                )
                steps = np.arange(len(progress.written))
                fixed = tuple(policy.reads(steps, np.full(len(steps), len(source) + 1)))
                continued += bool(progress.written and (progress.waited or progress.delays != fixed))
                state, written = decoder.begin(), []
                for token in source:
                    state, (new,) = decoder.push(state, [np.array([token])])
                    written += new
                state, (new,) = decoder.finish(state)
                assert tuple(written + new) == progress.written
    assert continued > 1


def translated_without_cache(
    policy: WaitK, causal: bool, source: np.ndarray
) -> tuple[tuple[int, ...], tuple[int, ...], int]:
    """The translation, its delays and the number of extra tokens waited for, recomputed at each step."""
    ernie, _ = model()
    begin, end = ernie.tokenizer.cls_id, ernie.tokenizer.sep_id
    written: list[int] = []
    delays: list[int] = []
    waited, length = 0, len(source) + 1
    longest = int(2 / (1 - max(0.0, policy.catch_up)) * length) + 10
    while len(written) < longest:
        for_k = int(policy.reads(np.array([len(written)]), np.array([length]))[0])
        reads = min(length, max(for_k + waited, *delays[-1:], 0))
        behind = reads - for_k if policy.confidence or policy.agreement else waited
        layout, seen = Layout.of_lengths([len(written) + 1]), np.array([*delays, reads])
        kind = "causal" if causal else "prefixes"
        prefix = np.array([begin, *written])
        scores = allowed_scores(training_vectors(kind, [source], prefix, layout, seen)[-1:])
        probable = float(np.exp(scores.max()))
        token = int(scores.argmax())
        if token == end and reads == length:
            break
        needed = policy.confidence
        if policy.most is not None:
            needed *= max(0, policy.most - policy.k - behind) / (policy.most - policy.k)
        agrees = not policy.agreement or (policy.most is not None and behind >= policy.most - policy.k)
        if not agrees:
            shorter = np.array([*delays, max(0, reads - policy.agreement)])
            agrees = token == allowed_scores(training_vectors(kind, [source], prefix, layout, shorter)[-1:]).argmax()
        if reads < length and (token == end or probable < needed or not agrees):
            waited = behind + 1
        else:
            written.append(token)
            delays.append(reads)
            waited = 0 if policy.confidence or policy.agreement else waited
    return tuple(written), tuple(delays), waited


def allowed_scores(vectors: np.ndarray) -> np.ndarray:
    """The log-probabilities of the token after the last of these vectors, without special ones but the end."""
    ernie, head = model()
    tokenizer, scores = ernie.tokenizer, head.scores(paddle.to_tensor(vectors))[0]
    scores[[tokenizer.cls_id, tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id]] = -np.inf
    return scores


@pytest.mark.parametrize("causal", [True, False])
def test_a_token_that_is_another_one_with_less_of_the_source_waits(causal: bool) -> None:
    (source,) = texts([12], seed=5)
    behind = []
    for agreement in range(4):
        policy = WaitK(1, agreement=agreement, most=9)
        (found,) = translate(translator(policy, causal), [source]).progress
        assert (found.written, found.delays) == translated_without_cache(policy, causal, source)[:2]
        delays = np.array(found.delays)
        behind.append((delays - np.arange(len(delays)))[delays < 13])
    assert all(1 <= own.min() <= own.max() <= 9 for own in behind)
    assert behind[0].mean() == 1
    assert behind[3].mean() > 1.5


def test_a_token_that_is_not_certain_waits_for_more_of_the_source_and_the_next_ones_catch_up() -> None:
    (source,) = texts([12])
    delays = np.array(translate(translator(WaitK(1, confidence=0.25, most=9)), [source]).progress[0].delays)
    behind = delays - np.arange(len(delays))
    before_the_end = behind[delays < 13]
    assert before_the_end.min() >= 1
    assert before_the_end.max() <= 9
    assert (np.diff(before_the_end) > 0).any()
    assert (np.diff(before_the_end) < 0).any()
    assert (np.diff(delays) >= 0).all()


def test_a_certain_token_is_written_from_what_was_read_also_where_targets_are_shorter() -> None:
    policy = WaitK(1, -0.9, 0.25, most=12)
    source = texts([20, 14], seed=1)[1]
    (found,) = translate(translator(policy), [source]).progress
    assert (found.written, found.delays) == translated_without_cache(policy, True, source)[:2]
    assert found.delays[:4] == (5, 7, 7, 9)  # after 7 tokens k asks for 5, so the third one needs no more


def test_without_confidence_the_policy_is_fixed_and_with_certainty_asked_for_all_is_read_first() -> None:
    (source,) = texts([9])
    fixed = translate(translator(WaitK(2)), [source]).progress[0]
    assert translate(translator(WaitK(2, confidence=0.0, most=5)), [source]).progress[0] == fixed
    certain = translate(translator(WaitK(1, confidence=1.0)), [source]).progress[0]
    assert set(certain.delays) == {10}
    assert certain.written == translate(translator(WaitK(None)), [source]).progress[0].written


def test_a_stream_with_a_distance_of_its_own_is_as_confident_as_the_others() -> None:
    (source,) = texts([9])
    decoder, expected = translator(WaitK(1, confidence=0.4, most=5)), translator(WaitK(3, confidence=0.4, most=5))
    state = decoder.change(decoder.begin(), [{"wait_k": 3}])
    state, _ = decoder.push(state, [source])
    found = decoder.finish(state)[0].progress[0]
    assert replace(found, wait_k=0) == translate(expected, [source]).progress[0]


def test_a_model_that_always_predicts_the_end_writes_nothing() -> None:
    with raised_bias(1e4):
        (progress,) = translate(translator(WaitK(1)), texts([6])).progress
    assert (progress.written, progress.done, progress.waited) == ((), True, 6)


@pytest.mark.parametrize("token", ["cls_id", "pad_id", "mask_id", "unk_id"])
def test_no_special_token_is_ever_written(token: str) -> None:
    (source,) = texts([6])
    plain = translate(translator(WaitK(2)), [source]).progress[0]
    with raised_bias(1e4, token):
        assert translate(translator(WaitK(2)), [source]).progress[0] == plain


@pytest.mark.parametrize("kind", ["causal", "prefixes"])
@pytest.mark.parametrize("policy", POLICIES[:4], ids=str)
def test_unread_source_tokens_change_no_bit_in_training(policy: WaitK, kind: str) -> None:
    written = Layout.of_lengths([7])
    ids = np.arange(5, 12)
    (source,) = texts([9])
    reads = policy.reads(written.positions, np.full(7, 10))
    first = training_vectors(kind, [source], ids, written, reads)
    for step in range(7):
        other = source.copy()
        other[reads[step] :] = texts([9], seed=1)[0][reads[step] :]
        changed = training_vectors(kind, [other], ids, written, reads)
        assert (changed[: step + 1] == first[: step + 1]).all()


def training_vectors(
    kind: str, sources: list[np.ndarray], ids: np.ndarray, written: Layout, reads: np.ndarray
) -> np.ndarray:
    ernie, head = model()
    batch = sources_of([np.array([ernie.tokenizer.cls_id, *one, ernie.tokenizer.sep_id]) for one in sources])
    with evaluating(ernie), evaluating(head):
        reading = getattr(SourceView, kind)(batch, written, reads)
        hidden = ernie.encode_packed(reading.sources, mask=reading.mask)
        return head(ids, written, reading.source(head.decoder, hidden)).numpy()


@pytest.mark.parametrize("kind", ["causal", "prefixes"])
def test_training_and_decoding_compute_the_same(kind: str) -> None:
    """The most probable token after each prefix, computed as in training, is the one that was decoded."""
    policy, sources = WaitK(2, 0.2), texts([5, 8, 3])
    decoder = translator(policy, kind == "causal")
    done = translate(decoder, sources).progress
    ernie, head = model()
    ids = np.concatenate([[ernie.tokenizer.cls_id, *one.written[:-1]] for one in done])
    written = Layout.of_lengths([len(one.written) for one in done])
    lengths = np.repeat([len(source) + 1 for source in sources], written.lengths)
    vectors = training_vectors(kind, sources, ids, written, policy.reads(written.positions, lengths))
    scores = head.scores(paddle.to_tensor(vectors))
    tokenizer = ernie.tokenizer
    scores[:, [tokenizer.cls_id, tokenizer.pad_id, tokenizer.mask_id, tokenizer.unk_id]] = -np.inf
    unread = np.concatenate([one.delays for one in done]) < lengths
    scores[unread, tokenizer.sep_id] = -np.inf
    assert scores.argmax(-1).tolist() == [token for one in done for token in one.written]


def total_score(source: np.ndarray, written: tuple[int, ...]) -> float:
    """The log-probability of a translation and its end, given the whole source."""
    ernie, head = model()
    ids = np.array([ernie.tokenizer.cls_id, *written])
    layout = Layout.of_lengths([len(ids)])
    reads = np.full(len(ids), len(source) + 1)
    scores = head.scores(paddle.to_tensor(training_vectors("causal", [source], ids, layout, reads)))
    return float(sum(row[token] for row, token in zip(scores, [*written, ernie.tokenizer.sep_id], strict=True)))


def test_beam_search_finds_translations_that_are_at_least_as_probable() -> None:
    better = 0
    for seed in range(6):
        (source,) = texts([3], seed)
        greedy, wide = (translate(translator(WaitK(None), beam=beam), [source]).progress[0] for beam in (1, 8))
        if len(greedy.written) == len(wide.written) and greedy.written != wide.written:
            assert total_score(source, wide.written) >= total_score(source, greedy.written)
        better += total_score(source, wide.written) > total_score(source, greedy.written)
    assert better >= 1


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("agreement", [0, 1])
def test_a_search_goes_on_with_the_whole_source_where_the_distance_is_changed(causal: bool, agreement: int) -> None:
    policy = WaitK(5, agreement=agreement, most=9)
    decoder, (source,) = translator(policy, causal, beam=3), texts([8])
    (expected,) = translate(decoder, [source]).progress
    state, _ = decoder.push(decoder.begin(), [source])
    state = decoder.end(state)
    while state.searches[0] is None:
        state, _ = decoder.step(state)
    state = decoder.change(state, [{"wait_k": 1}])
    while any(decoder.pending(state)):
        state, _ = decoder.step(state)
    assert state.progress[0].written == expected.written


def hypotheses(*ends: float) -> Search:
    """A search over the end and one other token, after steps in which the end has these probabilities."""
    search = Search(((0.0, Progress(read=(7,), ended=True)),))
    for share in ends:
        if search.alive:
            search, _ = search.step(np.log([[share, 1 - share]]), 4, append)
    return search


def append(hypothesis: Progress, token: int, read: int) -> Progress:
    return replace(hypothesis, done=True) if token == 0 else replace(hypothesis, written=(*hypothesis.written, token))


def test_scores_are_normalized_by_length() -> None:
    """Wu et al., 2016, section 7: a sum of logarithms is divided by ((5 + length) / 6)^0.6."""
    beam = hypotheses(0.5, 0.1, 0.8)
    found = {len(one.written): score for score, one in beam.done}
    assert [found[0], found[2]] == pytest.approx([np.log(0.5), np.log(0.5 * 0.9 * 0.8) / (8 / 6) ** 0.6])
    assert beam.best().written == ()
    assert np.log(0.55 * 0.8) < np.log(0.45)  # the longer one is less probable
    assert hypotheses(0.45, 1e-9, 1e-9, 0.8).best().written == (1, 1, 1)


def test_the_length_of_a_target_is_limited() -> None:
    with raised_bias(-1e4):
        found = translate(translator(WaitK(2)), texts([4, 30])).progress
    assert [len(one.written) for one in found] == [2 * (4 + 1) + 10, 47]  # there are 48 positions
    assert all(one.done for one in found)


def test_the_limit_grows_with_the_ratio_that_catch_up_stands_for() -> None:
    with raised_bias(-1e4):
        (found,) = translate(translator(WaitK(2, 0.5)), texts([5])).progress  # targets twice as long
    assert len(found.written) == 2 * 2 * (5 + 1) + 10


def test_the_end_of_a_source_is_not_counted_as_a_source_token() -> None:
    progress = Progress(read=(7, 8, 9, 3), written=(5, 5, 5), delays=(2, 3, 4), ended=True)
    assert (progress.source, progress.source_delays) == (3, (2, 3, 3))
    assert replace(progress, ended=False).source == 4


def test_beam_search_is_greedy_while_the_source_is_read() -> None:
    (source,) = texts([8])
    decoders = [translator(WaitK(2), beam=beam) for beam in (1, 4)]
    written = [decoder.push(decoder.begin(), [source])[1] for decoder in decoders]
    assert written[0] == written[1] != [[]]
    for decoder in decoders:
        assert translate(decoder, [source]).progress[0].written[: len(written[0][0])] == tuple(written[0][0])


def test_a_source_that_is_too_long_or_ended_raises_a_user_error() -> None:
    decoder = translator(WaitK(1))
    state, _ = decoder.push(decoder.begin(), texts([46]))
    with pytest.raises(UserError, match="more than 46 tokens"):
        decoder.push(state, texts([1]))
    state, _ = decoder.finish(state)
    with pytest.raises(UserError, match="is over"):
        decoder.push(state, texts([1]))


def test_an_ended_source_of_the_maximum_length_does_not_stop_the_streams_beside_it() -> None:
    decoder, nothing = translator(WaitK(1)), np.array([], np.int64)
    ended, _ = decoder.finish(decoder.push(decoder.begin(), texts([46]))[0])
    assert decoder.push(ended, [nothing])[1] == [[]]
    assert decoder.finish(ended)[1] == [[]]
    both = ended.concat([decoder.begin()])
    state, _ = decoder.push(both, [nothing, *texts([3])])
    assert state.progress[1].source == 3


@pytest.mark.parametrize(
    ("given", "found"), [([[1, 2]], "found 1"), ([[1], [2], [3]], "found 3"), ("ein", "found the text 'ein'")]
)
def test_push_requires_one_piece_for_each_stream(given: Any, found: str) -> None:
    decoder = translator(WaitK(1))
    with pytest.raises(UserError, match=f"expected a list of 2 pieces, one for each stream, {found}"):
        decoder.push(decoder.begin(2), given)


def test_source_lengths_do_not_count_the_first_token() -> None:
    assert source_lengths(Layout.of_lengths([4, 2])).tolist() == [3, 1]


def test_catch_up_does_not_end_a_target_before_its_source() -> None:
    decoder, (source,) = translator(WaitK(1, 0.7)), texts([9], seed=3)
    whole = translate(decoder, [source])
    state = decoder.begin()
    for token in source:
        state, _ = decoder.push(state, [np.array([token])])
    state, _ = decoder.finish(state)
    assert state.progress[0].written == whole.progress[0].written


def test_a_beam_can_be_wider_than_the_vocabulary() -> None:
    (source,) = texts([5])
    found = translate(translator(WaitK(None), beam=500), [source]).progress[0]
    assert found.done


@pytest.mark.skipif(library() is None, reason="only the kernels in C++ promise the same last bits")
@pytest.mark.parametrize("name", ["fp32", "bf16", "int8"])
@pytest.mark.parametrize(("causal", "beam"), [(True, 1), (True, 3), (False, 1)])
def test_a_stream_has_the_same_bits_alone_and_among_others(name: Any, causal: bool, beam: int) -> None:
    if name == "bf16" and resolve("auto") != "bf16":
        pytest.skip("this processor has no instructions for bf16")
    decoder, sources, found = translator(WaitK(2), causal, beam), texts([9, 5, 7, 3, 8, 6, 4] * 7), []
    with precision(name), warnings.catch_warnings():
        warnings.simplefilter("ignore", Remark)  # that int8 is for whole texts
        for own in (sources, sources[:1]):
            state = decoder.end(decoder.accept(decoder.begin(len(own)), own)[0])
            for _ in range(5):
                state, _ = decoder.step(state)
            found.append(state.select([0]).arrays())
    among, alone = found
    assert [key for key in alone if not np.array_equal(alone[key], among[key])] == []
