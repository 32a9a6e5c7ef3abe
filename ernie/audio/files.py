"""Names of sound files, and why a file is no sound that can be read."""

from __future__ import annotations

import os
import re
import stat
from pathlib import Path
from typing import BinaryIO
from urllib.parse import unquote, urlsplit

from ernie.errors import UserError

# The first bytes of files that people take for sound files, and what they are.
_OTHERS = {
    b"version https://git-lfs": "it is a Git LFS pointer: 'git lfs pull' gets the file itself",
    b"\x1aE\xdf\xa3": "it is WebM or Matroska; convert it",
    b"0&\xb2u": "it is WMA; convert it",
    b"#!AMR": "it is AMR; convert it",
    b"wvpk": "it is WavPack; convert it",
    b"MAC ": "it is Monkey's Audio; convert it",
    b"PK\x03\x04": "it is a ZIP archive; unpack it",
    b"\x1f\x8b": "it is compressed by gzip; unpack it",
}
_URL = re.compile(r"(https?|ftp|s3|gs|hf):/+(.*)", re.DOTALL)
_HEAD = 1024  # bytes of a file that say what it is
_CONVERT = ", such as with: ffmpeg -i {name} sound.wav"


def local_path(name: str | os.PathLike[str], beside: str | os.PathLike[str] = "") -> Path:
    """Return the path of the file that a name means, whether it exists or not.

    Names may be URLs of local files (file://), percent-encoded, begin with ~, have spaces around them, or backslashes
    between folders, as on Windows; the name as it is comes first.  Each is looked up in the folder `beside`, if there
    is one, before the current one.
    """
    text = os.fspath(name)
    url = urlsplit(text) if text.startswith("file:") else None
    forms = [text, text.strip(), unquote(url.path) if url else unquote(text.strip()), text.strip().replace("\\", "/")]
    for form in dict.fromkeys(forms):
        path = _at_home(form)
        for found in (Path(beside) / path, path) if beside else (path,):
            if os.path.exists(found):  # noqa: PTH110 - never raises
                return found
    return Path(text) if url is None else Path(forms[2])


def _at_home(name: str) -> Path:
    try:
        return Path(name).expanduser()
    except RuntimeError:  # ~ of an unknown user
        return Path(name)


def require_file(file: str | os.PathLike[str], pipes: bool = True) -> None:
    """Raise UserError for a file that is missing, and for what is no file name, or no file.

    A pipe is as good as a file unless `pipes` is false.
    """
    try:
        mode = Path(file).stat().st_mode
    except (OSError, ValueError):  # ValueError: a null character
        if url := _URL.match(os.fspath(file)):  # of whose slashes a path keeps one
            raise UserError(f"{url[1]}://{url[2]}: is a URL, and only files are read; download it") from None
        if os.fspath(file).rstrip().endswith("|"):
            raise UserError(
                f"{file}: is a command, as in lists of Kaldi; run it, and name the file it writes"
            ) from None
        raise UserError(f"{file}: there is no such file") from None
    if stat.S_ISDIR(mode):
        raise UserError(f"{file}: is a folder; give its files, such as {Path(file) / '*.wav'}")
    if not stat.S_ISREG(mode) and not (pipes and stat.S_ISFIFO(mode)):
        kind = "a pipe" if stat.S_ISFIFO(mode) else "a device" if stat.S_ISCHR(mode) else "no regular file"
        raise UserError(f"{file}: is {kind}, and a file is expected")


def why_unreadable(error: Exception, file: str | os.PathLike[str] | BinaryIO, name: str) -> str:
    """Return why a file cannot be read as sound, and what to do."""
    if isinstance(error, OSError) and error.strerror:
        return f"cannot be read as sound: {error.strerror}"
    if isinstance(file, (str, os.PathLike)):
        with Path(file).open("rb") as opened:
            head = opened.read(_HEAD) if opened.seekable() else b""
    else:
        file.seek(0)
        head = file.read(_HEAD)
    return f"cannot be read as sound: {_kind(head, Path(name)) or _sentence(error, Path(name))}"


def _kind(head: bytes, path: Path) -> str:
    """Return what a file is that begins with these bytes and is no sound that can be read; "" if it might be."""
    if not head:
        return "it is empty"
    if path.suffix.lower() in (".raw", ".pcm", ".sln"):
        return (
            "it has samples alone, without a header that says what they are; 16-bit samples are read from standard "
            f"input: ernie transcribe RUN - --sample-rate HZ < {path.name}"
        )
    if head.startswith(b"NIST_1A") and b"shorten" in head:
        return f"it is SPHERE compressed by shorten; unpack it, such as with: sph2pipe -f wav {path.name} sound.wav"
    if head[4:8] == b"ftyp":
        return "it is MP4 or M4A; convert it" + _CONVERT.format(name=path.name)
    for first, what in _OTHERS.items():
        if head.startswith(first):
            return what + (_CONVERT.format(name=path.name) if what.endswith("convert it") else "")
    if head.lstrip().lower().startswith((b"<!doctype", b"<html", b"<?xml")):
        return "it is a web page, perhaps of an error while it was downloaded"
    return ""


def _sentence(error: Exception, path: Path) -> str:
    """Return what a library says, without its names of C structures."""
    said = getattr(error, "error_string", "") or str(error)
    convert = _CONVERT.format(name=path.name)
    if "not recognised" in said:
        return f"its first bytes are those of no format of sound that is known here; if it is one, convert it{convert}"
    if "unimplemented format" in said:
        return f"its codec is not known here; convert it{convert}"
    if "SF_INFO" in said or "psf_" in said or not said:
        return "its header is damaged or incomplete"
    return said.rstrip(".")
