"""The protocols of a server, each of them routes and a way to write problems."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from serving.access import AccessKind
from serving.http import Handler, Problem, Reply
from serving.service import Service


@dataclass(frozen=True)
class Route:
    """A method and a path, with what answers.

    For the API's description: `summary` is a sentence, `message` the type of the body, `reply` that of a good answer,
    None for one that is no JSON.  A `form` comes instead of JSON if the body contains a file, and may be as long as
    files are.  `access` is who may ask if there are keys: everyone ("open"), whoever has a key, or only an admin.
    """

    method: str
    path: str
    handler: Handler
    summary: str
    message: Any = None
    reply: Any = None
    access: AccessKind = "key"
    form: bool = False


@dataclass(frozen=True)
class Protocol:
    """What clients of one kind expect: `routes` of a service, and `problem`, which writes a problem as they read it.

    Paths below `prefix` that lead nowhere are answered in the same way.  `failure` is the type of what `problem`
    writes.
    """

    name: str
    routes: Callable[[Service], Sequence[Route]]
    problem: Callable[[Problem], Reply]
    prefix: str = ""
    failure: Any = None
