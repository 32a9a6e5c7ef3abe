"""What gets pretraining off the plateau at which it predicts token frequencies?

  python benchmarks/plateau.py CORPUS --output runs/plateau [--steps 3000] [--seeds 0 1 2] [--arms ...]

CORPUS is a folder written by `ernie data build`.  An encoder of 4 layers of 256 is trained on knowledge masking for a
quarter of an hour.  In `as it was` its weights are random, except for sinusoidal positions; of the words to predict,
every tenth is shown and every tenth replaced by another word; 16 batches at a time come from the same few documents
(`data.shuffle_buffer_tokens: 0`).  Each of the next arms differs in one thing: `drawn` has random positions, as BERT;
`all hidden` shows none of the words to predict, as the whole-word collator of transformers; `small weights` have a
deviation of 0.02, as BERT; `as BERT` combines the first three of these; `mixed` has batches from some hundred
documents, `mixed throughout` from all.  `neighbours` is mixed and starts with heads that attend to a token's neighbors
(`ernie.model.initialization`); `neighbours, few documents` and `neighbours, all hidden` differ from it, as does
`neighbours and likeness`, which starts as ErnieModel does now: one more head attends to the same token elsewhere.
`beta1 0.5`, `beta2 0.999`, `beta2 0.9999` and `both` (the first two) are that last one with a shorter memory of AdamW
for the mean of the gradients or a longer one for their squares.

All are measured on the same held-out words, all of them masked: a word that is shown to a model says nothing about what
it has learned.  For the same text it is also reported how much the hidden states of its tokens differ, behind the
embeddings and behind each layer: their deviation over the tokens, averaged over the features.  An encoder whose hidden
states have become alike knows nothing of the text.  Finished work is kept; the results of each arm are a small file
under `--records` (by default in OUTPUT), and the table shows all files.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import paddle
from evidence import COMMON, MASKED, SEEDS, hidden_words, pretrain
from outcomes import report
from page_tables import plateau
from record_files import Records, cached_record, slug

from ernie.data.batch import pack
from ernie.data.shards import Corpus
from ernie.data.stream import SHUFFLE_BUFFER_TOKENS
from ernie.model.ernie import ErnieModel
from ernie.model.initialization import (
    initialize,
    initialize_matching_head,
    initialize_neighbor_heads,
    initialize_positions,
)
from pretrain.config import ModelConfig
from tasks.base import single

FEW: dict[str, Any] = {**COMMON["data"], "shuffle_buffer_tokens": 0}
SOME = {**FEW, "shuffle_buffer_tokens": SHUFFLE_BUFFER_TOKENS}
HIDDEN = {MASKED: {**COMMON["tasks"][MASKED], "mask_replace_prob": 1.0, "random_replace_prob": 0.0}}
BERT_DEVIATION = 0.02  # of BERT's initial weights, for every width


@dataclass(frozen=True)
class Arm:
    """The functions that initialize heads, whether positions are random, the deviation of the initial weights if not
    the preset's, and other changes of the configuration."""

    heads: tuple[Callable[[ErnieModel], None], ...] = ()
    random_positions: bool = False
    deviation: float | None = None
    changes: dict[str, Any] = field(default_factory=dict)


NEIGHBOURS = (initialize_neighbor_heads,)
AS_NOW = (*NEIGHBOURS, initialize_matching_head)
MOMENTS = {
    "beta1 0.5": {"beta1": 0.5},
    "beta2 0.999": {"beta2": 0.999},
    "beta2 0.9999": {"beta2": 0.9999},
    "both": {"beta1": 0.5, "beta2": 0.999},
}


def with_adam(**adam: float) -> dict[str, Any]:
    """The training settings with other AdamW coefficients than the defaults."""
    return {**COMMON["train"], "adam": adam}


ARMS = {
    "as it was": Arm(),
    "all hidden": Arm(changes={"tasks": HIDDEN}),
    "drawn": Arm(random_positions=True),
    "small weights": Arm(deviation=BERT_DEVIATION),
    "as BERT": Arm(random_positions=True, deviation=BERT_DEVIATION, changes={"tasks": HIDDEN}),
    "mixed": Arm(changes={"data": SOME}),
    "mixed throughout": Arm(changes={"data": {**FEW, "shuffle_buffer_tokens": 2**22}}),
    "neighbours": Arm(heads=NEIGHBOURS, changes={"data": SOME}),
    "neighbours, few documents": Arm(heads=NEIGHBOURS),
    "neighbours, all hidden": Arm(heads=NEIGHBOURS, changes={"data": SOME, "tasks": HIDDEN}),
    "neighbours and likeness": Arm(heads=AS_NOW, changes={"data": SOME}),
    **{name: Arm(heads=AS_NOW, changes={"data": SOME, "train": with_adam(**adam)}) for name, adam in MOMENTS.items()},
}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    name = f"steps-{arguments.steps}"
    folder, records = arguments.output / name, (arguments.records or arguments.output / "records") / name

    def record(label: str, seed: int) -> dict[str, Any]:
        model = trained_model(arguments.corpus, folder / f"{slug(label)}-{seed}", ARMS[label], arguments.steps, seed)
        return {**hidden_words(model, arguments.corpus), "deviations": deviations(model, arguments.corpus)}

    for seed in arguments.seeds:
        for arm in arguments.arms:
            cached_record(records / f"{slug(arm)}-{seed}.json", partial(record, arm, seed))
    report(Records(records), plateau)


@paddle.no_grad()
def deviations(model: Path, corpus: Path) -> list[float]:
    """How much the hidden states of held-out tokens differ, behind the embeddings and behind each layer."""
    ernie, opened = ErnieModel.from_pretrained(model), Corpus.open(corpus)
    ernie.eval()
    inner = COMMON["data"]["max_len"] - 2
    batch = pack([single(opened.tokenizer, opened.held_out[n].ids[:inner]) for n in range(len(opened.held_out))])
    x_TD = ernie.embedding(batch.ids, batch.segments, batch.layout.positions, 0)
    states = [x_TD]
    ernie.encoder(x_TD, batch.layout, states=states)
    return [float(state.numpy().std(0).mean()) for state in states]


def trained_model(corpus: Path, run: Path, arm: Arm, steps: int, seed: int) -> Path:
    """The folder of an arm's model after `steps` steps; after 0 steps, its initial model."""
    initial = initial_model(corpus, run.with_name(f"{run.name}-begins"), arm, seed)
    if not steps:
        return initial
    tree = {**COMMON, "data": FEW, **arm.changes, "model": {"start_from": str(initial.resolve())}}
    return pretrain(corpus, {"schedule": {"stages": [{MASKED: steps}]}, **tree}, run, seed) / "model"


def initial_model(corpus: Path, folder: Path, arm: Arm, seed: int) -> Path:
    """The folder of an untrained model with the initial weights of an arm."""
    if not folder.is_dir():
        paddle.seed(seed)
        tokenizer = Corpus.open(corpus).tokenizer
        config = ModelConfig(**COMMON["model"]).shape(tokenizer.vocab_size)
        if arm.deviation is not None:
            config = replace(config, initializer_range=arm.deviation)
        model = ErnieModel(config)
        model.tokenizer = tokenizer
        initialize(model, config.initializer_range)
        if not arm.random_positions:
            initialize_positions(model)
        for initialize_heads in arm.heads:
            initialize_heads(model)
        model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
