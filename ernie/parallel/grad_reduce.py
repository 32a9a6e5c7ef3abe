"""All-reduce of gradients over a group of processes, fused into a few messages."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import paddle
from paddle import Tensor
from paddle.distributed import all_reduce
from paddle.distributed.fleet.utils.hybrid_parallel_util import fused_allreduce_gradients_with_group

from ernie.errors import UserError
from ernie.parallel.layout import MESSAGE


def all_reduce_gradients(parameters: Sequence[Tensor], group: Any) -> None:
    """All-reduce (sum) the gradients of these parameters, which all processes of the group have.

    Fleet copies all the gradients that it is given into one buffer before it sends the first message.  Passing them in
    batches avoids twice their memory.
    """
    for batch in _messages(parameters):
        fused_allreduce_gradients_with_group(batch, group, scale=1.0)


class EarlySums:
    """Sums gradients over a group of processes while the last backward pass of a step goes on.

    A message is sent once its gradients are complete, after those before it: in every process the same messages in the
    same order, from the last layer to the first.  Which parameters get gradients is known for each task from its first
    step, which is summed after its passes by the same messages (`learn`).

    Li et al. (2020, arXiv 2006.15704), section 3.2.
    """

    def __init__(self, parameters: Sequence[Tensor], group: Any) -> None:
        self._group = group
        self._learned: dict[str, list[Tensor]] = {}
        self._messages: list[list[Tensor]] = []
        self._missing: list[set[int]] = []  # of each message: the parameters (by id) without a complete gradient
        self._sums: list[tuple[Tensor, Any]] = []  # of each message that was sent: its buffer, and the running sum
        self._task = ""  # of the pass that goes on, if any
        self._unexpected = False
        for parameter in parameters:
            parameter._register_backward_hook(partial(self._completed, id(parameter)))

    def learn(self, task: str, parameters: Sequence[Tensor]) -> None:
        """Sum the gradients of a task's first step; the parameters are those that have one in any process."""
        self._learned[task] = list(parameters)
        self.begin(task)
        self.finish()

    def begin(self, task: str) -> None:
        """Begin with the next backward pass, the last one of a step of this task, if its parameters are known."""
        if task in self._learned:
            self._task, self._unexpected = task, False
            self._messages, self._sums = list(_messages(self._learned[task][::-1])), []
            self._missing = [{id(parameter) for parameter in message} for message in self._messages]

    def finish(self) -> bool:
        """Wait for the sums, which become the gradients.  False if the pass was not one of a known task.

        Raises UserError if it gave a gradient to a parameter that none of the task's first step had.
        """
        if not self._task:
            return False
        task, self._task = self._task, ""
        if self._unexpected:
            raise UserError(
                f"parallel.overlap: task '{task}' has computed a gradient of other parameters than in its first step, "
                "or one of them twice. Give overlap: false, which sums gradients after the backward pass"
            )
        while len(self._sums) < len(self._messages):
            self._send()
        for message, (buffer, running) in zip(self._messages, self._sums, strict=True):
            running.wait()
            parts = paddle.split(buffer, [parameter.size for parameter in message])
            for parameter, part in zip(message, parts, strict=True):
                parameter.grad = part.reshape(parameter.shape)
        self._messages, self._sums = [], []
        return True

    @paddle.no_grad()
    def _completed(self, parameter: int, *_: object) -> None:
        """Called by Paddle when a parameter has its gradient."""
        if not self._task:
            return
        place = next((n for n, missing in enumerate(self._missing) if parameter in missing), None)
        if place is None:
            self._unexpected = True
            return
        self._missing[place].remove(parameter)
        while len(self._sums) < len(self._messages) and not self._missing[len(self._sums)]:
            self._send()

    def _send(self) -> None:
        message = self._messages[len(self._sums)]
        gradients = [paddle.zeros_like(each) if each.grad is None else each.grad for each in message]
        buffer = paddle.concat([gradient.reshape([-1]) for gradient in gradients])
        self._sums.append((buffer, all_reduce(buffer, group=self._group, sync_op=False)))
        for parameter in message:
            parameter.clear_gradient(False)  # until the sum is there: memory for both would be twice as much


def _messages(parameters: Sequence[Tensor]) -> Iterator[list[Tensor]]:
    batch: list[Tensor] = []
    size = 0
    for parameter in parameters:
        added = 4 * math.prod(parameter.shape)
        if batch and size + added > MESSAGE:
            yield batch
            batch, size = [], 0
        batch.append(parameter)
        size += added
    if batch:
        yield batch
