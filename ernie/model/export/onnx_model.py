"""The computation of `PaddedModel` as an ONNX graph.

Legend: N sequences, L padded length, D width, F inner width, H heads, K size of a head, C classes.
"""

from __future__ import annotations

import math
from pathlib import Path

from onnx import TensorProto

from ernie.model.export.onnx_graph import Graph
from ernie.model.export.padded import FAR, INPUTS, LEAST, PaddedModel
from ernie.model.weights import arrays

_IDS, _SEGMENTS, _MASK = INPUTS


def write_onnx(model: PaddedModel, path: Path, int8: bool = False) -> None:
    """Write a model as ONNX; with `int8` its linear layers are quantized, with float32 in between."""
    _Writer(model, Graph(int8)).write(path)


class _Writer:
    def __init__(self, model: PaddedModel, graph: Graph) -> None:
        self._model, self._config, self._graph = model, model.ernie.config, graph
        for name, value in arrays(model).items():
            graph.constant(name, value)

    def write(self, path: Path) -> None:
        g, model, D = self._graph, self._model, self._config.hidden_size
        is_token_NL = g.node("Cast", _MASK, to=TensorProto.FLOAT)
        count_NL = g.node("CumSum", _MASK, g.constant("axis_1", [1]))
        positions_NL = g.node("Mul", g.node("Sub", count_NL, g.constant("one_int", [1])), _MASK)
        is_padding_NL = g.node("Sub", g.constant("one", 1.0), is_token_NL)
        bias_N11L = g.node(
            "Unsqueeze", g.node("Mul", is_padding_NL, g.constant("far", FAR)), g.constant("axes_12", [1, 2])
        )
        x_NLD = self._embed(positions_NL)
        for number in range(self._config.layers):
            x_NLD = self._layer(x_NLD, f"ernie.encoder.layers.{number}", bias_N11L)
        if model.per_token:
            self._finish(path, x_NLD, ("batch", "length"))
            return
        first_ND = self._first(x_NLD, is_token_NL, positions_NL)
        pooled_ND = g.node("Tanh", self._linear(first_ND, "ernie.pooler.dense"))
        if model.classifier is not None:
            self._finish(path, pooled_ND, ("batch",))
            return
        tokens_NLD = g.node("Mul", x_NLD, g.node("Unsqueeze", is_token_NL, g.constant("axis_2", [2])))
        values = [(tokens_NLD, ("batch", "length", D)), (pooled_ND, ("batch", D))]
        if model.pooling:
            values.append((self._sentence(tokens_NLD, is_token_NL, first_ND), ("batch", D)))
        g.write(path, INPUTS, dict(zip(model.outputs, values, strict=True)))

    def _finish(self, path: Path, x: str, shape: tuple[str, ...]) -> None:
        classifier = self._model.classifier
        assert classifier is not None
        logits = self._linear(x, "classifier")
        self._graph.write(path, INPUTS, {self._model.outputs[0]: (logits, (*shape, classifier.weight.shape[1]))})

    def _linear(self, x: str, layer: str) -> str:
        return self._graph.linear(x, f"{layer}.weight", f"{layer}.bias")

    def _norm(self, x: str, layer: str) -> str:
        return self._graph.norm(x, f"{layer}.weight", f"{layer}.bias", self._config.layer_norm_epsilon)

    def _embed(self, positions_NL: str) -> str:
        g, table = self._graph, "ernie.embedding.{}.weight"
        ids = {"token": _IDS, "position": positions_NL, "segment": _SEGMENTS}
        token, position, segment = (g.node("Gather", table.format(name), numbers) for name, numbers in ids.items())
        total_NLD = g.node("Add", g.node("Add", token, position), segment)
        if self._config.task_vocab_size:
            task_D = g.node("Gather", table.format("task"), g.constant("task", [self._model.task]))
            total_NLD = g.node("Add", total_NLD, task_D)
        return self._norm(total_NLD, "ernie.embedding.norm")

    def _layer(self, x_NLD: str, layer: str, bias_N11L: str) -> str:
        g = self._graph
        mixed_NLD = self._linear(self._attention(x_NLD, layer, bias_N11L), f"{layer}.attention_out")
        x_NLD = self._norm(g.node("Add", x_NLD, mixed_NLD), f"{layer}.attention_norm")
        inner_NLF = self._linear(x_NLD, f"{layer}.inner")
        inner_NLF = g.gelu(inner_NLF) if self._config.activation == "gelu" else g.node("Relu", inner_NLF)
        outer_NLD = self._linear(inner_NLF, f"{layer}.outer")
        return self._norm(g.node("Add", x_NLD, outer_NLD), f"{layer}.output_norm")

    def _attention(self, x_NLD: str, layer: str, bias_N11L: str) -> str:
        g, H, D = self._graph, self._config.heads, self._config.hidden_size
        split_shape, merged_shape = g.constant("by_head", [0, 0, H, D // H]), g.constant("by_token", [0, 0, D])

        def split(name: str, order: list[int]) -> str:
            return g.node(
                "Transpose", g.node("Reshape", self._linear(x_NLD, f"{layer}.{name}"), split_shape), perm=order
            )

        q_NHLK, k_NHKL, v_NHLK = split("q", [0, 2, 1, 3]), split("k", [0, 2, 3, 1]), split("v", [0, 2, 1, 3])
        scores_NHLL = g.node("MatMul", q_NHLK, k_NHKL)
        scores_NHLL = g.node("Mul", scores_NHLL, g.constant("scale", 1 / math.sqrt(D // H)))
        weights_NHLL = g.node("Softmax", g.node("Add", scores_NHLL, bias_N11L), axis=-1)
        mixed_NLHK = g.node("Transpose", g.node("MatMul", weights_NHLL, v_NHLK), perm=[0, 2, 1, 3])
        return g.node("Reshape", mixed_NLHK, merged_shape)

    def _first(self, x_NLD: str, is_token_NL: str, positions_NL: str) -> str:
        g = self._graph
        at_start_NL = g.node("Cast", g.node("Equal", positions_NL, g.constant("zero", [0])), to=TensorProto.FLOAT)
        axis = g.constant("axis_1", [1])
        is_first_N1L = g.node("Unsqueeze", g.node("Mul", is_token_NL, at_start_NL), axis)
        return g.node("Squeeze", g.node("MatMul", is_first_N1L, x_NLD), axis)

    def _sentence(self, tokens_NLD: str, is_token_NL: str, first_ND: str) -> str:
        g, axis, pooled_ND = self._graph, self._graph.constant("axis_1", [1]), first_ND
        if self._model.pooling == "mean":
            count_N1 = g.node("ReduceSum", is_token_NL, axis, keepdims=1)
            pooled_ND = g.node("Div", g.node("ReduceSum", tokens_NLD, axis, keepdims=0), count_N1)
        if not self._model.normalized:
            return pooled_ND
        length_N1 = g.node("ReduceL2", pooled_ND, axes=[1], keepdims=1)
        return g.node("Div", pooled_ND, g.node("Max", length_N1, g.constant("least_length", LEAST)))
