"""Detection of whether the Hugging Face hub can be reached."""

from __future__ import annotations

import os
import socket
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies


@cache
def offline_unless_reachable() -> None:
    """Set the hub's library to offline mode if there is no connection, so that it does not retry again and again.

    Call this before that library is imported, since it reads the setting at import.
    """
    endpoint = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if getproxies():
        return  # the proxy resolves names
    try:
        port = endpoint.port or (80 if endpoint.scheme == "http" else 443)
        socket.create_connection((endpoint.hostname, port), timeout=5).close()
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"
