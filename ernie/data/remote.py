"""Files at addresses, such as s3://bucket/a.txt or https://host/a.txt, by fsspec: found, read, and written.

Credentials and end points are those of fsspec's own configuration and of each store's client.
"""

from __future__ import annotations

import hashlib
import io
import logging
import random
import re
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any, BinaryIO, TypeVar, cast
from urllib.parse import urlsplit

from ernie.errors import Remark, UserError
from ernie.formatting import plural
from ernie.sha256 import file_sha256

T = TypeVar("T")
TRIES, PAUSE, LONGEST_PAUSE = 6, 0.5, 20.0  # without a byte of progress; seconds before the second try, and at most
_TIMEOUT = 30  # seconds without a byte from a server
_BUFFER = 1 << 20  # bytes read at a time
_BLOCK = 1 << 22  # bytes asked of a store at a time
_SHOWN = 300  # characters of another library's message
_ADDRESS = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)
_AS_PATH = re.compile(r"([a-z][a-z0-9+.-]+):/(?=[^/])", re.IGNORECASE)  # what a Path leaves of it
_WEB = ("http", "https")
_PASSWORD = re.compile(r"(://[^/@:]*):[^/@]*@")
_SECRET = re.compile(r"([?&][^=&#]*(?:sig|token|key|credential|secret|password)[^=&#]*=)[^&#]*", re.IGNORECASE)
_PATTERN = re.compile(r"[*?\[]")
_WEB_PATTERN = re.compile(r"[*\[]")  # there a question mark begins a query
# What a store says of a version of a file, the most precise first.
_VERSIONS = "ETag etag generation checksum Content-MD5 LastModified Last-Modified last_modified updated created mtime"
_BUSY = (408, 425, 429)  # of HTTP: try again later; so are all from 500


@dataclass(frozen=True)
class Address:
    """A file or folder at an address, for whoever reads either this or a Path."""

    url: str

    def __str__(self) -> str:
        return without_secrets(self.url)

    @property
    def path(self) -> PurePosixPath:
        """The path within the store, without a query."""
        return PurePosixPath(urlsplit(self.url).path or "/")

    @property
    def name(self) -> str:
        """The last part of the path."""
        return self.path.name

    @property
    def suffix(self) -> str:
        """The suffix of the name, with its full stop."""
        return self.path.suffix

    def __truediv__(self, name: str) -> Address:
        return Address(f"{self.url.rstrip('/')}/{name}")

    def open(self, mode: str = "rb") -> BinaryIO:
        """Open the file for reading.  Raises UserError when it cannot be read, also while it is read."""
        return cast(BinaryIO, io.BufferedReader(_Resumed(self), _BUFFER))


@dataclass(frozen=True)
class Found:
    """A file that was found: `size` in bytes, None if the server does not say; `version` changes with its content."""

    address: Address
    size: int | None
    version: str | None


def is_address(name: str) -> bool:
    """Whether a name is an address; one of a local file (file://) is, too."""
    return _ADDRESS.match(name) is not None


def place(name: str) -> Path | Address:
    """Return what a name stands for: a local path, or an address."""
    return Address(name) if is_address(name) else Path(name)


def address_of(path: str | Path) -> Address | None:
    """Return the address that a path stands for, also one that was taken for a local path; None for a local one."""
    url = str(path)
    if not is_address(url):
        url = _AS_PATH.sub(lambda found: f"{found[1]}:{'///' if found[1].lower() == 'file' else '//'}", url, count=1)
    return Address(url) if is_address(url) else None


def local_path(address: Address) -> Path | None:
    """Return the path that an address of this machine stands for, such as file:///tmp/a; None for any other."""
    return Path(_system(address.url)[1]) if _protocol(address.url) in ("file", "local") else None


def without_secrets(url: str) -> str:
    """Return an address as it may be shown and written down: without passwords, signatures, keys and tokens."""
    return _SECRET.sub(r"\1...", _PASSWORD.sub(r"\1:...@", url))


def is_pattern(url: str) -> bool:
    """Whether an address is a pattern with *, **, [...] or, except on the web, ?."""
    return bool((_WEB_PATTERN if _protocol(url) in _WEB else _PATTERN).search(url))


def folder_of(url: str) -> str:
    """Return the folder that an address of a folder, or a pattern, searches through, without a slash at its end."""
    pattern = (_WEB_PATTERN if _protocol(url) in _WEB else _PATTERN).search(url)
    return url[: pattern.start()].rpartition("/")[0] if pattern else url.rstrip("/")


def find(url: str) -> list[Found] | Found:
    """Return the file at an address, or all files in a folder or of a pattern, sorted.

    A folder on the web is an address that ends in a slash, whose page links to its files.  Raises UserError when there
    is nothing, and when the store cannot be reached.
    """
    system, path = _system(url)

    def look() -> dict[str, Any]:
        if is_pattern(url):
            return system.glob(path, detail=True)
        if _protocol(url) in _WEB and not url.endswith("/"):
            return system.info(path)
        return system.find(path, detail=True) if system.isdir(path) else system.info(path)

    found = _repeated(url, look)
    if "name" in found and isinstance(found["name"], str):
        return _found(system, found)
    files = [info for info in found.values() if info["type"] == "file"]
    return sorted((_found(system, info) for info in files), key=lambda each: each.address.url)


def sizes_below(folder: Address) -> dict[str, int | None]:
    """Return the sizes of all files in a folder by their names in it; none if there is no such folder."""
    system, path = _system(folder.url)
    found = _repeated(folder.url, lambda: system.find(path, detail=True))
    start = len(path.rstrip("/")) + 1
    return {info["name"][start:]: info.get("size") for info in found.values() if info["type"] == "file"}


def write(file: Path, address: Address) -> None:
    """Copy a local file to an address, and compare what is there with it.  Raises UserError when that fails."""
    system, path = _system(address.url)
    _repeated(address.url, lambda: system.put_file(str(file), path), verb="written")
    if (found := sha256_at(address)) != file_sha256(file):
        raise UserError(f"{address}: is not what was written there (its SHA-256 is {found}). Check the store")


def write_text(text: str, address: Address) -> None:
    """Write a text to an address, as UTF-8."""
    system, path = _system(address.url)
    _repeated(address.url, lambda: system.pipe_file(path, text.encode()), verb="written")


def delete(address: Address) -> None:
    """Remove a file at an address, if it is there."""
    system, path = _system(address.url)
    _repeated(address.url, lambda: system.rm_file(path) if system.exists(path) else None, verb="removed")


def sha256_at(address: Address) -> str:
    """Return the SHA-256 of a file, in hexadecimal."""
    digest = hashlib.sha256()
    with address.open() as file:
        while block := file.read(_BUFFER):
            digest.update(block)
    return digest.hexdigest()


def size_of(path: Path | Address) -> int:
    """Return the size of a file in bytes, 0 where a server does not say."""
    return path.stat().st_size if isinstance(path, Path) else current(path).size or 0


def current(address: Address) -> Found:
    """Return a file as it is now."""
    system, path = _system(address.url)
    return _found(system, _repeated(address.url, lambda: system.info(path)))


def _found(system: Any, info: dict[str, Any]) -> Found:
    url = system.unstrip_protocol(info["name"])
    if info.get("size") is None and "ETag" not in info and _protocol(url) in _WEB:
        info = _repeated(url, lambda: system.info(info["name"]))
    version = next((info[name] for name in _VERSIONS.split() if info.get(name)), None)
    if isinstance(version, datetime):  # which other lists of the same store give as a number
        version = version.timestamp()
    return Found(Address(url), info.get("size"), None if version is None else str(version))


def _protocol(url: str) -> str:
    return url.partition("://")[0].lower()


def _system(url: str) -> tuple[Any, str]:
    """Return the file system of an address, and the path in it."""
    import fsspec

    protocol, shown = _protocol(url), without_secrets(url)
    if protocol in _WEB and not urlsplit(url).hostname:
        raise UserError(f"{shown}: the address names no host")
    own = fsspec.config.conf.get(protocol, {})
    try:
        options = {name: value for name, value in _options(protocol).items() if name not in own}
        system, path = fsspec.core.url_to_fs(url, **options)
    except ImportError as error:
        raise UserError(f"{shown}: needs a package ({error}): pip install 'ernie-continual[remote]'") from None
    except ValueError as error:
        if "Protocol not known" in str(error):
            raise UserError(
                f"{shown}: nothing reads addresses that begin with {protocol}://; known are s3://, gs://, hdfs://, "
                "http://, https:// and the others of fsspec"
            ) from None
        raise UserError(f"{shown}: is no address that can be read: {error}") from None
    except Exception as error:  # each store's client has its own
        raise UserError(f"{shown}: cannot be reached: {_sentence(error)}. {_advice(protocol)}") from None
    if hasattr(system, "retries"):
        system.retries = 1  # tries are made and counted here
    return system, path


def _options(protocol: str) -> dict[str, Any]:
    """Return how to open a file system: with time limits, and without lists of files that may have changed."""
    if protocol in _WEB:
        import aiohttp

        timeout = aiohttp.ClientTimeout(total=None, sock_connect=_TIMEOUT, sock_read=_TIMEOUT)
        # A transfer that is compressed has other offsets than its file.
        return {"client_kwargs": {"timeout": timeout, "headers": {"Accept-Encoding": "identity"}}}
    if protocol in ("s3", "s3a"):
        for library in ("botocore", "aiobotocore"):  # which tell where they found the credentials
            logging.getLogger(library).setLevel(logging.WARNING)
        return {
            "config_kwargs": {
                "connect_timeout": _TIMEOUT,
                "read_timeout": _TIMEOUT,
                "retries": {"max_attempts": 0},
            },
            "use_listings_cache": False,
        }
    return {} if protocol in ("memory", "file", "local", "hdfs") else {"use_listings_cache": False}


class _Resumed(io.RawIOBase):
    """The content of a file; after an error, reading goes on at the byte where it had stopped."""

    def __init__(self, address: Address):
        self._address = address
        self._file: Any = None
        self._at = 0
        self._repeats = 0
        self._last: BaseException | None = None
        self._in_blocks = True  # False for a server that sends a file only whole
        self._size = current(address).size

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET) -> int:
        if whence == io.SEEK_END and self._size is None:
            raise io.UnsupportedOperation("the server does not say how large the file is")
        begin = {io.SEEK_SET: 0, io.SEEK_CUR: self._at, io.SEEK_END: self._size or 0}[whence]
        self._at = max(0, begin + offset)
        return self._at

    def readinto(self, buffer: Any) -> int:
        content = _repeated(self._address.url, lambda: self._read(len(buffer)), self._forget, f" at byte {self._at:,}")
        buffer[: len(content)] = content
        self._at += len(content)
        return len(content)

    def _read(self, size: int) -> bytes:
        if self._size is not None and self._at >= self._size:
            return b""
        try:
            content = self._at_place().read(size)
        except ValueError as error:
            if not self._in_blocks or "range requests" not in str(error):
                raise
            self._file, self._in_blocks = None, False
            content = self._at_place().read(size)
        if not content and self._size is not None:
            raise OSError(f"the server ended after {self._at:,} of {self._size:,} bytes")
        return content

    def _at_place(self) -> Any:
        """Return the open file at the place to read; what comes only whole is read and left out as far as there."""
        if self._file is None or (not self._in_blocks and self._file.tell() > self._at):
            system, path = _system(self._address.url)
            self._file = system.open(path, "rb", block_size=_BLOCK if self._in_blocks and self._size else 0)
            self._in_blocks = self._in_blocks and bool(self._size) and self._file.seekable()
        if self._in_blocks:
            if self._file.tell() != self._at:
                self._file.seek(self._at)
            return self._file
        while (left := self._at - self._file.tell()) > 0 and self._file.read(min(left, _BUFFER)):
            pass
        return self._file

    def _forget(self, error: BaseException) -> None:
        """Leave a connection that has failed."""
        self._file, self._last = None, error
        self._repeats += 1

    def close(self) -> None:
        if not self.closed and self._repeats:
            warnings.warn(
                f"{self._address}: {plural(self._repeats, 'read')} failed and went on at the byte where it had stopped "
                f"(last: {_sentence(self._last)})",
                Remark,
                stacklevel=2,
            )
        self._file = None
        super().close()


def _repeated(
    url: str,
    do: Callable[[], T],
    failed: Callable[[BaseException], None] = lambda error: None,
    where: str = "",
    verb: str = "read",
) -> T:
    """Return what `do` returns, trying again with growing pauses while its errors may pass; `failed` gets each.

    Raises UserError for an error that does not pass: that the file cannot be read, or what `verb` says.
    """
    shown = without_secrets(url)
    for attempt in range(1, TRIES + 1):
        try:
            return do()
        except UserError:
            raise
        except Exception as error:  # each store's client has its own
            if not _may_pass(error):
                raise UserError(f"{shown}: {_why(error, verb)}") from None
            if attempt == TRIES:
                what = f"cannot be {verb}{where} after {TRIES} tries"
                raise UserError(f"{shown}: {what}: {_sentence(error)}. {_advice(_protocol(url))}") from None
            failed(error)
            time.sleep(min(PAUSE * 2 ** (attempt - 1), LONGEST_PAUSE) * random.uniform(0.5, 1))
    raise AssertionError("unreachable")


def _cause(error: BaseException) -> BaseException:
    """Return what an error comes from: fsspec says of everything on the web that it is not found."""
    return error.__cause__ if isinstance(error, FileNotFoundError) and error.__cause__ is not None else error


def _status(error: BaseException) -> int:
    """Return the status of HTTP that an error comes from, 0 if from none."""
    response = getattr(error.__cause__, "response", None)
    if isinstance(response, dict):  # botocore's
        return int(response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    cause = _cause(error)
    status = getattr(cause, "status" if hasattr(cause, "status") else "code", None)
    return status if isinstance(status, int) else 0


def _may_pass(error: BaseException) -> bool:
    cause, status = _cause(error), _status(error)
    if status >= 400:
        return status in _BUSY or status >= 500
    permanent = (FileNotFoundError, PermissionError, IsADirectoryError, NotADirectoryError, NotImplementedError)
    if isinstance(cause, permanent) or _lacks_credentials(cause):
        return False
    return not isinstance(cause, (TypeError, ValueError, ImportError, LookupError)) or isinstance(cause, OSError)


def _lacks_credentials(error: BaseException) -> bool:
    """Whether a client of S3 found no credentials, by the name of botocore's error."""
    return "Credentials" in type(error).__name__


def _why(error: BaseException, verb: str) -> str:
    cause, status = _cause(error), _status(error)
    if isinstance(cause, FileNotFoundError) or status in (404, 410):
        return "there is no such file or folder"
    if isinstance(cause, PermissionError) or status in (401, 403) or _lacks_credentials(cause):
        public = "; for what anybody may read, FSSPEC_S3_ANON=true" * _lacks_credentials(cause)
        return f"may not be {verb}: {_sentence(cause)}. Give the store's client its credentials{public}"
    return f"cannot be {verb}: {_sentence(cause)}"


def _sentence(error: BaseException | None) -> str:
    cause = error if error is None else _cause(error)
    return f"{' '.join(str(cause).split()):.{_SHOWN}}".rstrip(".") or type(cause).__name__


def _advice(protocol: str) -> str:
    return "Check the address and the connection" + ("" if protocol in _WEB else ", and the store's configuration")
