"""The other side of benchmarks/sentence_vectors.py: the same recipe with sentence-transformers and PyTorch.

Run by an interpreter that has both; prints one line of JSON.  Its trainer and losses are the library's own, with the
threads of the machine: what a user gets who sets nothing else, but for `--bf16`, by which PyTorch computes in bfloat16.
"""

from __future__ import annotations

import argparse
import json
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.losses import CosineSimilarityLoss, MultipleNegativesRankingLoss
from sentence_transformers.sentence_transformer.training_args import BatchSamplers


def main() -> None:
    """Train once and encode."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--model", "--rows", "--texts", "--vectors", "--recipe"):
        parser.add_argument(name, required=True)
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--bf16", action="store_true")
    arguments = parser.parse_args()
    recipe = json.loads(arguments.recipe)
    model = SentenceTransformer(arguments.model, device="cpu")
    model.max_seq_length = recipe["max_len"]
    rows = read(Path(arguments.rows))
    columns = {"a": [row["a"] for row in rows], "b": [row["b"] for row in rows]}
    if recipe["scored"]:
        columns["score"] = [row["label"] for row in rows]
        loss = CosineSimilarityLoss(model)
    else:
        loss = MultipleNegativesRankingLoss(model, scale=1 / recipe["temperature"])
    with tempfile.TemporaryDirectory() as folder:
        settings = SentenceTransformerTrainingArguments(
            output_dir=folder,
            num_train_epochs=recipe["epochs"],
            per_device_train_batch_size=recipe["batch"],
            learning_rate=recipe["peak"],
            warmup_steps=recipe["warmup"],
            batch_sampler=BatchSamplers.BATCH_SAMPLER if recipe["scored"] else BatchSamplers.NO_DUPLICATES,
            seed=arguments.seed,
            save_strategy="no",
            report_to=[],
            disable_tqdm=True,
            use_cpu=True,
            bf16=arguments.bf16,
        )
        trainer = SentenceTransformerTrainer(model, settings, train_dataset=Dataset.from_dict(columns), loss=loss)
        began = time.perf_counter()
        trainer.train()
        training = time.perf_counter() - began
    texts = [row["a"] for row in read(Path(arguments.texts))]
    with torch.autocast("cpu", torch.bfloat16, enabled=arguments.bf16):
        model.encode(texts[:32], show_progress_bar=False)
        began = time.perf_counter()
        vectors = model.encode(texts, show_progress_bar=False)
        encoding = time.perf_counter() - began
    np.save(arguments.vectors, vectors)
    print(json.dumps({"training seconds": round(training, 2), "encoding seconds": round(encoding, 2)}))


def read(path: Path) -> list[dict[str, str]]:
    """The rows of a file of JSON lines."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


if __name__ == "__main__":
    main()
