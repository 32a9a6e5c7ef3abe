"""Helpers for tests of whole runs: a corpus built with the command line, and the configuration of a tiny run."""

from __future__ import annotations

import random
from pathlib import Path

from ernie.cli import main

CONFIG = """
corpus: {corpus}
schedule:
  steps_per_task: 8
  tasks: [knowledge_masking, capitalization, sentence_reordering]
tasks:
  sentence_reordering: {{segments: 2}}
model: {{preset: tiny, hidden_size: 32, intermediate_size: 64, layers: 1}}
data: {{max_len: 48, micro_batch_tokens: 512}}
train: {{lr: {{peak: 1e-3}}}}
save: {{every: 5}}
probe: {{batches: 2}}
"""


def build_corpus(text: Path, folder: Path) -> Path:
    """Train a tokenizer on a text file and build a corpus from the file, a tenth held out."""
    tokenizer, output = str(folder / "tokenizer"), folder / "corpus"
    assert main(["tokenizer", "train", "--input", str(text), "--output", tokenizer, "--vocab-size", "1000"]) == 0
    build = ["data", "build", "--input", str(text), "--tokenizer", tokenizer, "--output", str(output)]
    assert main([*build, "--set", "held_out=0.1", "--processes", "0", "--quiet"]) == 0
    return output


def made_up_text(file: Path) -> Path:
    """Write sixty documents of random sentences: the same on every machine and Python."""
    rng = random.Random(0)
    nouns = "river stone bird garden letter window engine teacher winter market island doctor".split()
    verbs = "sees finds follows carries leaves paints remembers mends crosses watches".split()
    names = "Anna Berlin Carlos Delhi Erik Florence".split()

    def sentence() -> str:
        return f"{rng.choice(names)} {rng.choice(verbs)} the {rng.choice(nouns)} near {rng.choice(names)}."

    documents = ["\n".join(" ".join(sentence() for _ in range(6)) for _ in range(3)) for _ in range(60)]
    file.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return file
