"""PyTorch's side of benchmarks/encoding.py: weights and computation in bfloat16, eager or --compiled."""

from __future__ import annotations

import json
import sys
import time

import numpy as np
import torch
from transformers import BertConfig, BertModel


def main() -> None:
    """Build the model, then answer the batches for every line of standard input."""
    case = json.loads(sys.argv[-1])
    model = BertModel(config(case["shape"]), add_pooling_layer=False).eval().to(torch.bfloat16)
    called = torch.compile(model, dynamic=len(case["batches"]) > 1) if "--compiled" in sys.argv else model
    rng = np.random.default_rng(0)
    batches = [batch(lengths, case["shape"]["vocabulary"], rng) for lengths in case["batches"]]
    with torch.inference_mode():
        for _ in sys.stdin:
            began = time.perf_counter()
            for _ in range(case["repeats"]):
                for given in batches:
                    called(**given).last_hidden_state.float().numpy()
            print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


def config(shape: dict[str, int]) -> BertConfig:
    """BERT of a shape."""
    return BertConfig(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        intermediate_size=shape["inner"],
        attn_implementation="sdpa",
    )


def batch(lengths: list[int], vocabulary: int, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Random ids (N, L), and, where there is padding, which of them are tokens."""
    real = np.arange(max(lengths)) < np.array(lengths)[:, None]
    found = {"input_ids": rng.integers(0, vocabulary, real.shape) * real}
    if not real.all():  # without padding no mask is needed, and PyTorch is faster without
        found["attention_mask"] = real.astype(np.int64)
    return {name: torch.from_numpy(value) for name, value in found.items()}


if __name__ == "__main__":
    main()
