"""The sides of benchmarks/encoding.py that run an ONNX file: `inference_onnx.py onnxruntime|openvino CASE`.

ONNX Runtime runs it quantized dynamically to int8, per channel; OpenVINO in bfloat16.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from inference_transformers import config
from transformers import BertModel


def main() -> None:
    """Export the model, then answer the batches for every line of standard input."""
    engine, case = sys.argv[1], json.loads(sys.argv[2])
    rng = np.random.default_rng(0)
    batches = [batch(lengths, case["shape"]["vocabulary"], rng) for lengths in case["batches"]]
    with tempfile.TemporaryDirectory() as folder:
        path = export(case["shape"], Path(folder))
        run = onnxruntime(path) if engine == "onnxruntime" else openvino(path)
        for _ in sys.stdin:
            began = time.perf_counter()
            for _ in range(case["repeats"]):
                for given in batches:
                    run(given)
            print(json.dumps({"seconds": time.perf_counter() - began}), flush=True)


class Encoder(torch.nn.Module):
    """BERT as a function of ids and mask."""

    def __init__(self, shape: dict[str, int]):
        super().__init__()
        self.model = BertModel(config(shape), add_pooling_layer=False).eval()

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        return self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state


def export(shape: dict[str, int], folder: Path) -> Path:
    """The model as an ONNX file for batches of any size."""
    path = folder / "model.onnx"
    given = {"input_ids": torch.ones(2, 8, dtype=torch.long), "attention_mask": torch.ones(2, 8, dtype=torch.long)}
    axes = {
        name: {0: torch.export.Dim("N", min=1, max=256), 1: torch.export.Dim("L", min=1, max=512)} for name in given
    }
    program = torch.onnx.export(Encoder(shape).eval(), kwargs=given, dynamic_shapes=axes, dynamo=True, verbose=False)
    program.save(str(path))
    return path


def onnxruntime(path: Path) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """A function that runs the file, quantized."""
    import onnxruntime as ort
    from onnxruntime.quantization import QuantType, quantize_dynamic

    small = path.with_name("int8.onnx")
    quantize_dynamic(path, small, per_channel=True, weight_type=QuantType.QInt8)
    options = ort.SessionOptions()
    options.intra_op_num_threads = torch.get_num_threads()
    session = ort.InferenceSession(str(small), options)
    return lambda given: session.run(None, given)[0]


def openvino(path: Path) -> Callable[[dict[str, np.ndarray]], np.ndarray]:
    """A function that runs the file in bfloat16."""
    import openvino as ov

    settings = {"INFERENCE_PRECISION_HINT": "bf16", "PERFORMANCE_HINT": "LATENCY"}
    compiled = ov.Core().compile_model(path, "CPU", settings)
    return lambda given: compiled(given)[0]


def batch(lengths: list[int], vocabulary: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Random ids (N, L), and which of them are tokens."""
    mask = (np.arange(max(lengths)) < np.array(lengths)[:, None]).astype(np.int64)
    return {"input_ids": rng.integers(0, vocabulary, mask.shape) * mask, "attention_mask": mask}


if __name__ == "__main__":
    main()
