"""Text that arrives piece by piece gets the same tokens as the whole text."""

from __future__ import annotations

import io
from functools import cache
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.text.incoming import INITIAL_HELD, has_no_spaces, is_space, stable_tokens
from ernie.text.subword import SentencePiece
from ernie.text.tokenizer import Tokenizer
from ernie.text.train import train_sentencepiece, train_wordpiece

TEXT = [
    "我们今天去北京，你好世界。",
    "今天天气很好！我们去公园 Paddle上 学习。",
    "在Paddle 上训练模型，效果很好。",
    "The cat sat on the mat, for 3.5 dollars.",
    "\u4e8c\u3007\u3007\u516b\u5e74\u30c6\u30b9\u30c8\u3067\u3059\uff12\uff10\uff11\uff19\u5e74\u304b\u3099\u306f\u304c\u3002",
] * 30
PHRASES = [
    f"{a}{b}{c}" for a in ("我们", "你好", "今天") for b in ("去北京", "去公园", "北京") for c in ("天气", "世界", "")
]
SPACED = ["ab Paddle ab", "Paddle ab a b", "a b ab"] * 30
LATIN = ["a b ab, 9 a. b a", "b a 9, ba b a b."] * 30
KINDS = (
    "wordpiece",
    "sentencepiece",
    "latin",
    "without a mark",
    "runs joined",
    "bpe",
    "words",
    "spaces joined",
    "marks after",
    "marks between",
)


@cache
def tokenizer(kind: str) -> Tokenizer:
    if kind in ("wordpiece", "sentencepiece"):
        train = train_sentencepiece if kind == "sentencepiece" else train_wordpiece
        with TemporaryDirectory() as folder:
            return train(TEXT, vocab_size=68, lowercase=False, folder=Path(folder))  # type: ignore[operator]
    if kind == "latin":  # has no letters of scripts without spaces
        with TemporaryDirectory() as folder:
            return train_sentencepiece(LATIN, vocab_size=14, lowercase=False, folder=Path(folder))
    # Third-party models: no space mark before a text, or pieces that join letters and punctuation.
    options = {
        "without a mark": {"add_dummy_prefix": False},
        "runs joined": {"split_by_unicode_script": False},
        "bpe": {"model_type": "bpe", "vocab_size": 90},
        "spaces joined": {"model_type": "bpe", "vocab_size": 130, "split_by_whitespace": False},
        "marks after": {"treat_whitespace_as_suffix": True},
        "marks between": {"treat_whitespace_as_suffix": True, "add_dummy_prefix": False, "vocab_size": 80},
        "words": {"vocab_size": 200, "hard_vocab_limit": False, "self_test_sample_size": 0},
    }
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXT + PHRASES + SPACED),
        model_writer=model,
        minloglevel=2,
        **{"vocab_size": 66, **options[kind]},
    )
    return SentencePiece(model.getvalue())


def pieces(text: str) -> list[str]:
    """Split a text into the smallest pieces: each ends at the end of a word and keeps the space before it."""
    found, piece = [], ""
    for letter in text:
        if is_space(letter):
            found.append(piece)
            piece = " "
        else:
            piece += letter
            if has_no_spaces(letter):
                found.append(piece)
                piece = ""
    return [part for part in (*found, piece) if not all(map(is_space, part))]


def read(kind: str, parts: list[str]) -> list[int]:
    held, ids = INITIAL_HELD, []
    for part in parts:
        new, held = stable_tokens(tokenizer(kind), held, part)
        ids += new
    return ids + stable_tokens(tokenizer(kind), held, "", ended=True).ids


ACCENTED = "\u304b\u3099\u304c 天"  # letters and an accent that may merge, written in one character or two
LETTERS = "我们今天去北京，。！你好\u3000 ab Paddle.,3\u3007\uff11\uff12\uff21\u30c6\u30b9\u304b\u3099\u304c"
INVISIBLE = "\u200b\ufeff a9b\u30c6,。"  # zero-width characters, which SentencePiece reads as spaces
CONTROL = "\xad\x00\x85\x1f a今天北ab。"  # others that it reads as unknown characters, or drops
alphabets = (LETTERS, ACCENTED, INVISIBLE, CONTROL)
WORDS = (
    "我们",
    "今天",
    "去",
    "北京",
    "公园",
    "世界",
    "天气",
    "你好",
    "很",
    "好",
    "，",
    " ",
    "。",
    " ab",
    " Paddle",
    " a b ",
)
running = st.lists(st.sampled_from(WORDS), max_size=10).map("".join)  # which vocabularies have long pieces of
mixed = st.one_of(running, *(st.text(st.sampled_from(alphabet), max_size=25) for alphabet in alphabets))


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(KINDS), mixed, st.data())
def test_the_tokens_do_not_depend_on_how_the_text_is_cut(kind: str, text: str, data: st.DataObject) -> None:
    smallest = pieces(text)
    cuts = sorted(data.draw(st.sets(st.integers(0, len(smallest)))) | {0, len(smallest)})
    parts = ["".join(smallest[a:b]) for a, b in pairwise(cuts)]
    assert read(kind, parts) == tokenizer(kind).encode(text).ids.tolist()


def test_a_zero_width_character_that_the_vocabulary_reads_as_a_space_begins_a_word() -> None:
    text = ",\ufeffb\u30c6"
    assert read("latin", [text]) == tokenizer("latin").encode(text).ids.tolist()


def test_words_between_spaces_are_tokenized_at_once() -> None:
    for kind in KINDS:
        if kind in (
            "spaces joined",
            "marks after",
            "marks between",
        ):  # whose pieces may reach into the next word, or mark the end
            continue
        assert stable_tokens(tokenizer(kind), INITIAL_HELD, "cat").ids == tokenizer(kind).encode("cat").ids.tolist()


@pytest.mark.parametrize(("kind", "at_once"), [("bpe", False), ("wordpiece", True)])
def test_letters_that_may_join_the_next_one_are_held_until_it_arrives(kind: str, at_once: bool) -> None:
    new, held = stable_tokens(tokenizer(kind), INITIAL_HELD, "今")
    assert bool(tokenizer(kind).decode(new)) == at_once  # before it a vocabulary may write a mark for a space
    new, held = stable_tokens(tokenizer(kind), held, "天")
    new, held = stable_tokens(tokenizer(kind), held, "，")
    assert new


@pytest.mark.parametrize("kind", ["sentencepiece", "bpe", "runs joined", "without a mark"])
def test_a_run_without_spaces_is_read_while_it_grows(kind: str) -> None:
    """A stream of Chinese without a mark between its characters is not held back to its end."""
    text = "我们今天去北京你好世界今天天气很好我们去公园上学习今天去北京"
    longest, held, ids = 8, INITIAL_HELD, []
    for count, letter in enumerate(text, 1):
        new, held = stable_tokens(tokenizer(kind), held, letter)
        ids += new
        read = len(tokenizer(kind).decode(ids).replace(" ", ""))
        assert count - read <= longest, f"after {text[:count]} only {read} characters had been read"
    assert ids + stable_tokens(tokenizer(kind), held, "", ended=True).ids == tokenizer(kind).encode(text).ids.tolist()


@pytest.mark.parametrize("kind", ["marks after", "marks between"])
def test_a_vocabulary_that_marks_the_ends_of_words_is_read_word_by_word(kind: str) -> None:
    held, counts = INITIAL_HELD, []
    for word in "ab Paddle ab a ab".split():
        new, held = stable_tokens(tokenizer(kind), held, word)
        counts.append(len(tokenizer(kind).decode(new).split()))
    assert counts == [0, 1, 1, 1, 1]


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_that_arrives_alone_parts_what_is_around_it(kind: str) -> None:
    for parts in (["今", " ", "天"], ["今天", " ", "北京", " ", "ab"]):
        assert read(kind, parts) == tokenizer(kind).encode("".join(parts)).ids.tolist(), parts


@pytest.mark.parametrize("kind", KINDS)
def test_a_space_at_the_end_of_a_piece_counts(kind: str) -> None:
    for parts in (["他 ", ", ", "她"], ["今天 ", "天气"], ["a ", "b"], ["ab, ", "，", " b"]):
        assert read(kind, parts) == tokenizer(kind).encode("".join(parts)).ids.tolist(), parts
