"""The model card of a pretraining run: the encoder, its training data and procedure, its scores, and how to use it."""

from __future__ import annotations

import math
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from safetensors import safe_open

from ernie import __version__
from ernie.atomic import put_text
from ernie.formatting import amount, plural
from ernie.model.config import EncoderConfig
from ernie.registry import plugins_needed
from ernie.report.markdown import cell, code, fenced, prose
from ernie.terminal import shown
from ernie.train.run_folder import CARD, MODEL
from pretrain.ledger import markdown
from pretrain.report.downstream import Downstream, downstream_rows
from pretrain.report.evidence import Evidence
from pretrain.report.summary import TASKS_NOTE, sentences, task_rows, verdict


def write_card(evidence: Evidence, downstream: Sequence[Downstream] = ()) -> Path | None:
    """Write README.md into the folder of a finished run and return its path; None when the run is not finished."""
    if evidence.history.done < len(evidence.schedule) or not (evidence.folder / MODEL).is_dir():
        return None
    path = evidence.folder / CARD
    put_text(path, shown(card(evidence, downstream)))
    return path


def card(evidence: Evidence, downstream: Sequence[Downstream] = ()) -> str:
    """The card of a finished run, in Markdown."""
    history, schedule, folder = evidence.history, evidence.schedule, evidence.folder
    parts = [
        f"# {prose(folder.resolve().name)}",
        f"{_architecture(folder / MODEL)} Pretrained with ernie {__version__}.",
        "## Training data",
        _data(evidence),
        "## Training",
        f"{sentences(history)} In {evidence.config.train.precision}, seed {evidence.config.seed}, on "
        f"{prose(evidence.origin['machine'])}, paddlepaddle {prose(_paddle(evidence))}. "
        f"{_reproducibility(evidence.origin)}",
        fenced("console", shlex.join(["ernie", *map(str, evidence.origin["command"][1:])])),
        *plugins_needed(evidence.config.plugins),
        "Everything that was set is in `config.yaml`; versions, and the commit if it was a checkout, in `origin.json`.",
        "## Evaluation",
        f"{verdict(history, evidence.ledger, schedule)} {TASKS_NOTE}",
        _table(task_rows(history, schedule)),
    ]
    if downstream:
        parts += [
            "## Fine-tuned",
            "Scores after fine-tuning:",
            _table(downstream_rows(downstream)),
        ]
    parts += [
        "## Use",
        fenced("console", f"ernie finetune CONFIG --model {shlex.quote(str(folder))} --output RUN"),
        fenced("python", f"from ernie import ErnieModel\n\nmodel = ErnieModel.from_pretrained({str(folder)!r})"),
    ]
    return "\n\n".join(parts) + "\n"


def _table(rows: Sequence[Sequence[str]]) -> str:
    return markdown([[*map(cell, row)] for row in rows])


def _reproducibility(origin: dict[str, Any]) -> str:
    """The sentence before the original command that says how exactly it reproduces the run."""
    resumed = origin.get("resumed", [])
    if changed := sorted({key for start in resumed for key in start["changed"]}):
        keys = ", ".join(map(code, changed))
        return (
            f"It was resumed with another {keys} (see `origin.json`), so that no single command reproduces it; it was "
            "started by:"
        )
    for names, what in (
        (("commit", "versions"), "by another version"),
        (("layout",), "by processes in another layout"),
        (("machine",), "on another machine"),
    ):
        known = [name for name in names if name in origin]  # older runs did not record it
        if any(start[name] != origin[name] for start in resumed for name in known):
            return f"It was resumed {what} (see `origin.json`), so that a new run may differ; it was started by:"
    return "To reproduce it, byte for byte on the same kind of machine:"


def _architecture(model: Path) -> str:
    shape = EncoderConfig.read(model / "config.json")
    with safe_open(model / "model.safetensors", framework="numpy") as weights:
        count = sum(math.prod(weights.get_slice(name).get_shape()) for name in weights.keys())  # noqa: SIM118
    return (
        f"An encoder of {plural(shape.layers, 'layer')} of {shape.hidden_size} with {plural(shape.heads, 'head')} and "
        f"{shape.vocab_size:,} tokens: {amount(count)} weights."
    )


def _data(evidence: Evidence) -> str:
    data = evidence.origin.get("data")
    where = f"The corpus {code(str(evidence.config.corpus))}"
    if not data:
        return f"{where}, of which no statistics were recorded."
    part = evidence.config.data.fraction
    fraction = "" if part == 1 else f" That is `data.fraction`, {part:g}, of its documents."
    return (
        f"{where}, language {code(str(data['language']))}: {plural(data['documents'], 'document')} with "
        f"{plural(data['sentences'], 'sentence')} and {amount(data['tokens'])} tokens, {data['held_out']:,} more "
        f"documents held out to measure on, from {plural(data['sources'], 'file')}.{fraction}"
    )


def _paddle(evidence: Evidence) -> str:
    versions = evidence.origin["versions"]
    return next((versions[name] for name in ("paddlepaddle-gpu", "paddlepaddle") if name in versions), "of its own")
