"""A step of fine-tuning that learns low-rank updates (LoRA) beside one that learns all weights, on the same batches.

  python benchmarks/adapting.py [--turns 30] [--records DIR]

The shape of MiniLM and batches of SST-2 lengths in benchmarks/lengths.json.  Each side is its own process; they take
turns, so that the sides of a turn run within seconds of each other.  `--records` gets a file with all figures.

Set before the first run: with rank 8 in query and value, the default, a step is 1.3 times as fast.  The sides with more
matrices were added later.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from outcomes import report
from page_tables import adapting
from record_files import Records
from steps import CASES, record_turns

SHAPE = {"hidden": 384, "layers": 6, "heads": 12, "inner": 1536, "vocabulary": 30522}
SIDES = {
    "all weights": "steps_ours.py",
    "LoRA, `query` and `value`": "steps_ours.py --adapt query value",
    "LoRA, `query`, `value` and `outer`": "steps_ours.py --adapt query value outer",
    "LoRA, all six matrices": "steps_ours.py --adapt query key value attention_out inner outer",
}


def main() -> None:
    """Take the turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=30)
    parser.add_argument("--records", type=Path, metavar="DIR", default=Path("runs/benchmarks/adapting"))
    arguments = parser.parse_args()
    record_turns(SIDES, {**CASES["finetune-sst2"], "shape": SHAPE}, arguments.turns, arguments.records / "sst2.json")
    report(Records(arguments.records), adapting, targets=["adapting"])


if __name__ == "__main__":
    main()
