"""Answer rows with a finished run of any kind, in eight threads that share one loaded model.

    python examples/many_threads.py RUN ROWS.jsonl

A row that cannot be answered gets an error in its place, and harms no other; notes come with the answers.
"""

from __future__ import annotations

import json
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import inference


def main() -> None:
    """Print an answer or an error for each line of a file."""
    model = inference.load(sys.argv[1])
    if not isinstance(model, inference.Predictor):
        sys.exit(f"{sys.argv[1]}: is an encoder, which answers no rows")
    rows = [json.loads(line) for line in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()]

    def outcome(row: dict[str, Any]) -> inference.Outcome[dict[str, Any]]:
        return next(model.outcomes([row]))

    with ThreadPoolExecutor(8) as threads:
        for found in threads.map(outcome, rows):
            print(f"error: {found.error}" if found.error else json.dumps(found.value, ensure_ascii=False))
            for note in found.notes:
                print(f"  note: {note}")


if __name__ == "__main__":
    main()
