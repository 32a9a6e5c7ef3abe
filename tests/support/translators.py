"""An untrained translator, and token ids to translate."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import paddle
from support.helpers import numbered

from ernie.decode.translator import TokenTranslator
from ernie.decode.wait_k import WaitK
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.initialization import initialize
from ernie.model.translation import TranslationHead

VOCABULARY = 60


@cache
def model() -> tuple[ErnieModel, TranslationHead]:
    """An untrained encoder and decoder, whose predictions nevertheless differ from step to step."""
    paddle.seed(5)
    shape = replace(EncoderConfig.preset("tiny"), hidden_size=32, heads=4, intermediate_size=48, max_positions=48)
    ernie = ErnieModel(replace(shape, vocab_size=VOCABULARY, initializer_range=0.4))
    ernie.tokenizer = numbered(VOCABULARY)
    head = TranslationHead(ernie, 2)
    initialize(head, 0.4)
    return ernie, head


def translator(policy: WaitK, causal: bool = True, beam: int = 1) -> TokenTranslator:
    return TokenTranslator(*model(), policy, causal=causal, beam=beam)


def texts(lengths: list[int], seed: int = 0) -> list[np.ndarray]:
    rng = np.random.default_rng(seed)
    return [rng.integers(5, VOCABULARY, length) for length in lengths]
