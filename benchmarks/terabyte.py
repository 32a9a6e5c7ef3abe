"""A simulated terabyte through the planner of `ernie data build`: what the process that plans needs of memory.

    python benchmarks/terabyte.py [--engine local ray]

One file's size stands for many: inputs are repeated until they have 10 GB, 100 GB and 1 TB, and only descriptions of
their parts go to the workers, which answer at once without reading.  Everything else is as in a build: the parts, the
order of the results, and how many are in flight.  Memory is the peak resident size of the planning process, and its
growth over the first 1,000 parts.  Linux only.  Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import overload

from ernie.data.parts import Part, parts
from ernie.data.raw import ReadOptions
from ernie.data.read import Input
from pretrain.corpus.engines import ENGINES, EngineName, open_engine

SIZES = {"10 GB": 10**10, "100 GB": 10**11, "1 TB": 10**12}
FILE = 256_000_000  # bytes
WARM = 1000  # parts, after which memory is looked at first


class Repeated(Sequence[Input]):
    """An input, many times."""

    def __init__(self, source: Input, count: int):
        self._source, self._count = source, count

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Input]:
        return (self._source for _ in range(self._count))

    @overload
    def __getitem__(self, i: int) -> Input: ...
    @overload
    def __getitem__(self, i: slice) -> Sequence[Input]: ...
    def __getitem__(self, i: int | slice) -> Input | Sequence[Input]:
        return self._source if isinstance(i, int) else [self._source] * len(range(self._count)[i])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", nargs="+", choices=ENGINES, default=["local"])
    parser.add_argument("--one", choices=SIZES, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.one:
        print(run(arguments.engine[0], SIZES[arguments.one]))
        return
    print("| | engine | parts | seconds | peak, MB | growth, MB |\n|---|---|---|---|---|---|")
    for engine in arguments.engine:
        for size in SIZES:  # each in a process of its own, since a peak does not go down
            command = [sys.executable, __file__, "--engine", engine, "--one", size]
            done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
            print(f"| {size} | {engine} | {done.stdout.strip()}", flush=True)


def run(engine: EngineName, size: int) -> str:
    """Plan inputs of `size` bytes together; return the columns of the table."""
    inputs = Repeated(Input("text.jsonl", FILE), size // FILE)
    started, first, count, end = time.perf_counter(), 0.0, 0, 0
    with tempfile.TemporaryDirectory() as folder, open_engine(engine, 2, Path(folder) / "corpus") as workers:
        for done in workers.map(_end, parts(inputs, ReadOptions())):
            count, end = count + 1, done
            first = first or (_peak() if count == WARM else 0.0)
    assert end == FILE * len(inputs)
    seconds, peak = time.perf_counter() - started, _peak()
    return f"{count:,} | {seconds:.0f} | {peak:.0f} | {peak - first:.1f} |"


def _end(part: Part) -> int:
    return part.end


def _peak() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
