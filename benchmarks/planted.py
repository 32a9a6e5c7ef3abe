"""Plug-in of benchmarks/replaying.py: plants the fault that the environment variable PLANT describes, as JSON.

A document makes the loss of its samples infinite.  A bit is flipped in a rank's gradient of a parameter.  An operator,
or a layer, of the encoder rounds otherwise.
"""

from __future__ import annotations

import json
import os
from typing import Any

import numpy as np
import paddle

from ernie.kernels import layer as kernels
from ernie.model import encoder
from ernie.parallel.distributed_model import DistributedModel
from pretrain.model import MultiTaskModel

PLANT: dict[str, Any] = json.loads(os.environ.get("PLANT", "{}"))
ROUNDED = np.float32(1 + 2**-20)
plain_loss, plain_backward, plain_build = MultiTaskModel.head_loss, DistributedModel.backward, DistributedModel.__init__
plain_linear, plain_layer = kernels.linear, encoder.transformer_layer
weights: dict[int, str] = {}  # the names of a model's parameters
steps = 0


def poisoned_loss(self: Any, name: str, hidden_TD: Any, batch: Any) -> Any:
    found = plain_loss(self, name, hidden_TD, batch)
    if (batch.samples[:, 1] == PLANT["document"]).any():
        return type(found)(found.total * float("inf"), found.count, found.logits, found.labels)
    return found


def flipping_backward(self: Any, tasks: Any, made: Any, loss: Any) -> Any:
    global steps
    steps += 1
    if steps != PLANT["step"] or self.mesh.rank != PLANT["rank"]:
        return plain_backward(self, tasks, made, loss)
    calls: list[None] = []

    def flipped(gradient: Any) -> Any:
        calls.append(None)
        if len(calls) != PLANT["turn"] + 1:
            return None
        values = gradient.numpy()
        values.reshape(-1).view(np.uint32)[PLANT["at"]] ^= np.uint32(1 << PLANT["bit"])
        return paddle.to_tensor(values)

    hook = self.state.parameters[PLANT["parameter"]].register_hook(flipped)
    found = plain_backward(self, tasks, made, loss)
    hook.remove()
    return found


def named_build(self: Any, model: Any, *rest: Any) -> None:
    plain_build(self, model, *rest)
    weights.update({id(parameter): name for name, parameter in model.named_parameters()})


def rounding_linear(x: Any, weight: Any, *rest: Any) -> Any:
    found = plain_linear(x, weight, *rest)
    return found * ROUNDED if weights.get(id(weight)) == f"{PLANT['layer']}.{PLANT['operator']}.weight" else found


def rounding_layer(x: Any, layout: Any, layer: Any, *rest: Any) -> Any:
    found = plain_layer(x, layout, layer, *rest)
    return found * ROUNDED if weights.get(id(layer.q)) == f"{PLANT['layer']}.q.weight" else found


def plant(owner: Any, name: str, faulty: Any) -> None:
    setattr(owner, name, faulty)


if "document" in PLANT:
    plant(MultiTaskModel, "head_loss", poisoned_loss)
elif "bit" in PLANT:
    plant(DistributedModel, "backward", flipping_backward)
elif "layer" in PLANT:
    plant(DistributedModel, "__init__", named_build)
    if PLANT["operator"]:
        plant(kernels, "linear", rounding_linear)
    else:
        plant(encoder, "transformer_layer", rounding_layer)
