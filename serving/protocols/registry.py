"""The protocols of a server, each of them routes and a way to write problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from serving.access import AccessKind
from serving.http import Handler, Problem
from serving.service import Service


@dataclass(frozen=True)
class Route:
    """A method and a path, with what answers; `message` is the type of the body, for the API's description.

    `access` is who may ask if there are keys: everyone ("open"), whoever has a key, or only an admin.
    """

    method: str
    path: str
    handler: Handler
    message: Any = None
    access: AccessKind = "key"


@dataclass(frozen=True)
class Protocol:
    """What clients of one kind expect: `routes` of a service, and `problem`, which writes a problem as they read it."""

    name: str
    routes: Callable[[Service], Sequence[Route]]
    problem: Callable[[Problem], bytes]
