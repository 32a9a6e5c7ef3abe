"""Show what this machine has, what the library chooses on it, how fast that is, and what would make it faster.

The product measured is that of a matrix of 2048 x 768 with one of 768 x 3072; beside it stands what the multiply-add
units of all cores together can do.  The layer measured is the library's own, with fused kernels.  Takes a few seconds,
and ten more where the C++ kernels have yet to be compiled.

  ernie doctor
  ernie doctor --json > machine.json
"""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Iterator
from dataclasses import asdict
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ernie.doctor.machine import Machine
    from ernie.doctor.speed import Speed
    from ernie.doctor.stack import Stack

SUMMARY = "show what this machine has, how fast the library is on it, and what would make it faster"
_WIDTH = 14


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("--json", action="store_true", help="print one JSON object instead")


def main(arguments: argparse.Namespace) -> int:
    """Inspect, measure and print.  Raises UserError with the install commands if Paddle is missing."""
    from ernie.doctor import machine, stack
    from ernie.runtime import require_paddle

    show = _show_nothing if arguments.json else _show
    here = machine.find()
    show(_machine(here))
    if find_spec("paddle") is None and arguments.json:
        _dump({"machine": asdict(here)})
    require_paddle()
    found = stack.find()
    show(_stack(found))

    from ernie.doctor.advice import advice
    from ernie.doctor.speed import measure

    speed, sentences = measure(), advice(here, found)
    show(_speed(speed))
    show(_advice(sentences))
    if arguments.json:
        _dump({"machine": asdict(here), "stack": asdict(found), "speed": asdict(speed), "advice": sentences})
    return 0


def _dump(tree: dict[str, Any]) -> None:
    print(json.dumps(tree, indent=2))


def _show_nothing(lines: Iterator[tuple[str, str]]) -> None:
    pass


def _show(lines: Iterator[tuple[str, str]]) -> None:
    """Print each line as soon as it is known: the next may take seconds."""
    for label, text in lines:
        print(f"{label:<{_WIDTH}}{text}".rstrip(), flush=True)


def _machine(here: Machine) -> Iterator[tuple[str, str]]:
    yield "processor", f"{here.processor}, {here.cores} cores, {here.threads} threads in use"
    yield "instructions", ", ".join(here.instructions) or "unknown"
    yield "memory", f"{here.memory / 1e9:.1f} GB, {here.memory_free / 1e9:.1f} GB free" if here.memory else "unknown"
    for number, gpu in enumerate(here.gpus):
        size = f"{gpu.memory / 2**30:.0f} GB" if gpu.memory else ""
        known = {"": size, "capability ": gpu.capability, "driver ": gpu.driver}
        yield "GPU" * (number == 0), ", ".join([gpu.name, *(what + value for what, value in known.items() if value)])
    if not here.gpus:
        yield "GPU", "none"
    yield "compiler", here.compiler or "none"
    yield "cache", here.cache
    own = dict(here.versions)
    yield "python", str(own.pop("python"))
    packages = ", ".join(f"{name} {version or 'MISSING'}" for name, version in own.items())
    for number, line in enumerate(textwrap.wrap(packages, 100)):
        yield "packages" * (number == 0), line


def _stack(found: Stack) -> Iterator[tuple[str, str]]:
    paddle, kernels = found.paddle, found.kernels
    gpu_wheel = f"wheel for CUDA {paddle.cuda}, cuDNN {paddle.cudnn}, NCCL {paddle.nccl}"
    wheel = gpu_wheel if paddle.cuda else "CPU wheel"
    yield "paddle", f"{paddle.version}, {wheel}, computing on {paddle.device}"
    if kernels.variant:
        how = "came with the package" if kernels.origin == "shipped" else "compiled on this machine"
        yield "kernels", f"{kernels.variant}, {how}: {kernels.path}"
    else:
        yield "kernels", f"none: {kernels.reason}"
        yield from (("", line) for line in kernels.details.splitlines())
    yield "precision", f"auto is {found.precision}"


def _speed(speed: Speed) -> Iterator[tuple[str, str]]:
    yield "", ""
    for rate in speed.products:
        share = f", {rate.gflops / rate.bound:.0%} of the {rate.bound:.0f} that the cores can do" if rate.bound else ""
        yield f"{rate.precision} {rate.by}", f"{rate.gflops:.0f} GFLOP/s in a product{share}"
    yield (
        "layer",
        f"{speed.layer:,.0f} tokens/s forward and backward through one layer of BERT-base, in {speed.precision}",
    )
    if speed.bandwidth:
        yield "reading", f"{speed.bandwidth:.1f} GB/s from memory"


def _advice(sentences: list[str]) -> Iterator[tuple[str, str]]:
    yield "", ""
    if not sentences:
        yield "Everything is as it should be.", ""
    for sentence in sentences:
        yield f"- {sentence}", ""
