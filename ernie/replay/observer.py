"""Reading every tensor of a training step, by hooks on the layers and parameters of the model that is trained.

Nothing that a hook does changes the step: it gives the bits that it gives unobserved.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.data.batch import Packed
from ernie.kernels.precision import to_numpy
from ernie.model.encoder import EncoderLayer
from ernie.model.losses import Loss
from ernie.replay.reading import Kind, Place, Reading, first_wrong
from ernie.train.trainer import StepReport, Trainer


class Observer:
    """Reads the tensors of one step of a trainer, in the order in which the step computes them.

    First come the weights and the optimizer's moments.  Each micro-batch then gives the outputs of the layers that are
    called, its loss, and the gradients of outputs and weights.  The summed gradients and the updates are last.  The
    operators of an encoder layer, which are one kernel in training, are computed once more for their readings.

    `batches` are the step's.  `keep` names the tensors whose values are kept too, in `kept`.  `bad_rows` are the rows
    of the first tensor that is not finite, if that is an output.
    """

    def __init__(
        self, trainer: Trainer, batches: Sequence[tuple[str, Packed | None]], keep: Collection[Place] = ()
    ) -> None:
        self.readings: list[Reading] = []
        self.kept: dict[Place, np.ndarray] = {}
        self.bad_rows: np.ndarray | None = None
        self._trainer, self._batches, self._keep = trainer, batches, keep
        self._parameters = trainer.optimizer.parameters
        self._micro: int | None = None
        self._last: Tensor | None = None  # the output that was read last
        self._before: dict[str, np.ndarray] = {}

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Read the tensors of the step that is done inside, with `loss` and `reduced` given to it."""
        for name, parameter in self._parameters.items():
            self._before[name] = to_numpy(parameter)
            self._read("weight", name, self._before[name])
        for name, stored in self._trainer.state().optimizer.items():
            values = stored[...]
            if values.dtype.kind == "f":
                self._read("moment", name, values)
        hooks = [
            layer.register_forward_post_hook(partial(self._output, name))
            for name, layer in self._trainer.layer.named_sublayers()
        ]
        hooks += [
            parameter.register_hook(partial(self._gradient, "gradient", name))
            for name, parameter in self._parameters.items()
            if not parameter.stop_gradient
        ]
        try:
            yield
        finally:
            for hook in hooks:
                hook.remove()
            self._last = None
        self._micro = None
        for name, parameter in self._parameters.items():
            after = to_numpy(parameter)
            if not np.array_equal(after, self._before[name], equal_nan=True):
                self._read("update", name, after - self._before[name])

    def loss(self, compute: Callable[[str, Packed], Loss]) -> Callable[[str, Packed], Loss]:
        """Return a loss function that computes as another one, and reads the loss."""

        def read(task: str, batch: Packed) -> Loss:
            self._micro = next(number for number, (_, other) in enumerate(self._batches) if other is batch)
            found = compute(task, batch)
            self._read("loss", task, to_numpy(found.total.detach()))
            return found

        return read

    def reduced(self, report: StepReport) -> None:
        """Read the gradients that an update is made from."""
        self._micro = None
        for name, parameter in self._parameters.items():
            if parameter.grad is not None:
                self._read("sum", name, to_numpy(parameter.grad))

    def _output(self, name: str, layer: nn.Layer, inputs: tuple[Any, ...], output: Any) -> None:
        if not isinstance(output, Tensor) or not output.is_floating_point() or output is self._last:
            return
        if type(layer) is EncoderLayer:
            self._operators(name, layer, inputs)
        self._last = output
        self._read("output", name, to_numpy(output.detach()))
        if not output.stop_gradient:
            output.register_hook(partial(self._gradient, "output gradient", name))

    @paddle.no_grad()
    def _operators(self, name: str, layer: EncoderLayer, inputs: tuple[Any, ...]) -> None:
        x_TD, layout, *rest = inputs
        mask = rest[1] if len(rest) > 1 else None
        for operator, output in layer.operators(x_TD.detach(), layout, mask):
            self._read("operator", f"{name}.{operator}", to_numpy(output))

    def _gradient(self, kind: Kind, name: str, gradient: Tensor) -> None:
        self._read(kind, name, to_numpy(gradient))

    def _read(self, kind: Kind, name: str, values: np.ndarray) -> None:
        place = Place(kind, name, self._micro)
        reading = Reading.of(place, values)
        if reading.not_finite and first_wrong(self.readings) is None and kind in ("operator", "output"):
            self.bad_rows = np.flatnonzero(~np.isfinite(values.reshape([len(values), -1])).all(1))
        self.readings.append(reading)
        if place in self._keep:
            self.kept[place] = values
