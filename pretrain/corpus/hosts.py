"""The hosts that pages come from."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping
from urllib.parse import SplitResult, urlsplit

MOST_HOSTS = 10_000  # that are counted one by one
OTHERS = "others"
_LONGEST = 253  # characters of a host's name, by RFC 1035
_SCHEME = re.compile(r"([a-z][a-z0-9+.-]*:)?//", re.IGNORECASE)


def split(url: str) -> SplitResult | None:
    """Return the parts of an address, which need not begin with `https://`; None for what is no address."""
    try:
        parts = urlsplit(url if _SCHEME.match(url) else f"//{url}")
        return parts if _host(parts) else None
    except ValueError:  # such as brackets that do not close
        return None


def host_of(url: str) -> str:
    """Return the host of an address, in lower case and as it is in requests; "" if there is none."""
    parts = split(url)
    return _host(parts) if parts else ""


def add_hosts(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Add numbers of documents by their hosts; once there are many, new hosts count together as others."""
    for host, number in more.items():
        counts[host if host in counts or len(counts) < MOST_HOSTS else OTHERS] += number


def _host(parts: SplitResult) -> str:
    name = (parts.hostname or "").rstrip(".")
    if not name or len(name) > _LONGEST or "." not in name or re.search(r"\s", name):
        return ""
    if name.isascii():
        return name
    try:
        return name.encode("idna").decode()
    except UnicodeError:  # a part is too long, or has what no host has
        return ""
