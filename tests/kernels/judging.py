"""How kernels are judged: by the same computation in 64 bits, on the same values."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import paddle
import pytest
from hypothesis import settings
from paddle import Tensor

from ernie.kernels.cpu.library import library

Found = list["np.ndarray | None"]

quick = settings(max_examples=40)
needs_kernels = pytest.mark.skipif(library() is None, reason="there are no kernels in C++ here")
needs_bf16 = pytest.mark.skipif(
    not getattr(library(), "has_bf16", False), reason="these kernels do not compute in bfloat16"
)


def normal(*shapes: tuple[int, ...], seed: int | Sequence[int] = 0, scale: float = 1.0) -> list[np.ndarray]:
    """Arrays of these shapes, in 32 bits."""
    rng = np.random.default_rng(seed)
    return [(scale * rng.standard_normal(shape)).astype(np.float32) for shape in shapes]


def run(
    kernel: Callable[..., Tensor],
    values: Sequence[np.ndarray],
    upstream: np.ndarray | float,
    dtype: str = "float32",
    frozen: Sequence[int] = (),
) -> Found:
    """The output of `kernel` for these tensors, and the gradients of sum(output * upstream), None for frozen ones."""
    tensors = [paddle.to_tensor(x.astype(dtype), stop_gradient=i in frozen) for i, x in enumerate(values)]
    out = kernel(*tensors)
    (out * paddle.to_tensor(np.asarray(upstream, dtype))).sum().backward()
    return [out.numpy(), *(None if x.grad is None else x.grad.numpy() for x in tensors)]


def assert_close(found: Found, wanted: Found, tolerance: float = 2e-5) -> None:
    """Each element is right to `tolerance` of the largest, or of 1 where all are small."""
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one is not None and other is not None
        size = max(1.0, float(np.abs(other).max(initial=0)))
        np.testing.assert_allclose(one, other, rtol=0, atol=tolerance * size, err_msg=f"result {number}")


def assert_near(
    found: Found, wanted: Found, forward: float = 0.01, backward: float = 0.02, least: float = 1e-9
) -> None:
    """The error of the output and of each gradient, as a share of its norm, is that of a computation in bfloat16.

    A norm below `least` counts as that.
    """
    for number, (one, other) in enumerate(zip(found, wanted, strict=True)):
        assert one is not None and other is not None
        error = float(np.linalg.norm(one - other) / max(np.linalg.norm(other), least))
        assert error < (backward if number else forward), f"result {number}: {error:.4f}"


def assert_only_the_frozen_are_left_out(some: Found, every: Found, frozen: Sequence[int]) -> None:
    """Frozen inputs have no gradient; the output and the gradients of the others are what they are without."""
    for number, (one, other) in enumerate(zip(some, every, strict=True)):
        assert (one is None) == (number - 1 in frozen)
        if one is not None:
            np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)  # type: ignore[arg-type]
