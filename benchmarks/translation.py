"""How early and how well: simultaneous translation of Multi30k, German to English.

  python benchmarks/translation.py --data DATA --output runs/translation [--seeds 3] [--epochs 20] [--arms wait-1 ...]

DATA has mt_multi30k_task1/{train,val,test_2016_flickr}.{de,en}.gz.  A vocabulary of both languages, an encoder of 3
layers of 256 that knows nothing, a decoder of as many: each arm is fine-tuned by `ernie finetune`, seed by seed, and
scored on test2016; what is done is kept, so that the command goes on where it was cut.  `full, early` is the model that
learnt whole sentences, asked to translate early (test-time wait-k).

Set before the first run, after Ma et al. (2019): the lag grows with k and is, on the lengths that were decoded, within
0.01 of its closed form; k = 9 is at most 2 BLEU below whole sentences; having learnt to wait one token is worth 1.5
BLEU over being asked to; and whole sentences reach 35 BLEU.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import paddle
from fine_tuned import ernie, fine_tuned

from ernie.data.labelled.read import read_split
from ernie.data.labelled.row import RowOptions
from ernie.decode.latency import average_lagging
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.text.load import load_tokenizer
from finetune.translator import TextTranslator
from tasks.downstream.measures import bleu

SHAPE = {"layers": 3, "hidden_size": 256, "heads": 4, "intermediate_size": 1024}
VOCABULARY = 8000
DISTANCES = (1, 3, 5, 7, 9)
ARMS: dict[str, dict[str, Any]] = {
    **{f"wait-{k}": {"wait_k": k} for k in DISTANCES},
    "full": {},
    "several": {"wait_k": list(DISTANCES)},
}
BETWEEN, BELOW, ABOVE, WHOLE = 0.01, 0.02, 0.015, 0.35


def main() -> None:
    """Run what is missing, print the table, draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int, default=20)
    parser.add_argument("--arms", nargs="+", choices=ARMS, default=list(ARMS))
    arguments = parser.parse_args()
    folder, output = arguments.data / "mt_multi30k_task1", arguments.output / f"epochs-{arguments.epochs}"
    fresh = beginning(folder, arguments.output)
    rows = read_split("test", [str(folder / "test_2016_flickr.{de,en}.gz")], RowOptions()).rows
    points: dict[str, list[tuple[float, float]]] = {}
    for seed in range(arguments.seeds):
        for arm in arguments.arms:
            run = output / f"{arm}-{seed}"
            learn(fresh, folder, run, ARMS[arm], arguments.epochs, seed)
            for name, k in asked(arm):
                points.setdefault(name, []).append(point(run, k, rows))
                print(f"{name}, seed {seed}: AL {points[name][-1][0]:.2f}, BLEU {points[name][-1][1]:.1%}", flush=True)
    print(table(points), end="\n\n")
    draw(points, output / "latency.png")


def beginning(folder: Path, output: Path) -> Path:
    """An encoder that knows nothing, with a vocabulary of both languages."""
    place, tokenizer = output / "fresh", output / "tokenizer"
    if not tokenizer.is_dir():
        texts = []
        for language in ("de", "en"):
            rows = read_split("train", [str(folder / f"train.{{{language}}}.gz")], RowOptions()).rows
            texts.append(output / f"train.{language}.txt")
            output.mkdir(parents=True, exist_ok=True)
            texts[-1].write_text("".join(f"{row[language]}\n" for row in rows), encoding="utf-8")
        options = ["--kind", "sentencepiece", "--cased", "--vocab-size", str(VOCABULARY), "--output", str(tokenizer)]
        ernie("tokenizer", "train", "--input", *map(str, texts), *options)
    if not place.is_dir():
        paddle.seed(0)
        model = ErnieModel(EncoderConfig(**{**SHAPE, "vocab_size": VOCABULARY, "initializer_range": 0.05}))
        model.tokenizer = load_tokenizer(tokenizer)
        model.save_pretrained(place)
    return place


def learn(model: Path, folder: Path, run: Path, task: dict[str, Any], epochs: int, seed: int) -> None:
    """Fine-tune, where it was not done."""
    task = {"kind": "translate", "text": "de", "label": "en", "max_len": 64, **task}
    data = {"train": str(folder / "train.{de,en}.gz"), "dev": str(folder / "val.{de,en}.gz")}
    fine_tuned(run, model, task, data, seed, epochs=epochs, batch_tokens=4096)


def asked(arm: str) -> list[tuple[str, int | None]]:
    """What a model is asked for: its name in the table, and the distance that is kept, None for its own."""
    if arm == "several":
        return [(f"several, asked for {k}", k) for k in DISTANCES]
    return [(arm, None), *((f"full, early {k}", k) for k in DISTANCES if arm == "full")]


def point(run: Path, k: int | None, rows: list[Any]) -> tuple[float, float]:
    """AL in tokens, checked against its closed form, and BLEU on the test split."""
    place = run / f"test-{k or 'own'}.json"
    if not place.exists():
        translator = TextTranslator.load(run, k)
        found = translator.translate([row["de"] for row in rows])
        lags = []
        for _, progress in found:
            read, written = len(progress.read), len(progress.written)
            if written:
                lags.append(average_lagging(progress.delays, read, written))
                distance = k or own_distance(run)
                if distance is not None and abs(lags[-1] - closed_form(distance, read, written)) > BETWEEN:
                    raise SystemExit(
                        f"{run}: AL is {lags[-1]}, by its closed form {closed_form(distance, read, written)}"
                    )
        score = bleu([row["en"] for row in rows], [text for text, _ in found])
        place.write_text(json.dumps([statistics.mean(lags), score]) + "\n", encoding="utf-8")
    lag, score = json.loads(place.read_text(encoding="utf-8"))
    return lag, score


def own_distance(run: Path) -> int | None:
    """The distance that a run has learnt; of several the first."""
    learnt = json.loads((run / "model" / "task.json").read_text(encoding="utf-8"))["task"].get("wait_k")
    return learnt[0] if isinstance(learnt, list) else learnt


def closed_form(k: int, read: int, written: int) -> float:
    """AL of wait-k: the mean of k + (t - 1)(1 - 1/r) over the tokens up to that before which all is read."""
    tokens = min(max(1, read - k + 1), written)
    return min(k, read) + (tokens - 1) / 2 * (1 - read / written)


def table(points: dict[str, list[tuple[float, float]]]) -> str:
    """AL and BLEU of each, the median of the seeds."""
    lines = ["| | AL, tokens | BLEU on test2016 |", "|---|---|---|"]
    for name, found in points.items():
        lag, score = (statistics.median(values) for values in zip(*found, strict=True))
        scores = [100 * score for _, score in found]
        lines.append(f"| {name} | {lag:.2f} | {100 * score:.1f} ({min(scores):.1f} to {max(scores):.1f}) |")
    return "\n".join(lines)


def draw(points: dict[str, list[tuple[float, float]]], file: Path) -> None:
    """BLEU against AL, a line for each way to have learnt it."""
    figure, panel = plt.subplots(figsize=(6.5, 4.5))
    families = {
        "learnt": "wait-",
        "several distances learnt": "several",
        "asked of a whole-sentence model": "full, early",
    }
    for label, prefix in families.items():
        found = [np.median(values, axis=0) for name, values in points.items() if name.startswith(prefix)]
        if found:
            panel.plot(*np.array(sorted(map(tuple, found))).T * [[1], [100]], marker="o", label=label)
    if "full" in points:
        panel.axhline(100 * float(np.median([score for _, score in points["full"]])), color="grey", linestyle="--")
        panel.annotate("whole sentences", (0.99, 0.97), xycoords="axes fraction", ha="right", va="top", color="grey")
    panel.set(xlabel="average lagging, tokens", ylabel="BLEU")
    panel.grid(alpha=0.3)
    panel.legend(loc="lower right")
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
