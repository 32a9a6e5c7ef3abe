"""The whole pipeline in five minutes: text, tokenizer, corpus, pretraining, report, fine-tuning.

The text is the documentation inside Python and its installed packages (examples/docstrings.py).  Each command is
printed before it runs, as you would type it.  Then the pretrained encoder and the same one untrained are fine-tuned to
classify which package a piece of documentation belongs to.  Their few labeled examples were not in the corpus.
"""

from __future__ import annotations

import json
import shlex
import shutil
import statistics
import sys
import time
from collections import Counter, defaultdict
from pathlib import Path

from docstrings import Entry, entries
from matplotlib.figure import Figure

from ernie import ErnieModel
from ernie.cli import main as ernie
from ernie.data.seeded_rng import key

HOME = Path("runs/quickstart")
PRETRAIN, FINETUNE = "configs/pretrain/quickstart.yaml", "configs/finetune/quickstart.yaml"
CLASSES, TRAIN, DEV = 8, 32, 60  # packages, and labeled examples of each


def main() -> None:
    """Run the whole pipeline in an empty folder."""
    started = time.monotonic()
    shutil.rmtree(HOME, ignore_errors=True)
    (HOME / "text").mkdir(parents=True)
    print("Collecting the documentation inside Python and its packages ...", flush=True)
    write_text(HOME / "text" / "documentation.jsonl")
    text, tokenizer, corpus, run = (str(HOME / name) for name in ("text", "tokenizer", "corpus", "pretrain"))
    command("tokenizer", "train", "--input", text, "--vocab-size", "6000", "--output", tokenizer)
    command("data", "build", "--input", text, "--tokenizer", tokenizer, "--output", corpus, "--set", "held_out=0.05")
    command("pretrain", PRETRAIN)
    print(f"\nFine-tuning: to which of {CLASSES} packages does a piece of documentation belong?")
    scores = compare(run)
    print_scores(scores)
    draw(scores, HOME / "finetuning.png")
    command("report", run)
    print(f"\nThe plot of the fine-tuning scores: {HOME / 'finetuning.png'}")
    print(f"The whole took {(time.monotonic() - started) / 60:.1f} minutes. Open {run}/report.html in a browser.")


def command(*words: str) -> None:
    """Print a command and run it."""
    print(f"\n$ ernie {shlex.join(words)}", flush=True)
    status = ernie(words)
    if status:
        sys.exit(status)


def write_text(file: Path) -> None:
    """Write the corpus's text, and beside it labeled rows for training and evaluation.

    The labeled entries are chosen by a hash and kept out of the corpus.
    """
    found = list(entries())
    counts = Counter(entry.package for entry in found)
    packages = sorted(name for name, _ in counts.most_common(CLASSES))
    chosen: dict[str, list[Entry]] = defaultdict(list)
    for entry in sorted(found, key=lambda entry: key(entry.name, entry.summary)):
        if entry.package in packages and len(chosen[entry.package]) < TRAIN + DEV:
            chosen[entry.package].append(entry)
    labeled = {id(entry) for group in chosen.values() for entry in group}
    size = 0
    with file.open("w", encoding="utf-8") as out:
        for entry in found:
            if id(entry) not in labeled:
                size += out.write(json.dumps({"title": entry.summary, "paragraphs": entry.paragraphs}) + "\n")
    print(f"{len(found) - len(labeled):,} texts, {size / 1e6:.1f} MB, of {len(counts)} packages")
    rows = {name: [as_row(entry) for entry in group] for name, group in chosen.items()}
    for name, part in (("train", slice(TRAIN)), ("dev", slice(TRAIN, None))):
        lines = [json.dumps(row) for group in rows.values() for row in group[part]]
        (HOME / f"{name}.jsonl").write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def as_row(entry: Entry) -> dict[str, str]:
    """Return a labeled row: the text, with the package's own name removed."""
    text = " ".join([entry.summary, *entry.paragraphs])
    anonymous = " ".join(word for word in text.split() if entry.package not in word.lower())
    return {"text": anonymous, "label": entry.package}


def compare(pretrained: str) -> dict[str, list[float]]:
    """Return the accuracy on the dev rows for each seed, of the pretrained encoder and of the same one untrained."""
    model = ErnieModel.from_pretrained(pretrained)
    untrained = ErnieModel(model.config)
    untrained.tokenizer = model.tokenizer
    untrained.save_pretrained(HOME / "untrained")
    scores = {}
    for start, folder in (("untrained", HOME / "untrained"), ("pretrained", Path(pretrained))):
        output = HOME / f"finetune_{start}"
        command("finetune", FINETUNE, "--model", str(folder), "--output", str(output))
        written = json.loads((output / "scores.json").read_text(encoding="utf-8"))
        scores[start] = written["scores"]["dev"]["accuracy"]["values"]
    return scores


def print_scores(scores: dict[str, list[float]]) -> None:
    """Print the scores as a small table."""
    print(f"\n{'':<12}accuracy (mean of {len(scores['untrained'])} seeds, lowest to highest)")
    for start, values in scores.items():
        print(f"{start:<12}{statistics.mean(values):.1%}  ({min(values):.1%} to {max(values):.1%})")
    print(f"{'guessing':<12}{1 / CLASSES:.1%}")


def draw(scores: dict[str, list[float]], file: Path) -> None:
    """Plot the scores to a file."""
    figure = Figure(figsize=(6, 2.2), layout="constrained")
    axes = figure.subplots()
    for i, values in enumerate(scores.values()):
        axes.barh(i, statistics.mean(values), color=("#9aa5b1", "#0072b2")[i], height=0.6)
        axes.plot(values, [i] * len(values), "o", color="black", markersize=4)
        axes.text(max(values) + 0.015, i, f"{statistics.mean(values):.1%}", va="center")
    axes.axvline(1 / CLASSES, color="grey", linestyle="--", linewidth=1)
    axes.text(1 / CLASSES, 1.45, " guessing", color="grey", va="bottom", fontsize=8)
    axes.set(yticks=[0, 1], yticklabels=list(scores), xlim=(0, 1), xlabel=f"accuracy, which of {CLASSES} packages?")
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(file, dpi=150)


if __name__ == "__main__":
    main()
