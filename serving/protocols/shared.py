"""What several protocols share: which model a request means, its settings, its streams, and shorter vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, Literal

import msgspec
import numpy as np

from ernie.errors import UserError
from inference.operation import Operation
from serving.http import Problem
from serving.models import ServedModel
from serving.service import Service, UnknownModel, Unsuitable


class Medium(msgspec.Struct, omit_defaults=True):
    """What a stream takes, or gives: text, or sound with so many samples a second."""

    kind: Literal["text", "sound"]
    sample_rate: int | None = None

    @classmethod
    def of(cls, rate: int | None) -> Medium:
        """Return sound at this rate, or text if there is none."""
        return cls("text") if rate is None else cls("sound", rate)


def choose(
    service: Service,
    name: str | None,
    operation: str,
    suits: Callable[[ServedModel], bool] = lambda _: True,
    what: str = "",
) -> ServedModel:
    """Return the model of this name, or the only one with an operation that `suits`.

    `what` says in words what the model is to do.  Raises Unsuitable for a model that does not, and UnknownModel when
    there is none of the name or, without a name, when several suit.
    """
    wanted = what or f"have the operation '{operation}'"
    if name:
        model = service.model(name)
        service.operation(model, operation)
        if not suits(model):
            raise Unsuitable(f"the model '{name}' cannot {wanted}")
        return model
    found = [model for model in service.models.values() if operation in model.operations and suits(model)]
    if not found:
        raise Unsuitable(f"no model here can {wanted}")
    if len(found) > 1:
        raise UnknownModel(f"which model? Several {wanted}: {', '.join(model.name for model in found)}")
    return found[0]


def as_inputs(given: str | list[Any], name: str) -> list[Any]:
    """Return the texts of a request's field, or lists of their token ids.

    Raises Problem for none and for an empty one, and UserError for texts and single numbers in one list.
    """
    inputs: list[Any] = [given] if isinstance(given, str) else given
    if inputs and type(inputs[0]) is int:
        inputs = [inputs]
    for row, item in enumerate(inputs):
        if not item and type(item) is not int:
            raise Problem(400, "empty", f"{name}: expected texts or lists of token ids, found an empty one at {row}")
        if type(item) is int:
            raise UserError(f"{name}: expected texts or lists of token ids, found a number beside others at {row}")
    if not inputs:
        raise Problem(400, "empty", f"{name}: expected at least one text, found an empty list")
    return inputs


def shortened(vector: np.ndarray, dimensions: int | None) -> np.ndarray:
    """Return the beginning of a vector, scaled to length 1 if the whole has it.

    That is meant for models that were trained for it (Kusupati et al., 2022, Matryoshka Representation Learning, arXiv
    2205.13147).  Raises UserError for more dimensions than there are.
    """
    if dimensions is None:
        return vector
    if not 0 < dimensions <= len(vector):
        raise UserError(f"dimensions: expected from 1 to {len(vector)}, which this model has, found {dimensions}")
    kept, length = vector[:dimensions], float(np.linalg.norm(vector))
    own = float(np.linalg.norm(kept))
    return kept / np.float32(own) if abs(length - 1) < 1e-3 and own else kept


def check_settings(given: Iterable[str], operation: Operation, key: str, whose: str = "") -> None:
    """Raise UserError for settings that an operation does not have; `key` is where they stand in the request."""
    if unknown := sorted({*given} - operation.settings):
        known = ", ".join(sorted(operation.settings)) or "none"
        raise UserError(f"{key}: {unknown[0]:.60} is unknown here; known{whose}: {known}")
