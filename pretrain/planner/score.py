"""Compare the measured time and memory of a run with the prediction for this machine."""

from __future__ import annotations

import statistics
from dataclasses import dataclass, replace

import paddle

from ernie import runtime
from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from ernie.parallel.collectives import max_of_ranks
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.mesh import Mesh
from pretrain.config import PretrainConfig
from pretrain.planner.cost import Cost, cost, work_of
from pretrain.planner.machine import Machine, here, measured_with
from pretrain.planner.plan import in_bytes, in_seconds

FIRST = 3  # warm-up steps, not counted: kernels are loaded and memory is allocated


@dataclass(frozen=True)
class Score:
    """The seconds of a step and the bytes of the process that needs most, with the predicted cost where there is one.

    `remark` says why there is no prediction, if that is due to an error.
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
        """The measured and predicted numbers."""
        numbers = {"seconds": self.seconds, "memory": self.memory}
        if self.predicted is not None:
            numbers |= {"predicted_seconds": self.predicted.seconds, "predicted_memory": self.predicted.memory}
        return numbers


class Meter:
    """Records the time and memory of this process's steps."""

    def __init__(self) -> None:
        self._times: list[float] = []
        self._memory = 0

    def step(self, seconds: float) -> None:
        """Record a step that took `seconds`."""
        self._times.append(seconds)

    def pause(self) -> None:
        """Freeze the peak memory before work other than a step, whose memory is not due to the layout."""
        self._memory = self._memory or peak_memory()

    def score(self, config: PretrainConfig, shape: EncoderConfig, mesh: Mesh) -> Score | None:
        """The score over all processes, each of which has to call this; None after too few steps."""
        times = self._times[FIRST:]
        if not times:
            return None
        self.pause()
        seconds, memory = max_of_ranks(mesh, statistics.median(times)), max_of_ranks(mesh, self._memory)
        try:
            return Score(seconds, memory, _predicted(config, shape, mesh.layout))
        except UserError as error:  # a machine file of another version must not fail a finished run
            return Score(seconds, memory, None, str(error))


def _predicted(config: PretrainConfig, shape: EncoderConfig, layout: ParallelConfig) -> Cost | None:
    """The predicted cost; None unless this machine was measured with such layers in this precision."""
    if not here().is_file():
        return None
    machine = Machine.read(here())
    if machine.name != measured_with(shape, config.train.precision, config.train.amp_level):
        return None
    if layout.pipeline > 1 and layout.virtual_stages == 1:
        layout = replace(layout, stages=layout.layers_per_stage(shape.layers))
    return cost(work_of(config, shape), layout, machine)


def peak_memory() -> int:
    """The peak bytes that this process has taken so far on the device that it computes on."""
    if paddle.get_device() == "cpu":
        return runtime.memory("VmHWM")
    return int(paddle.device.cuda.max_memory_allocated())
