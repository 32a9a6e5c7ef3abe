"""Training tokenizers: the same texts in the same order give the same vocabulary."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal

import sentencepiece
from tokenizers import Tokenizer as Engine
from tokenizers import models, normalizers, pre_tokenizers, trainers

from ernie.errors import UserError
from ernie.text.subword import SentencePiece
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece

_LONGEST = 4000  # characters of a line that SentencePiece learns from; it passes longer ones over
_MOST_LINES = 2_000_000


def train_wordpiece(texts: Iterable[str], *, vocab_size: int, lowercase: bool, folder: Path) -> WordPiece:
    """Learn a WordPiece vocabulary of at most `vocab_size` entries and save the tokenizer in `folder`.

    The special tokens come first, in BERT's order.  Raises UserError when there is no text to learn from.
    """
    engine = Engine(models.WordPiece(unk_token="[UNK]"))
    engine.normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=None)
    engine.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size, special_tokens=list(SPECIAL_TOKENS), show_progress=False, continuing_subword_prefix="##"
    )
    engine.train_from_iterator(_checked(texts), trainer)
    vocabulary = engine.get_vocab()
    tokenizer = WordPiece(sorted(vocabulary, key=vocabulary.__getitem__), lowercase)
    tokenizer.save(folder)
    return tokenizer


def train_sentencepiece(
    texts: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool,
    folder: Path,
    model_type: Literal["unigram", "bpe"] = "unigram",
    character_coverage: float = 0.9995,
) -> SentencePiece:
    """Learn a SentencePiece model of `vocab_size` pieces and save the tokenizer in `folder`.

    Raises UserError when there is no text, or too little for so many pieces.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.Train(
            sentence_iterator=_lines(_checked(texts)),
            model_writer=model,
            model_type=model_type,
            vocab_size=vocab_size,
            character_coverage=character_coverage,
            normalization_rule_name="nmt_nfkc_cf" if lowercase else "nmt_nfkc",
            pad_id=0,
            unk_id=1,
            bos_id=2,
            eos_id=3,
            pad_piece="[PAD]",
            unk_piece="[UNK]",
            bos_piece="[CLS]",
            eos_piece="[SEP]",
            control_symbols=["[MASK]"],
            input_sentence_size=_MOST_LINES,
            shuffle_input_sentence=False,
            num_threads=1,  # sums in another order could give other pieces
            minloglevel=2,
        )
    except RuntimeError as error:
        found = re.search(r"<= (\d+)", str(error))
        if found is None:
            raise UserError(f"SentencePiece cannot be trained on this text: {error}") from None
        raise UserError(
            f"vocab_size {vocab_size} is too large for this text: at most {found[1]} pieces can be learnt from it"
        ) from None
    tokenizer = SentencePiece(model.getvalue())
    tokenizer.save(folder)
    return tokenizer


def _checked(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        if text.strip():
            empty = False
            yield text
    if empty:
        raise UserError("there is no text to train a tokenizer on")


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.splitlines():
            for start in range(0, len(line), _LONGEST):
                yield line[start : start + _LONGEST]
