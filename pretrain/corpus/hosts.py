"""The hosts that pages come from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from urllib.parse import urlsplit

MOST_HOSTS = 10_000  # that are counted one by one
OTHERS = "others"


def host_of(url: str) -> str:
    """Return the host of an address in lower case, without `www.`; "" if there is none."""
    try:
        return (urlsplit(url if "//" in url else f"//{url}").hostname or "").removeprefix("www.").rstrip(".")
    except ValueError:  # such as brackets that do not close
        return ""


def add_hosts(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Add numbers of documents by their hosts; once there are many, new hosts count together as others."""
    for host, number in more.items():
        counts[host if host in counts or len(counts) < MOST_HOSTS else OTHERS] += number
