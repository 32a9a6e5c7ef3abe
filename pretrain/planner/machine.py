"""The hardware that a layout runs on: devices, the links between them, and named device kinds."""

from __future__ import annotations

import json
import math
import re
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path

from ernie.atomic import put_text
from ernie.config import from_dict
from ernie.errors import UserError, nearest
from ernie.json_file import check_kind, read_json
from ernie.kernels import build
from ernie.kernels.precision import Level, PrecisionChoice
from ernie.model.config import EncoderConfig
from ernie.renames import formerly, renamed

# The fractions of a data sheet's figures that are assumed of devices that were not measured.  On an A100, 125 million
# weights train at 43% of the published FLOP/s in MosaicML's llm-foundry, 350 million at 51%.  An H100 spends more of a
# step on other things than products: ModernBERT-base trains at 28%.
_REACHED = {"v100": 0.3, "a100": 0.45, "h100": 0.3, "h200": 0.3}
_RATE = 0.8  # of memory and of links
_UNITS = {"": 1, "k": 1e3, "M": 1e6, "G": 1e9, "T": 1e12, "P": 1e15}
_UNITS |= {f"{prefix}i": 1024.0**power for power, prefix in enumerate("KMGTP", 1)}
_QUANTITY = re.compile(r"((?:\d+(?:\.\d*)?|\.\d+)(?:e[+-]?\d+)?)\s*([kMGTP]?|[KMGTP]i)(B|B/s|FLOP/s|s)?", re.ASCII)


@dataclass(frozen=True)
class Link:
    """A link from one device to another: `bandwidth` in bytes per second, `latency` in seconds."""

    bandwidth: float
    latency: float

    def sum_seconds(self, size: float, ranks: int) -> float:
        """The duration of a ring all-reduce of `size` bytes: each of N ranks sends 2 size (N - 1) / N bytes.

        Patarasuk and Yuan, 2009, "Bandwidth optimal all-reduce algorithms for clusters of workstations".
        """
        if ranks == 1:
            return 0.0
        return 2 * (ranks - 1) / ranks * size / self.bandwidth + 2 * (ranks - 1) * self.latency

    def send_seconds(self, size: float) -> float:
        """The duration of one message of `size` bytes."""
        return size / self.bandwidth + self.latency


@dataclass(frozen=True)
class Machine:
    """The rates, sizes and links of identical devices.

    Rates: `products` are the FLOP/s that the layers of an encoder reach, `updates` the weights per second that the
    optimizer updates.  `near` is the link between the `per_node` devices of a node, `far` the link between nodes.

    Bytes: `memory` of a device; `value` of a number in the hidden states between layers; `copies` of a weight's
    low-precision copy.  A layer stores `kept` bytes of activations for each element of its input.  All processes of a
    tensor group have `replicated_activations` of these.  `split_kept` is `kept` for layers that tensor parallelism
    splits.  A process takes `base` bytes besides its layers, for programs and the code of matmuls.  `split_base` stands
    for it with tensor parallelism, `sharded_base` with stage 3 of sharding, `pipeline_base` in a pipeline.  Where one
    of them is 0, `base` applies, and `kept` where `split_kept` is 0.

    Seconds: `overhead` is the fixed time of each pass through a layer.  `split` is the time per token of a layer that
    is split, for what each process does for all tokens.  `per_tensor_latency` is the time per tensor that is sent by
    itself, on top of the link's.

    `at_once` is 0 where each process has its own device.  Otherwise all processes share the processors, on which
    `at_once` processes were measured at the same time.  `alone` is then the FLOP/s of a single process that has them
    all, `overhead` included.
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
    per_tensor_latency: float = field(default=0.0, metadata=formerly("handed"))
    value: int = 2
    copies: int = 2
    kept: float = 34.0
    replicated_activations: float = field(default=10.0, metadata=formerly("kept_alike"))
    split_kept: float = 0.0
    base: float = 0.0
    split_base: float = 0.0
    sharded_base: float = field(default=0.0, metadata=formerly("handed_base"))
    pipeline_base: float = field(default=0.0, metadata=formerly("piped_base"))
    at_once: int = 0
    alone: float = 0.0

    @classmethod
    def read(cls, path: Path) -> Machine:
        """Read a machine from a JSON file.  Raises UserError when the file does not describe one."""
        remedy = "`ernie plan CONFIG --devices N --calibrate` measures this machine."
        keys = {item.name: (float, int) for item in fields(cls)} | {"name": (str,), "near": (dict,), "far": (dict,)}
        tree = renamed(cls, from_dict(read_json(path, {}, remedy)), exact=True)[0].plain()
        check_kind(tree, keys, path, remedy)
        try:
            tree |= {key: Link(**tree[key]) for key in ("near", "far")}
        except TypeError:
            raise UserError(f"{path}: near, far: expected bandwidth and latency. {remedy}") from None
        return cls(**{key: tree[key] for key in keys})

    def write(self, path: Path) -> None:
        """Write the machine to a JSON file."""
        path.parent.mkdir(parents=True, exist_ok=True)
        put_text(path, json.dumps(asdict(self), indent=2) + "\n")

    def contention(self, processes: int) -> float:
        """The slowdown of each of `processes` concurrent processes, relative to the rates of this machine."""
        return processes / self.at_once if self.at_once else 1.0

    def link(self, span: int) -> Link:
        """The link used by a group whose members lie within `span` consecutive ranks."""
        return self.near if span <= self.per_node else self.far


def _accelerator(name: str, rate: float, memory: float, bandwidth: float, near: float, far: float) -> Machine:
    # The norm of a gradient takes 4 bytes of traffic a weight, clipping it 8, and AdamW 28.  A pass through a layer
    # starts about a dozen operators.
    links, reached = (Link(_RATE * near, 5e-6), Link(_RATE * far, 1e-5)), _REACHED[name]
    return Machine(name, reached * rate, memory, *links, updates=_RATE * bandwidth / 40, overhead=3e-5, base=1.5e9)


# From the vendors' data sheets: dense 16-bit FLOP/s, memory, its bandwidth, the link between devices one way, and a
# network adapter of 100, 200 or 400 Gbit/s for each device.
MACHINES = {
    machine.name: machine
    for machine in (
        _accelerator("v100", 125e12, 32e9, 0.9e12, 150e9, 12.5e9),
        _accelerator("a100", 312e12, 80e9, 2.0e12, 300e9, 25e9),
        _accelerator("h100", 989e12, 80e9, 3.35e12, 450e9, 50e9),
        _accelerator("h200", 989e12, 141e9, 4.8e12, 450e9, 50e9),
    )
}


# From the same data sheets: FLOP/s in fp32 without TF32, which Paddle leaves off by default since version 3.3 (its pull
# request 75476).
_SINGLE = {"v100": 15.7e12, "a100": 19.5e12, "h100": 67e12, "h200": 67e12}
_WITHOUT_BF16 = ("v100",)

HERE = "here"


def basis(kind: str) -> str:
    """Say in words where the figures of a kind of device come from, "" for those that were measured."""
    if kind == HERE:
        return ""
    return (
        f"{_REACHED[kind]:.0%} of the FLOP/s in the maker's data sheet, and {_RATE:.0%} of the rates of memory and "
        f"links, as far as no option gives them; this library has not run on a {kind}"
    )


def here() -> Path:
    """The file that describes this machine once it has been measured."""
    return build.cache().parent / "machine.json"


def measured_with(shape: EncoderConfig, precision: str, level: Level) -> str:
    """The name of this machine as measured with layers of `shape` in a precision."""
    return (
        f"this machine, measured with layers of {shape.hidden_size} x {shape.intermediate_size} in {precision}"
        + " at O2" * (precision != "fp32" and level == "O2")
    )


def named(name: str, precision: PrecisionChoice = "bf16", level: Level = "O2") -> Machine:
    """Look up a device kind by name, with the rates and sizes of a precision.

    `here` is returned in the precision that it was measured in.  Raises UserError for an unknown kind, for a precision
    that the kind does not support, and for `here` when it has not been measured.
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
        # All that a layer keeps is twice as large, except for the masks of two dropouts.
        single = replace(
            machine, products=_REACHED[name] * _SINGLE[name], value=4, copies=0, kept=66.0, replicated_activations=18.0
        )
        return replace(single, name=f"{name} in fp32, without TF32")
    if level == "O1":  # outputs of layers and inputs of norms are float32
        machine = replace(machine, value=4, kept=38.0, replicated_activations=14.0)
    return replace(machine, name=f"{name} in {precision} at {level}")


def quantity(text: str, unit: str = "") -> float:
    """Parse a number with a unit, such as 80GiB, 300GB/s or 312TFLOP/s.

    Raises UserError for anything else, and for another unit than `unit`; of the expected unit the prefix suffices
    (80G).
    """
    match = _QUANTITY.fullmatch(text.strip())
    if match is None:
        raise UserError(f"'{text}' is no quantity; write it like 80GiB, 300GB/s or 312TFLOP/s")
    if unit and match[3] not in (None, unit):
        raise UserError(f"'{text}': expected a number of {unit}, found one of {match[3]}")
    if unit and not match[2] and not match[3]:
        raise UserError(f"'{text}': expected a number of {unit} with its unit, such as {text.strip()}G{unit}")
    return float(match[1]) * _UNITS[match[2]]
