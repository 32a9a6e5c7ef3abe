"""CPU implementation of ernie.kernels.low_rank."""

from __future__ import annotations

from paddle import Tensor

from ernie.kernels.cpu.call import loaded
from ernie.kernels.cpu.copies import copy_to_update, mark_current
from ernie.kernels.types import Factors


def set_from_factors(weight_DE: Tensor, pretrained_DE: Tensor, factors: Factors) -> None:
    """As ernie.kernels.low_rank.reference, in one pass over memory."""
    a, b, scale = factors
    copy = copy_to_update(weight_DE)
    addresses = [tensor.data_ptr() for tensor in (pretrained_DE, a, b, weight_DE)]
    copy_address = None if copy is None else copy.data_ptr()
    loaded().call("set_from_factors", *addresses, copy_address, *weight_DE.shape, b.shape[0], scale)
    mark_current(weight_DE)
