"""ONNX from nodes: the few operators that an encoder needs, each a method that takes and gives names of values.

Written node by node, not by a converter, so that values have the names of the parameters, and int8 products are those
that runtimes have kernels for.  ONNX operator set 17, the first with LayerNormalization.
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
    """Nodes in the order of computation, and the constants that they use.  With `int8`, linear layers are in bytes."""

    def __init__(self, int8: bool = False) -> None:
        self._int8 = int8
        self._nodes: list[Any] = []
        self._constants: dict[str, np.ndarray] = {}
        self._quantized: dict[str, tuple[str, str]] = {}

    def node(self, operator: str, *inputs: str, **attributes: Any) -> str:
        """Add a node; the name of its output."""
        name = f"{operator}_{len(self._nodes)}"
        self._nodes.append(helper.make_node(operator, inputs, [name], name, **attributes))
        return name

    def constant(self, name: str, value: np.ndarray | float | Sequence[int]) -> str:
        """Add a constant, unless one of that name is there: a number is float32, a list int64."""
        if name not in self._constants:
            kind = {float: np.float32, list: np.int64}.get(type(value))
            self._constants[name] = np.asarray(value, kind)
        return name

    def linear(self, x: str, weight: str, bias: str) -> str:
        """The product with a weight (D, E) and a bias, both constants by their names."""
        product = self._product_in_bytes(x, weight) if self._int8 else self.node("MatMul", x, weight)
        return self.node("Add", product, bias)

    def norm(self, x: str, gain: str, offset: str, epsilon: float) -> str:
        return self.node("LayerNormalization", x, gain, offset, axis=-1, epsilon=epsilon)

    def gelu(self, x: str) -> str:
        """The exact one; runtimes know these five nodes as one."""
        error = self.node("Erf", self.node("Div", x, self.constant("sqrt_2", float(np.sqrt(2)))))
        doubled = self.node("Mul", x, self.node("Add", error, self.constant("one", 1.0)))
        return self.node("Mul", doubled, self.constant("half", 0.5))

    def _product_in_bytes(self, x: str, weight: str) -> str:
        """Activations by token, weights by column, the largest of each at 127 and -127."""
        if x not in self._quantized:  # queries, keys and values are of the same
            self._quantized[x] = self._in_bytes(x)
        x_bytes, scale = self._quantized[x]
        bytes_DE, scale_E = in_bytes(self._constants[weight])
        names = self.constant(f"{weight}.int8", bytes_DE), self.constant(f"{weight}.scale", scale_E)
        sums = self.node("MatMulInteger", x_bytes, names[0], self.constant("middle.uint8", np.array(128, np.uint8)))
        # Multiplied one after the other: ONNX Runtime takes a product of two scales for that of two single numbers.
        by_column = self.node("Mul", self.node("Cast", sums, to=TensorProto.FLOAT), names[1])
        return self.node("Mul", by_column, scale)

    def _in_bytes(self, x: str) -> tuple[str, str]:
        """Activations as unsigned bytes, for which runtimes have the faster products, and the scale of each token."""
        largest = self.node("ReduceMax", self.node("Abs", x), axes=[-1], keepdims=1)
        least = self.constant("least", 1e-30)
        scale = self.node("Max", self.node("Mul", largest, self.constant("step", 1 / 127)), least)
        steps = self.node("Add", self.node("Round", self.node("Div", x, scale)), self.constant("middle", 128.0))
        return self.node("Cast", steps, to=TensorProto.UINT8), scale

    def write(self, path: Path, inputs: Sequence[str], outputs: dict[str, tuple[str, tuple[str | int, ...]]]) -> None:
        """Write the graph: inputs (batch, length) of int64; name -> the value of that output and its shape."""
        nodes = [helper.make_node("Identity", [value], [name]) for name, (value, _) in outputs.items()]
        used = {name for node in self._nodes for name in node.input}
        given = [helper.make_tensor_value_info(name, TensorProto.INT64, ("batch", "length")) for name in inputs]
        made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, (_, shape) in outputs.items()]
        constants = [numpy_helper.from_array(value, name) for name, value in self._constants.items() if name in used]
        graph = helper.make_graph([*self._nodes, *nodes], "encoder", given, made, constants)
        model = helper.make_model(
            graph,
            producer_name="ernie-continual",
            ir_version=_FILE_FORMAT,
            opset_imports=[helper.make_opsetid("", _OPERATORS)],
        )
        onnx.checker.check_model(model)
        onnx.save(model, path)


def in_bytes(weight_DE: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A weight as int8 (D, E) and the scale of each column (E,)."""
    scale_E = np.maximum(np.abs(weight_DE).max(axis=0), 1e-30) / 127
    return np.rint(weight_DE / scale_E).astype(np.int8), scale_E.astype(np.float32)
