"""The loop of docs/howto/python.md, for benchmarks/plain_loop.py: takes a step on each batch for every line of input.

`--paddle` steps with Paddle's AdamW instead of ours.
"""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np
import paddle
from steps_ours import encoder

import ernie


def main() -> None:
    """Build the model, then obey."""
    case = json.loads(sys.argv[-1])
    shape = case["shape"]
    model = encoder(shape)
    model.train()
    classifier = paddle.nn.Linear(shape["hidden"], 2)
    kind = paddle.optimizer.AdamW if "--paddle" in sys.argv else ernie.AdamW
    parameters = [*model.parameters(), *classifier.parameters()]
    optimizer = kind(1e-4, parameters=parameters, grad_clip=paddle.nn.ClipGradByGlobalNorm(1.0))
    rng = np.random.default_rng(0)
    batches = [batch(lengths, shape["vocabulary"], rng) for lengths in case["batches"]]
    with ernie.precision("auto"):
        for _ in sys.stdin:
            began = time.perf_counter()
            for inputs, labels in batches:
                logits = classifier(model(**inputs).pooler_output)
                loss = paddle.nn.functional.cross_entropy(logits, paddle.to_tensor(labels))
                loss.backward()
                optimizer.step()
                optimizer.clear_grad()
            seconds = time.perf_counter() - began
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({"seconds": seconds, "memory": memory}), flush=True)


def batch(lengths: list[int], vocabulary: int, rng: np.random.Generator) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Random tokens, padded to the longest, and a class for each sequence."""
    longest = max(lengths)
    is_token = np.arange(longest) < np.array(lengths)[:, None]
    ids = rng.integers(0, vocabulary, is_token.shape) * is_token
    return {"input_ids": ids, "attention_mask": is_token.astype(np.int64)}, rng.integers(0, 2, len(lengths))


if __name__ == "__main__":
    main()
