"""Untrained recognizers of every kind, and sounds for them."""

from __future__ import annotations

from dataclasses import replace
from functools import cache

import numpy as np
import paddle
from support.helpers import numbered

from ernie.audio.features import FeatureConfig
from ernie.audio.recurrent_config import RecurrentConfig
from ernie.decode.ctc import Beam
from ernie.decode.recognizer import Pauses, TokenRecognizer
from ernie.decode.segmentation import Segmentation
from ernie.decode.truncated_attention import SegmentDecoder
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.initialization import initialize
from ernie.model.recurrent_encoder import RecurrentEncoder
from ernie.model.speech import SpeechHead

CONFIG = FeatureConfig(bins=12, normalize="streaming", normalize_seconds=0)
BLANK, VOCABULARY = 0, 12
CHUNK, BEFORE = 3, 2
BEGIN, END = 1, 2  # the first token of a decoder, and the one that ends a segment
SEGMENTATION = Segmentation(back=2, ahead=1, longest=6)
HISTORY = 5  # tokens in the key-value cache of a decoder
ABSTRACTIONS = 3  # vectors that summarize the audio before a segment
# CTC alone, attention to segments, the same with abstractions of earlier segments, both by beam search, and CTC of a
# recurrent encoder, and of one with convolutions.
KINDS = ("ctc", "attention", "abstractions", "attention by beam", "abstractions by beam", "recurrent", "convolution")
WITH_PAUSES = tuple(f"{kind} with pauses" for kind in ("ctc", "ctc by beam", "attention", "abstractions by beam"))


@cache
def model(period: int | None = None, kind: str = "ctc") -> tuple[ErnieModel, SpeechHead]:
    """An untrained encoder, whose predictions nevertheless differ from vector to vector."""
    paddle.seed(7)
    tiny = replace(EncoderConfig.preset("tiny"), hidden_size=32, heads=4, intermediate_size=48, max_positions=60)
    ernie = ErnieModel(replace(tiny, vocab_size=VOCABULARY, initializer_range=0.3))
    ernie.tokenizer = numbered(VOCABULARY)
    shape = RecurrentConfig(layers=2, units=20, ahead=2)
    recurrent = RecurrentEncoder(32, shape, CHUNK) if kind == "recurrent" else None
    abstractions = ABSTRACTIONS * kind.startswith("abstractions")
    layers = 2 * (kind.startswith("attention") or bool(abstractions))
    kernel = 5 if kind == "convolution" else 0
    head = SpeechHead(ernie, CONFIG.features, BLANK, period, layers, HISTORY, recurrent, abstractions, kernel)
    initialize(head, 0.8)
    return ernie, head


def repeats_are_unlikely(before: tuple[int, ...], token: int) -> float:
    return -0.3 * (token in before[-1:])


def segment_decoder(head: SpeechHead, kind: str = "") -> SegmentDecoder | None:
    beam = None
    if "beam" in kind:  # whose paths become one at times, and which prefers some last tokens
        beam = Beam(
            BLANK, 4, repeats_are_unlikely, 1.0, 0.2, patience=4, end_score=lambda text: -5.0 * (text[-1:] < (7,))
        )
    return None if head.writer is None else SegmentDecoder(head, SEGMENTATION, BEGIN, END, [BLANK], beam)


def recognizer(period: int | None = None, kind: str = "ctc") -> TokenRecognizer:
    """A recognizer of one of the kinds."""
    ernie, head = model(period, kind)
    decoder, beam = segment_decoder(head, kind), Beam(BLANK, 4) if kind.startswith("ctc by beam") else None
    pauses = Pauses(4, 30) if kind.endswith("with pauses") else None
    return TokenRecognizer(ernie, head, CONFIG, chunk=CHUNK, before=BEFORE, decoder=decoder, beam=beam, pauses=pauses)


def sound(samples: int, seed: int = 0) -> np.ndarray:
    """Noise, and tones that change about 16 times a second."""
    rng = np.random.default_rng(seed)
    pitch = np.repeat(rng.uniform(200, 3500, samples // 500 + 1), 500)[:samples]
    return (0.3 * np.sin(2 * np.pi * np.cumsum(pitch) / 8000) + rng.normal(0, 0.01, samples)).astype(np.float32)
