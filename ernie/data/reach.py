"""Whether the hub can be reached."""

from __future__ import annotations

import os
import socket
from functools import cache
from urllib.parse import urlsplit
from urllib.request import getproxies


@cache
def offline_unless_reachable() -> None:
    """Without a connection let the hub's library look into its cache only, where it would ask again and again.

    To be called before that library is imported, which is when it reads the setting.
    """
    place = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co"))
    if getproxies():
        return  # names are the proxy's to find
    try:
        port = place.port or (80 if place.scheme == "http" else 443)
        socket.create_connection((place.hostname, port), timeout=5).close()
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"
