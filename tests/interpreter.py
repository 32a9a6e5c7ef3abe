"""A tiny translator trained on three words of German."""

from __future__ import annotations

from functools import cache

from toys import TOKENIZER, TOYS, tiny_encoder

from ernie.data.labeled.read import Split
from ernie.train.settings import RateConfig
from finetune.config import TrainConfig
from finetune.loop import finetune
from finetune.model import FinetunedModel
from finetune.prepare import prepare


@cache
def trained_translator() -> FinetunedModel:
    """The model, trained once per test process."""
    toy = TOYS["translate"]
    train, dev = (
        prepare(toy.task, Split(name, toy.rows(count, seed)), TOKENIZER)
        for name, count, seed in (("train", 480, 0), ("dev", 20, 1))
    )
    model, _ = finetune(
        tiny_encoder(32), toy.task, train, dev, TrainConfig(epochs=10, batch=16, rate=RateConfig(peak=4e-3))
    )
    return model
