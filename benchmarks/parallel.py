"""What parallel layouts send and store: bytes sent in a step beside the formula, memory and time of a rank.

  python benchmarks/parallel.py [--layouts '{data: 2}' ...] [--steps 5] [--shape base] [--tokens 256]
  python benchmarks/parallel.py --scaling [--rounds 5]

An encoder of 4 layers of 256 with a vocabulary of 30,522 is trained on masked tokens in fp32, with 4 micro-batches of
1,024 tokens per step, in processes of one thread over Gloo; `--shape base` has 12 layers of 768.  The bytes are all
those that the machine sends to itself meanwhile, so nothing else should use the loopback interface.

`--scaling`: the time of one process beside that of two for the same step (strong scaling) and for a step of twice as
many micro-batches (weak scaling), in turns; two processes share the memory and caches that one has for itself.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import yaml
from steps import BASE, SMALL

from ernie.parallel.layout import ParallelConfig

LAYOUTS = (
    "{data: 1}",
    "{data: 2}",
    "{sharding: 2}",
    "{sharding: 2, sharding_stage: 2}",
    "{sharding: 2, sharding_stage: 3}",
    "{tensor: 2}",
    "{tensor: 2, sequence: true}",
    "{pipeline: 2}",
)
MICRO_BATCHES, LENGTH = 4, 128
SHAPES = {"small": SMALL, "base": BASE}
RANK = Path(__file__).with_name("peers") / "parallel_steps.py"


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--layouts", nargs="+", default=LAYOUTS, metavar="BLOCK")
    parser.add_argument("--steps", type=int, default=5)
    parser.add_argument("--shape", choices=SHAPES, default="small")
    parser.add_argument("--tokens", type=int, default=1024, help="of a micro-batch")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    if arguments.scaling:
        scaling(arguments.steps, arguments.rounds)
        return
    shape, tokens = SHAPES[arguments.shape], arguments.tokens
    print("| layout | sent in a step, MB | formula, MB | memory of a rank, MB | step, s |\n|---|---|---|---|---|")
    for text in arguments.layouts:
        layout = ParallelConfig(**yaml.safe_load(text))
        ranks = run(layout, arguments.steps, shape=shape, tokens=tokens)
        sent, peak = ranks[0]["sent"] / 1e6, max(rank["peak"] for rank in ranks) / 1e6
        name = layout.described() + (f", stage {layout.sharding_stage}" if layout.sharding > 1 else "")
        name += ", sequence" if layout.sequence else ""
        print(
            f"| {name} | {sent:.1f} | {formula(layout, shape, tokens) / 1e6:.1f} | {peak:.0f} "
            f"| {ranks[0]['seconds']:.2f} |",
            flush=True,
        )


def scaling(steps: int, rounds: int) -> None:
    """Measure and print the strong and weak scaling of two processes, in medians."""
    cases = {"one": (1, MICRO_BATCHES), "strong": (2, MICRO_BATCHES), "weak": (2, 2 * MICRO_BATCHES)}
    times: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds):
        for name, (processes, micro_batches) in cases.items():
            times[name].append(run(ParallelConfig(data=processes), steps, micro_batches)[0]["seconds"])
    one, strong, weak = (statistics.median(of_case) for of_case in times.values())
    print("| | processes | micro-batches | step, s | of twice as fast |\n|---|---|---|---|---|")
    print(f"| one process | 1 | {MICRO_BATCHES} | {one:.2f} | |")
    print(f"| strong scaling | 2 | {MICRO_BATCHES} | {strong:.2f} | {one / strong / 2:.0%} |")
    print(f"| weak scaling | 2 | {2 * MICRO_BATCHES} | {weak:.2f} | {one / weak:.0%} |")


def run(
    layout: ParallelConfig,
    steps: int,
    micro_batches: int = MICRO_BATCHES,
    shape: dict[str, int] = SMALL,
    tokens: int = 1024,
) -> list[dict[str, Any]]:
    """Run a layout, and return what each rank measured."""
    block = {name: value for name, value in vars(layout).items() if name != "stages"}
    case = {"layout": block, "shape": shape, "micro_batches": micro_batches, "tokens": tokens, "length": LENGTH}
    count = layout.processes
    with tempfile.TemporaryDirectory() as folder:
        words = [str(RANK), json.dumps({**case, "warm": 2, "steps": steps}), folder]
        launcher = [sys.executable, "-m", "paddle.distributed.launch", "--nproc_per_node", str(count)]
        root = str(Path(__file__).resolve().parent.parent)
        threads = {"MKL_NUM_THREADS": "1", "FLAGS_paddle_num_threads": "1", "OMP_NUM_THREADS": "1"}
        done = subprocess.run(
            [*launcher, "--log_dir", f"{folder}/logs", "--log_level", "ERROR", *words],
            env={**os.environ, **threads, "PYTHONPATH": root},
            cwd=folder,
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise SystemExit(f"{layout.described()}: {done.stdout}{done.stderr}")
        return [json.loads(Path(folder, f"{rank}.json").read_text(encoding="utf-8")) for rank in range(count)]


def formula(layout: ParallelConfig, shape: dict[str, int], tokens: int) -> float:
    """The bytes that all ranks together send in a step, with rings: an all-reduce of K bytes sends 2 K (N - 1)."""
    D, F, L, V = shape["hidden"], shape["inner"], shape["layers"], shape["vocabulary"]
    layers = 4 * L * (4 * (D * D + D) + 2 * D * F + F + D + 4 * D)
    # Token, position and segment embeddings with their norm, and the head; the pooler has no gradient here.
    others = 4 * (V * D + (512 + 2) * D + 2 * D + D * D + D + 2 * D + V)
    vectors = 4 * tokens * D
    total: float = 2 * (layers + others) * (layout.degree("data") - 1)
    shards = layout.sharding - 1
    each = MICRO_BATCHES / layout.replicas
    reduced = 1 if layout.sharding_stage == 1 else each  # gradients are reduced once per step, or per micro-batch
    total += (reduced + 1) * (others if layout.sharding_stage == 3 else layers + others) * shards
    if layout.sharding_stage == 3:  # two fetches of the layers' weights and a reduction per micro-batch
        total += each * 4 * layers * shards
    total += MICRO_BATCHES * (4 * L + 1) * 2 * vectors * (layout.tensor - 1)
    total += MICRO_BATCHES * 2 * vectors * (layout.pipeline - 1) + (2 * 4 * V * D if layout.pipeline > 1 else 0)
    return total


if __name__ == "__main__":
    main()
