"""Our side of benchmarks/steps.py: takes a step on each batch for every line of standard input.

`--adapt TARGET...` trains low-rank updates of these matrices, of rank 8, in place of the encoder.
"""

from __future__ import annotations

import json
import resource
import statistics
import sys
import time

import numpy as np
import paddle

from ernie.data.batch import Labels, Layout, Packed
from ernie.kernels.cpu.call import product, to_bf16
from ernie.kernels.precision import is_low, precision
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel
from ernie.model.heads import MaskedTokenHead, SequenceHead
from ernie.model.losses import Loss, cross_entropy
from ernie.train.adam_config import AdamConfig
from ernie.train.adapter import Adapter
from ernie.train.adapter_config import AdapterConfig
from ernie.train.trainer import Trainer


def main() -> None:
    """Build the model, then obey."""
    case, targets = json.loads(sys.argv[-1]), sys.argv[2:-1]
    shape = case["shape"]
    model = encoder(shape)
    adapter = Adapter(model, AdapterConfig(targets=tuple(targets)), seed=0) if targets else None
    masked = case["kind"] == "mlm"
    model.head = MaskedTokenHead(model) if masked else SequenceHead(model, 2)
    model.adapter = adapter
    trainer = Trainer(model, AdamConfig(), clip=1.0, max_bad_steps=5, seed=0, adapter=adapter)
    rng = np.random.default_rng(0)
    batches = [batch(lengths, shape["vocabulary"], masked, rng) for lengths in case["batches"]]

    def loss(_: str, one: Packed) -> Loss:
        labels = one.labels["label"]
        hidden_TD = model.encode_packed(one, 0, labels.positions if masked else one.layout.starts)
        if masked:
            return model.head.loss(hidden_TD, labels.positions, labels.values)
        return cross_entropy(model.head(hidden_TD, one.layout), labels.values)

    step = 0
    with precision("auto"):
        for _ in sys.stdin:
            began = time.perf_counter()
            for one in batches:
                trainer.step(step, [("task", one)], loss, 1e-4)
                step += 1
            seconds = time.perf_counter() - began
            memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
            print(json.dumps({"seconds": seconds, "memory": memory, "rate": product_rate()}), flush=True)


def encoder(shape: dict[str, int]) -> ErnieModel:
    """An encoder of a shape, as the peers have it: without embeddings of tasks."""
    return ErnieModel(
        EncoderConfig(
            vocab_size=shape["vocabulary"],
            hidden_size=shape["hidden"],
            layers=shape["layers"],
            heads=shape["heads"],
            intermediate_size=shape["inner"],
            max_positions=shape.get("positions", 512),
            task_vocab_size=0,
        )
    )


def product_rate() -> float:
    """FLOP/s of a product of weights' size in the precision in force: what all of a step could run at."""
    x, weight = paddle.randn([2048, 768]), paddle.randn([768, 3072])
    if is_low():
        x, weight = to_bf16(x), to_bf16(weight)
    times = []
    for _ in range(6):
        began = time.perf_counter()
        product(x, weight)
        times.append(time.perf_counter() - began)
    return 2 * 2048 * 768 * 3072 / statistics.median(times)


def batch(lengths: list[int], vocabulary: int, masked: bool, rng: np.random.Generator) -> Packed:
    """Random tokens in sequences of these lengths; 15 % of them are to be predicted, or a class of each sequence."""
    layout = Layout.of_lengths(lengths)
    ids = rng.integers(0, vocabulary, layout.tokens)
    if masked:
        places = np.sort(rng.permutation(layout.tokens)[: round(0.15 * layout.tokens)])
        labels = Labels(ids[places], places)
    else:
        labels = Labels(rng.integers(0, 2, layout.sequences), None)
    samples = np.zeros((layout.sequences, 3), np.int64)
    return Packed(ids, np.zeros_like(ids), layout, {"label": labels}, samples)


if __name__ == "__main__":
    main()
