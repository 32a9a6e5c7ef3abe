"""Hot words and language models of words: against scores computed from whole texts."""

from __future__ import annotations

import json
import math
import sys
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.decode.ctc import Beam, Hypothesis
from ernie.decode.fusion import HotWords, WordFusion
from ernie.decode.kenlm import KenlmModel, is_kenlm_binary
from ernie.decode.ngram import BEGIN, END, NgramModel
from ernie.errors import UserError

NAMES = ["", "art", "##ist", "new", "york", "city", "no"]
BLANK, ART, IST, NEW, YORK, CITY, NO = range(7)


def decode(tokens: Sequence[int]) -> str:
    return " ".join(NAMES[token] for token in tokens).replace(" ##", "").replace("##", "")


def total(scorer: HotWords | WordFusion, tokens: Sequence[int]) -> float:
    """What the tokens of a whole text, and its end, add to a score."""
    state, score = scorer.begin, 0.0
    for token in tokens:
        more, state = scorer.extend(state, token)
        score += more
    return score + scorer.end(state)


@pytest.mark.parametrize(
    ("tokens", "preferred"),
    [
        ([NEW, YORK], 2),
        ([NEW, YORK, CITY], 3),
        ([NEW, NO], 0),
        ([NEW], 0),
        ([NEW, YORK, NEW, YORK], 4),
        ([NEW, NEW, YORK], 2),
        ([NO, ART, NO], 1),
        ([ART], 1),
        ([ART, IST], 0),
        ([NEW, YORK, CITY, NEW], 3),
        ([], 0),
    ],
)
def test_only_whole_phrases_keep_what_their_tokens_gain(tokens: list[int], preferred: int) -> None:
    hot = HotWords([[NEW, YORK], [NEW, YORK, CITY], [ART]], 1.5, decode)
    assert total(hot, tokens) == pytest.approx(1.5 * preferred)


def test_a_hot_word_wins_where_the_sound_is_unclear_and_no_other_does() -> None:
    scores_TV = np.log(np.full((3, 7), 0.02))
    scores_TV[0, [NEW, NO]] = np.log([0.4, 0.5])
    scores_TV[1, BLANK] = 0
    scores_TV[2, [YORK, CITY]] = np.log([0.4, 0.5])
    plain, hot = (Beam(BLANK, 8, scorers=scorers) for scorers in ((), (HotWords([[NEW, YORK]], 1.0, decode),)))
    assert plain.recognize(scores_TV)[0][0].token == NO
    spikes, ranked = hot.recognize(scores_TV)
    assert [spike.token for spike in spikes] == [NEW, YORK]
    assert ranked[0][0] == (NEW, YORK)
    assert [score for _, score in ranked] == sorted((score for _, score in ranked), reverse=True)
    assert len({tokens for tokens, _ in ranked}) == len(ranked) == 8


MODEL = NgramModel.learn([["new", "york"], ["new", "art"], ["no", "artist"], ["no", "new", "york"]], order=2)


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(1, 6), max_size=7))
def test_words_are_scored_as_in_the_whole_text(tokens: list[int]) -> None:
    if tokens[:1] == [IST]:
        tokens = [ART, *tokens]
    alpha, beta, unknown = 0.7, 0.3, -5.0
    words = decode(tokens).split()
    framed = [BEGIN, *words, END]
    expected = sum(alpha * MODEL.score(framed[max(0, n - 1) : n], framed[n]) for n in range(1, len(framed)))
    expected += sum(beta + (0 if MODEL.knows(word) else alpha * unknown) for word in words)
    assert total(WordFusion(MODEL, decode, alpha, beta, unknown), tokens) == pytest.approx(expected)


def test_a_word_that_no_known_word_begins_with_is_unlikely_at_once() -> None:
    fusion = WordFusion(MODEL, decode, 1.0, 0.0, -5.0)
    assert fusion.extend(fusion.begin, ART)[0] == 0
    assert fusion.extend(fusion.begin, CITY)[0] == -5
    _, state = fusion.extend(fusion.begin, ART)
    assert fusion.extend(state, IST)[0] == 0


@pytest.mark.parametrize("names", [["你", "好", "吗"], ["你好", "吗"], ["你", "好吗"], ["你好吗"]])
def test_characters_of_chinese_are_words_however_many_a_token_has(names: list[str]) -> None:
    model = NgramModel.learn([["你", "好"], ["你", "好", "吗"]], order=3)
    fusion = WordFusion(model, lambda tokens: "".join(names[token] for token in tokens), 1.0, 0.0, -5.0)
    assert total(fusion, range(len(names))) == pytest.approx(model.total(["你", "好", "吗"]))


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 11))
def test_hypotheses_with_scorers_can_be_kept_as_json_between_vectors(seed: int, cut: int) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 2, (12, 7))
    scorers = (HotWords([[NEW, YORK], [ART]], 1.5, decode), WordFusion(MODEL, decode, 0.5, 0.5, -5.0))
    beam = Beam(BLANK, 6, scorers=scorers)
    whole = beam.extend([Hypothesis()], scores_TV)
    early = json.loads(json.dumps(beam.extend([Hypothesis()], scores_TV[:cut])))
    assert beam.extend([Hypothesis.of_json(each) for each in early], scores_TV[cut:], first=cut) == whole


def test_the_entropy_of_a_model_is_that_of_its_texts() -> None:
    digits = [str(n) for n in range(8)]
    uniform = NgramModel.learn([[digit] for digit in digits] * 50, order=1)
    assert uniform.entropy() == pytest.approx(math.log(8), rel=0.6)
    rng = np.random.default_rng(0)
    likely = NgramModel.learn([rng.choice(["a", "b"], 20, p=[0.95, 0.05]).tolist() for _ in range(50)], order=2)
    assert likely.entropy() < 0.4 < NgramModel.learn([rng.choice(digits, 20).tolist() for _ in range(50)], 2).entropy()
    assert likely.entropy() == likely.entropy()


def test_the_default_length_bonus_keeps_a_model_from_deleting_words() -> None:
    """Each of ten equally likely words costs 2.3 nats; without a bonus unclear ones are left out."""
    words = [f"w{n}" for n in range(10)]
    rng = np.random.default_rng(1)
    model = NgramModel.learn([rng.choice(words, 6).tolist() for _ in range(300)], order=3)
    scores_TV = np.full((12, 11), -6.0)
    for t in range(0, 12, 2):
        scores_TV[t, [0, 1 + t // 2]] = np.log([0.3, 0.7])  # a word, or none
        scores_TV[t + 1, 0] = 0.0

    def score(before: tuple[int, ...], token: int) -> float:
        return model.score([words[each - 1] for each in before[-2:]], words[token - 1])

    found = {
        beta: Beam(0, 16, score, alpha=0.5, beta=beta, history=3).best(
            Beam(0, 16, score, alpha=0.5, beta=beta, history=3).extend([Hypothesis()], scores_TV)
        )
        for beta in (0.0, 0.5 * model.entropy())
    }
    bare, helped = (each.tokens for each in found.values())
    assert len(bare) < 6
    assert helped == tuple(range(1, 7))


def test_a_binary_file_of_kenlm_needs_its_package_and_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "model.bin").write_bytes(b"mmap lm http://kheafield.com/code format version 5\n\0" + bytes(99))
    assert is_kenlm_binary(tmp_path / "model.bin")
    monkeypatch.setitem(sys.modules, "kenlm", None)
    with pytest.raises(UserError, match=r"need the package kenlm: pip install 'ernie-continual\[kenlm\]'"):
        KenlmModel(tmp_path / "model.bin")


def test_kenlm_and_our_reader_give_the_same_scores(tmp_path: Path) -> None:
    pytest.importorskip("kenlm")
    MODEL.save(tmp_path / "model.arpa")
    ours, theirs = NgramModel.load(tmp_path / "model.arpa"), KenlmModel(tmp_path / "model.arpa")
    assert theirs.order == ours.order
    for history in ([BEGIN], ["new"], ["no", "new"], ["art"]):
        for word in ("new", "york", "artist", END):
            assert theirs.score(tuple(history), word) == pytest.approx(ours.score(history, word), abs=1e-4)
    assert theirs.knows("york")
    assert not theirs.knows("paris")
    tokens = [NEW, YORK, NO]
    assert total(WordFusion(theirs, decode, 0.7, 0.3, -5.0), tokens) == pytest.approx(
        total(WordFusion(ours, decode, 0.7, 0.3, -5.0), tokens), abs=1e-3
    )
