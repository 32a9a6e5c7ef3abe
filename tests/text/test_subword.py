"""SentencePiece behind the common tokenizer interface, and the training of both kinds."""

from __future__ import annotations

import io
import os
import pickle
import signal
import time
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.text.load import load_tokenizer
from ernie.text.subword import SPACE, SentencePiece
from ernie.text.tokenizer import Tokenizer
from ernie.text.train import train_sentencepiece, train_wordpiece

TEXTS = [
    "The cat sat on the mat (again), and the dog didn't mind at all.",
    "Where is the dog? It is under the table, with 12,345.67 other well-known things!",
    "Café owners résumé their work; naïve readers don't.",
] * 20
ACCENTED = ["Толсто\u0301й жил в Москве\u0301; её э\u0301то зна́ли.", "ɔ\u0303 ọ\u0301 q\u0307 m̂ a, b́ (c̈)."] * 40


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> SentencePiece:
    return train_sentencepiece(TEXTS, vocab_size=64, lowercase=True, folder=tmp_path_factory.mktemp("spm"))


def _known(ids: list[int], tokenizer: SentencePiece) -> list[int]:
    return [i for i in ids if i != tokenizer.unk_id]


@settings(max_examples=300)
@given(
    text=st.text(
        alphabet=st.one_of(
            st.sampled_from("the cat sat,.!'-(1)é½ﬁ  日☃ojq\u0301\u0302\u0307\u0323"),
            st.characters(exclude_categories=["Cs", "Cc"]),
        ),
        max_size=30,
    )
)
def test_the_pieces_of_the_units_are_those_of_the_whole_text(model: SentencePiece, text: str) -> None:
    _check_by_units(model, text)


@pytest.fixture(scope="module", params=["byte_fallback", "no space mark before a text"])
def third_party(request: pytest.FixtureRequest) -> SentencePiece:
    """Third-party models: unknown characters become bytes, or a text begins without a space mark."""
    bytewise = request.param == "byte_fallback"
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS),
        model_writer=written,
        vocab_size=320,
        hard_vocab_limit=False,
        byte_fallback=bytewise,
        add_dummy_prefix=bytewise,
        minloglevel=2,
    )
    return SentencePiece(written.getvalue())


@settings(max_examples=300)
@given(text=st.text(alphabet=st.sampled_from("the cat sat,.!'-(1)ü€漢ﬁ  ojq"), max_size=30))
def test_third_party_models_give_the_pieces_of_sentencepiece(third_party: SentencePiece, text: str) -> None:
    _check_by_units(third_party, text)
    assert len(third_party.encode(text).offsets) == len(third_party.encode(text).ids)


def test_each_byte_token_has_the_offsets_of_its_character(third_party: SentencePiece) -> None:
    encoding = third_party.encode("the €5")
    spans = [
        tuple(span) for i, span in zip(*vars(encoding).values(), strict=True) if third_party.tokens[i].startswith("<")
    ]
    if any(token.startswith("<0x") for token in third_party.tokens):
        assert spans == [(4, 5)] * len("€".encode())
    else:
        assert (spans, encoding.ids.tolist().count(third_party.unk_id)) == ([(4, 5)], 1)


@pytest.fixture(scope="module", params=["unigram", "bpe"])
def accented(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> SentencePiece:
    folder = tmp_path_factory.mktemp("accented")
    return train_sentencepiece(ACCENTED, vocab_size=40, lowercase=True, folder=folder, model_type=request.param)


@settings(max_examples=300)
@given(text=st.text(alphabet=st.sampled_from("аоеэйёТaoqɔcm ,.;()\u0301\u0302\u0303\u0307\u0308\u0323"), max_size=30))
def test_the_pieces_of_the_units_are_those_of_the_whole_text_with_combining_accents(
    accented: SentencePiece, text: str
) -> None:
    _check_by_units(accented, text)


def _check_by_units(model: SentencePiece, text: str) -> None:
    by_units = [i for unit in model.split(text) for i in model.pieces(unit)]
    assert by_units == model.encode(text).ids.tolist() == model.ids(text).tolist()
    if SPACE not in text:
        # SentencePiece joins neighboring unknown characters even across units: compare the rest.
        assert _known(by_units, model) == _known(model._engine.Encode(text), model)


def test_units_are_words_and_punctuation_marks(model: SentencePiece) -> None:
    assert model.surface(model.split("The cat (again)")) == ["the", "cat", "(", "again", ")"]


def test_offsets_point_at_the_characters_of_each_token_also_around_unknown_and_normalized_ones(
    model: SentencePiece,
) -> None:
    text = "Cat  ☃☃ ﬁ½ Café"
    encoding = model.encode(text)
    pieces = [text[a:b] for a, b in encoding.offsets.tolist()]
    assert next(piece for piece, i in zip(pieces, encoding.ids, strict=True) if i == model.unk_id) == "☃☃"
    assert "".join(pieces).startswith("Cat")
    assert pieces[-1] and "Café".endswith(pieces[-1])


@given(text=st.text(alphabet=st.sampled_from("the cat Dog,.'-(1)é☃ "), max_size=30))
def test_tokens_cover_all_characters_of_a_text_except_its_spaces(model: SentencePiece, text: str) -> None:
    found = zip(*vars(model.encode(text)).values(), strict=True)
    pieces = [text[start:end] for i, (start, end) in found if model.tokens[i] != SPACE]
    assert "".join(pieces) == text.replace(" ", "")


@given(text=st.text(max_size=40))
def test_offsets_never_decrease_and_stay_inside_the_text(model: SentencePiece, text: str) -> None:
    last = 0
    for start, end in model.encode(text).offsets.tolist():
        assert last <= start <= end <= len(text)
        last = start


def test_the_normalizer_decides_about_lower_case(model: SentencePiece, tmp_path: Path) -> None:
    assert model.lowercase
    assert not train_sentencepiece(TEXTS, vocab_size=64, lowercase=False, folder=tmp_path).lowercase


def test_missing_special_tokens_get_ids_after_those_of_the_model(tmp_path: Path) -> None:
    plain = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(TEXTS), model_writer=plain, vocab_size=60, minloglevel=2
    )
    file = tmp_path / "plain.model"
    file.write_bytes(plain.getvalue())
    tokenizer = load_tokenizer(file)
    assert tokenizer.tokens[60:] == ["[PAD]", "[MASK]"]
    assert len({tokenizer.pad_id, tokenizer.unk_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id}) == 5
    tokenizer.save(tmp_path / "saved")
    assert load_tokenizer(tmp_path / "saved").fingerprint == tokenizer.fingerprint


def test_a_tokenizer_saved_over_one_of_another_kind_is_the_one_that_is_loaded(
    model: SentencePiece, tmp_path: Path
) -> None:
    other = train_wordpiece(TEXTS, vocab_size=100, lowercase=True, folder=tmp_path / "other")
    for tokenizer in (other, model, other, model):
        tokenizer.save(tmp_path)
        assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


def test_a_tokenizer_can_be_pickled(model: SentencePiece) -> None:
    copy = pickle.loads(pickle.dumps(model))
    assert copy.encode("the cat").ids.tolist() == model.encode("the cat").ids.tolist()


def test_long_lines_of_a_script_of_several_bytes_a_character_are_learned_from(tmp_path: Path) -> None:
    long = "甲乙丙丁戊己庚辛壬癸" * 200  # 2,000 characters, 6,000 bytes
    tokenizer = train_sentencepiece(["子丑寅卯。", long], vocab_size=20, lowercase=True, folder=tmp_path)
    assert tokenizer.unk_id not in tokenizer.encode("甲乙丙丁戊己庚辛壬癸").ids


def test_an_interrupt_ends_training_although_sentencepiece_does_not_listen(tmp_path: Path) -> None:
    read = 0

    def texts() -> Iterator[str]:
        nonlocal read
        for read in count(1):  # without end
            if read == 1000:
                os.kill(os.getpid(), signal.SIGINT)
            yield f"{read} words and more words"

    with pytest.raises(KeyboardInterrupt):
        train_sentencepiece(texts(), vocab_size=1000, lowercase=True, folder=tmp_path)
    stopped = read
    time.sleep(0.5)
    assert read <= stopped + 100_000  # it reads no further


@pytest.mark.parametrize("model_type", ["unigram", "bpe"])
def test_a_small_text_gives_as_many_pieces_as_it_has(tmp_path: Path, model_type: Any) -> None:
    texts = ["ねこがすきです。いぬもすきです。", "ことりはそらをとぶ。"]
    tokenizer = train_sentencepiece(texts, vocab_size=8000, lowercase=False, folder=tmp_path, model_type=model_type)
    assert tokenizer.vocab_size < 200
    for text in texts:
        assert tokenizer.unk_id not in tokenizer.encode(text).ids


@pytest.mark.parametrize("train", [train_wordpiece, train_sentencepiece])
def test_a_vocabulary_of_only_special_tokens_is_rejected(tmp_path: Path, train: Callable[..., Tokenizer]) -> None:
    with pytest.raises(UserError, match="vocab_size 5 is too small: the special tokens alone take 5 entries"):
        train(TEXTS, vocab_size=5, lowercase=True, folder=tmp_path)


@pytest.mark.parametrize("train", [train_wordpiece, train_sentencepiece])
def test_training_on_invisible_text_is_rejected(tmp_path: Path, train: Callable[..., Tokenizer]) -> None:
    with pytest.raises(UserError, match="no text to train a tokenizer on"):
        train(["\u200b \u200b\n", "\ufeff"], vocab_size=64, lowercase=True, folder=tmp_path)


def test_training_on_empty_text_is_rejected(tmp_path: Path) -> None:
    for train in (train_sentencepiece, train_wordpiece):
        with pytest.raises(UserError, match="no text"):
            train(["", "  "], vocab_size=100, lowercase=True, folder=tmp_path)


def test_the_same_text_gives_the_same_vocabulary(tmp_path: Path) -> None:
    for train in (train_sentencepiece, train_wordpiece):
        first, second = (train(TEXTS, vocab_size=64, lowercase=True, folder=tmp_path / name) for name in "ab")
        assert first.tokens == second.tokens


def test_a_trained_wordpiece_vocabulary_begins_with_the_special_tokens(tmp_path: Path) -> None:
    tokenizer = train_wordpiece(TEXTS, vocab_size=120, lowercase=True, folder=tmp_path)
    assert tokenizer.tokens[:5] == ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    assert tokenizer.unk_id not in tokenizer.encode("The cat didn't mind.").ids


def test_a_small_vocabulary_is_not_filled_with_rare_letters(tmp_path: Path) -> None:
    rare = [chr(letter) for letter in range(0x1200, 0x1240)]  # Ethiopic, each once
    english = ["the quick brown fox jumps over the lazy dog and would judge him by it"] * 20_000

    def letters(vocab_size: int) -> set[str]:
        tokens = train_wordpiece([*english, " ".join(rare)], vocab_size=vocab_size, lowercase=True, folder=tmp_path)
        return {token for token in tokens.tokens if len(token) == 1}

    assert letters(200) > set("abcdefghijklmnopqrstuvwxyz")
    assert len(letters(200)) == 64
    assert letters(3000) == {*"abcdefghijklmnopqrstuvwxyz", *rare}  # a large vocabulary has space for them


def test_a_file_that_is_not_a_model_is_rejected_by_name(tmp_path: Path) -> None:
    file = tmp_path / "broken.model"
    file.write_bytes(b"no model")
    with pytest.raises(UserError, match=r"broken\.model: this is not a SentencePiece model"):
        load_tokenizer(file)
