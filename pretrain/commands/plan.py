"""Predict the step time and the memory per process of every parallel layout of N devices.

Prints the fastest layouts, why the others are slower, and the `parallel:` block of the fastest one.  Devices are
named by --kind, or described by the options; the assumptions are printed too.

  ernie plan ernie2-en --devices 8 --kind a100 --set train.micro_batches=16
  ernie plan first.yaml --devices 512 --kind h100 --network 25GB/s --memory 60GB
"""

from __future__ import annotations

import argparse
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from ernie.arguments import add_config, add_set

if TYPE_CHECKING:
    from ernie.model.config import EncoderConfig
    from pretrain.config import PretrainConfig
    from pretrain.planner.machine import Machine

_MOST_DEVICES = 1_000_000  # ten times the largest clusters
SUMMARY = "predict which parallel layout is the fastest"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_config(parser, "YAML file of a pretraining run, see docs/howto/pretraining.md", part="pretrain")
    add_set(parser, "override a key, for example train.micro_batches=16")
    parser.add_argument("--devices", type=int, required=True, metavar="N", help="how many devices, one a process")
    parser.add_argument("--kind", default="a100", help="kind of device: v100, a100, h100, h200 or here (default: a100)")
    parser.add_argument(
        "--calibrate",
        action="store_true",
        help="benchmark this machine first with these layers, for --kind here",
    )
    parser.add_argument("--memory", metavar="SIZE", help="memory of a device, such as 80GiB")
    parser.add_argument("--products", metavar="RATE", help="matmul rate of a device, such as 140TFLOP/s")
    parser.add_argument("--bandwidth", metavar="RATE", help="rate between the devices of a node, such as 300GB/s")
    parser.add_argument("--network", metavar="RATE", help="rate of each device to other nodes, such as 25GB/s")
    parser.add_argument("--per-node", type=int, metavar="N", help="devices of a node (default: 8)")
    parser.add_argument(
        "--regroup", action="store_true", help="also try other micro-batch sizes with equal tokens per step"
    )
    parser.add_argument("--length", type=float, metavar="TOKENS", help="length of a sequence (default: data.max_len)")
    parser.add_argument("--top", type=int, default=8, metavar="N", help="how many layouts to print (default: 8)")


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    from ernie.errors import UserError
    from ernie.formatting import plural
    from ernie.runtime import busy_cores, cores, note_on_others, require_paddle
    from pretrain.config import load
    from pretrain.ledger import markdown
    from pretrain.planner.cost import work_planned
    from pretrain.planner.machine import HERE, basis, here
    from pretrain.planner.plan import assumptions, block, make_plan

    if not 1 <= arguments.devices <= _MOST_DEVICES:
        raise UserError(f"--devices: expected 1 to {_MOST_DEVICES:,}, found {arguments.devices:,}")
    if arguments.top < 1:
        raise UserError(f"--top: expected at least 1, found {arguments.top}")
    config = load(arguments.config, arguments.set)
    if arguments.length is not None and not 1 <= arguments.length <= config.data.micro_batch_tokens:
        raise UserError(
            f"--length: expected 1 to {config.data.micro_batch_tokens} tokens, as many as a micro-batch has"
        )
    work = work_planned(config, arguments.length)
    if arguments.calibrate:
        require_paddle()
        from ernie.kernels.precision import resolve
        from pretrain.planner.calibrate import calibrate

        print("measuring this machine for about a minute; nothing else should run on it", file=sys.stderr)
        if note := note_on_others(busy_cores(), cores()):
            print(f"note: {note}: the figures will be too low, and measuring takes longer", file=sys.stderr)
        precision = resolve(config.train.precision)
        calibrate(work, arguments.devices, precision, config.train.amp_level).write(here())
        arguments.kind = HERE
    machine = _machine(arguments, config)
    if arguments.kind.lower() == HERE:
        _warn_of_others(machine, work.shape, config)
    plan = make_plan(work, arguments.devices, machine, regroup=arguments.regroup)
    for line in filter(None, [*assumptions(work, machine), basis(arguments.kind.lower())]):
        print(f"assumed: {line}", file=sys.stderr)
    if remark := plan.remark_on_data():
        print(f"note: {remark}", file=sys.stderr)
    tried = "all tried" if plan.all_tried else "a learned search tried some"
    print(
        f"{plural(plan.layouts, 'layout')}, {tried}, {len(plan.found):,} of these fit; the fastest ones, "
        "with the best options for each division of the devices:\n"
    )
    print(markdown(plan.table(arguments.top)))
    print(f"\nThe first spends its time on: {plan.spent()}.\n\n{block(plan.best, work)}")
    return 0


def _warn_of_others(machine: Machine, shape: EncoderConfig, config: PretrainConfig) -> None:
    """Warn if this machine was measured with other layers than those of the run."""
    from ernie.kernels.precision import resolve
    from ernie.runtime import require_paddle
    from pretrain.planner.machine import measured_with

    require_paddle()
    wanted = measured_with(shape, resolve(config.train.precision), config.train.amp_level)
    if machine.name != wanted:
        print(
            f"warning: --kind here: the figures are of {machine.name}; for this run they should be of {wanted}. "
            "--calibrate measures that",
            file=sys.stderr,
        )


def _machine(arguments: argparse.Namespace, config: PretrainConfig) -> Machine:
    from ernie.errors import UserError, about
    from pretrain.planner.machine import named, quantity

    def option(name: str, default: float, unit: str) -> float:
        text = getattr(arguments, name)
        with about(f"--{name}"):
            value = default if text is None else quantity(text, unit)
            if value <= 0:
                raise UserError(f"expected more than 0, found {text}")
        return value

    with about("--kind"):
        machine = named(arguments.kind.lower(), config.train.precision, config.train.amp_level)
    per_node = machine.per_node if arguments.per_node is None else arguments.per_node
    if per_node < 1:
        raise UserError(f"--per-node: expected at least 1, found {per_node}")
    return replace(
        machine,
        memory=option("memory", machine.memory, "B"),
        products=option("products", machine.products, "FLOP/s"),
        near=replace(machine.near, bandwidth=option("bandwidth", machine.near.bandwidth, "B/s")),
        far=replace(machine.far, bandwidth=option("network", machine.far.bandwidth, "B/s")),
        per_node=per_node,
    )
