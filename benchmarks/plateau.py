"""What gets pretraining off the plateau of the tokens' frequencies?

  python benchmarks/plateau.py CORPUS --output runs/plateau [--steps 800] [--seeds 0 1 2]

CORPUS is a folder that `ernie data build` wrote.  An encoder of 4 layers of 256 learns knowledge masking for a few
minutes, from weights that differ in one thing: `drawn` has random positions as BERT has, `waves` those that ErnieModel
begins with.  Their other weights are the same.  The batches are of 16 sequences of 64 tokens, and with `large batches`
twice as many in half the steps.  What is done is kept.
"""

from __future__ import annotations

import argparse
import math
import statistics
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from evidence import COMMON, MASKED, SEEDS, pretrain, slug

from ernie.data.shards import Corpus
from ernie.model.ernie import ErnieModel
from ernie.train.log import read_records
from pretrain.config import ModelConfig
from pretrain.model import shape

LARGE = {**COMMON["data"], "batch_tokens": 2 * COMMON["data"]["batch_tokens"]}
ARMS: dict[str, tuple[bool, dict[str, Any]]] = {  # whether positions are drawn, and what is changed
    "drawn": (True, {}),
    "waves": (False, {}),
    "waves, large batches": (False, {"data": LARGE}),
}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=800)
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    arguments = parser.parse_args()
    found: dict[str, list[tuple[float, float]]] = {name: [] for name in ARMS}
    for seed in arguments.seeds:
        for name, (drawn, changes) in ARMS.items():
            run = arguments.output / f"{slug(name)}-{seed}"
            steps = arguments.steps // 2 if changes else arguments.steps
            model = beginning(arguments.corpus, run.with_name(f"{run.name}-begins"), drawn, seed)
            tree = {**COMMON, **changes, "model": {"start_from": str(model.resolve())}}
            pretrain(arguments.corpus, {"schedule": {"stages": [{MASKED: steps}]}, **tree}, run, seed)
            scores = list(read_records(run, "probe"))[-1]["scores"]
            found[name].append((math.log(scores["perplexity"]["value"]), scores["accuracy"]["value"]))
    print("| positions | held-out loss | masked tokens right |\n|---|---|---|")
    for name, scores in found.items():
        cells = [
            f"{statistics.median(column):.3f} ({min(column):.3f} to {max(column):.3f})"
            for column in zip(*scores, strict=True)
        ]
        print(f"| {name} | {' | '.join(cells)} |")


def beginning(corpus: Path, folder: Path, drawn: bool, seed: int) -> Path:
    """A model that knows nothing; with `drawn` its positions are as random as its other weights."""
    if not folder.is_dir():
        paddle.seed(seed)
        tokenizer = Corpus.open(corpus).tokenizer
        model = ErnieModel(shape(ModelConfig(**COMMON["model"]), tokenizer))
        model.tokenizer = tokenizer
        if drawn:
            table = model.embedding.position.weight
            deviation = model.config.initializer_range
            table.set_value(np.random.default_rng(seed).normal(0, deviation, table.shape).astype(np.float32))
        model.save_pretrained(folder)
    return folder


if __name__ == "__main__":
    main()
