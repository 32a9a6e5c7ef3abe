"""One rank of benchmarks/parallel.py: `parallel_steps.py CASE FOLDER`; writes what it measured to FOLDER/RANK.json."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

import numpy as np
from paddle import Tensor, nn
from steps_ours import batch, encoder

from ernie import runtime
from ernie.data.batch import Packed
from ernie.kernels.precision import precision
from ernie.model.heads import MaskedTokenHead
from ernie.model.losses import Loss
from ernie.parallel.collectives import any_rank
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.mesh import Mesh
from ernie.train.adam_config import AdamConfig
from ernie.train.trainer import Trainer


class Masked(nn.Layer):
    """An encoder that learns masked tokens."""

    def __init__(self, shape: dict[str, int]):
        super().__init__()
        self.ernie = encoder(shape)
        self.words = MaskedTokenHead(self.ernie)

    def task_embedding(self, _: str) -> int:
        return 0

    def loss(self, name: str, packed: Packed) -> Loss:
        return self.head_loss(name, self.ernie.encode_packed(packed), packed)

    def encoder_input(self, _: str, batch: Packed) -> tuple[Packed, None]:
        """All of a batch."""
        return batch, None

    def head_loss(self, _: str, hidden_TD: Tensor, packed: Packed) -> Loss:
        labels = packed.labels["label"]
        return self.words.loss(hidden_TD, labels.positions, labels.values)


def main() -> None:
    """Train a few steps, then measure some."""
    case, folder = json.loads(sys.argv[1]), Path(sys.argv[2])
    shape = case["shape"]
    mesh = Mesh.connect(ParallelConfig(**case["layout"]))
    with mesh.watch, precision("fp32"):
        model = Masked(shape)
        trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=5, seed=0, mesh=mesh)
        rng = np.random.default_rng(0)
        lengths = [case["length"]] * (case["tokens"] // case["length"])
        batches = [("words", batch(lengths, shape["vocabulary"], True, rng)) for _ in range(case["micro_batches"])]
        for step in range(case["warm"]):
            trainer.step(step, batches, model.loss, 1e-4)
        any_rank(mesh, False)
        began, before = time.perf_counter(), wire()
        for step in range(case["steps"]):
            trainer.step(case["warm"] + step, batches, model.loss, 1e-4)
        any_rank(mesh, False)
        found = {
            "seconds": (time.perf_counter() - began) / case["steps"],
            "sent": (wire() - before) / case["steps"],
            "peak": runtime.memory("VmHWM"),
        }
        (folder / f"{mesh.rank}.json").write_text(json.dumps(found), encoding="utf-8")


def wire() -> int:
    """The bytes that this machine has sent to itself."""
    for line in Path("/proc/net/dev").read_text(encoding="ascii").splitlines():
        name, _, counters = line.partition(":")
        if name.strip() == "lo":
            return int(counters.split()[8])
    return 0


if __name__ == "__main__":
    main()
