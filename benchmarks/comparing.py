"""Can an encoder compare two texts, before and after training?

  python benchmarks/comparing.py CORPUS --data GLUE --output runs/comparing [--steps 0 3000] [--seeds 0 1 2]

CORPUS is a folder written by `ernie data build`, GLUE one with the files of benchmarks/finetuning.py.  Encoders of 4
layers of 256 start from random weights, with heads that attend to a token's neighbors, and with another head that
attends to the same token elsewhere, as ErnieModel does (`mixed`, `neighbours` and `neighbours and likeness` of
benchmarks/plateau.py).  They are trained on knowledge masking for each number of steps (0: not at all) and fine-tuned
on five tasks, on the first 8,000 rows of each: two with single sentences and three with pairs.  Finished work is kept;
the results of each arm are a small file under `--records` (by default in OUTPUT), and the tables show all files.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

from evidence import SEEDS, downstream_rows, fine_tune
from outcomes import report
from page_tables import comparing
from plateau import ARMS, trained_model
from record_files import TUNED, Records, cached_record, slug

PLATEAU_ARMS = {"by chance": "mixed", "neighbours": "neighbours", "neighbours and likeness": "neighbours and likeness"}


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--data", type=Path, required=True, metavar="GLUE")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, nargs="+", default=[0, 3000])
    parser.add_argument("--seeds", type=int, nargs="+", default=SEEDS)
    parser.add_argument("--arms", nargs="+", choices=PLATEAU_ARMS, default=list(PLATEAU_ARMS))
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    rows = downstream_rows(arguments.data, arguments.output / "data")

    def record(arm: str, steps: int, seed: int) -> dict[str, Any]:
        run = arguments.output / f"steps-{steps}" / f"{slug(arm)}-{seed}"
        model = trained_model(arguments.corpus, run, ARMS[PLATEAU_ARMS[arm]], steps, seed)
        return {TUNED: fine_tune(model, run.with_name(f"{run.name}-downstream"), rows, seed)}

    folder = arguments.records or arguments.output / "records"
    for steps in arguments.steps:
        records = folder / f"steps-{steps}"
        for seed in arguments.seeds:
            for arm in arguments.arms:
                cached_record(records / f"{slug(arm)}-{seed}.json", partial(record, arm, steps, seed))
    report(Records(folder), comparing)


if __name__ == "__main__":
    main()
