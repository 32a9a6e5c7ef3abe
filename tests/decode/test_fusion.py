"""Hot words and language models of words: against scores computed from whole texts."""

from __future__ import annotations

import io
import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st
from support.kenlm_files import LEARNED, write_kenlm

from ernie.decode.ctc import Beam, Hypothesis
from ernie.decode.fusion import HotWords, WordFusion
from ernie.decode.kenlm import KenlmModel, is_kenlm_binary
from ernie.decode.ngram import BEGIN, END, NgramModel
from ernie.decode.states import arrays_of, restore
from ernie.errors import UserError
from ernie.text.subword import SentencePiece

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


@pytest.mark.parametrize("model_type", ["char", "unigram"])
def test_a_hot_word_is_kept_before_a_space_that_is_a_token_of_its_own(model_type: str) -> None:
    texts, model = ["smart artists go to new york city now", "the art of tea"] * 50, io.BytesIO()
    options = {"model_type": model_type, "vocab_size": 40, "hard_vocab_limit": False, "minloglevel": 2}
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(texts), model_writer=model, **options)
    tokenizer = SentencePiece(model.getvalue())

    def tokens(text: str) -> list[int]:
        return tokenizer.encode(text).ids.tolist()

    hot = HotWords([tokens("art")], 1.0, tokenizer.decode)
    whole = len(tokens("art"))
    assert total(hot, tokens("the art of art")) == 2 * whole
    assert total(hot, tokens("artists go")) == total(hot, tokens("the artists")) == 0


MODEL = NgramModel.learn(LEARNED, order=2)


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


@dataclass(frozen=True)
class Kept:
    """A state of hypotheses."""

    hypotheses: tuple[Hypothesis, ...]


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**6), st.integers(1, 11))
def test_hypotheses_with_scorers_can_be_saved_between_vectors(seed: int, cut: int) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 2, (12, 7))
    scorers = (HotWords([[NEW, YORK], [ART]], 1.5, decode), WordFusion(MODEL, decode, 0.5, 0.5, -5.0))
    beam = Beam(BLANK, 6, scorers=scorers)
    whole = beam.extend([Hypothesis()], scores_TV)
    early = restore(Kept, arrays_of(Kept(tuple(beam.extend([Hypothesis()], scores_TV[:cut])))))
    assert beam.extend(early.hypotheses, scores_TV[cut:], first=cut) == whole


class Anything:
    """A scorer that changes no score, and promises to add no less than infinity, so that every hypothesis is made."""

    begin = ()

    def extend(self, state: tuple[int, ...], token: int) -> tuple[float, tuple[int, ...]]:
        return 0.0, state

    def end(self, state: tuple[int, ...]) -> float:
        return 0.0

    def most(self, state: tuple[int, ...]) -> Callable[[int], float]:
        return lambda token: math.inf


@settings(max_examples=60, deadline=None)
@given(
    st.integers(0, 10**6),
    st.sampled_from([1, 2, 6, 20]),
    st.sampled_from([0.0, 0.5, 2.0]),
    st.sampled_from([-2.0, 0.0, 1.5]),
    st.sampled_from([-0.5, 0.5]),
    st.booleans(),
)
def test_hypotheses_that_are_not_made_had_no_chance(
    seed: int, width: int, beta: float, hot: float, alpha: float, with_words: bool
) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 2, (14, 7))
    words = (WordFusion(MODEL, decode, alpha, beta, -5.0),) if with_words else ()
    scorers = (HotWords([[NEW, YORK], [YORK, CITY, NO], [ART]], hot, decode), *words)
    language_model = None if with_words else lambda before, token: -0.3 * token - (0.5 if before[-1:] == (NEW,) else 0)
    beams = [Beam(BLANK, width, language_model, alpha, beta, scorers=(*scorers, *own)) for own in ((), (Anything(),))]
    found, expected = (beam.extend([Hypothesis()], scores_TV) for beam in beams)
    assert [each._replace(states=()) for each in found] == [each._replace(states=()) for each in expected]


PIECES = [
    "\u4f60",
    "\u4f60\u597d",
    "##\u597d",
    "'",
    "##'",
    "-",
    "##-",
    "don",
    "##t",
    "a",
    ".",
    "2",
    "##1\u5e74",
    "##1.",
]
SCRIPTS = ["", *PIECES, "##\xc3", "##\xa9"]  # the last two are bytes of a character


OF_SCRIPTS = NgramModel.learn([["\u4f60", "\u597d", "don't", "a", "21"], ["don't", "don", "\u597d", "\u00e9"]], 2)


def in_scripts(tokens: Sequence[int]) -> str:
    text = " ".join(SCRIPTS[token] for token in tokens).replace(" ##", "").replace("##", "")
    return text.replace("\xc3\xa9", "\u00e9").translate(dict.fromkeys(b"\xc3\xa9", "\N{REPLACEMENT CHARACTER}"))


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.integers(1, len(SCRIPTS) - 1), max_size=8),
    st.sampled_from([-1.0, 0.0, 2.0]),
    st.sampled_from([-3.0, 1.0]),
)
def test_no_token_adds_more_than_a_scorer_says(tokens: list[int], gain: float, unknown: float) -> None:
    words = WordFusion(OF_SCRIPTS, in_scripts, 0.5, gain, unknown)
    for scorer in (HotWords([[1, 2], [2, 3, 4], [8, 5, 9], [1, 1]], gain, in_scripts), words):
        state = scorer.begin
        for token in tokens:
            most = scorer.most(state)(token)
            added, state = scorer.extend(state, token)
            assert added <= most


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10**6), st.sampled_from([2, 4, 16]), st.sampled_from([0.0, 1.0]))
def test_hypotheses_in_any_script_that_are_not_made_had_no_chance(seed: int, width: int, beta: float) -> None:
    scores_TV = np.random.default_rng(seed).normal(0, 2, (10, len(SCRIPTS)))
    words = WordFusion(OF_SCRIPTS, in_scripts, 0.5, beta, -10.0)
    beams = [Beam(BLANK, width, scorers=(words, *own)) for own in ((), (Anything(),))]
    found, expected = (beam.extend([Hypothesis()], scores_TV) for beam in beams)
    assert [each._replace(states=()) for each in found] == [each._replace(states=()) for each in expected]


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_ties_are_kept_as_if_every_hypothesis_were_made(seed: int) -> None:
    scores_TV = np.random.default_rng(seed).integers(-4, 5, (12, 8)) * 0.5
    beams = [Beam(BLANK, 4, beta=0.3, scorers=own) for own in ((), (Anything(),))]
    found, expected = (beam.extend([Hypothesis()], scores_TV) for beam in beams)
    assert [each._replace(states=()) for each in found] == [each._replace(states=()) for each in expected]


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


def entropy_of_bigrams(model: NgramModel) -> float:
    """The mean over the texts of a model, by the stationary distribution of its Markov chain."""
    before, after = [BEGIN, *model.words], [END, *model.words]
    scores = np.array([[model.score([first], second) for second in after] for first in before])
    chances = np.exp(scores)
    often = np.linalg.matrix_power(chances / chances.sum(1, keepdims=True), 1000)[0]  # after END a text begins
    return -float(often @ (chances * scores)[:, 1:].sum(1)) / float(often @ chances[:, 1:].sum(1))


class TestKenlm:
    @pytest.fixture(autouse=True)
    def _needs_kenlm(self) -> None:
        pytest.importorskip("kenlm")

    @pytest.mark.parametrize("name", ["probing", "trie", "unlisted"])
    def test_binary_and_arpa_files_of_a_model_give_the_same_scores(self, tmp_path: Path, name: str) -> None:
        assert MODEL.order == 2
        ours, theirs = MODEL, KenlmModel(write_kenlm(name, tmp_path / "model.bin"))
        assert theirs.order == ours.order
        for history in ([], [BEGIN], ["new"], [BEGIN, "no"], ["no", "new"], ["paris"]):
            for word in ("new", "york", "artist", "paris", END):
                expected = pytest.approx(ours.score(history, word), abs=1e-5)
                assert theirs.score(history, word) == theirs.score(tuple(history), word) == expected
        assert theirs.knows("york")
        assert not theirs.knows("paris")

    @settings(max_examples=50, deadline=None)
    @given(st.lists(st.integers(1, 6), max_size=7))
    def test_hypotheses_get_the_scores_that_an_arpa_file_gives(self, tokens: list[int]) -> None:
        with TemporaryDirectory() as folder:
            binary = KenlmModel(write_kenlm("trie", Path(folder) / "model.bin"))
        expected = total(WordFusion(MODEL, decode, 0.7, 0.3, -5.0), tokens)
        assert total(WordFusion(binary, decode, 0.7, 0.3, -5.0), tokens) == pytest.approx(expected, abs=1e-4)

    @pytest.mark.parametrize("name", ["probing", "trie"])
    def test_the_words_of_a_binary_file_are_listed_and_its_entropy_is_that_of_the_model(
        self, tmp_path: Path, name: str
    ) -> None:
        model = KenlmModel(write_kenlm(name, tmp_path / "model.bin"))
        assert model.words == MODEL.words == ["art", "artist", "new", "no", "york"]
        assert model.entropy() == pytest.approx(entropy_of_bigrams(MODEL), rel=0.05)

    def test_without_a_list_of_words_beta_must_be_given(self, tmp_path: Path) -> None:
        model = KenlmModel(write_kenlm("unlisted", tmp_path / "model.bin"))
        assert model.words == []
        with pytest.raises(
            UserError, match=r"model\.bin: has no list of its words \(build_binary -v\), .*; set beta, or"
        ):
            model.entropy()

    def test_a_file_that_is_cut_off_is_refused_in_a_sentence(self, tmp_path: Path) -> None:
        whole = write_kenlm("trie", tmp_path / "model.bin").read_bytes()
        for count in (60, 200, len(whole) - 45):
            (tmp_path / "model.bin").write_bytes(whole[:count])
            with pytest.raises(UserError, match=r"model\.bin: (cannot be read by kenlm|has no list of its words)"):
                KenlmModel(tmp_path / "model.bin").entropy()
