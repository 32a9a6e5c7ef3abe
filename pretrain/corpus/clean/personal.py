"""`personal_data`: e-mail addresses, IP addresses and telephone numbers are masked."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from ipaddress import ip_address
from typing import Literal

from ernie.data.raw import RawDocument
from pretrain.corpus.clean.base import Filter, filters, with_lines

Kind = Literal["email", "ip", "phone"]
# An address has a name, an @ and a domain with a full stop.  Its parts are bounded, so that a search takes linear time.
_EMAIL = re.compile(
    r"(?<![\w.+-])[A-Za-z0-9][\w.+-]{0,63}@(?:[A-Za-z0-9-]{1,63}\.){1,8}[A-Za-z]{2,24}(?![\w-])", re.ASCII
)
_IP = re.compile(
    r"(?<![\w.:])(?:(?:\d{1,3}\.){3}\d{1,3}|(?:[0-9A-Fa-f]{0,4}:){2,7}[0-9A-Fa-f]{1,4})(?![\w:]|\.\d)", re.ASCII
)
# With its country; in groups of North America; a mobile number of China.
_PHONE = re.compile(
    r"(?<![\w.+])(?:"
    r"\+[1-9]\d{0,2}(?:[ .-]?\(?\d{1,4}\)?){2,5}"
    r"|(?:\(\d{3}\) ?|\d{3}[ .-])\d{3}[ .-]\d{4}"
    r"|1[3-9]\d[ -]?\d{4}[ -]?\d{4}"
    r")(?!\w|[.-]\d)",
    re.ASCII,
)
_DIGITS = range(8, 16)  # of a number with its country (ITU-T E.164)
# None can belong to anybody: RFC 2606, RFC 5737, and the numbers of North America that are kept for fiction.
_MASKS: dict[Kind, str] = {"email": "email@example.com", "ip": "192.0.2.1", "phone": "555-0100"}


def _ip(found: str) -> bool:
    """Whether a text is the public address of some machine."""
    try:
        return ip_address(found).is_global
    except ValueError:
        return False


def _phone(found: str) -> bool:
    return not found.startswith("+") or sum(map(str.isdigit, found)) in _DIGITS


_FOUND: dict[Kind, tuple[str, re.Pattern[str], Callable[[str], bool]]] = {  # a character that is there, how it looks
    "email": ("@", _EMAIL, lambda found: True),
    "ip": (".:", _IP, _ip),
    "phone": ("0123456789", _PHONE, _phone),
}


@filters.register("personal_data")
@dataclass(frozen=True)
class PersonalData(Filter):
    """Replaces e-mail addresses, public IP addresses and telephone numbers by ones that belong to nobody.

    `mask` lists what is replaced.  Telephone numbers are those with a country (`+49 30 123456`), those in groups of
    North America (`212-555-0123`), and mobile numbers of China.  Source: FineWeb masks the first two (Penedo et al.,
    2024, section 3.7), Dolma all three (Soldaini et al., 2024).
    """

    repairs = True
    hides = True
    mask: list[Kind] = field(default_factory=lambda: ["email", "ip", "phone"])

    def apply(self, document: RawDocument) -> RawDocument:
        """Return the document with its text and title masked."""
        masked = with_lines(document, [self._masked(line) for line in document.text.split("\n")])
        title = self._masked(document.title)
        return masked if title == document.title else masked._replace(title=title)

    def _masked(self, line: str) -> str:
        for kind in self.mask:
            there, pattern, is_one = _FOUND[kind]
            if any(character in line for character in there):
                line = pattern.sub(lambda match, kind=kind, is_one=is_one: _mask(match[0], kind, is_one), line)  # type: ignore[misc]
        return line


def _mask(found: str, kind: Kind, is_one: Callable[[str], bool]) -> str:
    return _MASKS[kind] if is_one(found) else found
