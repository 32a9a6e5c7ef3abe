"""What a layout runs on: devices, links between them, and the kinds that have a name."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path

from ernie.beside import put_text
from ernie.errors import UserError, nearest
from ernie.kernels import build
from ernie.kernels.precision import Level, Wanted
from ernie.model.config import EncoderConfig
from ernie.saved import read_json

EFFICIENCY = 0.45  # of the published rate of products that a whole layer reaches, assumed for devices not measured
_UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTP", 1)}
_QUANTITY = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*([kMGTP]?|[KMGTP]i)(B|B/s|FLOP/s|s)?", re.ASCII)


@dataclass(frozen=True)
class Link:
    """How fast a device sends to another: bytes a second, and seconds until the first one arrives."""

    bandwidth: float
    latency: float

    def sum_seconds(self, size: float, ranks: int) -> float:
        """The time of a ring all-reduce of so many bytes: each rank sends 2 K (N - 1) / N of them.

        Patarasuk and Yuan, 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
        """
        if ranks == 1:
            return 0.0
        return 2 * (ranks - 1) / ranks * size / self.bandwidth + 2 * (ranks - 1) * self.latency

    def send_seconds(self, size: float) -> float:
        """The time of one message."""
        return size / self.bandwidth + self.latency


@dataclass(frozen=True)
class Machine:
    """Devices that are all alike.

    `products` are floating point operations a second that the layers of an encoder reach, `updates` weights a second
    that the optimizer does.  `near` is the link between the `per_node` devices of a node, `far` that between nodes.
    `value` are the bytes of a number in a vector between layers, `copies` those of a weight's copy of lower precision.
    `kept` are the bytes that a layer keeps for its backward pass for each element of its input, of which the part
    `kept_alike` is the same in all processes of a tensor group; `split_kept` is `kept` of layers that tensor
    parallelism has split.  `overhead` are seconds that each pass through a layer takes besides,
    `split` those for each token of a layer that is split: what each process does for all tokens, and `handed` those
    for each tensor that is handed over by itself, besides what the link takes.  `base` are bytes that a process takes
    besides what its layers do: programs, and the code of products; `split_base`, `handed_base` and `piped_base` are
    those where layers are split, in stage 3 of sharding and in a pipeline.  What is 0 of these is as it is elsewhere.
    `at_once` is 0 where each process has a device for itself; else all of them share what so many processes were
    measured with at the same time, and `alone` is the rate of products of one process that has it all, `overhead`
    included.
    """

    name: str
    products: float
    memory: float
    near: Link
    far: Link
    per_node: int = 8
    updates: float = math.inf
    overhead: float = 0.0
    split: float = 0.0
    handed: float = 0.0
    value: int = 2
    copies: int = 2
    kept: float = 34.0
    kept_alike: float = 10.0
    split_kept: float = 0.0
    base: float = 0.0
    split_base: float = 0.0
    handed_base: float = 0.0
    piped_base: float = 0.0
    at_once: int = 0
    alone: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Machine:
        """The machine that a file tells of.  Raises UserError when it tells of none."""
        remedy = "`ernie plan CONFIG --devices N --calibrate` measures this machine."
        keys = {item.name: (float, int) for item in fields(cls)} | {"name": (str,), "near": (dict,), "far": (dict,)}
        tree = read_json(path, keys, remedy)
        try:
            tree |= {key: Link(**tree[key]) for key in ("near", "far")}
        except TypeError:
            raise UserError(f"{path}: near, far: expected bandwidth and latency. {remedy}") from None
        return cls(**{key: tree[key] for key in keys})

    def write(self, path: Path) -> None:
        """Write it to a file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        put_text(path, json.dumps(asdict(self), indent=2) + "\n")

    def crowd(self, processes: int) -> float:
        """How many times longer each of so many processes takes, all of them at work, than the rates here say."""
        return processes / self.at_once if self.at_once else 1.0

    def link(self, span: int) -> Link:
        """The link of a group whose members lie within `span` ranks."""
        return self.near if span <= self.per_node else self.far


def _accelerator(name: str, rate: float, memory: float, bandwidth: float, near: float, far: float) -> Machine:
    # The optimizer reads gradient, weight and moments and writes all but the gradient: 28 bytes a weight.
    links = Link(near, 5e-6), Link(far, 1e-5)
    return Machine(name, EFFICIENCY * rate, memory, *links, updates=bandwidth / 28, overhead=5e-6, base=1.5e9)


# From the makers' data sheets: dense products in 16 bits, memory, its bandwidth, the link between devices one way, and
# a network adapter of 100, 200 or 400 Gbit/s for each device.
MACHINES = {
    machine.name: machine
    for machine in (
        _accelerator("v100", 125e12, 32e9, 0.9e12, 150e9, 12.5e9),
        _accelerator("a100", 312e12, 80e9, 2.0e12, 300e9, 25e9),
        _accelerator("h100", 989e12, 80e9, 3.35e12, 450e9, 50e9),
        _accelerator("h200", 989e12, 141e9, 4.8e12, 450e9, 50e9),
    )
}


# Of the same data sheets: products in fp32, without TF32, which Paddle leaves off by default since version 3.3 (its
# pull request 75476).
_SINGLE = {"v100": 15.7e12, "a100": 19.5e12, "h100": 67e12, "h200": 67e12}
_WITHOUT_BF16 = ("v100",)

HERE = "here"


def here() -> Path:
    """The file that tells of this machine, once it was measured."""
    return build.cache().parent / "machine.json"


def measured_with(shape: EncoderConfig, precision: str, level: Level) -> str:
    """The name of this machine as measured with layers of a shape."""
    return (
        f"this machine, measured with layers of {shape.hidden_size} x {shape.intermediate_size} in {precision}"
        + " at O2" * (precision != "fp32" and level == "O2")
    )


def named(name: str, precision: Wanted = "bf16", level: Level = "O2") -> Machine:
    """A kind of device by its name, computing in a precision.

    What was measured of `here` is in the one that it was measured in.  Raises UserError for an unknown kind, for a
    precision that it has not, and for `here` not yet measured.
    """
    if name == HERE:
        return Machine.read(here())
    if name not in MACHINES:
        raise UserError(f"there is no kind of device '{name}'.{nearest(name, [*MACHINES, HERE])}")
    machine = MACHINES[name]
    if precision == "auto":
        precision = "fp32" if name in _WITHOUT_BF16 else "bf16"
    if precision == "bf16" and name in _WITHOUT_BF16:
        raise UserError(f"a {name} has no bf16; with train.precision fp16 or fp32 it can be planned")
    if precision == "fp32":
        # Of what a layer keeps all is twice as large but the masks of two dropouts.
        found = replace(machine, products=EFFICIENCY * _SINGLE[name], value=4, copies=0, kept=66.0, kept_alike=18.0)
        return replace(found, name=f"{name} in fp32, without TF32")
    if level == "O1":  # what layers return, and norms are given, is float32
        machine = replace(machine, value=4, kept=38.0, kept_alike=14.0)
    return replace(machine, name=f"{name} in {precision} at {level}")


def quantity(text: str, unit: str = "") -> float:
    """A number with a unit, such as 80GiB, 300GB/s or 312TFLOP/s.

    Raises UserError when it is none, or has another unit than the one that is wanted, of which only the prefix has to
    be there (80G).
    """
    found = _QUANTITY.fullmatch(text.strip())
    if found is None:
        raise UserError(f"'{text}' is no quantity; write it like 80GiB, 300GB/s or 312TFLOP/s")
    if unit and found[3] not in (None, unit):
        raise UserError(f"'{text}': expected a number of {unit}, found one of {found[3]}")
    if unit and not found[2] and not found[3]:
        raise UserError(f"'{text}': expected a number of {unit} with its unit, such as {text.strip()}G{unit}")
    return float(found[1]) * _UNITS[found[2]]
