"""The filters of benchmarks/corpus_tools.py alone, as `ernie data build` applies them: JSON lines to JSON lines."""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path

from ernie.data.parts import Item
from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import find_inputs
from ernie.data.work_folder import WorkFolder
from pretrain.corpus.clean.base import Filter
from pretrain.corpus.clean.c4 import C4
from pretrain.corpus.clean.compare import Findings, Noted, compare
from pretrain.corpus.clean.duplicates import ExactDuplicates, NearDuplicates
from pretrain.corpus.clean.gopher import GopherQuality, GopherRepetition
from pretrain.corpus.clean.pipeline import Pipeline, Verdicts
from pretrain.corpus.engine import LocalEngine
from pretrain.corpus.reading import Done, Made, Make, readings

LAST: dict[str, list[type[Filter]]] = {"rules": [], "exact": [ExactDuplicates], "near": [NearDuplicates]}


def main() -> None:
    """Read, filter and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--case", choices=LAST, required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True)
    pipeline = Pipeline([GopherRepetition(), GopherQuality(), C4(), *(kind() for kind in LAST[arguments.case])])
    inputs = find_inputs([arguments.input])
    output = arguments.output / "left.jsonl"
    with LocalEngine(arguments.processes, arguments.work / "engine") as engine, output.open("wb") as file:
        read = partial(readings, inputs, ReadOptions(), engine)

        def noted(take: Make[Verdicts, Noted], findings: Findings, done: Done) -> Iterator[Made[Noted]]:
            return read(take, findings, done)

        findings = Findings()
        if pipeline.comparisons:
            with WorkFolder(arguments.work / "notes") as folder:
                findings = compare(pipeline, noted, [source.name for source in inputs], folder)
        for made in read(partial(rows, pipeline), findings):
            file.writelines(made.results)


def rows(pipeline: Pipeline, items: Sequence[Item], verdicts: Verdicts) -> bytes:
    """The lines of the documents that are left."""
    left: list[str] = []
    tallies = pipeline.tallies()
    for at, (_, item) in enumerate(items):
        document = item if isinstance(item, Dropped) else pipeline(item, tallies, verdicts.of(at))
        if isinstance(document, RawDocument):
            left.append(json.dumps({"text": document.text}, ensure_ascii=False) + "\n")
    return "".join(left).encode()


if __name__ == "__main__":
    main()
