"""What gets pretraining off the plateau of the tokens' frequencies?

  python benchmarks/plateau.py CORPUS --output runs/plateau [--steps 3000] [--seeds 0 1 2] [--arms ...]

CORPUS is a folder that `ernie data build` wrote.  An encoder of 4 layers of 256 learns knowledge masking for a quarter
of an hour, `as it was`: its weights are drawn by chance, but for positions, which are waves; of the words that it is to
tell it sees every tenth, and another word in place of every tenth; 16 batches at a time are of the same few documents
(`data.mixed: 0`).  Each of the others differs in one thing: `drawn` has positions drawn by chance, as BERT's; `all
hidden` sees none of the words that it is to tell, as by transformers' collator for whole words; `small weights` have a
deviation of 0.02, as BERT's; `as BERT` is the first three of these; `mixed` has batches of some hundred documents,
`mixed throughout` of all.  `neighbours` is mixed and begins with heads that look at a token's neighbours
(`ernie.model.beginning`); from it differ `neighbours, few documents` and `neighbours, all hidden`, and `neighbours and
likeness`, which begins as ErnieModel does now: one more head looks at the same token elsewhere.  `beta1 0.5`, `beta2
0.999`, `beta2 0.9999` and `both` (the first two) are the last one with AdamW remembering less of the gradients' mean or
more of their squares.

All are measured by the same held-out words, all of them hidden: a word that a model is shown tells nothing of what it
has learnt.  And of the same text it is told how much the vectors of its tokens differ, behind the embeddings and behind
each layer: the deviation over the tokens, in the mean of the features.  An encoder whose vectors have become alike
knows nothing of the text.  What is done is kept; what came out of each arm is a small file under `--records` (by
default in OUTPUT), and all that are there make the table.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import paddle
from evidence import COMMON, MASKED, SEEDS, hidden_words, kept, pretrain, read_records_of, slug
from finetuning import spread

from ernie.data.batch import pack
from ernie.data.shards import Corpus
from ernie.data.stream import MIXED
from ernie.model.beginning import begin_likeness, begin_neighbours, begin_positions, initialize
from ernie.model.ernie import ErnieModel
from pretrain.config import ModelConfig
from tasks.base import single

FEW: dict[str, Any] = {**COMMON["data"], "mixed": 0}
SOME = {**FEW, "mixed": MIXED}
HIDDEN = {MASKED: {**COMMON["objectives"][MASKED], "mask": 1.0, "random": 0.0}}
BERTS = 0.02  # the deviation of BERT's first weights, whatever its width


@dataclass(frozen=True)
class Arm:
    """What gives heads something to begin with, whether positions are drawn, the deviation of the first weights if not
    the preset's, what else is changed."""

    heads: tuple[Callable[[ErnieModel], None], ...] = ()
    drawn: bool = False
    deviation: float | None = None
    changes: dict[str, Any] = field(default_factory=dict)


NEIGHBOURS = (begin_neighbours,)
AS_NOW = (*NEIGHBOURS, begin_likeness)
MOMENTS = {
    "beta1 0.5": {"beta1": 0.5},
    "beta2 0.999": {"beta2": 0.999},
    "beta2 0.9999": {"beta2": 0.9999},
    "both": {"beta1": 0.5, "beta2": 0.999},
}


def remembering(**adam: float) -> dict[str, Any]:
    """The settings of a step with other moments than by default."""
    return {**COMMON["train"], "adam": adam}


ARMS = {
    "as it was": Arm(),
    "all hidden": Arm(changes={"objectives": HIDDEN}),
    "drawn": Arm(drawn=True),
    "small weights": Arm(deviation=BERTS),
    "as BERT": Arm(drawn=True, deviation=BERTS, changes={"objectives": HIDDEN}),
    "mixed": Arm(changes={"data": SOME}),
    "mixed throughout": Arm(changes={"data": {**FEW, "mixed": 2**22}}),
    "neighbours": Arm(heads=NEIGHBOURS, changes={"data": SOME}),
    "neighbours, few documents": Arm(heads=NEIGHBOURS),
    "neighbours, all hidden": Arm(heads=NEIGHBOURS, changes={"data": SOME, "objectives": HIDDEN}),
    "neighbours and likeness": Arm(heads=AS_NOW, changes={"data": SOME}),
    **{name: Arm(heads=AS_NOW, changes={"data": SOME, "train": remembering(**adam)}) for name, adam in MOMENTS.items()},
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
        model = learnt(arguments.corpus, folder / f"{slug(label)}-{seed}", ARMS[label], arguments.steps, seed)
        return {**hidden_words(model, arguments.corpus), "deviations": deviations(model, arguments.corpus)}

    for seed in arguments.seeds:
        for arm in arguments.arms:
            kept(records / f"{slug(arm)}-{seed}.json", partial(record, arm, seed))
    print("| | held-out loss | hidden words' tokens right | deviation behind the last layer |\n|---|---|---|---|")
    for arm in ARMS:
        if found := read_records_of(records, slug(arm)):
            losses = [f"{one['loss']:.3f}" for one in found]
            alike = [f"{one['deviations'][-1]:.2g}" for one in found]
            print(f"| {arm} | {', '.join(losses)} | {spread([one['right'] for one in found])} | {', '.join(alike)} |")


@paddle.no_grad()
def deviations(model: Path, corpus: Path) -> list[float]:
    """How much the vectors of held-out text differ, behind the embeddings and behind each layer."""
    ernie, opened = ErnieModel.from_pretrained(model), Corpus.open(corpus)
    ernie.eval()
    inner = COMMON["data"]["max_len"] - 2
    batch = pack([single(opened.tokenizer, opened.held_out[n].ids[:inner]) for n in range(len(opened.held_out))])
    x_TD = ernie.embedding(batch.ids, batch.segments, batch.layout.positions, 0)
    states = [x_TD]
    ernie.encoder(x_TD, batch.layout, states=states)
    return [float(state.numpy().std(0).mean()) for state in states]


def learnt(corpus: Path, run: Path, arm: Arm, steps: int, seed: int) -> Path:
    """The model that an arm has after so many steps; after none, what it begins with."""
    begins = beginning(corpus, run.with_name(f"{run.name}-begins"), arm, seed)
    if not steps:
        return begins
    tree = {**COMMON, "data": FEW, **arm.changes, "model": {"start_from": str(begins.resolve())}}
    return pretrain(corpus, {"schedule": {"stages": [{MASKED: steps}]}, **tree}, run, seed) / "model"


def beginning(corpus: Path, folder: Path, arm: Arm, seed: int) -> Path:
    """A model that knows nothing, with the weights that an arm begins with."""
    if not folder.is_dir():
        paddle.seed(seed)
        tokenizer = Corpus.open(corpus).tokenizer
        config = ModelConfig(**COMMON["model"]).shape(tokenizer.vocab_size)
        if arm.deviation is not None:
            config = replace(config, initializer_range=arm.deviation)
        model = ErnieModel(config)
        model.tokenizer = tokenizer
        initialize(model, config.initializer_range)
        if not arm.drawn:
            begin_positions(model)
        for begin in arm.heads:
            begin(model)
        model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
