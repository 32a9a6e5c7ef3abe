"""How fast is the recurrent layer beside Paddle's own?  One loop over time, its weights in the cores' caches.

  python benchmarks/recurrent.py [--steps 200] [--rounds 7]

A layer of gated units (GRU) with as many inputs as units, forward and, with `training`, backward, over sequences of one
length; ours and `paddle.nn.GRU` in turns, the median of the rounds.  As "Persistent RNNs" (Diamos et al., 2016) has it
for GPUs the gain should be largest where few sequences share a step, and go where the weights do not fit the caches.

Set before the first run: at least 1.5 times as fast with 1 to 4 sequences where the weights fit the second cache, and
less the more sequences there are.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.linear import linear
from ernie.kernels.recurrent import gated_recurrent

UNITS, SEQUENCES = (128, 256, 512, 1024), (1, 4, 16, 64)


def main() -> None:
    """Measure and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    print("| units | weights | sequences | forward, ours | Paddle | times as fast | training, times as fast |")
    print(f"|{'---|' * 7}")
    for units in UNITS:
        for sequences in SEQUENCES:
            ours, theirs = sides(units, sequences, arguments.steps)
            cells = []
            for training in (False, True):
                seconds = timed([timing(one, training) for one in (ours, theirs)], arguments.rounds)
                cells.append(seconds)
            forward = [f"{1000 * second:.1f} ms" for second in cells[0]]
            gains = [f"{seconds[1] / seconds[0]:.2f}" for seconds in cells]
            weights = f"{4 * 3 * units**2 / 1e6:.1f} MB"
            print(f"| {units} | {weights} | {sequences} | {' | '.join([*forward, *gains])} |", flush=True)


def sides(units: int, sequences: int, steps: int) -> tuple[Callable[[], Tensor], Callable[[], Tensor]]:
    """The same layer on both sides, with the same inputs."""
    paddle.seed(0)
    layer = nn.GRU(units, units)
    cell = layer[0].cell
    weights = [weight.t().contiguous().detach() for weight in (cell.weight_ih, cell.weight_hh)]
    for weight in weights:
        weight.stop_gradient = False
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((sequences, steps, units)).astype(np.float32)
    padded, packed = paddle.to_tensor(inputs), paddle.to_tensor(inputs.reshape(-1, units))
    layout = Layout.of_lengths([steps] * sequences)

    def ours() -> Tensor:
        return gated_recurrent(linear(packed, weights[0], cell.bias_ih), layout, weights[1], cell.bias_hh)

    def theirs() -> Tensor:
        return layer(padded)[0]

    with paddle.no_grad():
        np.testing.assert_allclose(ours().numpy().reshape(inputs.shape), theirs().numpy(), atol=1e-4)
    return ours, theirs


def timing(side: Callable[[], Tensor], training: bool) -> Callable[[], None]:
    """One pass forward, and backward in training."""

    def run() -> None:
        if training:
            side().sum().backward()
        else:
            with paddle.no_grad():
                side()

    return run


def timed(passes: list[Callable[[], None]], rounds: int) -> list[float]:
    """The seconds of each, the median of rounds in turns; the first round is not counted."""
    found: list[list[float]] = [[] for _ in passes]
    for _ in range(rounds + 1):
        for one, seconds in zip(passes, found, strict=True):
            began = time.perf_counter()
            one()
            seconds.append(time.perf_counter() - began)
    return [statistics.median(seconds[1:]) for seconds in found]


if __name__ == "__main__":
    main()
