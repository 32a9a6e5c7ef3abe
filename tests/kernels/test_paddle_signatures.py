"""Paddle's operators of a GPU are as they were when the GPU code was written by them.

No machine of the tests has a GPU.  What Paddle's sources say of its operators is all that is known of them: what they
take, what they demand, and which gradients they leave out.  After an upgrade whatever fails here has to be read again,
together with `ernie/kernels/gpu`, `tests/support/fake_gpu.py` and `tests/support/kernels/fused_operators.cpp`.  Then
write down its new digest.
"""

from __future__ import annotations

import hashlib
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import paddle
import paddle.nn.functional as F
import pytest
from paddle import Tensor
from paddle.amp.amp_lists import black_list, white_list
from paddle.device.cuda import get_device_capability
from paddle.distributed.fleet.layers.mpu.mp_layers import InnerOverlapLinear
from paddle.incubate.nn.functional import fused_bias_dropout_residual_layer_norm, fused_matmul_bias
from paddle.nn.functional.flash_attention import flash_attn_unpadded, flashmask_attention
from paddle.optimizer import AdamW
from support.fake_gpu import HALF, fake_gpu

HEADERS = Path(paddle.__file__).parent / "include/paddle/phi/kernels"


def digest(text: str) -> str:
    """Of the text without its spaces and line breaks."""
    return hashlib.sha256("".join(text.split()).encode()).hexdigest()[:16]


@pytest.mark.parametrize(
    ("operator", "wanted"),
    [
        (flash_attn_unpadded, "0c215fcd397ca8c0"),
        (flashmask_attention, "c07c0b6b94501515"),
        (fused_matmul_bias, "83b3c16e354c1ab2"),
        (fused_bias_dropout_residual_layer_norm, "618608791281fcf3"),
        (get_device_capability, "773cd57b6ecdde16"),
        (paddle.amp.auto_cast, "e09c38e6a02f25b5"),
        (AdamW._append_optimize_op, "8ff50849f2f83c48"),  # calls `adamw_`
        (InnerOverlapLinear, "fe158395c7a5cfcc"),  # calls `fused_linear_param_grad_add`
    ],
)
def test_an_operator_has_the_source_that_was_read(operator: Callable[..., Any], wanted: str) -> None:
    assert digest(inspect.getsource(operator)) == wanted


@pytest.mark.parametrize(
    ("header", "wanted"),
    [
        ("adamw_kernel.h", "9ff539c5dd50ed93"),
        ("squared_l2_norm_kernel.h", "6b2ef1eaf8d4638b"),
        ("flash_attn_kernel.h", "254fa0987017e85c"),
        ("flash_attn_grad_kernel.h", "31e54311c828ccf5"),
        ("gpu/flash_attn_utils.h", "dcc723242b659aeb"),
        ("funcs/fused_gemm_epilogue.h", "3544ab11151ea031"),
        ("funcs/layer_norm_impl.cu.h", "b9e4bb0fa5dcf29c"),
        ("fusion/gpu/fused_bias_dropout_residual_layer_norm_kernel.h", "3ea7f6041a864d6c"),
        ("fusion/gpu/fused_bias_dropout_residual_layer_norm_grad_kernel.h", "38cb0dd5ed178f6a"),
        ("fusion/gpu/fused_dropout_helper.h", "89b049baa3182d94"),
    ],
)
def test_a_header_is_the_one_that_was_read(header: str, wanted: str) -> None:
    assert digest((HEADERS / header).read_text(encoding="utf-8")) == wanted


def test_mixed_precision_casts_what_the_fake_gpu_casts() -> None:
    kept = {"softmax", "log_softmax", "softmax_with_cross_entropy", "sigmoid_cross_entropy_with_logits", "layer_norm"}
    for dtype in ("float16", "bfloat16"):
        assert {"matmul", "linear_v2", "fused_gemm_epilogue"} <= white_list()[dtype]["O1"]
        assert kept <= black_list()[dtype]["O1"]
        assert not kept & black_list()[dtype]["O2"]


def image(x: Tensor) -> Tensor:
    return x.reshape([1, 1, 4, 4])


# Of a matrix (4, 4) in float32 and one in the lower type.
MIXED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "concat": lambda wide, low: paddle.concat([low, wide]),
    "concat of low": lambda wide, low: paddle.concat([low, low]),
    "split": lambda wide, low: paddle.split(wide, 2)[0],
    "sum": lambda wide, low: low + wide,
    "sum of wide": lambda wide, low: wide + wide,
    "product": lambda wide, low: paddle.matmul(wide, low),
    "softmax": lambda wide, low: F.softmax(wide),
    "softmax of low": lambda wide, low: F.softmax(low),
    "norm": lambda wide, low: F.layer_norm(wide, [4], wide[0], wide[0]),
    "norm of low": lambda wide, low: F.layer_norm(low, [4], wide[0], wide[0]),
    "convolution": lambda wide, low: F.conv2d(image(wide), image(wide)),
    "transposed convolution": lambda wide, low: F.conv2d_transpose(image(low), image(wide)),
}


@pytest.mark.parametrize("level", ["O1", "O2"])
def test_mixed_precision_gives_the_types_that_the_fake_gpu_gives(level: str) -> None:
    """Paddle infers types in programs that are built and not run, as it would for a GPU."""
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()):
            wide = paddle.static.data("x", [4, 4])
            low = wide.astype("bfloat16")
            with paddle.amp.auto_cast(dtype="bfloat16", level=level):
                wanted = {name: operator(wide, low).dtype == paddle.float32 for name, operator in MIXED.items()}
    finally:
        paddle.disable_static()
    with fake_gpu():
        wide = paddle.ones([4, 4])
        low = wide.astype(HALF)
        with paddle.amp.auto_cast(dtype="float16", level=level):
            found = {name: operator(wide, low).dtype == paddle.float32 for name, operator in MIXED.items()}
    assert found == wanted


def test_paddle_infers_the_type_of_the_linear_kernel() -> None:
    """A program that is built and not run.  Operators without a kernel for CPUs, the others that are fused, refuse."""
    paddle.enable_static()
    try:
        with paddle.static.program_guard(paddle.static.Program()):
            shapes = {"x": [9, 4], "w": [4, 6], "b": [6]}
            x, w, b = (paddle.static.data(name, shape).astype("bfloat16") for name, shape in shapes.items())
            y = fused_matmul_bias(x, w, b)
            assert (tuple(y.shape), y.dtype) == ((9, 6), paddle.bfloat16)
    finally:
        paddle.disable_static()
