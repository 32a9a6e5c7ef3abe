"""The engine behind PyTriton's Triton, for benchmarks/serving_load.py: `serving_pytriton.py FOLDER PORT`.

Triton's stub of Python has the version of an early 3.11; the standard library of 3.11.7 does not fit it, that of 3.11.2
does.
"""

from __future__ import annotations

import sys

import numpy as np
from pytriton.decorators import batch
from pytriton.model_config import DynamicBatcher, ModelConfig, Tensor
from pytriton.triton import Triton, TritonConfig
from serving_engine import Engine


@batch
def answer(text: np.ndarray) -> dict[str, np.ndarray]:
    """Answer a column of texts."""
    found = engine.answer([row[0].decode() for row in text])
    labels = np.array([[each["label"].encode()] for each in found], dtype=object)
    return {"label": labels, "probability": np.array([[each["probability"]] for each in found], np.float32)}


if __name__ == "__main__":
    folder, port = sys.argv[1:3]
    engine = Engine(folder)
    outputs = [Tensor(name="label", dtype=bytes, shape=(1,)), Tensor(name="probability", dtype=np.float32, shape=(1,))]
    ports = TritonConfig(http_port=int(port), grpc_port=int(port) + 1, metrics_port=int(port) + 2)
    with Triton(config=ports) as triton:
        triton.bind(
            model_name="classifier",
            infer_func=answer,
            inputs=[Tensor(name="text", dtype=bytes, shape=(1,))],
            outputs=outputs,
            config=ModelConfig(max_batch_size=64, batcher=DynamicBatcher(max_queue_delay_microseconds=1000)),
        )
        triton.serve()
