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
    host = urlsplit(os.environ.get("HF_ENDPOINT", "https://huggingface.co")).hostname
    if getproxies():
        return  # names are the proxy's to find
    try:
        socket.create_connection((host, 443), timeout=5).close()
    except OSError:
        os.environ["HF_HUB_OFFLINE"] = "1"
