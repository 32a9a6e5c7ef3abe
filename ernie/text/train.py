"""Deterministic tokenizer training: the same texts in the same order give the same vocabulary."""

from __future__ import annotations

import io
import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any, Literal

import numpy as np
import sentencepiece
from tokenizers import Tokenizer as Engine
from tokenizers import models, trainers

from ernie.errors import UserError
from ernie.text.added import Added
from ernie.text.coverage import has_own_mark
from ernie.text.scripts import HAN_CHARACTER
from ernie.text.subword import SentencePiece
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece, make_engine

_MAX_LINE = 4000  # characters; SentencePiece ignores lines that are longer, in bytes, than it is told
_MAX_LETTERS = 1000  # characters in a WordPiece vocabulary, not counting Chinese ones
_CHINESE_SHARE = 0.5  # of the vocabulary, for Chinese characters, unless _MAX_LETTERS is more
# The alphabets of Chinese and of other characters have limits: the larger of _LETTERS_SHARE of the vocabulary and
# _MIN_LETTERS, or more if _COVERAGE of the text needs more.  A letter takes two entries, and most distinct letters of a
# large text occur in only a foreign name or two.
_LETTERS_SHARE, _MIN_LETTERS, _COVERAGE = 1 / 16, 64, 0.9999
_MAX_MARKS = 0.01  # share of the letters that may lose a part, as in text that quotes another script
_FEED_SIZE = 1 << 16  # characters passed to the trainer at a time


def train_wordpiece(
    texts: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool,
    folder: Path,
    strip_accents: bool | None = None,
    user_symbols: Sequence[str] = (),
) -> WordPiece:
    """Train a WordPiece vocabulary of about `vocab_size` entries and save the tokenizer in `folder`.

    The special tokens come first, in BERT's order.  A small text gives fewer entries than asked for, and a `vocab_size`
    below the number of characters gives more.  Rare letters that would crowd out other entries are left out and become
    [UNK].  Memory grows only with the number of distinct words.

    Accents are stripped as `strip_accents` says.  None means as BERT does, exactly if text is lower-cased, except where
    that would take parts of letters, as from Japanese kana, Hindi or Thai: then they are kept, which the tokenizer's
    `strip_accents` says.  The `user_symbols` are the last entries, and are kept whole in any text.  Raises UserError
    when there is no text to train on.
    """
    _check_size(vocab_size, len(user_symbols))
    plain, written = make_engine(models.WordPiece(unk_token="[UNK]"), False, False), Counter[str]()
    without = _without(user_symbols)
    for text in map(without, _checked(texts)):
        written.update(_words(plain, text))
    if strip_accents is None and lowercase and _marks_share(written) > _MAX_MARKS:
        strip_accents = False
    engine = make_engine(models.WordPiece(unk_token="[UNK]"), lowercase, strip_accents)
    words: Counter[str] = Counter()
    for word, count in written.items():
        for normalized in _words(engine, word):
            words[normalized] += count
    alphabet = _alphabet(words, vocab_size)
    # A word with a character outside the alphabet can only become [UNK], so it has nothing to teach.
    words = Counter({word: count for word, count in words.items() if alphabet.issuperset(word)})
    # The trainer numbers word-internal letters as it meets them, in the random order of its hash table, and breaks ties
    # between merges by these numbers.  Passing them as special tokens fixes their numbers.
    internal = sorted({f"##{letter}" for word in words for letter in word[1:]})
    trainer = trainers.WordPieceTrainer(
        vocab_size=vocab_size - len(user_symbols),
        special_tokens=[*SPECIAL_TOKENS, *internal],
        limit_alphabet=len(alphabet),
        show_progress=False,
        continuing_subword_prefix="##",
    )
    engine.train_from_iterator(_repeated(words), trainer)
    vocabulary = engine.get_vocab()
    tokens = sorted(vocabulary, key=vocabulary.__getitem__)
    known = {token: i for i, token in enumerate(dict.fromkeys((*tokens, *user_symbols)))}  # one may be learned, too
    added = {known[symbol]: Added(symbol, special=False) for symbol in user_symbols}
    tokenizer = WordPiece([*known], lowercase, strip_accents, added=added, base=len(tokens))
    tokenizer.save(folder)
    return tokenizer


def _without(symbols: Sequence[str]) -> Callable[[str], str]:
    """Return what takes symbols out of a text."""
    if not symbols:
        return str
    found = re.compile("|".join(map(re.escape, sorted(symbols, key=len, reverse=True))))
    return partial(found.sub, " ")


def _words(engine: Engine, text: str) -> Iterator[str]:
    """Yield the words of a text, normalized."""
    return (word for word, _ in engine.pre_tokenizer.pre_tokenize_str(engine.normalizer.normalize_str(text)))


def _marks_share(words: Counter[str]) -> float:
    """Return the share of the letters from which stripping accents takes a part."""
    marked = sum(count * sum(map(has_own_mark, word)) for word, count in words.items())
    return marked / max(1, sum(count * len(word) for word, count in words.items()))


def _alphabet(words: Counter[str], vocab_size: int) -> set[str]:
    """Return the characters that a vocabulary keeps: the most frequent Chinese ones and the most frequent others."""
    counts: Counter[str] = Counter()
    for word, count in words.items():
        for letter in word:
            counts[letter] += count
    ranked = sorted(counts, key=lambda letter: (-counts[letter], letter))
    tails = np.cumsum([counts[letter] for letter in reversed(ranked)])[::-1]  # total count from each rank on
    needed = {letter for letter, tail in zip(ranked, tails, strict=True) if tail > (1 - _COVERAGE) * tails[0]}
    chinese = [letter for letter in ranked if HAN_CHARACTER.match(letter)]
    others = [letter for letter in ranked if not HAN_CHARACTER.match(letter)]
    always, kept = max(_MIN_LETTERS, int(vocab_size * _LETTERS_SHARE)), set()
    for group, most in ((chinese, max(_MAX_LETTERS, int(vocab_size * _CHINESE_SHARE))), (others, _MAX_LETTERS)):
        kept |= {letter for rank, letter in enumerate(group[:most]) if rank < always or letter in needed}
    return kept


def _repeated(words: Counter[str]) -> Iterator[str]:
    """Yield texts that repeat every word as often as it was counted."""
    for word, count in words.items():
        most = max(1, _FEED_SIZE // len(word))
        for done in range(0, count, most):
            yield " ".join([word] * min(most, count - done))


def train_sentencepiece(
    texts: Iterable[str],
    *,
    vocab_size: int,
    lowercase: bool,
    folder: Path,
    model_type: Literal["unigram", "bpe"] = "unigram",
    byte_fallback: bool = False,
    user_symbols: Sequence[str] = (),
) -> SentencePiece:
    """Train a SentencePiece model of `vocab_size` pieces, or of all that the text gives, and save it in `folder`.

    With `byte_fallback` it has a piece for each of the 256 bytes, into which characters are split that it lacks.  The
    `user_symbols` are pieces, too, and are kept whole in any text.
    Raises UserError when there is no text, or when `vocab_size` does not suit the text.
    """
    _check_size(vocab_size, len(user_symbols) + 256 * byte_fallback)
    model = io.BytesIO()
    lines = _ErrorKeeper(_lines(_checked(texts)))
    try:
        _train_interruptibly(
            lines,
            model_writer=model,
            max_sentence_length=4 * _MAX_LINE,  # bytes: a character has up to four
            model_type=model_type,
            vocab_size=vocab_size,
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
            user_defined_symbols=list(user_symbols),
            byte_fallback=byte_fallback,
            hard_vocab_limit=False,  # fewer pieces where a text gives no more
            num_threads=1,  # the order of floating-point sums could change the pieces
            minloglevel=2,
        )
    except RuntimeError as error:
        if lines.error is not None:
            raise lines.error from None
        if found := re.search(r"smaller than required_chars\. \d+ vs (\d+)", str(error)):
            raise UserError(
                f"vocab_size {vocab_size} is too small for this text: its characters alone take {found[1]} pieces"
            ) from None
        raise UserError(f"SentencePiece cannot be trained on this text: {error}") from None
    tokenizer = SentencePiece(model.getvalue())
    tokenizer.save(folder)
    return tokenizer


def _train_interruptibly(lines: _ErrorKeeper, **options: Any) -> None:
    """Have SentencePiece train in a thread, so that signals are handled meanwhile; what it raises is raised here.

    It may take minutes, and lets other threads run.
    """
    raised: list[BaseException] = []

    def run() -> None:
        try:
            sentencepiece.SentencePieceTrainer.Train(sentence_iterator=lines, **options)
        except BaseException as error:  # raised again in the caller's thread
            raised.append(error)

    thread = Thread(target=run, daemon=True, name="sentencepiece")
    try:
        thread.start()
        while thread.is_alive():
            thread.join(0.1)  # a longer wait for a lock would hold back signals on some systems
    finally:
        lines.stopped = True
    if raised:
        raise raised[0]


class _ErrorKeeper:
    """An iterator that keeps the exception it raised, of which SentencePiece would only pass on the message."""

    def __init__(self, texts: Iterator[str]):
        self._texts = texts
        self.error: Exception | None = None
        self.stopped = False  # ends the training, if it still reads

    def __iter__(self) -> Iterator[str]:
        return self

    def __next__(self) -> str:
        try:
            if self.stopped:
                raise RuntimeError("interrupted")
            return next(self._texts)
        except StopIteration:
            raise
        except Exception as error:
            self.error = error
            raise


def _checked(texts: Iterable[str]) -> Iterator[str]:
    empty = True
    for text in texts:
        if text.strip():
            empty = empty and not _is_visible(text)
            yield text
    if empty:
        raise UserError("there is no text to train a tokenizer on")


def _is_visible(text: str) -> bool:
    """Whether there is anything but spaces and control characters, for which a tokenizer produces no tokens."""
    return any(unicodedata.category(character)[0] not in "CZ" for character in text)


def _check_size(vocab_size: int, more: int = 0) -> None:
    """Raise UserError unless there is room for the special tokens and `more` symbols and bytes."""
    if vocab_size <= len(SPECIAL_TOKENS) + more:
        least = f"the special tokens alone take {len(SPECIAL_TOKENS)} entries"
        besides = f", symbols and bytes another {more}" if more else ""
        raise UserError(f"vocab_size {vocab_size} is too small: {least}{besides}")


def _lines(texts: Iterable[str]) -> Iterator[str]:
    for text in texts:
        for line in text.splitlines():
            for start in range(0, len(line), _MAX_LINE):
                yield line[start : start + _MAX_LINE]
