"""How the cost of a training step grows with length, batch and vocabulary: ours beside transformers with PyTorch.

  python benchmarks/growth.py --peer PYTHON --output FOLDER [--axes length batch vocabulary] [--turns 3]

Each axis changes one thing: the length of sequences at 4,096 tokens per step, the number of sequences of 128 tokens,
the vocabulary with 16 sequences of 128.  PYTHON is the interpreter of an environment with torch and transformers
(without it, only ours runs).  FOLDER receives growth-SHAPE.json and a figure; what the file contains is not measured
again.
"""

from __future__ import annotations

import argparse
import json
import statistics
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
from steps import BASE, SMALL, run_case

AXES = ("length", "batch", "vocabulary")
SHAPES = {"base": BASE, "small": SMALL}
LONGEST, TOKENS = 4096, 4096
LENGTHS = (64, 128, 256, 512, 1024, 2048, 4096)
BATCHES = (1, 2, 4, 8, 16, 32, 64)
VOCABULARIES = (8_000, 16_000, 32_000, 64_000, 128_000, 256_000)


def main() -> None:
    """Measure what is missing, print the table and draw the figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--axes", nargs="+", choices=AXES, default=list(AXES))
    parser.add_argument("--shape", choices=list(SHAPES), default="base")
    parser.add_argument("--turns", type=int, default=3)
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    file = arguments.output / f"growth-{arguments.shape}.json"
    found: dict[str, Any] = json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}
    sides = ["ours", "transformers"] if arguments.peer else ["ours"]
    print("| | | ours, tokens/s | MB | transformers, tokens/s | MB | ratio |\n|---|---|---|---|---|---|---|")
    for axis in arguments.axes:
        for value, case in cases(axis, SHAPES[arguments.shape]).items():
            name = f"{axis} {value}"
            if not set(sides) <= set(found.get(name, {})):
                found[name] = run_case(case, sides, arguments.peer, arguments.turns)
                file.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
            print(row(axis, value, found[name]), flush=True)
    draw(found, arguments.axes, arguments.output / f"growth-{arguments.shape}.png")


def cases(axis: str, shape: dict[str, int]) -> dict[int, dict[str, Any]]:
    """The cases of an axis, by value."""
    wide = {**shape, "positions": LONGEST}
    if axis == "length":
        return {n: {"shape": wide, "kind": "mlm", "batches": [[n] * (TOKENS // n)]} for n in LENGTHS}
    if axis == "batch":
        return {n: {"shape": shape, "kind": "mlm", "batches": [[128] * n]} for n in BATCHES}
    return {n: {"shape": {**shape, "vocabulary": n}, "kind": "mlm", "batches": [[128] * 16]} for n in VOCABULARIES}


def row(axis: str, value: int, found: dict[str, Any]) -> str:
    """A row of the table."""
    speeds = {side: statistics.median(result["tokens/s"]) for side, result in found.items()}
    cells = [axis, f"{value:,}"]
    for side in ("ours", "transformers"):
        cells += [f"{speeds[side]:,.0f}", f"{found[side]['memory']:,.0f}"] if side in found else ["", ""]
    cells.append(f"{speeds['ours'] / speeds['transformers']:.2f}" if "transformers" in speeds else "")
    return f"| {' | '.join(cells)} |"


def draw(found: dict[str, Any], axes: list[str], file: Path) -> None:
    """Draw tokens per second and memory along each axis."""
    figure, panels = plt.subplots(2, len(axes), figsize=(4 * len(axes), 6), squeeze=False, sharex="col", sharey="row")
    for column, axis in enumerate(axes):
        for side in ("ours", "transformers"):
            points = [(int(n.split()[1]), f[side]) for n, f in found.items() if n.startswith(axis) and side in f]
            if not points:
                continue
            values, measured = zip(*points, strict=True)
            speeds = [statistics.median(result["tokens/s"]) for result in measured]
            panels[0, column].plot(values, speeds, marker="o", label=side)
            panels[1, column].plot(values, [result["memory"] / 1024 for result in measured], marker="o", label=side)
        ticks = list(cases(axis, BASE))
        panels[1, column].set(xscale="log", xlabel=axis)
        panels[1, column].set_xticks(ticks, [f"{n // 1000}k" if n >= 8000 else str(n) for n in ticks], minor=False)
        panels[1, column].minorticks_off()
    panels[0, 0].set(ylabel="tokens/s")
    panels[1, 0].set(ylabel="peak memory, GB")
    for panel in panels.flat:
        panel.set_ylim(0, 1.1 * panel.dataLim.ymax)
        panel.grid(alpha=0.3)
    panels[0, 0].legend()
    figure.tight_layout()
    figure.savefig(file, dpi=120)


if __name__ == "__main__":
    main()
