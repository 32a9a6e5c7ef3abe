"""A training step of a whole model: ours beside transformers with PyTorch at its best on this machine.

Each side is its own process that waits while the other runs; they take turns, so that noise on the machine affects all
of them.  Tokens/s count real tokens, without padding.

  python benchmarks/steps.py --peer PYTHON [--cases pretrain-128 ...] [--turns 5] [--output FILE]

PYTHON is the interpreter of an environment that has torch and transformers (without it, only ours runs).  The peer
computes in bf16 with PyTorch's fused attention and fused AdamW, and glibc is configured to keep its memory, as ours
does.  The bound is the speed at which the step's matmuls run at the rate of one large matmul, measured after each turn.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from ernie.doctor.machine import find

SIDES = {
    "ours": "steps_ours.py",
    "transformers": "steps_transformers.py",
    "transformers compiled": "steps_transformers.py --compiled",
}
HERE = Path(__file__).parent
LENGTHS = json.loads((HERE / "lengths.json").read_text(encoding="utf-8"))
BASE = {"hidden": 768, "layers": 12, "heads": 12, "inner": 3072, "vocabulary": 30522}
SMALL = {"hidden": 256, "layers": 4, "heads": 4, "inner": 1024, "vocabulary": 30522}
# A case: the model shape, the kind of task, and the lengths of the sequences in each batch.
CASES: dict[str, dict[str, Any]] = {
    "pretrain-128": {"shape": BASE, "kind": "mlm", "batches": [[128] * 16]},
    "pretrain-512": {"shape": BASE, "kind": "mlm", "batches": [[512] * 4]},
    "pretrain-real": {"shape": BASE, "kind": "mlm", "batches": LENGTHS["wikipedia"]},
    "finetune-sst2": {"shape": BASE, "kind": "classify", "batches": LENGTHS["sst2"]},
    "small-real": {"shape": SMALL, "kind": "mlm", "batches": LENGTHS["wikipedia"]},
}
KEEP_MEMORY = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str((1 << 31) - 1)}


class Side:
    """A process that takes steps on request."""

    def __init__(self, command: str, interpreter: str, case: dict[str, Any]):
        script, *options = command.split()
        self._command = command
        self._process = subprocess.Popen(
            [interpreter, str(HERE / "peers" / script), *options, json.dumps(case)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, **(KEEP_MEMORY if interpreter != sys.executable else {})},
        )

    def turn(self) -> dict[str, float]:
        """Run one step on each of its batches; return seconds, and peak memory in MB."""
        assert self._process.stdin is not None and self._process.stdout is not None
        time.sleep(0.5)  # threads of the previous side may still spin, waiting for work
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            sys.exit(f"{self._command}: ended with status {self._process.wait()}")
        result: dict[str, float] = json.loads(answer)
        return result

    def close(self) -> None:
        """End the process."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


def main() -> None:
    """Run the cases and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--cases", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--sides", nargs="+", choices=list(SIDES), default=list(SIDES))
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--output", type=Path, help="write all figures there, as JSON")
    arguments = parser.parse_args()
    names = [name for name in arguments.sides if name == "ours" or arguments.peer]
    results: dict[str, Any] = {}
    print("| case | side | tokens/s, median | best | peak memory, MB | ours |\n|---|---|---|---|---|---|")
    for case in arguments.cases:
        results[case] = run_case(CASES[case], names, arguments.peer, arguments.turns)
        print(*rows(case, results[case]), sep="\n", flush=True)
        if arguments.output:
            arguments.output.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")


def run_case(case: dict[str, Any], names: list[str], peer: str, turns: int) -> dict[str, Any]:
    """Tokens/s of every turn and peak memory, for each side."""
    tokens, needed = sum(map(sum, case["batches"])), operations(case)
    sides = {name: Side(SIDES[name], sys.executable if name == "ours" else peer, case) for name in names}
    for side in sides.values():
        side.turn()  # the first turn compiles, or allocates
    results: dict[str, Any] = {name: {"tokens/s": [], "memory": 0.0} for name in names}
    for _ in range(turns):
        for name, side in sides.items():
            turn = side.turn()
            results[name]["tokens/s"].append(tokens / turn["seconds"])
            results[name]["memory"] = turn["memory"]
            if "rate" in turn:
                results[name].setdefault("bound", []).append(tokens * turn["rate"] / needed)
    for side in sides.values():
        side.close()
    return results


def record_turns(commands: dict[str, str], case: dict[str, Any], turns: int, file: Path) -> None:
    """Write the tokens/s of every turn, for each side, to a file; all sides are ours."""
    machine = find()
    tokens = sum(map(sum, case["batches"]))
    sides = {name: Side(command, sys.executable, case) for name, command in commands.items()}
    for side in sides.values():
        side.turn()  # the first turn allocates
    speeds: dict[str, list[float]] = {name: [] for name in sides}
    for _ in range(turns):
        for name, side in sides.items():
            speeds[name].append(round(tokens / side.turn()["seconds"], 1))
    for side in sides.values():
        side.close()
    record = {"processor": machine.processor, "instructions": machine.instructions, "tokens/s": speeds}
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def operations(case: dict[str, Any]) -> float:
    """FLOPs of one step on each batch: matmuls only, three times those of the forward pass.

    The matmul with the vocabulary is counted for predicted tokens, all others for every token.
    """
    shape = case["shape"]
    D, F, V = shape["hidden"], shape["inner"], shape["vocabulary"]
    total = 0.0
    for lengths in case["batches"]:
        T = sum(lengths)
        layer = 2 * T * (4 * D * D + 2 * D * F) + 4 * D * sum(n * n for n in lengths)
        head = 2 * 0.15 * T * (D * V + D * D) if case["kind"] == "mlm" else 0
        total += 3 * (shape["layers"] * layer + head)
    return total


def rows(case: str, found: dict[str, Any]) -> list[str]:
    """The rows of the table for a case."""
    ours = found.get("ours")
    lines = []
    for name, result in found.items():
        median, best = statistics.median(result["tokens/s"]), max(result["tokens/s"])
        ratio = ""
        if ours and name != "ours":
            speed, memory = statistics.median(ours["tokens/s"]) / median, ours["memory"] / result["memory"]
            ratio = f"{speed:.2f} times as fast, in {memory:.2f} of the memory"
        elif "bound" in result:
            ratio = f"{median / statistics.median(result['bound']):.0%} of the bound"
        lines.append(f"| {case} | {name} | {median:,.0f} | {best:,.0f} | {result['memory']:,.0f} | {ratio} |")
    return lines


if __name__ == "__main__":
    main()
