"""What-if, on paper: the planner's best layout for 8 to 4,096 devices of each kind.

  python benchmarks/what_if.py [--preset large] [--kinds a100 h100 ...] [--devices 8 64 512 4096]

Two micro-batches of 8,192 tokens per device, or the same tokens in other micro-batches; sequences of 512.  Nothing here
was run; the assumptions are those printed by `ernie plan`.
"""

from __future__ import annotations

import argparse

from ernie.model.config import EncoderConfig
from pretrain.planner.cost import Work
from pretrain.planner.machine import MACHINES
from pretrain.planner.plan import assumptions, described, in_bytes, in_seconds, make_plan


def main() -> None:
    """Plan and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--preset", default="large")
    parser.add_argument("--kinds", nargs="+", default=["v100", "a100", "h100"])
    parser.add_argument("--devices", nargs="+", type=int, default=[8, 64, 512, 4096])
    arguments = parser.parse_args()
    shape = EncoderConfig.preset(arguments.preset)
    print("| kind | devices | layout | micro-batches | step | tokens/s | memory | products |")
    print("|---|---|---|---|---|---|---|---|")
    for kind in arguments.kinds:
        for devices in arguments.devices:
            best = make_plan(Work(shape, 2 * devices, 8192, 512), devices, MACHINES[kind], regroup=True).best
            work = best.work
            cells = [kind, f"{devices:,}", described(best.layout), f"{work.micro_batches:,} x {work.tokens:,}"]
            cells += [in_seconds(best.seconds), f"{work.all_tokens / best.seconds:,.0f}", in_bytes(best.memory)]
            cells.append(f"{best.spent['products'] / best.seconds:.0%}")
            print(f"| {' | '.join(cells)} |", flush=True)
    print()
    for kind in arguments.kinds:
        print(f"- {assumptions(Work(shape, 2, 8192, 512), MACHINES[kind])[0]}")


if __name__ == "__main__":
    main()
