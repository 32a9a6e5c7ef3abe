"""Vectors of texts and masked words, by an encoder without the head of a task.  Legend: N texts, n tokens, D width."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from ernie.data.document import Sample
from ernie.errors import UserError, about, check_count
from ernie.kernels.precision import InferencePrecisionChoice, batch_invariant, precision
from ernie.model.ernie import ErnieModel
from ernie.model.fill_mask import Filled, fill_masked, fill_masks, masked_text
from ernie.model.inference import for_inference, tokenizer_of
from ernie.model.sentence_embedding import Encoding, Text, encode_each
from ernie.outcome import Outcome
from ernie.text.tokenizer import Tokenizer
from inference.face import Face, Facts, face, weight_count
from inference.operation import Operation, Prepared, grouped
from inference.precision import check_precision
from inference.predictor import exercise


@dataclass(frozen=True)
class LoadedEncoder:
    """An encoder and the precision in which it computes."""

    ernie: ErnieModel
    precision: InferencePrecisionChoice

    @property
    def tokenizer(self) -> Tokenizer:
        """The encoder's tokenizer.  Raises UserError when it has none."""
        return tokenizer_of(self.ernie)

    @classmethod
    def load(cls, path: str | Path, precision: InferencePrecisionChoice | None = None) -> LoadedEncoder:
        """Load an encoder as `ErnieModel.from_pretrained` does, by default in the machine's fastest precision."""
        check_precision(precision or "auto")
        ernie = ErnieModel.from_pretrained(path)
        for_inference(ernie)
        return cls(ernie, precision or "auto")


# The types of settings, and their names.
_SETTINGS: dict[str, tuple[tuple[type, ...], str]] = {
    "pooling": ((str, list, tuple), "a text or a list"),
    "max_len": ((int,), "a whole number"),
    "normalize": ((bool,), "true or false"),
    "prompt_name": ((str,), "a text"),
    "prompt": ((str,), "a text"),
}
_ALL = 1 << 62  # tokens: more than any batch has
_MOST_NUMBERS = 1 << 22  # of the vectors of tokens in one answer, which have 80 MB as JSON


class _OfEncoder(Operation):
    def __init__(self, model: LoadedEncoder):
        self._model = model

    @property
    def longest(self) -> int:
        return self._model.ernie.config.max_positions

    def exercise(self, lengths: Sequence[int]) -> None:
        with precision(self._model.precision), batch_invariant():
            exercise(self._model.ernie, lengths)


class _OfTexts(_OfEncoder):
    """What becomes of a text, or of a pair of texts, by its encoding."""

    def __init__(self, model: LoadedEncoder):
        super().__init__(model)
        self._encoding = lru_cache(maxsize=64)(partial(self._new_encoding, model.ernie))

    @property
    def longest(self) -> int:
        config = self._model.ernie.sentence_config
        return min(super().longest, (config and config.max_len) or super().longest)

    def prepare(self, given: Any, row: int = 0, **settings: Any) -> Prepared:
        encoding = self._encoding(tuple((name, _setting(name, settings.get(name))) for name in sorted(self.settings)))
        outcome = encoding.sample(given, row)
        sample = outcome.get()
        return Prepared(len(sample), (encoding, sample, row), outcome.notes, is_cut=bool(outcome.notes))

    @staticmethod  # a method that the cache keeps would be a reference to this
    @abstractmethod
    def _new_encoding(ernie: ErnieModel, settings: tuple[tuple[str, Any], ...]) -> Encoding:
        """Return the encoding with these settings.  Raises UserError for those that do not fit the model."""

    @abstractmethod
    def _outcomes(
        self, encoding: Encoding, samples: Sequence[Sample], rows: Sequence[int]
    ) -> Sequence[Outcome[np.ndarray]]:
        """Return the outcomes of samples."""

    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[np.ndarray]]:
        outcomes: dict[int, Outcome[np.ndarray]] = {}
        with precision(self._model.precision), batch_invariant():
            for encoding, chosen in grouped(batch, lambda prepared: prepared.content[0]):
                _, samples, rows = zip(*(batch[i].content for i in chosen), strict=True)
                outcomes |= zip(chosen, self._outcomes(encoding, samples, rows), strict=True)
        return [replace(outcomes[i], notes=prepared.notes) for i, prepared in enumerate(batch)]


class Encode(_OfTexts):
    """The vector (D,) of a text; the settings are those of `ErnieModel.encode`."""

    settings = frozenset(_SETTINGS)

    @staticmethod
    def _new_encoding(ernie: ErnieModel, settings: tuple[tuple[str, Any], ...]) -> Encoding:
        return Encoding.of(ernie, batch_tokens=_ALL, **dict(settings))

    def _outcomes(
        self, encoding: Encoding, samples: Sequence[Sample], rows: Sequence[int]
    ) -> Sequence[Outcome[np.ndarray]]:
        return encoding.vector_outcomes(samples, rows)


class EncodeTokens(_OfTexts):
    """The vectors (n, D) of a text's n tokens; the settings are those of `ErnieModel.encode_tokens`."""

    settings = frozenset({"max_len", "prompt_name", "prompt"})

    @property
    def most_tokens(self) -> int:
        return _MOST_NUMBERS // self._model.ernie.config.hidden_size

    @staticmethod
    def _new_encoding(ernie: ErnieModel, settings: tuple[tuple[str, Any], ...]) -> Encoding:
        return Encoding.of_tokens(ernie, batch_tokens=_ALL, **dict(settings))

    def _outcomes(
        self, encoding: Encoding, samples: Sequence[Sample], rows: Sequence[int]
    ) -> Sequence[Outcome[np.ndarray]]:
        return encoding.token_outcomes(samples, rows)


class FillMask(_OfEncoder):
    """The `top` most probable tokens for each mask of a text."""

    settings = frozenset({"top"})

    def prepare(self, given: Any, row: int = 0, **settings: Any) -> Prepared:
        top = settings.get("top", 5)
        check_count("top", top, 1)
        with about(f"text {row}"):
            text = masked_text(self._model.ernie, given)
        return Prepared(len(text.sample), (text, top, row))

    def compute(self, batch: Sequence[Prepared]) -> list[Outcome[list[list[Filled]]]]:
        texts, tops, rows = zip(*(prepared.content for prepared in batch), strict=True)
        with precision(self._model.precision), batch_invariant():
            return fill_masked(self._model.ernie, texts, tops, rows)


def _setting(name: str, value: Any) -> Any:
    """Return the value of a setting, as a cache can keep it.  Raises UserError for one of another type."""
    types, kind = _SETTINGS[name]
    if value is not None and not isinstance(value, types):
        raise UserError(f"{name}: expected {kind}, found {value!r:.60}")
    if isinstance(value, list | tuple):
        return tuple(str(item) for item in value)
    return value


@face("encode")
class TextEncoder(Face):
    """Turns texts into vectors, and fills masks.

    `encode` and `fill_mask` raise the error of a text, as the methods of ErnieModel do.  `encode_each` and `fill_masks`
    return the error in the place of the text's result.
    """

    def __init__(self, model: LoadedEncoder):
        super().__init__(model)

    @cached_property
    def operations(self) -> Mapping[str, Operation]:
        """`encode`: the vector of a text, `encode_tokens`: those of its tokens, and perhaps `fill_mask`."""
        operations: dict[str, Operation] = {"encode": Encode(self.model), "encode_tokens": EncodeTokens(self.model)}
        if self.model.ernie.masked_head is not None:
            operations["fill_mask"] = FillMask(self.model)
        return operations

    @cached_property
    def facts(self) -> Facts:
        """What the encoder is."""
        config = self.model.ernie.config
        return Facts(config.layers, config.hidden_size, weight_count(self.model.ernie))

    def encode(self, texts: Iterable[Text], **settings: Any) -> np.ndarray:
        """Return a vector for each text, (N, D): see `ErnieModel.encode`."""
        with precision(self.precision):
            vectors: np.ndarray = self.model.ernie.encode(texts, **settings)
        return vectors

    def encode_tokens(self, texts: Iterable[Text], **settings: Any) -> list[np.ndarray]:
        """Return the vectors of each text's tokens, (n, D): see `ErnieModel.encode_tokens`."""
        with precision(self.precision):
            vectors: list[np.ndarray] = self.model.ernie.encode_tokens(texts, **settings)
        return vectors

    def encode_each(self, texts: Iterable[Text], **settings: Any) -> list[Outcome[np.ndarray]]:
        """Return the outcome of each text: its vector (D,) or its error, and a note if its end was cut off."""
        with precision(self.precision):
            return encode_each(self.model.ernie, texts, **settings)

    def fill_mask(self, text: str, top: int = 5) -> list[list[Filled]]:
        """Return the most probable tokens for each mask: see `ErnieModel.fill_mask`."""
        (outcome,) = self.fill_masks([text], top)
        return outcome.get()

    def fill_masks(self, texts: Sequence[str], top: int = 5) -> list[Outcome[list[list[Filled]]]]:
        """Return the outcome of each text, computed as one batch."""
        with precision(self.precision):
            return fill_masks(self.model.ernie, texts, top)
