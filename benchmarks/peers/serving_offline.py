"""The engine of benchmarks/serving_load.py without a server: rows/s of packed batches, each of similar lengths.

`serving_offline.py FOLDER BODIES SECONDS`.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from itertools import cycle
from pathlib import Path

import numpy as np

import inference
from ernie.data.batch import plan_by_length
from serving.models import measured_cost


def main() -> None:
    """Compute the rows again and again for so many seconds."""
    folder, bodies, seconds = sys.argv[1:4]
    operations = inference.load(folder, precision="fp32").operations
    operation = operations.get("predict") or operations["encode"]
    given = map(json.loads, Path(bodies).read_bytes().splitlines())
    rows = [operation.prepare((body.get("inputs") or body["input"])[0]) for body in given]
    cost = measured_cost(operation)
    batches = plan_by_length([row.tokens for row in rows], cost.tokens_for(0.94))
    np.random.default_rng(0).shuffle(batches)  # a part of them has the lengths of all
    mean, tokens, began = statistics.mean(row.tokens for row in rows), 0, time.perf_counter()
    for chosen in cycle(batches):
        operation.compute([rows[i] for i in chosen])
        tokens += sum(rows[i].tokens for i in chosen)
        if (spent := time.perf_counter() - began) > float(seconds):
            print(json.dumps({"rows/s": tokens / mean / spent, "fixed": cost.fixed, "per_token": cost.per_token}))
            return


if __name__ == "__main__":
    main()
