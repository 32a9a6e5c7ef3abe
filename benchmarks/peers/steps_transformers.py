"""The other side of benchmarks/steps.py: transformers with PyTorch, in bf16, eager or --compiled."""

from __future__ import annotations

import json
import resource
import sys
import time

import numpy as np
import torch
from transformers import BertConfig, BertForMaskedLM, BertForSequenceClassification


def main() -> None:
    """Build the model, then take a step on each batch for every line of standard input."""
    case = json.loads(sys.argv[-1])
    shape = case["shape"]
    config = BertConfig(
        vocab_size=shape["vocabulary"],
        hidden_size=shape["hidden"],
        num_hidden_layers=shape["layers"],
        num_attention_heads=shape["heads"],
        intermediate_size=shape["inner"],
        max_position_embeddings=shape.get("positions", 512),
        attn_implementation="sdpa",
    )
    masked = case["kind"] == "mlm"
    model = (BertForMaskedLM if masked else BertForSequenceClassification)(config).train()
    called = torch.compile(model, dynamic=len(case["batches"]) > 1) if "--compiled" in sys.argv else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)
    rng = np.random.default_rng(0)
    batches = [batch(lengths, shape["vocabulary"], masked, rng) for lengths in case["batches"]]
    for _ in sys.stdin:
        began = time.perf_counter()
        for one in batches:
            with torch.autocast("cpu", torch.bfloat16):
                loss = called(**one).loss
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
        seconds = time.perf_counter() - began
        memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({"seconds": seconds, "memory": memory}), flush=True)


def batch(lengths: list[int], vocabulary: int, masked: bool, rng: np.random.Generator) -> dict[str, torch.Tensor]:
    """Random tokens, padded to the longest; 15 % of them are to be predicted, or a class of each sequence."""
    longest = max(lengths)
    ids = rng.integers(0, vocabulary, (len(lengths), longest))
    real = np.arange(longest) < np.array(lengths)[:, None]
    found = {"input_ids": ids * real}
    if not real.all():  # without padding no mask is needed, and PyTorch is faster without
        found["attention_mask"] = real.astype(np.int64)
    if masked:
        found["labels"] = np.where(real & (rng.random(ids.shape) < 0.15), ids, -100)
    else:
        found["labels"] = rng.integers(0, 2, len(lengths))
    return {name: torch.from_numpy(value) for name, value in found.items()}


if __name__ == "__main__":
    main()
