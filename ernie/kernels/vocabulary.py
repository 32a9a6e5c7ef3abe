"""Logits of a vocabulary and their cross entropy.  Legend: P positions, D width, V vocabulary."""

from __future__ import annotations

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels import cpu, gpu
from ernie.kernels.argument_checks import row_indices, sizes
from ernie.kernels.choose import choose
from ernie.kernels.precision import in_float32, is_low
from ernie.kernels.samples import Samples
from ernie.kernels.upload import on_device


def vocabulary_logits(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor) -> Tensor:
    """Return x table^T + bias, (P, V).  Raises UserError if the shapes do not fit."""
    sizes(x_PD=x_PD, table_VD=table_VD, bias_V=bias_V)
    tensors = (x_PD, table_VD, bias_V)
    return choose(tensors, reference_logits, cpu.vocabulary.vocabulary_logits)(*tensors)


def reference_logits(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor) -> Tensor:
    """Reference implementation of `vocabulary_logits` in plain Paddle."""
    return paddle.matmul(x_PD, table_VD, transpose_y=True) + bias_V


def vocabulary_cross_entropy(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray) -> Tensor:
    """Return the summed cross entropy of softmax(x table^T + bias) against integer labels.

    Raises UserError if the shapes do not fit or a label is out of range: none is ignored.
    """
    return _summed(x_PD, table_VD, bias_V, labels_P, None)


def vocabulary_cross_entropy_and_samples(
    x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray, draws_P: np.ndarray
) -> tuple[Tensor, np.ndarray]:
    """Return the loss of `vocabulary_cross_entropy`, and a class (P,) drawn from the softmax of each position.

    Numbers `draws` from 0 to less than 1 decide: the class drawn is the first whose probability, added to those of the
    classes before it, exceeds the number.  Raises UserError as `vocabulary_cross_entropy`, or for other draws.
    """
    if draws_P.shape != labels_P.shape:
        raise UserError(f"draws of the shape {draws_P.shape}: expected {len(labels_P)}, one for each label")
    samples = Samples.of(draws_P)
    return _summed(x_PD, table_VD, bias_V, labels_P, samples), samples.classes_P


def sampled_classes(logits_PV: Tensor, draws_P: np.ndarray) -> np.ndarray:
    """Return a class (P,) drawn from the softmax of each position, as `vocabulary_cross_entropy_and_samples` does."""
    samples = Samples.of(draws_P)
    with paddle.no_grad():
        choose((logits_PV,), reference_sample, cpu.vocabulary.sample)(logits_PV, samples)
    return samples.classes_P


def reference_sample(logits_PV: Tensor, samples: Samples) -> None:
    """Reference implementation of `sampled_classes` in plain Paddle; it fills in `samples`."""
    samples.draw(in_float32(F.softmax)(logits_PV))


def _summed(x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray, samples: Samples | None) -> Tensor:
    size = sizes(x_PD=x_PD, table_VD=table_VD, bias_V=bias_V)
    if labels_P.shape != (size["P"],):
        raise UserError(f"labels of the shape {labels_P.shape}: expected {size['P']}, one for each position")
    labels_P = row_indices(labels_P, size["V"], "label")
    on_cpu, on_gpu = cpu.vocabulary.vocabulary_cross_entropy, gpu.vocabulary.vocabulary_cross_entropy
    impl = choose((x_PD, table_VD, bias_V), reference, on_cpu, on_gpu, is_low)
    return impl(x_PD, table_VD, bias_V, labels_P, samples)


def reference(
    x_PD: Tensor, table_VD: Tensor, bias_V: Tensor, labels_P: np.ndarray, samples: Samples | None = None
) -> Tensor:
    """Reference implementation of the cross entropy and the samples in plain Paddle; it fills in `samples`."""
    logits_PV = reference_logits(x_PD, table_VD, bias_V)
    if samples is not None:
        with paddle.no_grad():
            reference_sample(logits_PV, samples)
    return in_float32(F.cross_entropy)(logits_PV, on_device(labels_P), reduction="sum")
