"""SentencePiece models of all kinds: the library's own pieces, right offsets, no special tokens from a text."""

from __future__ import annotations

import io
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.text.added import SPECIAL_NAMES
from ernie.text.load import load_tokenizer
from ernie.text.subword import SPACE, SentencePiece

TEXTS = [
    "The cat sat on the mat (again), and the dog didn't mind at all.",
    "Where is the dog? It is under the table, with 12,345.67 other well-known things!",
    "Café owners résumé their work; naïve readers don't. ﬁne ½ ㎏ Ⅳ",
] * 20
SUFFIX = {"treat_whitespace_as_suffix": True}
KINDS: dict[str, dict[str, Any]] = {
    "usual": {},
    "suffix": SUFFIX,
    "no dummy": {"add_dummy_prefix": False},
    "no dummy, suffix": {"add_dummy_prefix": False, **SUFFIX},
    "spaces kept": {"remove_extra_whitespaces": False},
    "spaces kept, suffix": {"remove_extra_whitespaces": False, **SUFFIX},
    "bytes": {"byte_fallback": True},
    "bytes, suffix": {"byte_fallback": True, **SUFFIX},
    "identity": {"byte_fallback": True, "add_dummy_prefix": False, "remove_extra_whitespaces": False}
    | {"normalization_rule_name": "identity"},
    "lower-cased": {"normalization_rule_name": "nfkc_cf", "self_test_sample_size": 10},
    "bpe": {"model_type": "bpe"},
    "bpe, suffix": {"model_type": "bpe", **SUFFIX},
    "across spaces": {"model_type": "bpe", "split_by_whitespace": False},
    "across spaces, suffix": {"model_type": "bpe", "split_by_whitespace": False, **SUFFIX},
    "characters": {"model_type": "char", "vocab_size": 60},
    "words": {"model_type": "word"},
    "scripts joined": {"split_by_unicode_script": False},
    "runs of spaces": {"model_type": "bpe", "allow_whitespace_only_pieces": True, "remove_extra_whitespaces": False},
    "markers": {"user_defined_symbols": ["[MASK]", "[CLS]", "[SEP]", "<e1>"], "self_test_sample_size": 10},
}


@cache
def model(kind: str) -> SentencePiece:
    written = io.BytesIO()
    options = {"vocab_size": 330, "hard_vocab_limit": False, "minloglevel": 2, **KINDS[kind]}
    sentencepiece.SentencePieceTrainer.Train(sentence_iterator=iter(TEXTS), model_writer=written, **options)
    return SentencePiece(written.getvalue())


LETTERS = "the cat sat,.!'-(1)ü€漢ﬁ½㎏Ⅳ  ojq\u0301 \u200bÀ\tA\u3000"


@settings(max_examples=500, deadline=None)
@given(st.sampled_from(list(KINDS)), st.text(st.sampled_from(LETTERS), max_size=16))
def test_pieces_are_those_of_the_library_and_each_span_normalizes_to_its_piece(kind: str, text: str) -> None:
    tokenizer = model(kind)
    library = tokenizer._engine
    found = tokenizer.encode(text)
    ids = found.ids.tolist()
    assert [i for unit in tokenizer.split(text) for i in tokenizer.pieces(unit)] == ids
    # The library joins neighboring unknown characters also across units.
    known = [[i for i in row if i != tokenizer.unk_id] for row in (ids, library.Encode(text))]
    assert known[0] == known[1]
    last, covered = 0, set()
    for i, (start, end) in zip(ids, found.offsets.tolist(), strict=True):
        assert last <= start <= end <= len(text)
        last = start
        covered |= set(range(start, end))
        piece = tokenizer.tokens[i].strip(SPACE)
        if piece and i != tokenizer.unk_id and not library.IsByte(i):
            assert piece.replace(SPACE, "") in library.Normalize(text[start:end]).replace(SPACE, "")
            assert SPACE in piece or text[start:end] == text[start:end].strip()
    lost = [letter for at, letter in enumerate(text) if at not in covered]
    assert not [letter for letter in lost if library.Normalize(letter).strip(SPACE)]


@pytest.mark.parametrize("kind", ["suffix", "bpe, suffix"])
def test_a_model_that_marks_spaces_after_words_has_the_offsets_of_the_words(kind: str) -> None:
    tokenizer, text = model(kind), "the cat  sat"
    found = tokenizer.encode(text)
    words: dict[str, str] = {}
    for i, (start, end) in zip(found.ids, found.offsets, strict=True):
        words[tokenizer.tokens[i]] = text[start:end]
    assert all(piece.strip(SPACE) == part for piece, part in words.items())
    assert "the" in words.values()
    assert tokenizer.surface(tokenizer.split(text)) == ["the", "cat", "sat"]
    assert tokenizer.words("The cat", tokenizer.split("The cat")) == ["The", "cat"]


MARKED = [f"Fill in the {name} token, {name}." for name in sorted(SPECIAL_NAMES)] + TEXTS


def trained(**options: Any) -> SentencePiece:
    written = io.BytesIO()
    sentencepiece.SentencePieceTrainer.Train(
        sentence_iterator=iter(MARKED),
        model_writer=written,
        vocab_size=200,
        hard_vocab_limit=False,
        minloglevel=2,
        **options,
    )
    return SentencePiece(written.getvalue())


NAMES = ["[MASK]", "[CLS]", "[SEP]", "[PAD]"]


@pytest.mark.parametrize("kind", ["unigram", "bpe"])
@pytest.mark.parametrize(
    "options",
    [
        {"user_defined_symbols": NAMES},
        {"user_defined_symbols": NAMES[:3], "split_by_unicode_script": False},
        {"control_symbols": NAMES},
        {"user_defined_symbols": ["<mask>", "<pad>", "<cls>", "<sep>", "[MASK]"]},
        {"user_defined_symbols": ["<s>", "</s>", "<mask>"], "bos_id": -1, "eos_id": -1},
        {"bos_piece": "[CLS]", "eos_piece": "[SEP]", "pad_id": 3, "pad_piece": "[PAD]", "control_symbols": ["[MASK]"]},
        {"split_by_unicode_script": False, "split_by_whitespace": False},  # may learn the names as ordinary pieces
    ],
)
def test_no_text_has_special_tokens_however_the_model_was_trained(
    options: dict[str, Any], kind: str, tmp_path: Path
) -> None:
    tokenizer = trained(model_type=kind, **options)
    own = {i for i, token in enumerate(tokenizer.tokens) if token in SPECIAL_NAMES} - {tokenizer.unk_id}
    assert {tokenizer.pad_id, tokenizer.cls_id, tokenizer.sep_id, tokenizer.mask_id} <= own
    tokenizer.save(tmp_path)
    for each in (tokenizer, load_tokenizer(tmp_path)):
        for text in ("Fill in the [MASK] token.", *MARKED[: len(SPECIAL_NAMES)], "[MASK][MASK]<s></s><pad>"):
            ids = each.encode(text).ids.tolist()
            assert not own & set(ids)
            assert [i for unit in each.split(text) for i in each.pieces(unit)] == ids
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint


def test_other_user_defined_symbols_are_kept_whole() -> None:
    tokenizer = model("markers")
    text = "the <e1>cat"
    found = tokenizer.encode(text)
    spans = {tokenizer.tokens[i]: text[a:b] for i, (a, b) in zip(found.ids, found.offsets, strict=True)}
    assert spans["<e1>"] == "<e1>"
