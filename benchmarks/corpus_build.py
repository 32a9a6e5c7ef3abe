"""The speed and memory of building a corpus, beside tokenization alone.

    python benchmarks/corpus_build.py INPUT... [--processes 1 2] [--nodes 1 2] [--turns 3]

Builds a corpus of INPUT with the default segmenters and a vocabulary trained on INPUT, with one and with two worker
processes, and runs `tokenizers`' encode_batch alone on the same paragraphs in as many threads.  With --nodes it also
builds the corpus on Ray clusters of so many nodes of one core, which run on this machine beside a head that does no
work; the cluster is there before.  Time is the wall-clock time of the whole command.  Memory is the sum over all its
processes, sampled 5 times per second: resident (shared pages count in each process) and proportional (they count once);
a cluster's is not in it.  The ways take turns.  Linux only.  Prints a Markdown table with medians, and the lowest and
the highest speed.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
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
    parser.add_argument("--nodes", nargs="+", type=int, default=[], metavar="N", help="of Ray clusters")
    parser.add_argument("--turns", type=int, default=1)
    arguments = parser.parse_args()
    documents = (item for item in read_documents(arguments.input) if isinstance(item, RawDocument))
    megabytes = sum(len(document.text.encode()) for document in documents) / 1e6
    found: dict[tuple[str, int], list[tuple[float, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        tokenizer = Path(folder) / "tokenizer"
        train = ["tokenizer", "train", "--vocab-size", str(VOCABULARY), "--sample-mb", "10", "--quiet"]
        subprocess.run(
            [*ERNIE, *train, "--output", str(tokenizer), "--input", *arguments.input], check=True, stdout=sys.stderr
        )
        for _ in range(arguments.turns):
            for processes in arguments.processes:
                measured = built(arguments.input, tokenizer, "--processes", str(processes))
                found.setdefault(("ernie data build", processes), []).append(measured)
            for threads in arguments.processes:
                seconds = alone(tokenizer, arguments.input, threads)
                found.setdefault(("encode_batch alone", threads), []).append((seconds,))
            for nodes in arguments.nodes:
                with cluster(nodes):
                    measured = built(arguments.input, tokenizer, "--engine", "ray")
                found.setdefault(("ernie data build, Ray nodes", nodes), []).append(measured)
    print(f"{megabytes:.1f} MB of text, vocabulary of {VOCABULARY:,}, turns: {arguments.turns}\n")
    print("| | workers | MB/s | from | to | resident, MB | proportional, MB |\n|---|---|---|---|---|---|---|")
    for (label, count), turns in found.items():
        speeds = [megabytes / seconds for seconds, *_ in turns]
        cells = [f"{speed:.1f}" for speed in (statistics.median(speeds), min(speeds), max(speeds))]
        memory = [f"{max(each):.0f}" for each in list(zip(*turns, strict=True))[1:]]
        print(f"| {label} | {count} | {' | '.join([*cells, *memory])} |")


def built(paths: Sequence[str], tokenizer: Path, *options: str) -> tuple[float, ...]:
    """The seconds and the memory of building a corpus in a new folder."""
    with tempfile.TemporaryDirectory() as folder:
        words = ["data", "build", "--tokenizer", str(tokenizer), "--output", f"{folder}/corpus", "--quiet"]
        return watch([*ERNIE, *words, *options, "--input", *paths])


@contextmanager
def cluster(nodes: int) -> Iterator[None]:
    """Run a Ray cluster of a head without cores and of nodes with one each, as `RAY_ADDRESS`."""
    from ray.cluster_utils import Cluster

    running = Cluster(initialize_head=True, head_node_args={"num_cpus": 0, "include_dashboard": False})
    try:
        for _ in range(nodes):
            running.add_node(num_cpus=1)
        running.wait_for_nodes()
        with environment({"RAY_ADDRESS": running.address}):
            yield
    finally:
        running.shutdown()


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
    given = {"RAYON_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "true"}
    with environment(given), ProcessPoolExecutor(1, get_context("spawn")) as executor:  # which reads it at the start
        return executor.submit(_encode, tokenizer / "vocab.txt", paths).result()


@contextmanager
def environment(given: Mapping[str, str]) -> Iterator[None]:
    """Set variables of the environment for a while; they are not there before."""
    os.environ.update(given)
    try:
        yield
    finally:
        for name in given:
            del os.environ[name]


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
