"""Writing models for other runtimes, and running them there."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import paddle

from ernie.atomic import check_written
from ernie.errors import UserError
from ernie.model.export.padded import INPUTS, PaddedModel

Format = Literal["paddle", "onnx"]
Run = Callable[..., list[np.ndarray]]  # the three (N, L) inputs -> the outputs, in the model's order

FILES: dict[Format, tuple[str, ...]] = {"paddle": ("model.json", "model.pdiparams"), "onnx": ("model.onnx",)}


def check_able(to: Format, int8: bool) -> None:
    """Raise UserError when a format does not support int8, or packages to write and check it are not installed."""
    if int8 and to != "onnx":
        raise UserError("--int8 is for --to onnx; in this library, --precision int8 computes so without an export")
    missing = [name for name in ("onnx", "onnxruntime") if importlib.util.find_spec(name) is None]
    if to == "onnx" and missing:
        raise UserError(f"--to onnx needs {' and '.join(missing)}: pip install 'ernie-continual[export]'")


def write_model(model: PaddedModel, folder: Path, to: Format, int8: bool = False) -> None:
    """Write the files of a format into a folder; call `check_able` first."""
    if to == "onnx":
        from ernie.model.export.onnx_model import write_onnx

        write_onnx(model, folder / FILES[to][0], int8)
        return
    shapes = [paddle.static.InputSpec([None, None], "int64", name) for name in INPUTS]
    paddle.jit.save(model, str(folder / "model"), input_spec=shapes)
    check_written(folder)


def open_model(folder: Path, to: Format) -> Run:
    """Open a written model in its own runtime, on the CPU."""
    paths = [str(folder / name) for name in FILES[to]]
    return _open_onnx(paths[0]) if to == "onnx" else _open_paddle(paths)


def _open_onnx(path: str) -> Run:
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    return lambda *inputs: session.run(None, dict(zip(INPUTS, inputs, strict=True)))


def _open_paddle(paths: list[str]) -> Run:
    from paddle import inference

    config = inference.Config(*paths)
    config.disable_gpu()
    config.disable_glog_info()
    predictor = inference.create_predictor(config)

    def run(*inputs: np.ndarray) -> list[np.ndarray]:
        for name, values in zip(predictor.get_input_names(), inputs, strict=True):
            predictor.get_input_handle(name).copy_from_cpu(np.ascontiguousarray(values))
        predictor.run()
        return [predictor.get_output_handle(name).copy_to_cpu() for name in predictor.get_output_names()]

    return run
