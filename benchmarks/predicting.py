"""The cost of predicting rows: time per 1,000 rows and peak memory of `ernie predict` as the input grows.

  python benchmarks/predicting.py RUN --input FILE

RUN is a fine-tuning run, FILE has rows for its task, which are repeated to make inputs of 1,000, 4,000 and 16,000 rows.
Time is wall-clock time of the process without its start-up: the time for an input of one row is subtracted.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from itertools import cycle, islice
from pathlib import Path

SIZES = (1000, 4000, 16000)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--input", type=Path, required=True, help="a .tsv file with a line of names")
    parser.add_argument("--batch-tokens", type=int, default=2048)
    arguments = parser.parse_args()
    header, *rows = arguments.input.read_text(encoding="utf-8").splitlines()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rows.tsv"

        def measured(count: int) -> tuple[float, float]:
            file.write_text("\n".join([header, *islice(cycle(rows), count)]) + "\n", encoding="utf-8")
            return predict(arguments.run, file, arguments.batch_tokens)

        start, idle = measured(1)
        print("| rows | seconds per 1,000 rows | peak memory, MB |\n|---|---|---|")
        print(f"| 1 | (start-up: {start:.1f} s) | {idle:.0f} |")
        for count in SIZES:
            seconds, peak = measured(count)
            print(f"| {count:,} | {1000 * (seconds - start) / count:.2f} | {peak:.0f} |", flush=True)


def predict(run: Path, file: Path, batch_tokens: int) -> tuple[float, float]:
    """Seconds and peak memory in MB of one `ernie predict`."""
    words = ["predict", str(run), "--input", str(file), "--batch-tokens", str(batch_tokens)]
    start = time.perf_counter()
    with subprocess.Popen([sys.executable, "-m", "ernie.cli", *words], stdout=subprocess.DEVNULL) as process:
        _, status, usage = os.wait4(process.pid, 0)
        process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        sys.exit(process.returncode)
    return time.perf_counter() - start, usage.ru_maxrss / 1024


if __name__ == "__main__":
    main()
