"""Compare kernels with the same computation in float64 on the same values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import paddle
import pytest
from hypothesis import settings
from paddle import Tensor

from ernie.kernels.cpu.library import library

Results = list["np.ndarray | None"]

quick = settings(max_examples=40)
needs_kernels = pytest.mark.skipif(library() is None, reason="there are no kernels in C++ here")
needs_bf16 = pytest.mark.skipif(
    not getattr(library(), "has_bf16", False), reason="these kernels do not compute in bfloat16"
)


def normal(*shapes: tuple[int, ...], seed: int | Sequence[int] = 0, scale: float = 1.0) -> list[np.ndarray]:
    """Normally distributed float32 arrays of these shapes."""
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def rounded(values: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Rounded to bfloat16, so that no sum near zero changes its sign there, and with it the slope of ReLU."""
    return [paddle.to_tensor(value).astype("bfloat16").astype("float32").numpy() for value in values]


def run(
    kernel: Callable[..., Tensor],
    values: Sequence[np.ndarray],
    upstream: np.ndarray | float,
    dtype: str = "float32",
    frozen: Sequence[int] = (),
) -> Results:
    """The output of `kernel` for these tensors, and the gradients of sum(output * upstream), None for frozen inputs."""
    tensors = [paddle.to_tensor(x.astype(dtype), stop_gradient=i in frozen) for i, x in enumerate(values)]
    out = kernel(*tensors)
    (out * paddle.to_tensor(np.asarray(upstream, dtype))).sum().backward()
    return [out.numpy(), *(None if x.grad is None else x.grad.numpy() for x in tensors)]


def assert_close(found: Results, wanted: Results, tolerance: float = 2e-5) -> None:
    """Assert that each element is right to `tolerance` times the largest one, or times 1 if all are smaller."""
    for number, (actual, expected) in enumerate(zip(found, wanted, strict=True)):
        assert actual is not None and expected is not None
        size = max(1.0, float(np.abs(expected).max(initial=0)))
        np.testing.assert_allclose(actual, expected, rtol=0, atol=tolerance * size, err_msg=f"result {number}")


def assert_near(
    found: Results, wanted: Results, forward: float = 0.01, backward: float = 0.02, least: float = 1e-9
) -> None:
    """Assert that the errors of the output and of each gradient, relative to their norms, are those of bfloat16.

    A norm below `least` counts as `least`.
    """
    for number, (actual, expected) in enumerate(zip(found, wanted, strict=True)):
        assert actual is not None and expected is not None
        error = float(np.linalg.norm(actual - expected) / max(np.linalg.norm(expected), least))
        assert error < (backward if number else forward), f"result {number}: {error:.4f}"


def assert_only_frozen_lack_gradients(with_frozen: Results, without: Results, frozen: Sequence[int]) -> None:
    """Assert that just the frozen inputs have no gradient, and that all else equals the run without frozen inputs."""
    for number, (actual, expected) in enumerate(zip(with_frozen, without, strict=True)):
        assert (actual is None) == (number - 1 in frozen)
        if actual is not None:
            np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]
