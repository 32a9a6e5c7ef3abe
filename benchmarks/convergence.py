"""Does bf16 converge like fp32?  The same pretraining in both, over three seeds; the threshold is one percent.

  python benchmarks/convergence.py CORPUS --output runs/benchmarks/convergence [--steps 3000] [--preset tiny]

CORPUS is a folder written by `ernie data build`.  Each run is knowledge masking as in the quickstart, so that the loss
leaves the plateau of token frequencies; its figures are the mean training loss of the last tenth of its steps and the
loss on held-out documents.  Finished runs are not repeated.
"""

from __future__ import annotations

import argparse
import math
import statistics
import subprocess
import sys
from pathlib import Path

from ernie.train.log import read_records

SEEDS = (0, 1, 2)
THRESHOLD = 0.01
CONFIG = """\
corpus: {corpus}
schedule:
  stages: [{{knowledge_masking: {steps}}}]
tasks: {{knowledge_masking: {{mask_rate: 0.3}}}}
model: {{preset: {preset}, dropout: 0.0, attention_dropout: 0.0}}
data: {{max_len: 64, micro_batch_tokens: 1024}}
train: {{lr: {{peak: 1e-3, warmup: 0.05}}}}
"""


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--steps", type=int, default=3000)
    parser.add_argument("--preset", default="tiny")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    config = arguments.output / f"{arguments.preset}-{arguments.steps}.yaml"
    values = {"corpus": arguments.corpus.resolve(), "steps": arguments.steps, "preset": arguments.preset}
    config.write_text(CONFIG.format(**values), encoding="utf-8")
    print("| seed | loss, fp32 | bf16 | held-out loss, fp32 | bf16 |\n|---|---|---|---|---|")
    means: dict[str, list[tuple[float, float]]] = {"fp32": [], "bf16": []}
    for seed in SEEDS:
        for precision, pairs in means.items():
            pairs.append(losses(config, arguments.output / f"{config.stem}-{precision}-{seed}", precision, seed))
        cells = [f"{means[name][-1][k]:.4f}" for k in (0, 1) for name in means]
        print(f"| {seed} | {' | '.join(cells)} |", flush=True)
    for k, what in enumerate(("training", "held-out")):
        full, low = (statistics.mean(pair[k] for pair in means[name]) for name in ("fp32", "bf16"))
        difference = low / full - 1
        verdict = "within" if abs(difference) <= THRESHOLD else "beyond"
        print(f"{what} loss: bf16 is {difference:+.2%} of fp32, {verdict} the {THRESHOLD:.0%} that was set")


def losses(config: Path, run: Path, precision: str, seed: int) -> tuple[float, float]:
    """Pretrain unless that is done; return the mean loss of the last tenth of the steps, and the held-out loss."""
    if not (run / "model").exists():
        words = ("--set", f"train.precision={precision}", "--seed", str(seed), "--output", str(run), "--quiet")
        command = [sys.executable, "-m", "ernie.cli", "pretrain", str(config), *words]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    steps = [next(iter(record["loss"].values())) for record in read_records(run, "step")]
    probe = list(read_records(run, "probe"))[-1]
    return statistics.mean(steps[-len(steps) // 10 :]), math.log(probe["scores"]["perplexity"]["value"])


if __name__ == "__main__":
    main()
