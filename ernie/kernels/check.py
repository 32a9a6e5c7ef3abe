"""Whether what a kernel is given fits together, by its shapes alone.

C++ reads as far as one tensor says that another one goes; Paddle's own operators say less clearly what is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable

from paddle import Tensor

from ernie.data.batch import Layout
from ernie.errors import UserError
from ernie.kernels.mask import Mask

# Those of ernie.kernels.layer.LayerWeights, in its order.
_LAYER = (
    *("q_DD", "k_DD", "v_DD", "out_DD", "inner_DF", "outer_FD"),
    *("q_bias_D", "k_bias_D", "v_bias_D", "out_bias_D", "inner_bias_F", "outer_bias_D"),
    *("gain1_D", "offset1_D", "gain2_D", "offset2_D"),
)


def sizes(**tensors: Tensor) -> dict[str, int]:
    """The size of each axis.  A tensor's name ends in its axes, a letter each, as in `weight_DE`.

    Raises UserError where a tensor has more or fewer axes, or an axis another size than in a tensor before it.
    """
    found: dict[str, int] = {}
    for name, tensor in tensors.items():
        shape, axes, before = tensor.shape, name[name.rindex("_") + 1 :], len(found)
        fits = len(shape) == len(axes)
        for axis, size in zip(axes, shape, strict=False):
            fits = fits and found.setdefault(axis, size) == size
        if not fits:
            told = [*found][:before]
            expected = ", ".join(f"{axis} = {found[axis]}" if axis in told else axis for axis in axes)
            raise UserError(f"{name} has the shape {tuple(shape)}: expected ({expected})")
    return found


def check_layout(layout: Layout, rows: int, name: str = "layout") -> None:
    """Raise UserError where a layout is not that of so many rows."""
    if layout.tokens != rows:
        raise UserError(f"{name} is of {layout.tokens} tokens: expected one of {rows}, as there are rows")


def check_attention(layout: Layout, width: int, heads: int, mask: Mask | None) -> None:
    """Raise UserError where a width is not that of so many heads, or a mask that of so many queries."""
    if heads < 1 or width % heads:
        raise UserError(f"heads: {heads}: expected a number that divides the width, {width}")
    if mask is not None and not len(mask.first) == len(mask.last) == layout.tokens:
        raise UserError(f"mask is of {len(mask.first)} queries: expected one of {layout.tokens}, as there are")


def check_layer(x_TD: Tensor, weights: Iterable[Tensor]) -> None:
    """Raise UserError where the weights of a Transformer layer do not fit one another, or what comes in."""
    sizes(x_TD=x_TD, **dict(zip(_LAYER, weights, strict=True)))
