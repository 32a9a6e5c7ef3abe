"""The engine of benchmarks/serving_load.py without a server: rows/s of packed batches, sorted by length.

`serving_offline.py FOLDER BODIES SECONDS`.
"""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import inference
from ernie.data.batch import plan_by_length
from serving.models import measured_cost


def main() -> None:
    """Compute the rows again and again for so many seconds."""
    folder, bodies, seconds = sys.argv[1:4]
    operation = inference.load(folder, precision="fp32").operations["predict"]
    rows = [operation.prepare(json.loads(line)["inputs"][0]) for line in Path(bodies).read_bytes().splitlines()]
    cost = measured_cost(operation)
    batches = plan_by_length([row.tokens for row in rows], cost.tokens_for(0.94))
    count, began = 0, time.perf_counter()
    while True:
        for chosen in batches:
            operation.compute([rows[i] for i in chosen])
            count += len(chosen)
            if (spent := time.perf_counter() - began) > float(seconds):
                print(json.dumps({"rows/s": count / spent, "fixed": cost.fixed, "per_token": cost.per_token}))
                return


if __name__ == "__main__":
    main()
