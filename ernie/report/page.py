"""The report as one HTML file: nothing to load from elsewhere, no scripts, for screens of any width and for paper."""

from __future__ import annotations

import base64
from collections.abc import Sequence
from html import escape

# In the dark the figures are turned to their negative and their hues turned back, so that each is drawn only once.
_CSS = """
:root { color-scheme: light dark; --ink: #1f2933; --muted: #65707c; --line: #d5dbe1; --paper: #fff; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ec; --muted: #9aa5b1; --line: #3a424b; --paper: #141414; }
  img { filter: invert(0.92) hue-rotate(180deg); }
}
body { max-width: 900px; margin: 0 auto; padding: 1.5rem 1rem 4rem; background: var(--paper); color: var(--ink);
       font: 16px/1.5 system-ui, sans-serif; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 0.25rem; }
.state { color: var(--muted); margin: 0.25rem 0 1rem; }
.note { color: var(--muted); font-size: 0.9rem; margin: 0.25rem 0 0.75rem; }
.wide { overflow-x: auto; }
.wide img { display: block; width: 100%; min-width: 640px; height: auto; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums; width: 100%; }
th, td { text-align: left; white-space: nowrap; padding: 0.3rem 0.75rem 0.3rem 0;
         border-bottom: 1px solid var(--line); }
th { font-weight: 600; }
pre { font-size: 0.8rem; overflow-x: auto; }
summary { cursor: pointer; }
@media print { body { max-width: none; padding: 0; } h2, .note { break-after: avoid; } .wide { break-inside: avoid; }
  .wide img { min-width: 0; } details { display: none; } }
"""


def page(title: str, state: str, parts: Sequence[str]) -> str:
    """The whole document."""
    return "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_CSS}</style></head>",
            "<body>",
            f'<h1>{escape(title)}</h1><p class="state">{escape(state)}</p>',
            *parts,
            "</body></html>\n",
        ]
    )


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph, or with `kind` "note" a quiet one."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def section(title: str, note: str, *parts: str) -> str:
    """A heading, a sentence that says how to read what follows, and that."""
    return "\n".join([f"<section><h2>{escape(title)}</h2>", paragraph(note, "note"), *parts, "</section>"])


def picture(png: bytes, alt: str) -> str:
    """A figure inside the page itself."""
    data = base64.b64encode(png).decode("ascii")
    return f'<div class="wide"><img alt="{escape(alt)}" src="data:image/png;base64,{data}"></div>'


def table(rows: Sequence[Sequence[str]]) -> str:
    """A table whose first row is its head."""
    head, *body = (
        "".join(f"<{kind}>{escape(cell)}</{kind}>" for cell in row)
        for row, kind in zip(rows, ["th", *["td"] * len(rows)], strict=False)
    )
    lines = "".join(f"<tr>{row}</tr>" for row in body)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>'


def folded(title: str, content: str) -> str:
    """Text that opens on a click."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(content)}</pre></details>"
