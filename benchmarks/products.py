"""The products of training a linear layer, beside Paddle's own.

  python benchmarks/products.py [--turns 20] [--rows 2048] [--records DIR]

A layer's output, the gradient of its input and that of its weight, in float32, at the widths of small and base
encoders.  Both sides take turns.  `--records` gets a file with all figures.  On AVX-512 the library's products are
oneDNN's, on AVX2 its own (ernie/kernels/cpu/src/blocked_product.h).

Set before this was measured by turns, though after tries: on AVX2, 0.9 of Paddle's speed.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable
from pathlib import Path

import paddle
from outcomes import report
from paddle import Tensor
from page_tables import products
from record_files import Records

from ernie.kernels.cpu.call import product

WIDTHS = [(384, 384), (384, 1536), (1536, 384), (768, 3072), (3072, 768)]


def main() -> None:
    """Take the turns and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    parser.add_argument("--rows", type=int, default=2048)
    parser.add_argument("--records", type=Path, metavar="DIR", default=Path("runs/benchmarks/products"))
    arguments = parser.parse_args()
    found = {
        f"{width} to {out}": {
            name: speeds(*sides, arguments) for name, sides in layer(arguments.rows, width, out).items()
        }
        for width, out in WIDTHS
    }
    arguments.records.mkdir(parents=True, exist_ok=True)
    text = json.dumps({"rows": arguments.rows, "GFLOP/s": found}, indent=1)
    (arguments.records / "products.json").write_text(text + "\n", encoding="utf-8")
    report(Records(arguments.records), products, targets=["products"])


Side = tuple[Callable[[], Tensor], Callable[[], Tensor], int]


def layer(rows: int, width: int, out: int) -> dict[str, Side]:
    """The products of a layer: ours, Paddle's, and their number of operations."""
    x, weight, grad = paddle.randn([rows, width]), paddle.randn([width, out]), paddle.randn([rows, out])
    operations = 2 * rows * width * out
    return {
        "output": (lambda: product(x, weight), lambda: paddle.matmul(x, weight), operations),
        "gradient of the input": (
            lambda: product(grad, weight, transpose_right=True),
            lambda: paddle.matmul(grad, weight, transpose_y=True),
            operations,
        ),
        "gradient of the weight": (
            lambda: product(x, grad, transpose_left=True),
            lambda: paddle.matmul(x, grad, transpose_x=True),
            operations,
        ),
    }


def speeds(
    ours: Callable[[], Tensor], theirs: Callable[[], Tensor], operations: int, arguments: argparse.Namespace
) -> dict[str, list[float]]:
    """The speed of both in each turn, in GFLOP/s."""
    found: dict[str, list[float]] = {"ours": [], "Paddle": []}
    for turn in range(-2, arguments.turns):  # the first two to warm up
        for side, run in (("ours", ours), ("Paddle", theirs)):
            start = time.perf_counter()
            run()
            if turn >= 0:
                found[side].append(round(operations / (time.perf_counter() - start) / 1e9, 1))
    return found


if __name__ == "__main__":
    main()
