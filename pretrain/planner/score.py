"""How good a prediction is: what a run takes, beside what the plan for this machine says."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import paddle

from ernie import runtime
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.parallel.world import World
from pretrain.config import PretrainConfig
from pretrain.planner.cost import Cost, cost, work_of
from pretrain.planner.machine import Machine, here, measured_with
from pretrain.planner.plan import in_bytes, in_seconds

FIRST = 3  # steps that are not counted: kernels are loaded, memory is asked for


@dataclass(frozen=True)
class Score:
    """The seconds of a step, and the bytes of the process that needs most; beside them what was predicted.

    `remark` says why nothing was, where something is wrong.
    """

    seconds: float
    memory: float
    predicted: Cost | None
    remark: str = ""

    def __str__(self) -> str:
        text = f"a step took {in_seconds(self.seconds)}, the process that needs most {in_bytes(self.memory)}"
        if self.predicted is None:
            return text + (f"; {self.remark}" if self.remark else "")
        return f"{text}; predicted: {in_seconds(self.predicted.seconds)}, {in_bytes(self.predicted.memory)}"

    def as_dict(self) -> dict[str, float]:
        """Its numbers."""
        found = {"seconds": self.seconds, "memory": self.memory}
        if self.predicted is not None:
            found |= {"predicted_seconds": self.predicted.seconds, "predicted_memory": self.predicted.memory}
        return found


class Meter:
    """Time and memory of this process's steps."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._memory = 0

    def step(self, seconds: float) -> None:
        """A step is done."""
        self._times.append(seconds)

    def pause(self) -> None:
        """Something else than a step follows: what memory it takes is not the layout's."""
        self._memory = self._memory or most_memory()

    def score(self, config: PretrainConfig, shape: EncoderConfig, world: World) -> Score | None:
        """What all processes together say, each of which has to ask; None after too few steps."""
        times = self._times[FIRST:]
        if not times:
            return None
        self.pause()
        seconds, memory = world.largest(statistics.median(times)), world.largest(self._memory)
        try:
            return Score(seconds, memory, _predicted(config, shape, world))
        except UserError as error:  # a file of another version's does not spoil the end of a run
            return Score(seconds, memory, None, str(error))


def _predicted(config: PretrainConfig, shape: EncoderConfig, world: World) -> Cost | None:
    """What the plan says, where this machine was measured with such layers."""
    if not here().is_file():
        return None
    machine = Machine.read(here())
    if machine.name != measured_with(shape, config.train.precision, config.train.amp_level):
        return None
    layout = world.layout
    if layout.pipeline > 1 and layout.virtual_stages == 1:
        layout = replace(layout, stages=layout.cut(shape.layers))
    return cost(work_of(config, shape), layout, machine)


def most_memory() -> int:
    """The most bytes that this process has taken so far, of the device that it computes on."""
    if paddle.get_device() == "cpu":
        return runtime.memory("VmHWM")
    return int(paddle.device.cuda.max_memory_allocated())
