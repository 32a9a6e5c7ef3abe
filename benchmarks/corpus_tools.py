"""Cleaning text beside the Dolma toolkit, datatrove and NeMo Curator: MB/s and peak memory.

  python benchmarks/corpus_tools.py --data DATA --output runs/benchmarks/corpus-tools --dolma PYTHON --datatrove PYTHON
    --nemo PYTHON [--records DIR]

DATA has the folders that benchmarks/dirty_text.py names.  The text is 40 MB of Wikipedia articles, dirtied on purpose
with the seed 0, in 8 files of JSON lines.  Each PYTHON is the interpreter of an environment that has dolma,
datatrove[processing,io] with spacy, or nemo-curator[text_cpu]; a side without one is left out.  Each side reads the
files, filters the documents in two processes, and writes JSON lines.  Ours is the cleaning of `ernie data build` alone,
since what the others do ends there.  The whole command is a side of its own, which has more to do: sentences,
segmenters, tokens.  Seconds are those of the whole program with its start.  Memory is resident memory of all its
processes, sampled five times per second.  The sides take turns, three times.  Linux only.

  rules   Gopher's rules on quality and repetition, and those of C4
  exact   the same, and exact copies: all but NeMo Curator, which needs a GPU for this
  near    rules, and near duplicates by MinHash in 21 bands of 6 hashes of 5-grams: we and datatrove

The files benchmarks/peers/clean_*.py say how each side's filters differ.  Documents and MB that a side leaves are in
the records.

Set before the first run, for medians: in each case the cleaning is twice as fast as the best of the
others, and neither it nor the whole command has 1 GB of memory.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

from corpus_build import ERNIE, watch
from dirty_text import articles, dirtied, foreign, write_rows
from outcomes import report
from page_tables import CLEANING_CASES, CLEANING_SIDES, corpus_tools
from record_files import Records, cached_record, this_machine

PEERS = Path(__file__).parent / "peers"
WITHOUT = {("dolma", "near"), ("nemo", "exact"), ("nemo", "near")}
RULES = ["{kind: gopher_repetition}", "{kind: gopher_quality}", "{kind: c4}"]
LAST = {"rules": [], "exact": ["{kind: exact_duplicates}"], "near": ["{kind: near_duplicates}"]}
MEGABYTES, TURNS, PROCESSES = 40, 3, 2


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cases", nargs="*", metavar="CASE", default=list(CLEANING_CASES), help="rules, exact, near")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--dolma", metavar="PYTHON")
    parser.add_argument("--datatrove", metavar="PYTHON")
    parser.add_argument("--nemo", metavar="PYTHON")
    parser.add_argument("--megabytes", type=float, default=MEGABYTES, help="of articles, before they are dirtied")
    parser.add_argument("--turns", type=int, default=TURNS)
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    if unknown := set(arguments.cases).difference(CLEANING_CASES):
        parser.error(f"expected some of {', '.join(CLEANING_CASES)}; found {', '.join(sorted(unknown))}")
    records = arguments.records or arguments.output / "records"
    text, tokenizer = arguments.output / "text", arguments.output / "tokenizer"
    if not tokenizer.is_dir():
        write_rows(text, dirtied(articles(arguments.data, arguments.megabytes), foreign(arguments.data), 0))
        words = ["tokenizer", "train", "--input", str(text), "--vocab-size", "20000", "--output", str(tokenizer)]
        subprocess.run([*ERNIE, *words, "--quiet"], check=True, stdout=sys.stderr)
    pythons = {"ours": sys.executable, **{side: getattr(arguments, side) for side in ("dolma", "datatrove", "nemo")}}
    for case in arguments.cases:
        for turn in range(arguments.turns):
            for side in CLEANING_SIDES:
                work = arguments.output / "work"
                if side == "build":
                    command = building(text, tokenizer, work, case)
                elif pythons[side] is None or (side, case) in WITHOUT:
                    continue
                else:
                    command = cleaning(pythons[side], side, text, work, case)
                cached_record(records / case / f"{side}-{turn}.json", partial(measured, command, text, work))
    report(Records(records), corpus_tools, targets=[f"corpus-tools-{case}" for case in arguments.cases])


def cleaning(python: str, side: str, text: Path, work: Path, case: str) -> list[str]:
    """The command that cleans with a side's filters."""
    folders = ["--input", str(text), "--output", str(work / "left"), "--work", str(work / "own")]
    return [python, str(PEERS / f"clean_{side}.py"), *folders, "--case", case, "--processes", str(PROCESSES)]


def building(text: Path, tokenizer: Path, work: Path, case: str) -> list[str]:
    """The command that builds a corpus."""
    folders = ["--input", str(text), "--tokenizer", str(tokenizer), "--output", str(work / "corpus")]
    options = ["--set", f"clean=[{', '.join(RULES + LAST[case])}]", "--processes", str(PROCESSES), "--quiet"]
    return [*ERNIE, "data", "build", *folders, *options]


def measured(command: list[str], text: Path, work: Path) -> dict[str, Any]:
    """Run a command in a new folder; return its time, its memory, and what it leaves."""
    shutil.rmtree(work, ignore_errors=True)
    work.mkdir(parents=True)
    seconds, resident, proportional = watch(command)
    lines = [line for file in sorted((work / "left").rglob("*.jsonl")) for line in file.open("rb")]
    return {
        "megabytes": sum(file.stat().st_size for file in text.iterdir()) / 1e6,
        "seconds": round(seconds, 2),
        "resident MB": round(resident),
        "proportional MB": round(proportional),
        "documents left": len(lines),
        "megabytes left": sum(map(len, lines)) / 1e6,
        **this_machine(),
    }


if __name__ == "__main__":
    main()
