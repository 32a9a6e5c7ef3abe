"""The secret of a run, with which its processes recognize one another on sockets that any local program can reach."""

from __future__ import annotations

import hmac
import os
import secrets
from functools import cache
from typing import Any

VARIABLE = "ERNIE_RUN_SECRET"  # the environment variable in which the launching command passes it
LENGTH = 32  # characters
_KEY = "ernie/secret"


def new_secret() -> str:
    """Return a random secret."""
    return secrets.token_hex(LENGTH // 2)


def run_secret(store: Any, rank: int) -> str:
    """Return the secret of this run, from the environment or, if another launcher was used, through the `store`."""
    given = os.environ.get(VARIABLE, "")
    if len(given) == LENGTH:
        return given
    if rank == 0:
        store.set(_KEY, _own().encode())
    return bytes(store.get(_KEY)).decode()


def is_secret(shown: bytes, secret: str) -> bool:
    """Whether a stranger's bytes are the secret, in a time that tells nothing about it."""
    return hmac.compare_digest(shown, secret.encode())


@cache
def _own() -> str:
    return new_secret()
