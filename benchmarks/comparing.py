"""Can an encoder compare two texts, before it has learnt anything and after?

  python benchmarks/comparing.py CORPUS --data GLUE --output runs/comparing [--steps 0 3000] [--seeds 0 1 2]

CORPUS is a folder that `ernie data build` wrote, GLUE one with the files of benchmarks/finetuning.py.  Encoders of 4
layers of 256 begin by chance, with heads that look at a token's neighbours, and with one that looks at the same token
elsewhere besides, as ErnieModel does (`mixed`, `neighbours` and `neighbours and likeness` of benchmarks/plateau.py).
They learn knowledge masking for so many steps, 0 being none, and are fine-tuned on five tasks, the first 8,000 rows
of each: two of single sentences and three of pairs.  What is done is kept; what came out of each is a small file
under `--records` (by default in OUTPUT), and all that are there make the table.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from evidence import SEEDS, TUNED, downstream, downstream_rows, fine_tune, kept, read_records_of, slug
from plateau import ARMS, learnt

BEGINNINGS = {"by chance": "mixed", "neighbours": "neighbours", "neighbours and likeness": "neighbours and likeness"}


def main() -> None:
    """Run what is missing and print a table for each number of steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, required=True, metavar="GLUE")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 3000])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--arms", nargs="+", choices=BEGINNINGS, default=list(BEGINNINGS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    rows = downstream_rows(arguments.data, arguments.output / "data")

    def record(begins_with: str, steps: int, seed: int) -> dict[str, Any]:
        run = arguments.output / f"steps-{steps}" / f"{slug(begins_with)}-{seed}"
        model = learnt(arguments.corpus, run, ARMS[BEGINNINGS[begins_with]], steps, seed)
        return {TUNED: fine_tune(model, run.with_name(f"{run.name}-downstream"), rows, seed)}

    folder = arguments.records or arguments.output / "records"
    for steps in arguments.steps:
        there = folder / f"steps-{steps}"
        for seed in arguments.seeds:
            for arm in arguments.arms:
                kept(there / f"{slug(arm)}-{seed}.json", partial(record, arm, steps, seed))
        print(f"After {steps:,} steps:\n")
        found = {arm: records for arm in BEGINNINGS if (records := read_records_of(there, slug(arm)))}
        print(downstream(found), end="\n\n")


if __name__ == "__main__":
    main()
