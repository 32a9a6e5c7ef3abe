"""The filters of benchmarks/corpus_tools.py in datatrove: JSON lines to JSON lines.

Near duplicates are found in 21 bands of 6 hashes of 5-grams, as ours are; a pair that shares a band is not looked at
again.  Nothing is compressed between the steps.
"""

from __future__ import annotations

import argparse
import string
from pathlib import Path

from datatrove.data import Document
from datatrove.executor import LocalPipelineExecutor
from datatrove.pipeline.dedup import (
    ExactDedupConfig,
    ExactDedupFilter,
    ExactDedupSignature,
    ExactFindDedups,
    MinhashDedupBuckets,
    MinhashDedupCluster,
    MinhashDedupFilter,
    MinhashDedupSignature,
)
from datatrove.pipeline.dedup.minhash import MinhashConfig
from datatrove.pipeline.filters import C4QualityFilter, GopherQualityFilter, GopherRepetitionFilter
from datatrove.pipeline.readers import JsonlReader
from datatrove.pipeline.writers import JsonlWriter

BANDS, HASHES = 21, 6
DELETED = str.maketrans("", "", string.punctuation + string.whitespace)


def folded(document: Document) -> str:
    """The text without case, white space and punctuation."""
    return document.text.lower().translate(DELETED) or document.text


def main() -> None:
    """Read, filter and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--case", choices=("rules", "exact", "near"), required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    tasks, work = len(list(arguments.input.glob("*.jsonl"))), arguments.work

    def run(name, steps, tasks=tasks):
        LocalPipelineExecutor(steps, tasks, arguments.processes, str(work / "logs" / name)).run()

    def write(folder):
        return JsonlWriter(str(folder), compression=None)

    rules = [JsonlReader(str(arguments.input)), GopherRepetitionFilter(), GopherQualityFilter(), C4QualityFilter()]
    if arguments.case == "rules":
        run("rules", [*rules, write(arguments.output)])
        return
    left, signatures, found, dropped = (str(work / name) for name in ("left", "signatures", "found", "dropped"))
    if arguments.case == "exact":
        config = ExactDedupConfig(content_getter=folded)
        run("rules", [*rules, write(left), ExactDedupSignature(signatures, config)])
        run("find", [ExactFindDedups(signatures, dropped, config)], 1)
        last = ExactDedupFilter(dropped, config)
    else:
        config = MinhashConfig(n_grams=5, num_buckets=BANDS, hashes_per_bucket=HASHES)
        run("rules", [*rules, write(left), MinhashDedupSignature(signatures, config)])
        run("find", [MinhashDedupBuckets(signatures, found, config=config)], BANDS)
        run("clusters", [MinhashDedupCluster(found, dropped, config=config)], 1)
        last = MinhashDedupFilter(dropped)
    run("filter", [JsonlReader(left), last, write(arguments.output)])


if __name__ == "__main__":
    main()
