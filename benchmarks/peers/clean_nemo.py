"""The filters of benchmarks/corpus_tools.py in NeMo Curator, on Ray Data: JSON lines to JSON lines.

Of C4's rules it has those on marks at ends of lines, boilerplate and long words, each of which drops a document; none
takes out lines.  Its searches for copies, exact and near, need a GPU.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import ray
from nemo_curator.backends.ray_data import RayDataExecutor
from nemo_curator.pipeline import Pipeline
from nemo_curator.stages.text.filters import ScoreFilter
from nemo_curator.stages.text.filters.heuristic import (
    BoilerPlateStringFilter,
    BulletsFilter,
    CommonEnglishWordsFilter,
    EllipsisFilter,
    LongWordFilter,
    MeanWordLengthFilter,
    PunctuationFilter,
    SymbolsToWordsFilter,
    WordCountFilter,
    WordsWithoutAlphabetsFilter,
)
from nemo_curator.stages.text.filters.heuristic.repetition import (
    RepeatedLinesByCharFilter,
    RepeatedLinesFilter,
    RepeatingDuplicateNGramsFilter,
    RepeatingTopNGramsFilter,
)
from nemo_curator.stages.text.io.reader import JsonlReader
from nemo_curator.stages.text.io.writer import JsonlWriter


def filters() -> list:
    """The rules, in the order of ours."""
    return [
        RepeatedLinesFilter(),
        RepeatedLinesByCharFilter(),
        *(RepeatingTopNGramsFilter(n, most) for n, most in ((2, 0.20), (3, 0.18), (4, 0.16))),
        *(RepeatingDuplicateNGramsFilter(n, (20 - n) / 100) for n in range(5, 11)),
        WordCountFilter(),
        MeanWordLengthFilter(),
        SymbolsToWordsFilter(),
        BulletsFilter(),
        EllipsisFilter(),
        WordsWithoutAlphabetsFilter(),
        CommonEnglishWordsFilter(),
        PunctuationFilter(),
        BoilerPlateStringFilter(),
        LongWordFilter(),
    ]


def main() -> None:
    """Read, filter and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--case", choices=("rules",), required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    ray.init("local", num_cpus=arguments.processes, num_gpus=0, include_dashboard=False)
    stages = [
        JsonlReader(str(arguments.input), files_per_partition=1, fields=["text"]),
        ScoreFilter(filters()),
        JsonlWriter(str(arguments.output)),
    ]
    Pipeline("rules", stages=stages).run(RayDataExecutor())


if __name__ == "__main__":
    main()
