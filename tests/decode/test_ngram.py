"""N-gram language models: probabilities that sum to one, examples computed by hand, and ARPA files."""

from __future__ import annotations

import bz2
import gzip
import math
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.decode.ngram import BEGIN, END, UNKNOWN, NgramModel
from ernie.errors import UserError

texts = st.lists(st.lists(st.sampled_from("abcd"), min_size=1, max_size=6), min_size=1, max_size=8)


@settings(max_examples=60, deadline=None)
@given(texts, st.integers(1, 4), st.lists(st.sampled_from("abcdx"), max_size=4))
def test_after_any_history_the_probabilities_of_all_tokens_sum_to_one(sequences, order: int, history) -> None:
    model = NgramModel.learn(sequences, order)
    vocabulary = {token for sequence in sequences for token in sequence} | {END, UNKNOWN}
    for before in ([BEGIN, *history], history):
        total = sum(math.exp(model.score(before, token)) for token in vocabulary)
        assert total == pytest.approx(1, abs=1e-9)


def test_a_small_model_computed_by_hand() -> None:
    # Of "a b" twice and "a a" once: bigrams <s>a 3, ab 2, b</s> 2, aa 1, a</s> 1; two count once and two twice, so 1/3
    # is taken off each.  Tokens are seen after 2 (a: <s>, a), 1 (b: a) and 2 (</s>: a, b) others; one counts once and
    # two twice: 1/5 off, and 3 x 1/5 of 5 for the four tokens alike.
    model = NgramModel.learn(["ab", "ab", "aa"], 2)
    uniform = 0.2 * 3 / 5 / 4
    unigrams = {"a": (2 - 0.2) / 5 + uniform, "b": (1 - 0.2) / 5 + uniform, END: (2 - 0.2) / 5 + uniform}
    for token, probability in unigrams.items():
        assert math.exp(model.score([], token)) == pytest.approx(probability)
    discount = 2 / (2 + 2 * 2)
    after_a = {"b": (2 - discount) / 4, "a": (1 - discount) / 4, END: (1 - discount) / 4}
    for token, share in after_a.items():
        assert math.exp(model.score(["a"], token)) == pytest.approx(share + 3 * discount / 4 * unigrams[token])
    assert math.exp(model.score(["b"], "a")) == pytest.approx(discount / 2 * unigrams["a"])
    assert math.exp(model.score(["a"], "never")) == pytest.approx(3 * discount / 4 * uniform)


def test_the_discount_is_a_half_where_nothing_is_seen_twice() -> None:
    # a, b and </s> once each: half of each is spread over these and <unk>.
    model = NgramModel.learn(["ab"], 1)
    for token in ("a", "b", END):
        assert math.exp(model.score([], token)) == pytest.approx(0.5 / 3 + 0.5 / 4)
    assert math.exp(model.score([], UNKNOWN)) == pytest.approx(0.5 / 4)


def test_the_probability_of_a_sequence_includes_its_end() -> None:
    model = NgramModel.learn(["ab", "aab", "b"] * 2, 3)
    scores = [model.score(before, token) for before, token in (((BEGIN,), "a"), ((BEGIN, "a"), "b"), (("a", "b"), END))]
    assert model.total("ab") == pytest.approx(sum(scores))
    assert model.total("") == model.score([BEGIN], END)


def test_an_unseen_token_has_the_probability_of_the_unknown_token() -> None:
    model = NgramModel.learn(["ab", "ba"], 3)
    for history in ([], ["a"], ["never seen either"]):
        assert model.score(history, "never seen") == model.score(history, UNKNOWN) < model.score(history, "a")


def test_an_unseen_token_in_a_history_counts_as_the_unknown_token(tmp_path: Path) -> None:
    (tmp_path / "x.arpa").write_text(
        "\\data\\\nngram 1=3\nngram 2=1\n\n\\1-grams:\n-0.7 a\n-1.0 <unk> -0.1\n-inf <s>\n\n\\2-grams:\n-0.05 <unk> a\n"
        "\n\\end\\\n"
    )
    model = NgramModel.load(tmp_path / "x.arpa")
    assert model.score(["never seen"], "a") == model.score([UNKNOWN], "a") == pytest.approx(-0.05 * math.log(10))
    assert model.score([], BEGIN) == pytest.approx(-99 * math.log(10))


def test_training_text_is_more_probable_than_other_text() -> None:
    model = NgramModel.learn(["the cat sat".split(), "the dog sat".split()] * 3, 3)
    assert model.total("the cat sat".split()) > model.total("sat the cat".split())
    assert model.total("the dog sat".split()) > model.total("dog dog dog".split())


@settings(max_examples=20, deadline=None)
@given(texts, st.integers(1, 4))
def test_an_arpa_file_keeps_the_scores(tmp_path_factory, sequences, order: int) -> None:
    file = tmp_path_factory.mktemp("arpa") / "model.arpa"
    model = NgramModel.learn(sequences, order)
    model.save(file)
    loaded = NgramModel.load(file)
    assert loaded.order == order
    for sequence in sequences:
        assert loaded.total(sequence) == pytest.approx(model.total(sequence), rel=1e-5)


def test_an_arpa_file_of_another_tool_is_read(tmp_path: Path) -> None:
    file = tmp_path / "other.arpa"
    file.write_text(
        "\\data\\\nngram 1=4\nngram 2=1\n\n\\1-grams:\n-99 <s> -0.5\n-0.5 a -0.3\n-0.7 </s>\n-1.0 <unk>\n\n"
        "\\2-grams:\n-0.2 <s> a\n\n\\end\\\n"
    )
    model = NgramModel.load(file)
    assert model.score([BEGIN], "a") == pytest.approx(-0.2 * math.log(10))
    assert model.score(["a"], END) == pytest.approx((-0.3 - 0.7) * math.log(10))


def test_text_around_an_arpa_model_and_its_line_ends_are_ignored(tmp_path: Path) -> None:
    file = tmp_path / "other.arpa"
    plain = "\\data\\\nngram 1=3\n\n\\1-grams:\n-0.5\ta\n-0.7\t</s>\n-1.0\t<UNK>\n\n\\end\\\n"
    for text in (
        plain,
        "\ufeff" + plain,
        plain.replace("\n", "\r\n"),
        plain.replace(":\n", ": \n"),
        f"a model of\nngram statistics\n{plain}\nmade on a Monday\n",
    ):
        file.write_bytes(text.encode())
        model = NgramModel.load(file)
        assert model.score([], "a") == pytest.approx(-0.5 * math.log(10))
        assert model.score([], "b") == pytest.approx(-math.log(10))  # LibriSpeech's models also have <UNK>


@pytest.mark.parametrize("space", ["\u00a0", "\u2028", "\x85", "\u3000"])
def test_unicode_spaces_are_part_of_a_token(tmp_path: Path, space: str) -> None:
    model = NgramModel.learn([["a", f"b{space}c", space]] * 2, 2)
    model.save(tmp_path / "x.arpa")
    loaded = NgramModel.load(tmp_path / "x.arpa")
    assert loaded.score(["a"], f"b{space}c") == pytest.approx(model.score(["a"], f"b{space}c"), rel=1e-5)


@pytest.mark.parametrize("name", ["x.arpa.gz", "x.arpa", "x.bz2"])
def test_a_compressed_file_is_read_whatever_its_name(tmp_path: Path, name: str) -> None:
    model = NgramModel.learn(["ab"] * 2, 2)
    model.save(tmp_path / "plain")
    compress = bz2.compress if name == "x.bz2" else gzip.compress
    (tmp_path / name).write_bytes(compress((tmp_path / "plain").read_bytes()))
    assert NgramModel.load(tmp_path / name).grams == NgramModel.load(tmp_path / "plain").grams


def test_a_model_is_read_from_a_pipe(tmp_path: Path) -> None:
    NgramModel.learn(["ab"] * 2, 2).save(tmp_path / "plain")
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        pipe.write(gzip.compress((tmp_path / "plain").read_bytes()))
    assert NgramModel.load(f"/dev/fd/{reading}").grams == NgramModel.load(tmp_path / "plain").grams
    os.close(reading)


def test_a_compressed_file_that_breaks_off_raises_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "x.arpa.gz").write_bytes(gzip.compress(b"\\data\\\n" * 100)[:-12])
    with pytest.raises(UserError, match=r"x\.arpa\.gz: the gzip file breaks off; fetch it again"):
        NgramModel.load(tmp_path / "x.arpa.gz")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("no model", "is no ARPA file"),
        ("\\data\\\nngram 1=2\n\\1-grams:\n-1 a\n\\end\\\n", "says that it has 2 1-grams"),
        ("\\data\\\nngram 1=1\n\\1-grams:\nmuch a\n\\end\\\n", r"x\.arpa:4: expected a line of an ARPA file"),
        ("\\data\\\nngram one=1\n", r"x\.arpa:2: expected"),
        ("\\data\\\nngram 1=1\n\\1-grams:\nnan a\n\\end\\\n", r"x\.arpa:4: expected"),
        ("\\data\\\nngram 1=1\n\\1-grams:\n0.5 a\n\\end\\\n", r"x\.arpa:4: expected"),
        ("\\data\\\nngram 1=1\n\\1-grams:\n-1 a inf\n\\end\\\n", r"x\.arpa:4: expected"),
    ],
)
def test_an_invalid_arpa_file_raises_a_user_error(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "x.arpa").write_text(text)
    with pytest.raises(UserError, match=message):
        NgramModel.load(tmp_path / "x.arpa")


def test_a_model_that_cannot_be_stored_as_arpa_is_not_written(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="a token is ' ', and white space separates the tokens of an ARPA file"):
        NgramModel.learn([list("ab ba")] * 3, 2).save(tmp_path / "c.arpa")
    assert not (tmp_path / "c.arpa").exists()
    with pytest.raises(UserError, match=r"nowhere/c\.arpa: cannot be written"):
        NgramModel.learn([list("abba")] * 3, 2).save(tmp_path / "nowhere" / "c.arpa")


def test_invalid_training_input_raises_a_user_error() -> None:
    with pytest.raises(UserError, match="there is no text"):
        NgramModel.learn([[]])
    with pytest.raises(UserError, match="a sequence has </s> inside"):
        NgramModel.learn([["a", "</s>", "<s>", "b"]])
    with pytest.raises(UserError, match="order: expected at least 1"):
        NgramModel.learn(["a"], 0)


def test_probabilities_sum_to_one_for_text_with_unknown_tokens() -> None:
    for order in (1, 2, 3):
        model = NgramModel.learn([["a", "<unk>", "b"], ["b", "a"], ["a"]] * 3, order)
        for history in ((), ("a",), ("a", "<unk>")):
            total = sum(math.exp(model.score(("<s>", *history), token)) for token in ("a", "b", "<unk>", "</s>"))
            assert total == pytest.approx(1)
