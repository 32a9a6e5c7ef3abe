"""What a tokenizer loses of a text: unknown tokens, and marks that are parts of letters."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helpers import vocabulary

from ernie.text.coverage import coverage, has_own_mark
from ernie.text.load import load_tokenizer
from ernie.text.train import train_wordpiece
from ernie.text.wordpiece import WordPiece

JAPANESE, HINDI, THAI = "がくせい です。", "हिन्दी में", "ไม้ที่นี่"


def test_the_share_of_unknown_tokens_is_counted_over_all_texts() -> None:
    found = coverage(vocabulary("the cat"), ["the cat", "the ☃ 日 cat", ""])
    assert (found.tokens, found.unknown, found.unknown_share) == (6, 2, 2 / 6)
    assert coverage(vocabulary("the"), [" "]).unknown_share == 0


@pytest.mark.parametrize("text", [JAPANESE, HINDI, THAI, "か\u3099"])
def test_letters_that_lose_a_mark_are_counted_where_accents_are_stripped(text: str) -> None:
    tokens = vocabulary("the").tokens
    assert coverage(WordPiece(tokens), [text]).stripped > 0
    assert coverage(WordPiece(tokens, True, False), [text]).stripped == 0
    assert coverage(WordPiece(tokens, False), [text]).stripped == 0


@pytest.mark.parametrize("letter", [*"aéñёΐế中か한", "\u0301", "\ufe0f"])
def test_accents_of_latin_greek_and_cyrillic_are_no_parts_of_letters(letter: str) -> None:
    assert not has_own_mark(letter)


@pytest.mark.parametrize("text", [JAPANESE, HINDI, THAI])
def test_training_keeps_marks_that_are_parts_of_letters(text: str, tmp_path: Path) -> None:
    tokenizer = train_wordpiece([f"{text} ABC"] * 20, vocab_size=100, lowercase=True, folder=tmp_path)
    assert (tokenizer.lowercase, tokenizer.strip_accents) == (True, False)
    pieces = "".join(tokenizer.tokens[i].removeprefix("##") for i in tokenizer.encode(text).ids)
    assert pieces == text.replace(" ", "")
    assert load_tokenizer(tmp_path).fingerprint == tokenizer.fingerprint
    asked = train_wordpiece([text] * 20, vocab_size=100, lowercase=True, folder=tmp_path / "b", strip_accents=True)
    assert asked.strips_accents


def test_training_on_latin_text_strips_accents_as_bert_does(tmp_path: Path) -> None:
    texts = [
        "Café naïve Толсто́й",
        "a word of が in a long English text, as in an encyclopedia of many words " + "and words " * 9,
    ] * 20
    tokenizer = train_wordpiece(texts, vocab_size=120, lowercase=True, folder=tmp_path)
    assert tokenizer.strip_accents is None
    assert tokenizer.encode("CAFÉ").ids.tolist() == tokenizer.encode("cafe").ids.tolist()
    kept = train_wordpiece(texts, vocab_size=120, lowercase=True, folder=tmp_path / "b", strip_accents=False)
    assert kept.encode("CAFÉ").ids.tolist() != kept.encode("cafe").ids.tolist()
