"""The other side of benchmarks/time_to_quality.py: transformers' BertForMaskedLM with PyTorch at its fastest here.

Run by an interpreter that has both.  `--architecture modernbert` is ModernBertForMaskedLM.  Compiled, with PyTorch's
fused attention and fused AdamW, whole words masked by transformers' own collator, full rows without padding.  Only for
hidden tokens are the scores of the vocabulary computed.  The learning rate rises over the first twentieth of the steps
and falls to zero.  A loss that is not finite ends the program, before anything of it is saved.
"""

from __future__ import annotations

import argparse
import fcntl
import json
import math
import random
import shutil
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import torch
from transformers import (
    BertConfig,
    BertForMaskedLM,
    BertTokenizerFast,
    DataCollatorForLanguageModeling,
    ModernBertConfig,
    ModernBertForMaskedLM,
)

WARMUP, HIDDEN = 0.05, 0.15
ROOM = 0.05  # of the tokens: hidden ones beyond HIDDEN that a batch has room for, over five standard deviations
ARCHITECTURES = {"bert": (BertForMaskedLM, BertConfig), "modernbert": (ModernBertForMaskedLM, ModernBertConfig)}


class HiddenTokens(torch.nn.Module):
    """The mean loss of the hidden tokens of a masked language model, by one shape of arrays for all batches."""

    def __init__(self, model: torch.nn.Module) -> None:
        super().__init__()
        self.encoder = model.base_model
        is_bert = isinstance(model, BertForMaskedLM)
        self.scores = model.cls if is_bert else torch.nn.Sequential(model.head, model.decoder)

    def forward(self, ids: torch.Tensor, positions: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        """`ids` (rows, length); `positions` and `targets` (room): of the hidden tokens, padded with targets of -100."""
        hidden = self.encoder(input_ids=ids).last_hidden_state.flatten(0, 1)
        return torch.nn.functional.cross_entropy(self.scores(hidden[positions]).float(), targets)


def main() -> None:
    """Pretrain for so many steps; save a model after each part of them, and a line a step in steps.jsonl.

    Given again, it goes on after the last part.
    """
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("--ids", "--vocabulary", "--shape", "--output"):
        parser.add_argument(name, required=True)
    parser.add_argument("--peak", type=float, required=True)
    parser.add_argument("--architecture", choices=ARCHITECTURES, required=True)
    parser.add_argument("--precision", choices=("bf16", "fp32"), required=True)
    for name in ("--steps", "--parts", "--seed", "--rows", "--length"):
        parser.add_argument(name, type=int, required=True)
    arguments = parser.parse_args()
    random.seed(arguments.seed)
    np.random.seed(arguments.seed)
    torch.manual_seed(arguments.seed)
    tokenizer = BertTokenizerFast(arguments.vocabulary)
    kind, config = ARCHITECTURES[arguments.architecture]
    marks = {name: getattr(tokenizer, name) for name in ("pad_token_id", "cls_token_id", "sep_token_id")}
    shape = {"vocab_size": len(tokenizer), "attn_implementation": "sdpa", **marks, **json.loads(arguments.shape)}
    model = kind(config(**shape)).train()
    optimizer = torch.optim.AdamW(groups(model), lr=arguments.peak, eps=1e-6, fused=True)
    output = Path(arguments.output)
    output.mkdir(parents=True, exist_ok=True)
    lock = (output / "lock").open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        sys.exit(f"{output}: another process is training here; wait for it, or stop it")
    log_file, state_file, done = output / "steps.jsonl", output / "state.pt", 0
    if state_file.exists():
        state = torch.load(state_file, weights_only=False)
        done = state["step"]
        model.load_state_dict(state["model"])
        optimizer.load_state_dict(state["optimizer"])
    lines = log_file.read_text(encoding="utf-8").splitlines(keepends=True)[:done] if done else []
    log_file.write_text("".join(lines), encoding="utf-8")
    samples = batches(np.load(arguments.ids), tokenizer, arguments.rows, arguments.length, arguments.seed, done)
    if done:
        drawn = state["random"]
        torch.set_rng_state(drawn[0])
        np.random.set_state(drawn[1])
        random.setstate(drawn[2])
    compiled = torch.compile(HiddenTokens(model))
    with log_file.open("a", encoding="utf-8") as log:
        for step in range(done + 1, arguments.steps + 1):
            began = time.perf_counter()
            for group in optimizer.param_groups:
                group["lr"] = arguments.peak * rate((step - 1) / arguments.steps)
            with torch.autocast("cpu", torch.bfloat16, enabled=arguments.precision == "bf16"):
                loss = compiled(*next(samples))
            loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            optimizer.zero_grad()
            seconds = time.perf_counter() - began
            if not math.isfinite(loss.item()):
                sys.exit(f"{output}: the loss of step {step:,} is {loss.item()}; take a lower --peak")
            log.write(json.dumps({"seconds": seconds, "loss": loss.item()}) + "\n")
            if step % (arguments.steps // arguments.parts) == 0:
                log.flush()
                part = output / f"part-{step * arguments.parts // arguments.steps}"
                partial = part.with_suffix(".partial")
                model.save_pretrained(partial)
                tokenizer.save_pretrained(partial)
                shutil.rmtree(part, ignore_errors=True)  # of a process that ended before it saved its state
                partial.rename(part)
                state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
                drawn = torch.get_rng_state(), np.random.get_state(), random.getstate()
                torch.save({**state, "random": drawn}, output / "state.tmp")
                (output / "state.tmp").rename(state_file)


def rate(passed: float) -> float:
    """The learning rate after a share of the steps, as a share of its peak."""
    return max(0.0, min(passed / WARMUP, (1 - passed) / (1 - WARMUP)))


def groups(model: torch.nn.Module) -> list[dict]:
    """Weight decay for matrices only."""
    decayed = [p for p in model.parameters() if p.ndim > 1]
    others = [p for p in model.parameters() if p.ndim < 2]
    return [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}]


def batches(
    ids: np.ndarray, tokenizer: BertTokenizerFast, rows: int, length: int, seed: int, skip: int
) -> Iterator[tuple[torch.Tensor, torch.Tensor, torch.Tensor]]:
    """Rows of the text cut anew in every epoch, [CLS] before and [SEP] behind, in an order drawn by chance.

    Each batch is the ids, the positions of the hidden tokens among them, and these tokens.  The first batches, `skip`
    of them, were had before.
    """
    collate = DataCollatorForLanguageModeling(tokenizer, whole_word_mask=True, mlm_probability=HIDDEN)
    room = math.ceil((HIDDEN + ROOM) * rows * length)
    tokens = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    goes_on = np.array([token.startswith("##") for token in tokens])
    rng = np.random.default_rng(seed)
    inner = length - 2
    while True:
        start = int(rng.integers(inner))
        count = (len(ids) - start) // inner
        order = rng.permutation(count)
        for first in range(0, count - rows + 1, rows):
            if skip:
                skip -= 1
                continue
            found = []
            for row in order[first : first + rows]:
                part = ids[start + row * inner : start + (row + 1) * inner].astype(np.int64)
                # Offsets as of a text whose words have a space between them: the collator knows words by those.
                begins = np.cumsum(2 - goes_on[part].astype(np.int64))
                offsets = [(0, 0), *((int(at), int(at) + 1) for at in begins), (0, 0)]
                found.append(
                    {
                        "input_ids": [tokenizer.cls_token_id, *part.tolist(), tokenizer.sep_token_id],
                        "special_tokens_mask": [1, *[0] * inner, 1],
                        "offset_mapping": offsets,
                    }
                )
            batch = collate(found)
            labels = batch["labels"].flatten()
            hidden = (labels >= 0).nonzero().flatten()
            if len(hidden) > room:
                print(f"a batch hides {len(hidden)} tokens; {len(hidden) - room} are not predicted", file=sys.stderr)
            padding = (0, max(0, room - len(hidden)))
            positions = torch.nn.functional.pad(hidden[:room], padding)
            targets = torch.nn.functional.pad(labels[hidden[:room]], padding, value=-100)
            yield batch["input_ids"], positions, targets


if __name__ == "__main__":
    main()
