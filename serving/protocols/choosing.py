"""Which of the served models a request means, in protocols where it need not say so."""

from __future__ import annotations

from collections.abc import Callable

from serving.models import ServedModel
from serving.service import Service, UnknownModel


def choose(
    service: Service,
    name: str | None,
    operation: str,
    suits: Callable[[ServedModel], bool] = lambda _: True,
    what: str = "",
) -> ServedModel:
    """Return the model of this name, or the only one with an operation that `suits`.

    Raises UnknownModel when there is none or, without a name, when there are several.  `what` says in words what the
    model is to do.
    """
    if name:
        model = service.model(name)
        service.operation(model, operation)
        if not suits(model):
            raise UnknownModel(f"the model '{name}' does not {what}")
        return model
    found = [model for model in service.models.values() if operation in model.operations and suits(model)]
    if len(found) == 1:
        return found[0]
    names = ", ".join(model.name for model in found)
    wanted = what or f"have the operation '{operation}'"
    raise UnknownModel(f"which model? Several {wanted}: {names}" if found else f"no model here can {wanted}")
