"""sherpa-onnx's C++ server for streams, for benchmarks/serving_load.py: `serving_sherpa.py PORT`.

Its environment has sherpa-onnx, sherpa-onnx-bin, sherpa-onnx-core and onnx.  The model has random weights and the shape
of our recognizer: 3 layers of 128, chunks of 8 vectors of 40 ms that see 4 chunks before, 1,000 tokens, sound of 8 kHz.
It takes the place of a zipformer with CTC, whose states have room for its keys and values; the others are passed on.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

LAYERS, WIDTH, HEADS, INNER, TOKENS = 3, 128, 4, 512, 1000
FRAMES, BINS, CHUNK, LEFT = 32, 80, 8, 32
PASSED = {"attn": (1, "N", LEFT, 3 * WIDTH // 4), "value2": (LEFT, "N", WIDTH), "conv1": ("N", WIDTH, 1)}


class Graph:
    """A graph of ONNX that grows by operators."""

    def __init__(self) -> None:
        self.nodes: list[onnx.NodeProto] = []
        self.weights: list[onnx.TensorProto] = []
        self._rng = np.random.default_rng(0)

    def add(self, operator: str, *inputs: str, output: str = "", **attributes: object) -> str:
        """Add an operator; return the name of its output."""
        output = output or f"{operator}{len(self.nodes)}"
        self.nodes.append(helper.make_node(operator, list(inputs), [output], **attributes))
        return output

    def constant(self, values: object) -> str:
        """Return the name of a constant."""
        name = f"constant{len(self.weights)}"
        self.weights.append(numpy_helper.from_array(np.asarray(values), name))
        return name

    def linear(self, x: str, rows: int, columns: int) -> str:
        """Multiply by a random matrix."""
        matrix = self._rng.normal(0, rows**-0.5, (rows, columns)).astype(np.float32)
        return self.add("MatMul", x, self.constant(matrix))

    def norm(self, x: str) -> str:
        """Normalize a layer."""
        ones, zeros = np.ones(WIDTH, np.float32), np.zeros(WIDTH, np.float32)
        return self.add("LayerNormalization", x, self.constant(ones), self.constant(zeros))

    def reshape(self, x: str, *shape: int) -> str:
        """Give a tensor another shape."""
        return self.add("Reshape", x, self.constant(np.array(shape, np.int64)))

    def transpose(self, x: str, *order: int) -> str:
        """Change the order of axes."""
        return self.add("Transpose", x, perm=order)

    def with_cache(self, x_NCD: str, cache_LND: str, after: str) -> str:
        """Return what was before and the chunk (L + C, N, D); the last of it is what the next one will have before."""
        whole = self.add("Concat", cache_LND, self.transpose(x_NCD, 1, 0, 2), axis=0)
        starts, ends, axes = (self.constant(np.array([value], np.int64)) for value in (CHUNK, LEFT + CHUNK, 0))
        self.add("Slice", whole, starts, ends, axes, output=after)
        return whole


def model() -> onnx.ModelProto:
    """Return the model."""
    graph, size = Graph(), WIDTH // HEADS
    inputs, outputs = [value("x", "N", FRAMES, BINS)], [value("log_probs", "N", CHUNK, TOKENS)]
    x = graph.reshape("x", -1, CHUNK, FRAMES // CHUNK * BINS)
    x = graph.linear(graph.add("Relu", graph.linear(x, FRAMES // CHUNK * BINS, 2 * WIDTH)), 2 * WIDTH, WIDTH)
    for layer in range(LAYERS):
        keys, values = (
            graph.with_cache(graph.linear(x, WIDTH, WIDTH), f"{name}_{layer}", f"new_{name}_{layer}")
            for name in ("key", "value1")
        )
        queries = graph.reshape(graph.linear(x, WIDTH, WIDTH), -1, CHUNK, HEADS, size)
        keys, values = (graph.reshape(each, LEFT + CHUNK, -1, HEADS, size) for each in (keys, values))
        scores = graph.add("MatMul", graph.transpose(queries, 0, 2, 1, 3), graph.transpose(keys, 1, 2, 3, 0))
        weights = graph.add("Softmax", graph.add("Mul", scores, graph.constant(np.float32(size**-0.5))), axis=-1)
        seen = graph.transpose(graph.add("MatMul", weights, graph.transpose(values, 1, 2, 0, 3)), 0, 2, 1, 3)
        x = graph.norm(graph.add("Add", x, graph.linear(graph.reshape(seen, -1, CHUNK, WIDTH), WIDTH, WIDTH)))
        inner = graph.add("Relu", graph.linear(x, WIDTH, INNER))
        x = graph.norm(graph.add("Add", x, graph.linear(inner, INNER, WIDTH)))
        for name, shape in {"key": (LEFT, "N", WIDTH), "value1": (LEFT, "N", WIDTH)}.items():
            inputs.append(value(f"{name}_{layer}", *shape))
            outputs.append(value(f"new_{name}_{layer}", *shape))
        for name, shape in (*PASSED.items(), ("conv2", PASSED["conv1"])):
            graph.add("Identity", f"{name}_{layer}", output=f"new_{name}_{layer}")
            inputs.append(value(f"{name}_{layer}", *shape))
            outputs.append(value(f"new_{name}_{layer}", *shape))
        order = ("key", "attn", "value1", "value2", "conv1", "conv2")
        for values_of in (inputs, outputs):
            values_of[-6:] = sorted(values_of[-6:], key=lambda each: order.index(each.name.split("_")[-2]))
    never = np.zeros(TOKENS, np.float32)
    never[0] = -100  # silence
    scores = graph.add("Add", graph.linear(x, WIDTH, TOKENS), graph.constant(never))
    graph.add("LogSoftmax", scores, axis=-1, output="log_probs")
    for name, shape, kind in (("embed", ("N", 128, 3, 19), TensorProto.FLOAT), ("done", ("N",), TensorProto.INT64)):
        graph.add("Identity", name, output=f"new_{name}")
        inputs.append(value(name, *shape, kind=kind))
        outputs.append(value(f"new_{name}", *shape, kind=kind))
    made = helper.make_model(
        helper.make_graph(graph.nodes, "recognizer", inputs, outputs, graph.weights),
        opset_imports=[helper.make_opsetid("", 17)],
        ir_version=8,
    )
    helper.set_model_props(made, {name: str(number) for name, number in PROPERTIES.items()})
    onnx.checker.check_model(made)
    return made


def value(name: str, *shape: str | int, kind: int = TensorProto.FLOAT) -> onnx.ValueInfoProto:
    """Return the description of an input or output."""
    return helper.make_tensor_value_info(name, kind, shape)


PROPERTIES: dict[str, str | int] = {
    **{"model_type": "zipformer2", "encoder_dims": WIDTH, "query_head_dims": WIDTH // HEADS},
    **{"value_head_dims": WIDTH // HEADS, "num_heads": HEADS, "num_encoder_layers": LAYERS, "cnn_module_kernels": 3},
    **{"left_context_len": LEFT, "T": FRAMES, "decode_chunk_len": FRAMES},
}


if __name__ == "__main__":
    folder = Path(tempfile.mkdtemp())
    onnx.save(model(), folder / "model.onnx")
    tokens = ["<blk>", *(f"w{number}" for number in range(1, TOKENS))]
    (folder / "tokens.txt").write_text("".join(f"{token} {n}\n" for n, token in enumerate(tokens)), encoding="utf-8")
    program = Path(sys.executable).parent / "sherpa-onnx-online-websocket-server"
    options = [f"--port={sys.argv[1]}", f"--tokens={folder}/tokens.txt", f"--zipformer2-ctc-model={folder}/model.onnx"]
    options += ["--num-work-threads=2", "--max-batch-size=64", "--num-threads=1", "--enable-endpoint=false"]
    options += ["--sample-rate=8000", "--input-sample-rate=8000", "--feat-dim=80", f"--log-file={folder}/log.txt"]
    os.execv(program, [str(program), *options])
