"""Vectors of texts and masked words, by an encoder without the head of a task.  Legend: N texts, D width."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ernie.kernels.precision import InferencePrecisionChoice, precision
from ernie.model.ernie import ErnieModel
from ernie.model.fill_mask import Filled, fill_masks
from ernie.model.inference import for_inference, tokenizer_of
from ernie.model.sentence_embedding import Text, encode_each
from ernie.outcome import Outcome
from ernie.text.tokenizer import Tokenizer
from inference.face import Face, face
from inference.precision import check_precision


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


@face("encode")
class TextEncoder(Face):
    """Turns texts into vectors, and fills masks.

    `encode` and `fill_mask` raise the error of a text, as the methods of ErnieModel do.  `encode_each` and `fill_masks`
    return the error in the place of the text's result.
    """

    def __init__(self, model: LoadedEncoder):
        super().__init__(model)

    def encode(self, texts: Iterable[Text], **settings: Any) -> np.ndarray:
        """Return a vector for each text, (N, D): see `ErnieModel.encode`."""
        with precision(self.precision):
            vectors: np.ndarray = self.model.ernie.encode(texts, **settings)
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
