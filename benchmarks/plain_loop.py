"""A training loop in plain Paddle, as in docs/howto/python.md, beside the step of `ernie finetune` on the same batches.

  python benchmarks/plain_loop.py [--turns 60] [--records DIR]

BERT-base shape and the first batch of SST-2 lengths in benchmarks/lengths.json.  Each side is its own process; they
take turns of one step, so that the sides of a turn run within seconds of each other.  The ratio is the median over the
turns of the speed beside that of `ernie finetune` in the same turn.  `--records` gets a file with all figures.

Set before the first run: the loop of docs/howto/python.md has nine tenths of the speed.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from outcomes import report
from page_tables import plain_loop
from record_files import Records
from steps import CASES, record_turns

CASE = {**CASES["finetune-sst2"], "batches": CASES["finetune-sst2"]["batches"][:1]}
SIDES = {
    "`ernie finetune`": "steps_ours.py",
    "`ernie.AdamW`": "steps_plain.py",
    "`paddle.optimizer.AdamW`": "steps_plain.py --paddle",
}


def main() -> None:
    """Take the turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=60)
    parser.add_argument("--records", type=Path, metavar="DIR", default=Path("runs/benchmarks/plain-loop"))
    arguments = parser.parse_args()
    record_turns(SIDES, CASE, arguments.turns, arguments.records / "finetune-sst2.json")
    report(Records(arguments.records), plain_loop, targets=["plain-loop"])


if __name__ == "__main__":
    main()
