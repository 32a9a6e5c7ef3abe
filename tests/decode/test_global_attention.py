"""Global attention with CTC: prefixes have the probability of all alignments, and a wide beam finds the best text."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.toys import TOKENIZER, tiny_encoder

from ernie.data.batch import Layout
from ernie.decode.ctc import log_probabilities
from ernie.decode.ctc_prefix import PrefixScorer
from ernie.decode.global_attention import UtteranceDecoder
from ernie.errors import UserError
from ernie.model.cache import KeyValueCache
from ernie.model.decoder import Source
from ernie.model.translation import TranslationHead
from tasks.downstream.transcribe import Transcribe

BLANK, BEGIN, END = 0, TOKENIZER.cls_id, TOKENIZER.sep_id


def emitted(alignment: tuple[int, ...], blank: int) -> tuple[int, ...]:
    """The tokens of an alignment: without repeats and blanks."""
    return tuple(b for a, b in zip((blank, *alignment), alignment, strict=False) if b not in (a, blank))


def transcripts(log_TV: np.ndarray, blank: int) -> dict[tuple[int, ...], float]:
    """The probability of each transcript, by all alignments one after another."""
    found: dict[tuple[int, ...], float] = {}
    for alignment in product(range(log_TV.shape[1]), repeat=len(log_TV)):
        own = emitted(alignment, blank)
        found[own] = found.get(own, 0.0) + float(np.exp(sum(log_TV[t, token] for t, token in enumerate(alignment))))
    return found


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 5), st.integers(2, 4), st.integers(0, 10**6), st.data())
def test_the_probability_of_a_prefix_is_that_of_all_transcripts_that_begin_so(
    vectors: int, tokens: int, seed: int, data: Any
) -> None:
    log_TV = log_probabilities(np.random.default_rng(seed).normal(0, 2, (vectors, tokens)))
    blank = data.draw(st.integers(0, tokens - 1))
    exact = transcripts(log_TV, blank)
    scorer = PrefixScorer(log_TV, blank)
    others = [token for token in range(tokens) if token != blank]
    prefixes, names = scorer.empty(), [()]
    for _ in range(vectors):
        whole = np.exp(prefixes.whole)
        np.testing.assert_allclose(whole, [exact.get(name, 0.0) for name in names], atol=1e-12)
        scores_HC, prefixes = scorer.extended(prefixes, np.array([others] * len(names)))
        names = [(*name, token) for name in names for token in others]
        expected = [sum(p for text, p in exact.items() if text[: len(name)] == name) for name in names]
        np.testing.assert_allclose(np.exp(scores_HC).ravel(), expected, atol=1e-12)
        kept = np.arange(len(names))[::2][:9]  # as a beam does
        prefixes, names = prefixes.select(kept), [names[n] for n in kept]


@pytest.fixture(scope="module")
def head() -> TranslationHead:
    model = tiny_encoder()
    paddle.seed(3)
    found = TranslationHead(model, 1)
    found.eval()
    return found


def attention_scores(head: TranslationHead, hidden_TD: paddle.Tensor, texts: list[tuple[int, ...]]) -> np.ndarray:
    """The log-probability by the decoder of each text of the same length with its end, computed side by side."""
    count, length = len(texts), len(texts[0]) + 1
    layout = Layout.of_lengths([length] * count)
    one = KeyValueCache(Layout.of_lengths([len(hidden_TD)]), head.decoder.read(hidden_TD))
    ids = np.array([[BEGIN, *text] for text in texts]).ravel()
    with paddle.no_grad():
        x_UD = head(ids, layout, Source(one.select([0] * count), layout))
        log_UV = head.scores(x_UD)
    labels = np.array([[*text, END] for text in texts]).ravel()
    return log_UV[np.arange(len(labels)), labels].reshape(count, length).sum(1)


@pytest.mark.parametrize("weight", [0.0, 0.3, 0.9])
@pytest.mark.parametrize("seed", range(3))
def test_a_beam_that_keeps_all_finds_the_best_texts_of_all(head: TranslationHead, weight: float, seed: int) -> None:
    rng, size = np.random.default_rng(seed), TOKENIZER.vocab_size
    scores_TV = rng.normal(0, 3, (2, size)).astype(np.float32)
    hidden_TD = paddle.to_tensor(rng.normal(0, 1, (2, 32)).astype(np.float32))
    never = (TOKENIZER.pad_id, TOKENIZER.mask_id, TOKENIZER.unk_id)
    usable = [token for token in range(size) if token not in {BLANK, BEGIN, END, *never}]
    exact = {text: p for text, p in transcripts(log_probabilities(scores_TV), BLANK).items() if {*text} <= {*usable}}
    joint: dict[tuple[int, ...], float] = {}
    for length in range(3):
        texts = [text for text in exact if len(text) == length]
        attention = attention_scores(head, hidden_TD, texts)
        each = (1 - weight) * attention + weight * np.log([exact[text] for text in texts])
        joint |= dict(zip(texts, each.tolist(), strict=True))
    best = sorted(joint, key=lambda text: -joint[text])[:5]
    for n_best in (1, 5):
        decoder = UtteranceDecoder(head, BLANK, BEGIN, END, never, 2 * size**2, weight, n_best)
        with paddle.no_grad():
            found, ranked = decoder.decode(scores_TV, hidden_TD)
        assert tuple(spike.token for spike in found) == best[0]
        assert [text for text, _ in ranked] == best[:n_best]
        np.testing.assert_allclose([score for _, score in ranked], [joint[text] for text in best[:n_best]], rtol=1e-4)


def test_a_beam_writes_no_more_tokens_than_can_be_aligned(head: TranslationHead) -> None:
    rng = np.random.default_rng(0)
    hidden_TD = paddle.to_tensor(rng.normal(0, 1, (4, 32)).astype(np.float32))
    scores_TV = rng.normal(0, 1, (4, TOKENIZER.vocab_size)).astype(np.float32)
    for beam, weight in ((1, 0.0), (4, 0.0), (4, 0.5)):
        decoder = UtteranceDecoder(head, BLANK, BEGIN, END, (TOKENIZER.pad_id,), beam=beam, ctc_weight=weight)
        with paddle.no_grad():
            found, _ = decoder.decode(scores_TV, hidden_TD)
            assert decoder.decode(scores_TV[:0], hidden_TD[:0]) == ([], [])
        assert len(found) <= 4
        assert [spike.vector for spike in found] == sorted(spike.vector for spike in found)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"beam_ctc_weight": 1.0}, "beam_ctc_weight: expected at least 0 and less than 1, found 1"),
        ({"beam": 4, "language_model": "a.arpa"}, "language_model: decoder: global ranks hypotheses without it"),
        ({"beam": 4, "hot_words": "a.txt"}, "hot_words: decoder: global ranks hypotheses without it"),
    ],
)
def test_what_a_global_decoder_cannot_rank_by_raises_a_user_error(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(UserError, match=message):
        Transcribe(decoder="global", **changes)
