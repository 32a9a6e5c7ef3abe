"""The planner's learned search beside random search, in cases small enough to try all layouts.

  python benchmarks/layout_search.py [--seeds 20] [--budgets 50 100 200]

Four cases in which memory or bandwidth is scarce, with an encoder of the shape of BERT-large and micro-batches of any
size.  The table says how much slower the best layout found with each budget of prices is than the best of all: mean and
worst over seeds.
"""

from __future__ import annotations

import argparse
from dataclasses import replace

import numpy as np

from ernie.model.config import EncoderConfig
from pretrain.planner.cost import Work, cost
from pretrain.planner.layouts import Space, regrouped
from pretrain.planner.machine import Link, named
from pretrain.planner.search import learned_search, random_search

CASES = [  # devices, micro-batches of 8,192 tokens, memory of a device, bandwidth within a node
    (64, 256, 5e9, 100e9),
    (96, 384, 6e9, 20e9),
    (256, 1024, 8e9, 30e9),
    (1024, 4096, 6e9, 300e9),
]


def main() -> None:
    """Search and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=20)
    parser.add_argument("--budgets", type=int, nargs="+", default=[50, 100, 200])
    arguments = parser.parse_args()
    headings = [f"{search}, {budget} prices" for budget in arguments.budgets for search in ("learned", "by chance")]
    print(f"| devices | layouts | {' | '.join(headings)} |\n|{'---|' * (len(headings) + 2)}")
    for devices, micro_batches, memory, bandwidth in CASES:
        machine = replace(named("a100"), memory=memory, near=Link(bandwidth, 5e-6), base=5e8)
        space = Space(devices, regrouped(Work(EncoderConfig.preset("large"), micro_batches, 8192, 128)))
        prices = {candidate: cost(candidate.work, candidate.layout, machine) for candidate in space}
        best = min(price.seconds for price in prices.values() if price is not None)
        cells = []
        for budget in arguments.budgets:
            for search in (learned_search, random_search):
                runs = range(arguments.seeds)
                slowdown = np.array(
                    [search(space, prices.__getitem__, budget, run)[0].seconds / best - 1 for run in runs]
                )
                cells.append(f"{slowdown.mean():.1%} ({slowdown.max():.1%})")
        print(f"| {devices:,} | {len(prices):,} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
