"""Our side of benchmarks/encoding.py: `inference_ours.py PRECISION CASE`."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import paddle
from steps_ours import encoder

from ernie.kernels.precision import precision


def main() -> None:
    """Build the model, then answer the batches for every line of standard input."""
    choice, case = sys.argv[1], json.loads(sys.argv[2])
    shape = case["shape"]
    model = encoder(shape)
    model.eval()
    rng = np.random.default_rng(0)
    batches = [batch(lengths, shape["vocabulary"], rng) for lengths in case["batches"]]
    with precision(choice), paddle.no_grad():  # type: ignore[arg-type]
        for _ in sys.stdin:
            began = time.perf_counter()
            for _ in range(case["repeats"]):
                for ids, mask in batches:
                    model(ids, attention_mask=mask).last_hidden_state.numpy()
            print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


def batch(lengths: list[int], vocabulary: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Random ids (N, L), and which of them are tokens."""
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    return rng.integers(0, vocabulary, mask.shape) * mask, mask


if __name__ == "__main__":
    main()
