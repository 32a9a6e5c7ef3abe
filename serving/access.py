"""Who may ask: keys in a file, and web pages of other origins."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import re
import secrets
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from ernie.errors import UserError
from serving.http import Problem

AccessKind = Literal["open", "key", "admin"]
_SHORTEST = 16  # characters of a key
_NAME = re.compile(r"[\w.@-]{1,64}")
SUBPROTOCOL = "ernie"  # of sessions, for pages that show their key as another one that they offer
_OFFERED_KEY = b"ernie.key."  # before the key in base64url
_FORWARDED = (b"forwarded", b"x-forwarded-for", b"x-real-ip", b"via")  # headers that proxies add


@dataclass(frozen=True)
class Holder:
    """Whose a key is, and whether its holder may reload models."""

    client: str
    is_admin: bool


class Keys:
    """The keys of a file.

    They are kept as keyed hashes, under a secret of this process.  How long a look-up takes tells nobody anything about
    a key.
    """

    def __init__(self) -> None:
        self._secret = secrets.token_bytes(32)
        self._holders: dict[bytes, Holder] = {}

    @classmethod
    def read(cls, file: Path) -> Keys:
        """Read a file: in each line a key, perhaps the name of its client, and perhaps the word admin.

        Empty lines and those that begin with # are skipped.  Raises UserError, which never shows a key.
        """
        try:
            mode = file.stat().st_mode
            lines = file.read_text(encoding="utf-8").splitlines()
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{file}: cannot be read: {getattr(error, 'strerror', None) or 'is no text'}") from None
        if mode & (stat.S_IROTH | stat.S_IWOTH | stat.S_IWGRP):
            raise UserError(f"{file}: other users may read or change these keys; run: chmod 600 {file}")
        keys = cls()
        for number, line in enumerate(lines, 1):
            words = line.split()
            if not words or words[0].startswith("#"):
                continue
            try:
                keys._add(words, f"key-{number}")
            except UserError as error:
                raise UserError(f"{file}:{number}: {error}", file=str(file), line=number) from None
        if not keys._holders:
            raise UserError(f"{file}: expected a key a line, found none; make one with: openssl rand -hex 24")
        return keys

    def _add(self, words: Sequence[str], name: str) -> None:
        key, *rest = words
        is_admin = bool(rest) and rest[-1] == "admin"
        names = rest[: len(rest) - is_admin]
        if len(key) < _SHORTEST or not key.isascii():
            raise UserError(f"expected a key of at least {_SHORTEST} ASCII characters, found {len(key)} characters")
        if len(names) > 1 or any(not _NAME.fullmatch(given) for given in names):
            raise UserError("expected the client's name in one word, and perhaps the word admin, after the key")
        digest = self._digest(key.encode())
        if digest in self._holders:
            raise UserError(f"this key stands here twice, before for {self._holders[digest].client}")
        self._holders[digest] = Holder(names[0] if names else name, is_admin)

    def holder(self, key: bytes) -> Holder | None:
        """Return whose a key is, or None."""
        return self._holders.get(self._digest(key))

    def _digest(self, key: bytes) -> bytes:
        return hmac.digest(self._secret, key, "sha256")


@dataclass
class Access:
    """Who may ask.  Without keys everyone may, and whoever asks from this machine itself may reload models.

    Browsers send along the origin of the page that asks: this server's own pages may open sessions, others only if
    `origins` has them.
    """

    keys: Keys | None = None
    origins: Sequence[str] = field(default_factory=tuple)

    def client(self, kind: AccessKind, address: str, headers: Mapping[bytes, bytes], *, is_socket: bool = False) -> str:
        """Return the name of who asks: a key's, or else the address.  Raises Problem for whoever may not.

        401: no key, or an unknown one.  403: a key that does not suffice, or a page of another origin.
        """
        if is_socket and self._is_foreign(headers):
            raise Problem(403, "forbidden", "pages of this origin may not ask here; see cors_origins")
        if self.keys is None:
            if kind == "admin" and not (_is_loopback(address) and self._is_own(headers)):
                raise Problem(403, "forbidden", "without a file of keys, this is only for programs of the same machine")
            return address
        challenge = {"www-authenticate": "Bearer"}
        if not (key := _key(headers, is_socket=is_socket)):
            raise Problem(401, "unauthorized", "a key is needed here: Authorization: Bearer KEY", challenge)
        if (holder := self.keys.holder(key)) is None:
            raise Problem(401, "unauthorized", "this key is unknown here", challenge)
        if kind == "admin" and not holder.is_admin:
            raise Problem(403, "forbidden", "this needs the key of an admin")
        return holder.client

    def _is_own(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether neither a proxy nor a web page of unknown origin asks."""
        return not self._is_foreign(headers) and not any(name in headers for name in _FORWARDED)

    def _is_foreign(self, headers: Mapping[bytes, bytes]) -> bool:
        """Whether a web page asks that is neither this server's own nor of a known origin."""
        origin = headers.get(b"origin", b"").decode("latin-1")
        if not origin or origin in self.origins or "*" in self.origins:
            return False
        return urlsplit(origin).netloc != headers.get(b"host", b"").decode("latin-1")


def _key(headers: Mapping[bytes, bytes], *, is_socket: bool) -> bytes:
    """Return the key that a request shows, empty if there is none."""
    scheme, _, key = headers.get(b"authorization", b"").strip().partition(b" ")
    if scheme.lower() == b"bearer":
        return key.strip()
    return headers.get(b"x-api-key", b"").strip() or (_offered_key(headers) if is_socket else b"")


def _offered_key(headers: Mapping[bytes, bytes]) -> bytes:
    """Return the key among the subprotocols that a WebSocket offers: a browser lets pages set no other header."""
    for offered in headers.get(b"sec-websocket-protocol", b"").split(b","):
        if (name := offered.strip()).startswith(_OFFERED_KEY):
            written = name.removeprefix(_OFFERED_KEY)
            try:
                return base64.b64decode(written + b"=" * (-len(written) % 4), altchars=b"-_", validate=True)
            except binascii.Error:
                return written  # no key is like it
    return b""


def _is_loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address.partition("%")[0]).is_loopback
    except ValueError:
        return False
