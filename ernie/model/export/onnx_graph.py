"""A builder of ONNX graphs with the few operators of an encoder: methods take and return the names of values.

Graphs are built node by node rather than by a converter.  So constants keep the names of the parameters, and int8
products have the form that runtimes have kernels for.  Uses ONNX operator set 17, the first with LayerNormalization.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

_OPERATORS, _FILE_FORMAT = 17, 8


class Graph:
    """Nodes in topological order, and their constants.  With `int8`, linear layers are quantized."""

    def __init__(self, int8: bool = False) -> None:
        self._int8 = int8
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}
        self._quantized: dict[str, tuple[str, str]] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node and return the name of its output."""
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value: np.ndarray | float | Sequence[int]) -> str:
        """Add a constant, unless the name exists, and return its name; numbers become float32, lists int64."""
        if name not in self._constants:
            kind = {float: np.float32, list: np.int64}.get(type(value))
            self._constants[name] = np.asarray(value, kind)
        return name

    def linear(self, x: str, weight: str, bias: str) -> str:
        """Add a linear layer; `weight` (D, E) and `bias` are names of constants."""
        product = self._int8_product(x, weight) if self._int8 else self.node("MatMul", x, weight)
        return self.node("Add", product, bias)

    def norm(self, x: str, gain: str, offset: str, epsilon: float) -> str:
        return self.node("LayerNormalization", x, gain, offset, axis=-1, epsilon=epsilon)

    def gelu(self, x: str) -> str:
        """Add the exact GELU as five nodes, which runtimes fuse into one."""
        error = self.node("Erf", self.node("Div", x, self.constant("sqrt_2", float(np.sqrt(2)))))
        doubled = self.node("Mul", x, self.node("Add", error, self.constant("one", 1.0)))
        return self.node("Mul", doubled, self.constant("half", 0.5))

    def _int8_product(self, x: str, weight: str) -> str:
        """Add an int8 product: activations are scaled per token, weights per column, to at most 127 in magnitude."""
        if x not in self._quantized:  # queries, keys and values share their input
            self._quantized[x] = self._quantize_activations(x)
        x_uint8, scale = self._quantized[x]
        weight_int8_DE, scale_E = quantize_int8(self._constants[weight])
        names = self.constant(f"{weight}.int8", weight_int8_DE), self.constant(f"{weight}.scale", scale_E)
        products = self.node("MatMulInteger", x_uint8, names[0], self.constant("middle.uint8", np.array(128, np.uint8)))
        # Two multiplications, since ONNX Runtime would take a product of the scales for one of two scalars.
        scaled_by_column = self.node("Mul", self.node("Cast", products, to=TensorProto.FLOAT), names[1])
        return self.node("Mul", scaled_by_column, scale)

    def _quantize_activations(self, x: str) -> tuple[str, str]:
        """Quantize activations to uint8, for which runtimes have faster kernels; return them and a scale per token."""
        max_abs = self.node("ReduceMax", self.node("Abs", x), axes=[-1], keepdims=1)
        min_scale = self.constant("least", 1e-30)
        scale = self.node("Max", self.node("Mul", max_abs, self.constant("step", 1 / 127)), min_scale)
        quantized = self.node("Add", self.node("Round", self.node("Div", x, scale)), self.constant("middle", 128.0))
        return self.node("Cast", quantized, to=TensorProto.UINT8), scale

    def write(self, path: Path, inputs: Sequence[str], outputs: dict[str, tuple[str, tuple[str | int, ...]]]) -> None:
        """Write the graph; inputs are int64 (batch, length), and `outputs` maps names to a value and its shape."""
        output_nodes = [helper.make_node("Identity", [value], [name]) for name, (value, _) in outputs.items()]
        used = {name for node in self._nodes for name in node.input}
        graph_inputs = [helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", "length")) for name in inputs]
        graph_outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()
        ]
        constants = [numpy_helper.from_array(value, name) for name, value in self._constants.items() if name in used]
        graph = helper.make_graph([*self._nodes, *output_nodes], "encoder", graph_inputs, graph_outputs, constants)
        model = helper.make_model(
            graph,
            producer_name="ernie-continual",
            ir_version=_FILE_FORMAT,
            opset_imports=[helper.make_opsetid("", _OPERATORS)],
        )
        onnx.checker.check_model(model)
        onnx.save(model, path)


def quantize_int8(weight_DE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Quantize a weight to int8 (D, E); return it and the scale per column (E,)."""
    scale_E = np.maximum(np.abs(weight_DE).max(axis=0), 1e-30) / 127
    return np.rint(weight_DE / scale_E).astype(np.int8), scale_E.astype(np.float32)
