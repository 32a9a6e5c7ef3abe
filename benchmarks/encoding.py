"""Inference with a whole model: ours beside PyTorch, ONNX Runtime and OpenVINO at their best on this machine.

Each side is its own process that waits while the others run; they take turns.  All receive the same padded batches of
random token ids and return the hidden states of all tokens; the embedding layer is included.

  python benchmarks/encoding.py --peer PYTHON [--cases one-16 ...] [--turns 7] [--output FILE]

PYTHON is the interpreter of an environment with torch, transformers, onnx, onnxscript, onnxruntime and openvino.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from pathlib import Path
from typing import Any

from steps import BASE, LENGTHS, Side

SIDES = {
    "ours fp32": "inference_ours.py fp32",
    "ours bf16": "inference_ours.py bf16",
    "ours int8": "inference_ours.py int8",
    "PyTorch bf16": "inference_transformers.py",
    "PyTorch bf16, compiled": "inference_transformers.py --compiled",
    "ONNX Runtime int8": "inference_onnx.py onnxruntime",
    "OpenVINO bf16": "inference_onnx.py openvino",
}
CASES: dict[str, dict[str, Any]] = {
    "one-16": {"shape": BASE, "batches": [[16]], "repeats": 20},
    "real-32": {"shape": BASE, "batches": LENGTHS["sst2"], "repeats": 1},
}


def main() -> None:
    """Run the cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--output", type=Path, help="write all figures there, as JSON")
    arguments = parser.parse_args()
    names = [name for name in arguments.sides if name.startswith("ours") or arguments.peer]
    results: dict[str, dict[str, list[float]]] = {}
    print("| case | side | ms a batch, median | best |\n|---|---|---|---|")
    for case in arguments.cases:
        results[case] = run_case(CASES[case], names, arguments.peer, arguments.turns)
        for name, times in results[case].items():
            print(f"| {case} | {name} | {statistics.median(times):.1f} | {min(times):.1f} |", flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def run_case(case: dict[str, Any], names: list[str], peer: str, turns: int) -> dict[str, list[float]]:
    """Milliseconds per batch in every turn, for each side."""
    sides = {name: Side(SIDES[name], sys.executable if name.startswith("ours") else peer, case) for name in names}
    for side in sides.values():
        side.turn()  # the first turn compiles, or lays out weights
    times: dict[str, list[float]] = {name: [] for name in names}
    for _ in range(turns):
        for name, side in sides.items():
            times[name].append(1000 * side.turn()["seconds"] / (case["repeats"] * len(case["batches"])))
    for side in sides.values():
        side.close()
    return times


if __name__ == "__main__":
    main()
