"""Sentence vectors: the kind `embed` beside sentence-transformers with PyTorch, the same recipe and the same rows.

  python benchmarks/sentence_vectors.py --data DATA --model MINILM --peer PYTHON --output runs/benchmarks/vectors

DATA has the folders glue/STS-B and ir_cranfield, MINILM is a folder of sentence-transformers, PYTHON the interpreter of
an environment that has torch and sentence-transformers.  Each side trains, seed by seed, and encodes the same texts.
Scores of both sides are computed by the same code from their vectors.  With `--speed` both sides do so on a few rows,
for one epoch, in five turns; only these seconds count.  The peer does it twice: in float32, its default, and in
bfloat16.  Ours has its own default, which is bfloat16 where the processor is fast in it.  Each of these rows has
another first text: the peer leaves out rows that it cannot give such a batch.  Finished work is kept, so that an
interrupted command resumes where it stopped.  `--records` gets a small file for each side and seed, or turn.

stsb: the cosine of two sentences learns their score (squared error, 4 epochs, batches of 16, peak rate 2e-5).  The
score is Spearman's correlation on the test split.

cranfield: a query learns to find its relevant abstracts among those of the other rows in a batch (a softmax over
cosines by 0.05, 3 epochs, batches of 32, peak rate 2e-5, at most 256 tokens).  Two thirds of the 225 queries are for
training.  The score is nDCG@10 of the others among all 1,400 documents; relevant are the codes 1 to 4.

Set before the first run, for means over three seeds: our score is lower by at most the larger of both sides' spreads
(highest minus lowest); training and encoding are 3 times as fast.  That is judged by the faster of the peer's
precisions, which was added with the second processor.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from finetuning import SEEDS, TASKS, write_rows
from outcomes import report
from page_tables import sentence_vectors
from record_files import Records, cached_record, this_machine

import inference
from ernie.config import dump
from inference.encoder import TextEncoder
from tasks.downstream.metrics import spearman

PEER = Path(__file__).parent / "peers" / "vectors_sentence_transformers.py"
TRAINED_QUERIES = 150
TURNS = 5
SPEED_ROWS = {"stsb": (640, 2560), "cranfield": (64, 512)}  # to train on, and texts to encode, to measure speed


@dataclass(frozen=True)
class Recipe:
    """What both sides do with a data set."""

    epochs: int
    batch: int
    max_len: int
    peak: float = 2e-5
    warmup: float = 0.1
    temperature: float = 0.05
    scored: bool = False  # whether rows have a score from 0 to 1, or a text and one to be found


RECIPES = {"stsb": Recipe(4, 16, 128, scored=True), "cranfield": Recipe(3, 32, 256)}


def main() -> None:
    """Run what is missing and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("sets", nargs="*", metavar="SET", default=list(RECIPES), help="stsb, cranfield")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--peer", metavar="PYTHON", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--records", type=Path, metavar="DIR")
    parser.add_argument("--speed", action="store_true")
    arguments = parser.parse_args()
    records = arguments.records or arguments.output / "records"
    sides = {"ours": partial(ours, arguments.model), "sentence-transformers": partial(theirs, arguments, False)}
    if arguments.speed:
        sides["sentence-transformers-bf16"] = partial(theirs, arguments, True)
    for name in arguments.sets:
        folder = arguments.output / f"{name}{'-speed' * arguments.speed}"
        folder.mkdir(parents=True, exist_ok=True)
        texts, judge = {"stsb": stsb, "cranfield": cranfield}[name](arguments.data, folder)
        recipe = RECIPES[name]
        if arguments.speed:
            recipe = replace(recipe, epochs=1)
            for file, count in zip((folder / "rows.jsonl", texts), SPEED_ROWS[name], strict=True):
                rows = map(json.loads, file.read_text(encoding="utf-8").splitlines())
                write(file, list({row["a"]: row for row in rows}.values())[:count])
        for seed in range(TURNS) if arguments.speed else SEEDS:
            for side, measure in sides.items():
                make = partial(one, measure, recipe, folder, texts, None if arguments.speed else judge, seed)
                cached_record(records / name / f"{side}{'-speed' * arguments.speed}-{seed}.json", make)
    report(Records(records), sentence_vectors, targets=[f"vectors-{name}" for name in arguments.sets])


def one(measure: Any, recipe: Recipe, folder: Path, texts: Path, judge: Any, seed: int) -> dict[str, Any]:
    """Train and encode once: the score of a judge, if there is one, or else the seconds."""
    seconds, vectors = measure(recipe, folder, texts, seed)
    if judge is not None:
        return {"score": judge(np.load(vectors))}
    return {**seconds, **this_machine()}


def stsb(data: Path, folder: Path) -> tuple[Path, Any]:
    """Write the rows of STS-B; return the file of the texts to encode, and the judge of their vectors."""
    rows = write_rows(TASKS["STS-B"], data / "glue", folder)[0].read_text(encoding="utf-8").splitlines()
    write(folder / "rows.jsonl", [{**row, "label": row["label"] / 5} for row in map(json.loads, rows)])
    test = (data / "glue/STS-B/sts-test.csv").read_text(encoding="utf-8").splitlines()
    columns = [line.split("\t") for line in test]
    gold = [float(line[4]) for line in columns]
    texts = write(folder / "texts.jsonl", [{"a": text} for k in (5, 6) for text in (line[k] for line in columns)])

    def judge(vectors: np.ndarray) -> float:
        first, second = np.split(vectors / np.linalg.norm(vectors, axis=1, keepdims=True), 2)
        return float(spearman(gold, (first * second).sum(1).tolist()))

    return texts, judge


def cranfield(data: Path, folder: Path) -> tuple[Path, Any]:
    """Write pairs of queries and abstracts; return the file of the texts to encode, and the judge of their vectors."""
    documents, queries = (items(data / "ir_cranfield" / file) for file in ("cran.all.1400", "cran.qry"))
    relevant: dict[int, set[int]] = defaultdict(set)
    for line in (data / "ir_cranfield/cranqrel").read_text(encoding="utf-8").splitlines():
        query, document, code = map(int, line.split())
        if code > 0:
            relevant[query - 1].add(document - 1)
    order = np.random.default_rng(0).permutation(len(queries)).tolist()
    pairs = [(query, document) for query in order[:TRAINED_QUERIES] for document in sorted(relevant[query])]
    write(folder / "rows.jsonl", [{"a": queries[query], "b": documents[document]} for query, document in pairs])
    judged = [query for query in order[TRAINED_QUERIES:] if relevant[query]]
    texts = write(folder / "texts.jsonl", [{"a": text} for text in [*documents, *(queries[query] for query in judged)]])

    def judge(vectors: np.ndarray) -> float:
        unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        near = np.argsort(-(unit[len(documents) :] @ unit[: len(documents)].T), axis=1, kind="stable")
        gains = [ndcg(relevant[query], found[:10]) for query, found in zip(judged, near.tolist(), strict=True)]
        return float(np.mean(gains))

    return texts, judge


def items(path: Path) -> list[str]:
    """The texts of a file of the collection, in order."""
    found = re.split(r"^\.I .*\n", path.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    return [" ".join(item.partition(".W\n")[2].split()) for item in found]


def ndcg(relevant: set[int], found: Sequence[int]) -> float:
    """The nDCG of the first documents found; each that is relevant has a gain of 1."""
    discounts = 1 / np.log2(np.arange(2, len(found) + 2))
    gained = sum(discount for discount, document in zip(discounts, found, strict=True) if document in relevant)
    return float(gained / discounts[: len(relevant)].sum())


def write(path: Path, rows: Sequence[Mapping[str, Any]]) -> Path:
    """Write rows as JSON lines."""
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return path


def ours(model: str, recipe: Recipe, folder: Path, texts: Path, seed: int) -> tuple[dict[str, Any], Path]:
    """Train by `ernie finetune`, and encode with the run."""
    pair = {"score": "label", "limits": [0, 1]} if recipe.scored else {"temperature": recipe.temperature}
    config = {
        "task": {"kind": "embed", "text": "a", "text_pair": "b", "max_len": recipe.max_len, **pair},
        "data": {"train": str(folder / "rows.jsonl"), "dev": f"{folder / 'rows.jsonl'}[:8]"},
        "train": {
            "epochs": recipe.epochs,
            "batch": recipe.batch,
            "evaluations": 0,
            "micro_batch_tokens": 1 << 16,
            "lr": {"peak": recipe.peak, "warmup": recipe.warmup},
        },
    }
    file, run, vectors = folder / "ours.yaml", folder / f"ours-{seed}", folder / f"ours-{seed}.npy"
    file.write_text(dump(config), encoding="utf-8")
    words = ("finetune", str(file), "--model", model, "--seed", str(seed), "--output", str(run), "--quiet")
    subprocess.run([sys.executable, "-m", "ernie.cli", *words], check=True, stdout=subprocess.DEVNULL)
    trial = json.loads((run / "scores.json").read_text(encoding="utf-8"))["trials"][0]
    encoder = inference.load(run)
    assert isinstance(encoder, TextEncoder)
    lines = [json.loads(line)["a"] for line in texts.read_text(encoding="utf-8").splitlines()]
    encoder.encode(lines[:32])
    began = time.perf_counter()
    found = encoder.encode(lines)
    encoding = time.perf_counter() - began
    np.save(vectors, found)
    return {"training seconds": round(trial["seconds"], 2), "encoding seconds": round(encoding, 2)}, vectors


def theirs(
    arguments: argparse.Namespace, bf16: bool, recipe: Recipe, folder: Path, texts: Path, seed: int
) -> tuple[dict[str, Any], Path]:
    """Train and encode with sentence-transformers."""
    vectors = folder / f"theirs-{seed}.npy"
    options: dict[str, Any] = {
        "model": arguments.model,
        "rows": folder / "rows.jsonl",
        "texts": texts,
        "vectors": vectors,
        "recipe": json.dumps(vars(recipe)),
        "seed": seed,
    }
    words = [word for key, value in options.items() for word in (f"--{key}", value)] + ["--bf16"] * bf16
    done = subprocess.run([arguments.peer, str(PEER), *map(str, words)], check=True, stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout.splitlines()[-1]), vectors


if __name__ == "__main__":
    main()
