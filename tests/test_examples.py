"""The short examples run in any folder, without a model and with one; the quickstart has its own test."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import numpy as np
import pytest
from support import forked
from support.helpers import ROOT

from ernie import ErnieModel
from ernie.model.config import EncoderConfig
from ernie.model.heads import MaskedTokenHead
from ernie.text.wordpiece import SPECIAL_TOKENS, WordPiece

EXAMPLES = {
    "embeddings": "Send bytes to the socket.",
    "fill_mask": "a list of numbers.",
    "plain_loop": "Read the text of the file.  files",
}


def run(name: str, cwd: Path, *arguments: str) -> str:
    command = [*forked.python(), str(ROOT / "examples" / f"{name}.py"), *arguments]
    done = subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, env={**os.environ, "PYTHONPATH": str(ROOT)}, timeout=60
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_without_a_model_reports_that_it_is_untrained(name: str, tmp_path: Path) -> None:
    output = run(name, tmp_path)
    assert "untrained" in output
    assert EXAMPLES[name] in output


@pytest.mark.parametrize("name", ["embeddings", "fill_mask"])
def test_an_example_uses_the_given_model(name: str, tmp_path: Path) -> None:
    tokenizer = WordPiece([*SPECIAL_TOKENS, "return", "the", "of", "a", "list", "numbers", ".", "only"])
    model = ErnieModel(EncoderConfig(tokenizer.vocab_size, 16, 1, 2, 32))
    model.tokenizer, model.masked_head = tokenizer, MaskedTokenHead(model)
    model.masked_head.initialize_bias(np.where(np.arange(tokenizer.vocab_size) == tokenizer.vocab_size - 1, 1.0, 1e-6))
    model.save_pretrained(tmp_path / "mine")
    output = run(name, tmp_path, "mine")
    assert "untrained" not in output
    assert EXAMPLES[name] in output
    assert name != "fill_mask" or "Return the only of a list" in output
