"""The page of a server, at /: the interpreter, models to try, what the server does, and what the models are.

It is plain HTML and JavaScript in serving/page, and fetches nothing from elsewhere.
"""

from __future__ import annotations

import asyncio
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

import msgspec

from ernie.train.run_folder import CARD
from serving.http import Call, Problem, Reply, encode
from serving.models import ServedModel
from serving.protocols import native
from serving.protocols.registry import Protocol, Route
from serving.run_files import REPORT, file_beside
from serving.service import Service

_TYPES = {
    ".html": b"text/html; charset=utf-8",
    ".css": b"text/css; charset=utf-8",
    ".js": b"text/javascript; charset=utf-8",
    ".svg": b"image/svg+xml",
}
_MOST_BYTES = 20_000_000  # of a report
# Scripts are the page's own.  Styles may stand in a report, which is shown in a frame without scripts.
_POLICY = (
    b"default-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data: blob:; frame-src blob:; "
    b"object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_HEADERS = (
    (b"cache-control", b"no-cache"),
    (b"content-security-policy", _POLICY),
    (b"permissions-policy", b"microphone=(self)"),
    (b"referrer-policy", b"no-referrer"),
    (b"x-content-type-options", b"nosniff"),
)


class ExampleInfo(msgspec.Struct):
    """A row to try a model with; one with a sound has it under its number, counted from 0."""

    cells: dict[str, Any]
    sound: bool


class Examples(msgspec.Struct):
    """Rows to try a model with."""

    examples: list[ExampleInfo]


@cache
def assets() -> dict[str, bytes]:
    """Return the files of the page by name."""
    found = files("serving").joinpath("page").iterdir()
    return {file.name: file.read_bytes() for file in found if Path(file.name).suffix in _TYPES}


def routes(service: Service) -> list[Route]:
    """Return the routes of the page."""

    async def show_page(_: Call) -> Reply:
        return _asset("index.html")

    async def show_asset(call: Call) -> Reply:
        name = call.path["file"]
        if name not in assets():
            raise Problem(404, "not_found", f"the page has no file '{name:.60}'")
        return _asset(name)

    async def show_card(call: Call) -> Reply:
        text = await _read(service.model(call.path["model"]), CARD, "card")
        return Reply(text, content_type=b"text/markdown; charset=utf-8")

    async def show_report(call: Call) -> Reply:
        text = await _read(service.model(call.path["model"]), REPORT, "report")
        policy = (b"content-security-policy", b"sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:")
        return Reply(text, content_type=_TYPES[".html"], headers=(policy,))

    async def list_examples(call: Call) -> Reply:
        found = service.model(call.path["model"]).examples
        return Reply(encode(Examples([ExampleInfo(each.cells, each.sound is not None) for each in found])))

    async def play_example(call: Call) -> Reply:
        model, number = service.model(call.path["model"]), call.path["number"]
        for n, example in enumerate(model.examples):
            if str(n) == number and example.sound is not None:
                return Reply(example.sound, content_type=b"audio/wav")
        raise Problem(404, "not_found", f"'{model.name}' has no example '{number:.20}' with a sound")

    return [
        Route("GET", "/", show_page, "The page of this server.", access="open"),
        Route("GET", "/page/{file}", show_asset, "A file of the page.", access="open"),
        Route("GET", "/models/{model}/card", show_card, "What a model is, in Markdown, as its folder says."),
        Route("GET", "/models/{model}/report", show_report, "The report of the run that made a model, in HTML."),
        Route("GET", "/models/{model}/examples", list_examples, "Rows to try a model with.", reply=Examples),
        Route("GET", "/models/{model}/examples/{number}", play_example, "The sound of an example, as a WAV file."),
    ]


def _asset(name: str) -> Reply:
    return Reply(assets()[name], content_type=_TYPES[Path(name).suffix], headers=_HEADERS)


async def _read(model: ServedModel, name: str, what: str) -> bytes:
    """Return the content of a file that describes a model.  Raises Problem if there is none."""
    file = file_beside(model.path, name)
    if file is None:
        raise Problem(404, "not_found", f"the folder of '{model.name}' has no {what}, which would be {name}")
    if file.stat().st_size > _MOST_BYTES:
        raise Problem(413, "too_large", f"{name}: has more than {_MOST_BYTES:,} bytes")
    return await asyncio.to_thread(file.read_bytes)


PROTOCOL = Protocol("page", routes, native.problem, failure=native.Failure)
