"""The API's description, OpenAPI 3.1, made from the routes and their messages, and a page that shows it.

The page is plain HTML that fetches nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from html import escape
from typing import Any

import msgspec

import ernie
from serving.http import Call, Reply, encode
from serving.protocols.registry import Protocol, Route
from serving.service import Service

_REFERENCE = "#/components/schemas/"
_SECURITY = (b"content-security-policy", b"default-src 'none'; style-src 'unsafe-inline'")
_HEADERS = {
    "x-timeout": ("The seconds after which the answer is of no use; the server's limits give the default.", "number"),
    "x-priority": ("interactive, or bulk for requests that wait for others.", "string"),
    "x-request-id": ("A name of the request, which the reply and the log repeat.", "string"),
}
_SESSIONS = (
    "Sessions, which are streams of sound or text, are WebSockets at `ws://HOST:PORT/models/{model}/stream`, where "
    "`{model}` is a model or a chain. The URL has no query parameters. The first message is "
    '`{"type": "start"}`, perhaps with `"sample_rate"`, `"resume"`, `"settings"` or `"follow"`. The page Sessions over '
    "WebSockets of the library's documentation has all messages."
)
_STYLE = """
:root{color-scheme:light dark}
body{font:1rem/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
code{font-family:ui-monospace,monospace}
h3{margin:1.5rem 0 0;font-size:1.05rem}
p{margin:.2rem 0}
table{border-collapse:collapse;margin:.5rem 0}
th,td{text-align:left;vertical-align:top;padding:.25rem 1rem .25rem 0;border-bottom:1px solid #8886}
"""


def describing(protocols: Sequence[Protocol]) -> Protocol:
    """Return the protocol that describes others, and itself."""

    def routes(service: Service) -> list[Route]:
        @cache
        def described() -> dict[str, Any]:
            return document([*protocols, own], service)

        async def show_document(_: Call) -> Reply:
            return Reply(encode(described()))

        async def show_page(_: Call) -> Reply:
            html = page(described()).encode()
            return Reply(html, content_type=b"text/html; charset=utf-8", headers=(_SECURITY,))

        return [
            Route("GET", "/openapi.json", show_document, "This description.", reply=dict[str, Any], access="open"),
            Route("GET", "/docs", show_page, "This description as a page.", access="open"),
        ]

    own = Protocol("description", routes, protocols[0].problem, failure=protocols[0].failure)
    return own


def document(protocols: Sequence[Protocol], service: Service) -> dict[str, Any]:
    """Return the description of all routes of a service, as OpenAPI 3.1."""
    spoken = [(protocol, protocol.routes(service)) for protocol in protocols]
    kinds = {kind for protocol, _ in spoken if (kind := protocol.failure) is not None}
    kinds |= {kind for _, routes in spoken for route in routes for kind in (route.message, route.reply) if kind}
    ordered = sorted(kinds, key=repr)
    found, components = msgspec.json.schema_components(ordered, ref_template=_REFERENCE + "{name}")
    schemas = dict(zip(ordered, found, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for protocol, routes in spoken:
        for route in routes:
            paths.setdefault(route.path, {})[route.method.lower()] = _operation(route, protocol, schemas)
    return {
        "openapi": "3.1.0",
        "info": {"title": "ernie serve", "version": ernie.__version__, "description": _SESSIONS},
        "paths": paths,
        "components": {
            "schemas": components,
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer"}},
        },
        "tags": [{"name": protocol.name} for protocol, _ in spoken],
    }


def _operation(route: Route, protocol: Protocol, schemas: Mapping[Any, Any]) -> dict[str, Any]:
    """Return the description of a route."""
    named = re.findall(r"{(\w+)}", route.path)
    parameters: list[dict[str, Any]] = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string"}} for name in named
    ]
    if route.message is not None:
        parameters += [
            {"name": name, "in": "header", "description": what, "schema": {"type": kind}}
            for name, (what, kind) in _HEADERS.items()
        ]
    good: dict[str, Any] = {"description": "The answer."}
    if route.reply is not None:
        good["content"] = {"application/json": {"schema": schemas[route.reply]}}
    bad: dict[str, Any] = {"description": "Why there is none."}
    if protocol.failure is not None:
        bad["content"] = {"application/json": {"schema": schemas[protocol.failure]}}
    words = re.findall(r"\w+", route.path) or ["root"]
    operation: dict[str, Any] = {
        "tags": [protocol.name],
        "summary": route.summary,
        "operationId": "_".join([route.method.lower(), *words]),
        "parameters": parameters,
        "responses": {"200": good, "default": bad},
    }
    if route.message is not None:
        kind = "multipart/form-data" if route.form else "application/json"
        operation["requestBody"] = {"required": True, "content": {kind: {"schema": schemas[route.message]}}}
    if route.access != "open":
        operation["security"] = [{}, {"key": []}]  # a key is needed only where the server has some
    return operation


def page(described: Mapping[str, Any]) -> str:
    """Return a page of HTML that shows a description."""
    title = f"{described['info']['title']} {described['info']['version']}"
    body = "\n".join(_sections(described))
    return (
        f'<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n<title>{escape(title)}</title>\n'
        f'<meta name="viewport" content="width=device-width">\n<style>{_STYLE}</style>\n</head>\n<body>\n'
        f'<h1>{escape(title)}</h1>\n<p>For programs: <a href="openapi.json">openapi.json</a>.</p>\n'
        f"<p>{_marked(described['info']['description'])}</p>\n{body}\n"
        "</body>\n</html>\n"
    )


def _sections(described: Mapping[str, Any]) -> Iterator[str]:
    names = [tag["name"] for tag in described["tags"]]
    links = "".join(f'<li><a href="#{_anchor(name)}">{escape(name)}</a></li>' for name in [*names, "Messages"])
    yield f'<nav aria-label="Protocols"><ul>{links}</ul></nav>\n<main>'
    for name in names:
        yield f'<h2 id="{_anchor(name)}">{escape(name)}</h2>'
        for path, by_method in described["paths"].items():
            for method, operation in by_method.items():
                if name in operation["tags"]:
                    yield f'<h3 id="{operation["operationId"]}"><code>{method.upper()} {escape(path)}</code></h3>'
                    yield f"<p>{escape(operation['summary'])}{_messages(operation)}</p>"
    yield '<h2 id="messages">Messages</h2>'
    for name, schema in described["components"]["schemas"].items():
        yield f'<h3 id="{_anchor(name)}">{escape(_short(name))}</h3>'
        yield f"<p>{_marked(schema.get('description', ''))}</p>"
        yield _fields(schema)
    yield "</main>"


def _anchor(name: str) -> str:
    return re.sub(r"\W+", "-", name.lower())


def _short(name: str) -> str:
    """Return the name of a message without that of its module."""
    return name.rpartition(".")[2]


def _marked(text: str) -> str:
    """Return text in which what stands between back quotes is code."""
    return re.sub(r"`([^`]*)`", r"<code>\1</code>", escape(text))


def _messages(operation: Mapping[str, Any]) -> str:
    """Say what an operation takes and returns, if that is JSON or a form."""
    holders = (("takes", operation.get("requestBody")), ("returns", operation["responses"]["200"]))
    found = [(what, each) for what, holder in holders for each in (holder or {}).get("content", {}).items()]
    told = [
        f"{what}{' the form' * kind.startswith('multipart')} {_linked(content['schema'])}"
        for what, (kind, content) in found
    ]
    return f" It {' and '.join(told)}." if told else ""


def _fields(schema: Mapping[str, Any]) -> str:
    """Return a table of the fields of an object."""
    rows = "".join(
        f"<tr><th scope=row><code>{escape(name)}</code></th><td>{_linked(field)}</td>"
        f"<td>{escape(default(name, schema))}</td></tr>"
        for name, field in schema.get("properties", {}).items()
    )
    head = "<tr><th scope=col>field</th><th scope=col>type</th><th scope=col>default</th></tr>"
    return f"<table>{head}{rows}</table>"


def _linked(schema: Mapping[str, Any]) -> str:
    """Say in words what a schema allows; names of messages lead to them."""
    words = escape(kind(schema))
    for name in re.findall(_REFERENCE + r"([\w.]+)", str(schema)):
        words = re.sub(
            rf"(?<![#\w-]){_short(name)}\b", f'<a href="#{_anchor(name)}">{_short(name)}</a>', words, count=1
        )
    return words


def kind(schema: Mapping[str, Any]) -> str:
    """Say in words what a schema allows."""
    if "$ref" in schema:
        return _short(schema["$ref"].removeprefix(_REFERENCE))
    if "anyOf" in schema:
        return " or ".join(dict.fromkeys(map(kind, schema["anyOf"])))
    if "enum" in schema or "const" in schema:
        return " or ".join(map(str, schema.get("enum", [schema.get("const")])))
    if schema.get("type") == "array":
        return f"list of {kind(schema['items'])}" if schema.get("items") else "list"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"mapping: name to {kind(schema['additionalProperties'])}"
    names = {"string": "text", "integer": "whole number", "boolean": "true or false", None: "anything"}
    found = schema.get("type")
    return names.get(found, str(found))


def default(field: str, of: Mapping[str, Any]) -> str:
    """Say what a field of an object is if it is not given."""
    if field in of.get("required", ()):
        return "required"
    properties = of["properties"][field]
    return encode(properties["default"]).decode() if "default" in properties else "absent"
