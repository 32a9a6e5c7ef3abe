"""The other side of benchmarks/finetuning.py: the same recipe with transformers and PyTorch.

Run by an interpreter that has both; prints one line of JSON.  Batches are padded to their longest sample, attention
is PyTorch's own fused one, threads are those of the machine: what a user gets who sets nothing.
"""

from __future__ import annotations

import argparse
import json
import random
import time
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer, get_linear_schedule_with_warmup


def main() -> None:
    """Fine-tune once and print the dev answers after each epoch."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--train", "--dev", "--recipe"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    recipe = json.loads(arguments.recipe)
    random.seed(arguments.seed)
    np.random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    train, dev = (read(Path(path)) for path in (arguments.train, arguments.dev))
    tokenizer = AutoTokenizer.from_pretrained(arguments.model)
    model = AutoModelForSequenceClassification.from_pretrained(arguments.model, num_labels=recipe["outputs"])
    started = time.perf_counter()
    samples = [encode(tokenizer, row, recipe["max_len"]) for row in train]
    steps = recipe["epochs"] * -(-len(samples) // recipe["batch"])
    optimizer = torch.optim.AdamW(groups(model), lr=recipe["peak"], eps=1e-6)
    schedule = get_linear_schedule_with_warmup(optimizer, int(0.1 * steps), steps)
    answers, seconds = [], 0.0
    for _ in range(recipe["epochs"]):
        model.train()
        order = torch.randperm(len(samples)).tolist()
        for first in range(0, len(order), recipe["batch"]):
            chosen = [samples[i] for i in order[first : first + recipe["batch"]]]
            labels = torch.tensor([train[i]["label"] for i in order[first : first + recipe["batch"]]])
            logits = model(**tokenizer.pad(chosen, return_tensors="pt")).logits
            loss = (
                torch.nn.functional.mse_loss(logits.squeeze(-1), labels.float())
                if recipe["outputs"] == 1
                else torch.nn.functional.cross_entropy(logits, labels)
            )
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        seconds += time.perf_counter() - started
        answers.append(predict(model, tokenizer, dev, recipe))
        started = time.perf_counter()
    print(json.dumps({"answers": answers, "train_seconds": seconds, "threads": torch.get_num_threads()}))


def read(path: Path) -> list[dict]:
    """Rows of JSON lines: a, perhaps b, and label, a number."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def encode(tokenizer: AutoTokenizer, row: dict, max_len: int) -> dict:
    """The sample of a row."""
    return dict(tokenizer(row["a"], row.get("b"), truncation=True, max_length=max_len))


def groups(model: torch.nn.Module) -> list[dict]:
    """Weight decay for matrices only."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]


@torch.no_grad()
def predict(model: torch.nn.Module, tokenizer: AutoTokenizer, rows: list[dict], recipe: dict) -> list[float]:
    """The answers to rows, in order: a class, or a number."""
    model.eval()
    samples = [encode(tokenizer, row, recipe["max_len"]) for row in rows]
    order = sorted(range(len(samples)), key=lambda i: len(samples[i]["input_ids"]))
    found = {}
    for first in range(0, len(order), 64):
        chosen = order[first : first + 64]
        logits = model(**tokenizer.pad([samples[i] for i in chosen], return_tensors="pt")).logits
        said = logits.squeeze(-1) if recipe["outputs"] == 1 else logits.argmax(-1)
        found.update(zip(chosen, said.tolist(), strict=True))
    return [found[i] for i in range(len(rows))]


if __name__ == "__main__":
    main()
