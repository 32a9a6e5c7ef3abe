"""The model that the other examples use: the one you name, the quickstart's, or a tiny untrained one."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path

import paddle

from ernie import ErnieModel
from ernie.model.config import EncoderConfig
from ernie.model.heads import MaskedTokenHead
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece

QUICKSTART = Path("runs/quickstart/pretrain")


def any_model(texts: Iterable[str]) -> ErnieModel:
    """Return the model in the folder named on the command line, else the quickstart's, else a tiny untrained one."""
    if sys.argv[1:]:
        return ErnieModel.from_pretrained(sys.argv[1])
    if QUICKSTART.is_dir():
        print(f"The model is the quickstart's, {QUICKSTART}.\n")
        return ErnieModel.from_pretrained(QUICKSTART)
    print("The model is tiny and untrained: expect nonsense. Run 'make quickstart' first for one that is trained,")
    print(f"or name a model's folder: python {sys.argv[0]} FOLDER\n")
    return untrained(texts)


def untrained(texts: Iterable[str]) -> ErnieModel:
    """Make a model of two layers with random weights, whose vocabulary is the words of `texts`."""
    words = WordPiece(SPECIAL_TOKENS).split(" ".join(texts).lower())
    tokenizer = WordPiece([*SPECIAL_TOKENS, *dict.fromkeys(words)])
    paddle.seed(0)
    model = ErnieModel(EncoderConfig(tokenizer.vocab_size, 128, layers=2, heads=2, intermediate_size=512))
    model.tokenizer, model.masked_head = tokenizer, MaskedTokenHead(model)
    model.eval()
    return model
