"""The speed and memory of building a corpus, beside tokenization alone.

    python benchmarks/corpus_build.py INPUT... [--processes 1 2]

Builds a corpus of INPUT with the default segmenters and a vocabulary trained on INPUT, with one and with two worker
processes, and runs `tokenizers`' encode_batch alone on the same paragraphs in as many threads.  Time is the wall-clock
time of the whole command.  Memory is the sum over all its processes, sampled 5 times per second: resident (shared pages
count in each process) and proportional (they count once).  Linux only.
Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from ernie.data.raw import RawDocument
from ernie.data.read import read_documents

ERNIE = [sys.executable, "-m", "ernie.cli"]
VOCABULARY = 20_000
MOST_UNWATCHED = 10  # seconds between two samples of memory


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("input", nargs="+", metavar="INPUT")
    parser.add_argument("--processes", nargs="+", type=int, default=[1, 2], metavar="N")
    arguments = parser.parse_args()
    documents = (item for item in read_documents(arguments.input) if isinstance(item, RawDocument))
    megabytes = sum(len(document.text.encode()) for document in documents) / 1e6
    print(f"{megabytes:.1f} MB of text, vocabulary of {VOCABULARY:,}\n")
    print("| | workers | MB/s | seconds | resident, MB | proportional, MB |\n|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder) / "tokenizer"
        train = ["tokenizer", "train", "--vocab-size", str(VOCABULARY), "--sample-mb", "10", "--quiet"]
        subprocess.run(
            [*ERNIE, *train, "--output", str(tokenizer), "--input", *arguments.input], check=True, stdout=sys.stderr
        )
        for processes in arguments.processes:
            output = Path(folder) / f"corpus-{processes}"
            build = ["data", "build", "--tokenizer", str(tokenizer), "--output", str(output), "--quiet"]
            seconds, resident, proportional = watch(
                [*ERNIE, *build, "--processes", str(processes), "--input", *arguments.input]
            )
            row = f"{processes} | {megabytes / seconds:.1f} | {seconds:.1f} | {resident:.0f} | {proportional:.0f} |"
            print(f"| ernie data build | {row}", flush=True)
        for threads in arguments.processes:
            seconds = alone(tokenizer, arguments.input, threads)
            print(f"| encode_batch alone | {threads} | {megabytes / seconds:.1f} | {seconds:.1f} | | |", flush=True)


def watch(command: Sequence[str]) -> tuple[float, float, float]:
    """Run a command; return its seconds, and the peak resident and proportional memory of its processes in MB.

    Stops the program if the command failed, or if the machine stood still meanwhile, so that nothing was measured.
    """
    started = last = time.perf_counter()
    resident = proportional = unwatched = 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as process:
        while process.poll() is None:
            sums = [_memory(pid) for pid in _process_tree(process.pid)]
            resident = max(resident, sum(rss for rss, _ in sums))
            proportional = max(proportional, sum(pss for _, pss in sums))
            time.sleep(0.2)
            last, before = time.perf_counter(), last
            unwatched = max(unwatched, last - before)
        seconds = time.perf_counter() - started
    if process.returncode:
        sys.exit(f"{' '.join(command)} failed with status {process.returncode}")
    if unwatched > MOST_UNWATCHED:
        sys.exit(f"{' '.join(command)} was not watched for {unwatched:.0f} seconds: measure again on an idle machine")
    return seconds, resident, proportional


def _process_tree(pid: int) -> Iterator[int]:
    """The ids of a process and all its descendants."""
    yield pid
    for children in Path(f"/proc/{pid}/task").glob("*/children"):
        try:
            pids = children.read_text().split()
        except OSError:  # it has just ended
            continue
        for child in pids:
            yield from _process_tree(int(child))


def _memory(pid: int) -> tuple[float, float]:
    """Resident and proportional memory of a process in MB; zeros when it has just ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0, 0.0
    sizes = {line.split(":")[0]: int(line.split()[1]) / 1024 for line in lines[1:]}
    return sizes["Rss"], sizes["Pss"]


def alone(tokenizer: Path, paths: Sequence[str], threads: int) -> float:
    """Seconds that `tokenizers` takes to encode the paragraphs, already in memory, with `threads` threads."""
    os.environ["RAYON_NUM_THREADS"] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "true"
    with ProcessPoolExecutor(1, get_context("spawn")) as executor:  # a process reads its threads at the start
        return executor.submit(_encode, tokenizer / "vocab.txt", paths).result()


def _encode(vocabulary: Path, paths: Sequence[str]) -> float:
    from tokenizers import BertWordPieceTokenizer

    tokenizer = BertWordPieceTokenizer(str(vocabulary))
    documents = [item for item in read_documents(paths) if isinstance(item, RawDocument)]
    paragraphs = [paragraph for document in documents for paragraph in document.text.split("\n")]
    started = time.perf_counter()
    for first in range(0, len(paragraphs), 1000):
        tokenizer.encode_batch(paragraphs[first : first + 1000], add_special_tokens=False)
    return time.perf_counter() - started


if __name__ == "__main__":
    main()
