"""What ranks the hypotheses of a recognizer: its options, and the checks of their files against a vocabulary."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Literal

from ernie.config import check_least
from ernie.decode.ctc import Beam
from ernie.decode.fusion import HotWords, Scorer, WordFusion, WordModel
from ernie.decode.kenlm import KenlmModel, is_kenlm_binary
from ernie.decode.ngram import BEGIN, END, NgramModel
from ernie.errors import Remark, UserError
from ernie.formatting import plural
from ernie.renames import formerly
from ernie.text.scripts import words_in
from ernie.text.tokenizer import Tokenizer

_PARTS = ("##", "\u2581")  # how parts of words begin, or all parts but those within a word
_TRIED, _MANY = 2000, 0.2  # words of a language model that are tried, and the share of them that is noted if lost


@dataclass(frozen=True, kw_only=True)
class RankedDecoding:
    """How hypotheses are ranked.

    `beam` hypotheses are kept; with 1 decoding is greedy.  `language_model` is an ARPA file of the vocabulary's tokens
    or of words, or a binary file of KenLM.  `language_model_unit` says whether the model is of tokens or of words, if
    the file does not show it.  `alpha` weights its log-probabilities in a beam, and `beta` is added for each token or
    word.  By default `beta` is `alpha` times the entropy of the model: an average token or word costs nothing.
    `unknown` is added to the log-probability of words that the model lacks.  `hot_words` is a file with a word or
    phrase a line, each of whose tokens gets `hot_weight`.
    """

    beam: int = 1
    language_model: Path | None = field(default=None, metadata=formerly("language"))
    language_model_unit: Literal["auto", "tokens", "words"] = field(default="auto", metadata=formerly("language_of"))
    alpha: float = 0.5
    beta: float | None = None
    unknown: float = -10.0
    hot_words: Path | None = None
    hot_weight: float = 2.0

    def check_ranking(self) -> None:
        """Raise UserError for options that do not fit one another."""
        check_least(self, beam=1)
        for name in ("alpha", "beta", "unknown", "hot_weight"):
            value = getattr(self, name)
            if value is not None and not math.isfinite(value):
                raise UserError(f"{name}: expected a finite number, found {value:g}")
        if self.hot_words is not None and self.beam == 1:
            raise UserError("hot_words: they rank hypotheses; keep several, such as beam: 16")
        if self.language_model is not None and self.beam == 1:
            raise UserError("language_model: it ranks hypotheses; keep several, such as beam: 16")

    def check_files(self, tokenizer: Tokenizer, special: Iterable[int]) -> None:
        """Raise UserError if the files do not fit the vocabulary; warn if they hardly do.

        `special` are the tokens that no text has.
        """
        if self.hot_words is not None:
            hot_phrases(self.hot_words, tokenizer)
        if self.language_model is None:
            return
        model, left_out = language_model(self.language_model), {*special}
        tokens = [token for i, token in enumerate(tokenizer.tokens) if i not in left_out]
        if is_of_words(model, tokens, self.language_model_unit):
            self._check_words(model, tokens, tokenizer)
        else:
            self._check_tokens(model, tokens)
        if self.beta is None:
            model.entropy()  # which not every file can tell

    def _check_tokens(self, model: WordModel, tokens: Sequence[str]) -> None:
        known = sum(model.knows(token) for token in tokens)
        if not known:
            raise UserError(
                f"task.language_model: {self.language_model} knows none of the vocabulary's tokens, such as "
                f"'{tokens[-1]}'; learn it from texts that this tokenizer has cut into tokens"
            )
        if known < len(tokens) / 2:
            remark = (
                f"task.language_model: {self.language_model} knows {known:,} of the vocabulary's {len(tokens):,} tokens"
            )
            warnings.warn(f"{remark}; all others are as likely as any unknown one to it", Remark, stacklevel=4)

    def _check_words(self, model: WordModel, tokens: Sequence[str], tokenizer: Tokenizer) -> None:
        """Raise UserError if the vocabulary can write none of the words of a language model; warn if it lacks many."""
        tried = model.words[:: max(1, len(model.words) // _TRIED)]
        lost = [word for word in tried if words_in(tokenizer.decode(tokenizer.encode(word).ids.tolist())) != [word]]
        parted = next((word for word in lost if len(words_in(word)) > 1), None)
        hint = "" if parted is None else f"; each character of '{parted}' is a word: learn it from characters"
        if tried and len(lost) == len(tried):
            raise UserError(
                f"task.language_model: {self.language_model} knows none of the vocabulary's tokens, such as "
                f"'{tokens[-1]}', and the vocabulary writes none of its words, such "
                f"as '{lost[0]}'; capitals and accents count{hint}"
            )
        if len(lost) > _MANY * len(tried):
            warnings.warn(
                f"task.language_model: of {len(tried):,} words of {self.language_model} that were tried, the "
                f"vocabulary writes {len(lost):,} differently or not at all, such as '{lost[0]}': what is said cannot "
                f"match them{hint}",
                Remark,
                stacklevel=4,
            )

    def remarks_on_language(self, texts: Iterable[str], tokenizer: Tokenizer) -> list[str]:
        """Return a remark if the language model lacks many of the words, or tokens, that texts are written with."""
        if self.language_model is None:
            return []
        model = language_model(self.language_model)
        if is_of_words(model, tokenizer.tokens, self.language_model_unit):
            written, kind = lru_cache(maxsize=None)(lambda word: _as_written(word, tokenizer)), "word"
            units = [each for text in texts for word in words_in(text) for each in written(word)]
        else:
            ids = (i for text in texts for i in tokenizer.encode(text).ids.tolist() if i != tokenizer.unk_id)
            units, kind = [tokenizer.tokens[i] for i in ids], "token"
        unknown = [unit for unit in units if not model.knows(unit)]
        if len(unknown) <= _MANY * len(units):
            return []
        return [
            f"{len(unknown):,} of {plural(len(units), kind)} of the transcripts are unknown to {self.language_model}, "
            f"such as '{unknown[0]}'"
        ]

    def beam_search(self, tokenizer: Tokenizer, blank: int) -> Beam:
        """Return the beam search, with the language model and the hot words if there are any."""
        scorers: list[Scorer] = []
        if self.hot_words is not None:
            phrases = hot_phrases(self.hot_words, tokenizer)
            scorers.append(HotWords(phrases, self.hot_weight, tokenizer.decode))
        if self.language_model is None:
            return Beam(blank, self.beam, alpha=self.alpha, beta=self.beta or 0.0, scorers=tuple(scorers))
        model, names = language_model(self.language_model), tokenizer.tokens
        beta = self.alpha * model.entropy() if self.beta is None else self.beta
        if is_of_words(model, names, self.language_model_unit):
            fusion = WordFusion(model, tokenizer.decode, self.alpha, beta, self.unknown)
            return Beam(blank, self.beam, scorers=(*scorers, fusion))

        def score(before: tuple[int, ...], token: str) -> float:
            """Return the log-probability of a token after others."""
            context = before[max(0, len(before) - model.order) :]
            history = [names[each] for each in context]
            return model.score(history if len(context) < len(before) else [BEGIN, *history], token)

        return Beam(
            blank,
            self.beam,
            language_model=lambda before, token: score(before, names[token]),
            end_score=lambda tokens: score(tokens, END),
            alpha=self.alpha,
            beta=beta,
            history=model.order + 1,
            scorers=tuple(scorers),
        )


def _as_written(word: str, tokenizer: Tokenizer) -> list[str]:
    """Return the words that a recognizer writes for one of a transcript; the word itself if it cannot be written."""
    ids = tokenizer.encode(word).ids.tolist()
    return [word] if tokenizer.unk_id in ids else words_in(tokenizer.decode(ids))


def is_of_words(model: WordModel, tokens: Sequence[str], given: str = "auto") -> bool:
    """Return whether a language model is of words: it has some that are no tokens, and no parts of words."""
    if given != "auto":
        return given == "words"
    known = set(tokens)
    return not model.words or (
        not all(word in known for word in model.words) and not any(word.startswith(_PARTS) for word in model.words)
    )


def hot_phrases(file: Path, tokenizer: Tokenizer) -> list[list[int]]:
    """Return the tokens of the phrases of a file, one a line.  Raises UserError for those that cannot be written."""
    try:
        lines = file.read_text(encoding="utf-8-sig").splitlines()
    except OSError as error:
        raise UserError(f"task.hot_words: {file}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise UserError(f"task.hot_words: {file}: is not UTF-8 text: {error}") from None
    phrases = []
    for number, line in enumerate(lines, 1):
        ids = tokenizer.encode(line).ids.tolist()
        if tokenizer.unk_id in ids:
            raise UserError(f"task.hot_words: {file}:{number}: the vocabulary lacks characters of '{line.strip()}'")
        if ids:
            phrases.append(ids)
    if not phrases:
        raise UserError(f"task.hot_words: {file}: holds no word; expected a word or phrase a line")
    return phrases


def language_model(file: Path) -> NgramModel | KenlmModel:
    """Load a language model, cached across batches and reloaded when the file has changed."""
    try:
        status = file.stat()
    except OSError:
        return NgramModel.load(file)  # raises the right UserError
    return _cached_language_model(file, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1)
def _cached_language_model(file: Path, *_: int) -> NgramModel | KenlmModel:
    """Load the language model of a file; the modification time and the size are part of the cache key."""
    return KenlmModel(file) if is_kenlm_binary(file) else NgramModel.load(file)
