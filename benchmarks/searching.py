"""Search by words, by vectors and by both, on the 225 queries and 1,400 abstracts of Cranfield.

  python benchmarks/searching.py --data DATA --model MINILM --output runs/benchmarks/searching [--records DIR]

DATA has the folder ir_cranfield, MINILM is a folder of sentence-transformers.  The collection is written in the form of
BEIR, and `ernie search evaluate` scores it.  Relevant are the codes 1 to 4.  No target was set.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

from outcomes import report
from page_tables import searching
from record_files import Records
from sentence_vectors import items, write


def main() -> None:
    """Write the collection, score it, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--records", type=Path, metavar="DIR")
    arguments = parser.parse_args()
    records = arguments.records or arguments.output / "records"
    beir(arguments.data / "ir_cranfield", arguments.output / "cranfield")
    words = ("search", "evaluate", arguments.model, "--data", str(arguments.output / "cranfield"), "--quiet")
    done = subprocess.run([sys.executable, "-m", "ernie.cli", *words], check=True, stdout=subprocess.PIPE, text=True)
    records.mkdir(parents=True, exist_ok=True)
    found = json.dumps(json.loads(done.stdout), indent=1)
    (records / "cranfield.json").write_text(f"{found}\n", encoding="utf-8")
    report(Records(records), searching)


def beir(source: Path, folder: Path) -> None:
    """Write Cranfield as BEIR has its collections; two abstracts without text are left out."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents, queries = (items(source / file) for file in ("cran.all.1400", "cran.qry"))
    for file, texts in (("corpus", documents), ("queries", queries)):
        rows = [{"_id": str(number), "text": text} for number, text in enumerate(texts, 1) if text]
        write(folder / f"{file}.jsonl", rows)
    judged = ["query-id\tcorpus-id\tscore"]
    for line in (source / "cranqrel").read_text(encoding="utf-8").splitlines():
        query, document, code = line.split()
        if int(code) > 0:
            judged.append(f"{query}\t{document}\t1")
    (folder / "qrels/test.tsv").write_text("\n".join(judged) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
