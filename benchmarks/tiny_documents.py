"""A corpus of ten million tiny documents: does the memory of a build stay bounded?

  python benchmarks/tiny_documents.py --output runs/benchmarks/tiny --documents 10000000 [--records DIR]

Makes JSON lines of one to three short sentences a document, a tenth of them texts of earlier ones.  Words are syllables
drawn by Zipf's law; a block of documents is made of its number, so that nothing is kept in memory.  Corpora are built
of them with two worker processes: without filters, with exact_duplicates, and with near_duplicates, for which 5.4 GB of
notes lie beside the output.  Memory is that of all processes of the command, sampled five times per second: resident
(pages of mapped files count, and shared pages in each process) and proportional (they count once).  By default there
are only 20,000 documents, for a test of the script.  Linux only.

Set before the first run, for ten million documents: every build ends, none with more than 1 GB of resident memory.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from corpus_build import ERNIE, watch
from outcomes import report
from page_tables import tiny_documents
from record_files import Records, cached_record

from ernie.doctor.machine import find

BUILDS = {
    "plain": "[]",
    "exact": "[{kind: exact_duplicates}]",
    "near": "[{kind: near_duplicates}]",
}
TARGET = 10_000_000  # documents that the target is about
BLOCK = 10_000  # documents that are made at once
REPEATED = 0.1  # of the documents of a block have the text of one in the block before
WORDS = 5_000
FILES = 10
_SYLLABLES = [consonant + vowel for consonant in "bdfgklmnprst" for vowel in "aeiou"]


def main() -> None:
    """Make the text, run the builds that are missing, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--documents", type=int, default=20_000)
    parser.add_argument("--records", type=Path, metavar="DIR")
    parser.add_argument("--builds", nargs="+", choices=BUILDS, default=list(BUILDS))
    arguments = parser.parse_args()
    count, output = arguments.documents, arguments.output / str(arguments.documents)
    records = (arguments.records or arguments.output / "records") / f"documents-{count}"
    text, tokenizer = output / "text", output / "tokenizer"
    if not tokenizer.is_dir():
        write(text, count)
        train = ["tokenizer", "train", "--vocab-size", "2000", "--sample-mb", "4", "--quiet"]
        words = [*ERNIE, *train, "--input", str(text), "--output", str(tokenizer)]
        subprocess.run(words, check=True, stdout=sys.stderr)
    for build in arguments.builds:
        cached_record(records / f"{build}-0.json", partial(built, text, tokenizer, output, BUILDS[build]))
    report(Records(records), tiny_documents, targets=["tiny-documents"] if count >= TARGET else [])


def built(text: Path, tokenizer: Path, output: Path, clean: str) -> dict[str, Any]:
    """Build a corpus in a new folder, so that no interrupted build is gone on with; return its time and memory."""
    with tempfile.TemporaryDirectory(dir=output) as folder:
        corpus = Path(folder) / "corpus"
        words = ["data", "build", "--input", str(text), "--tokenizer", str(tokenizer), "--output", str(corpus)]
        options = ["--set", f"clean={clean}", "--language", "en", "--processes", "2", "--quiet"]
        seconds, resident, proportional = watch([*ERNIE, *words, *options])
        counts = json.loads((corpus / "corpus.json").read_text(encoding="utf-8"))["report"]
    kept = sum(split["documents"] for split in counts["splits"].values())
    return {
        "documents": sum(counts["dropped"].values()) + kept,
        "kept": kept,
        "megabytes": sum(file.stat().st_size for file in text.iterdir()) / 1e6,
        "seconds": round(seconds, 1),
        "resident MB": round(resident),
        "proportional MB": round(proportional),
        "processor": find().processor,
    }


def write(folder: Path, count: int) -> None:
    """Write so many documents to some files, a block at a time."""
    folder.mkdir(parents=True, exist_ok=True)
    each = -(-count // FILES)
    texts = documents(count)
    for number in range(-(-count // each)):
        with (folder / f"part-{number}.jsonl").open("w", encoding="utf-8") as file:
            for _ in range(min(each, count - number * each)):
                file.write(json.dumps({"text": next(texts)}) + "\n")


def documents(count: int) -> Iterator[str]:
    """Yield the texts of so many documents."""
    for block in range(-(-count // BLOCK)):
        texts = made(block)
        if block:
            rng = np.random.default_rng((1, block))
            before = made(block - 1)
            for at in rng.choice(BLOCK, round(REPEATED * BLOCK), replace=False).tolist():
                texts[at] = before[at]
        yield from texts[: count - block * BLOCK]


def made(block: int) -> list[str]:
    """The texts of a block: one to three sentences of 3 to 12 words each."""
    rng = np.random.default_rng((0, block))
    sentences = rng.integers(1, 4, BLOCK)
    lengths = rng.integers(3, 13, int(sentences.sum()))
    numbers = np.minimum(rng.zipf(1.3, int(lengths.sum())), WORDS) - 1
    words = iter(numbers.tolist())
    ended = iter(
        [" ".join(_word(next(words)) for _ in range(length)).capitalize() + "." for length in lengths.tolist()]
    )
    return [" ".join(next(ended) for _ in range(number)) for number in sentences.tolist()]


def _word(number: int) -> str:
    """The word with a number: its digits as syllables, at least two."""
    first, rest = number % len(_SYLLABLES), number // len(_SYLLABLES)
    return _SYLLABLES[first] + (_word(rest) if rest >= len(_SYLLABLES) else _SYLLABLES[rest])


if __name__ == "__main__":
    main()
