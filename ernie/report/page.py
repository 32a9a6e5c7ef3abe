"""The report as one self-contained HTML file without scripts, for screens of any width and for print."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from ernie.terminal import shown

# In dark mode figures are inverted and their hues rotated back, so that each is drawn only once.
_CSS = """
:root { color-scheme: light dark; --ink: #1f2933; --muted: #5b6671; --line: #d5dbe1; --paper: #fff; --blue: #0072b2; }
@media screen and (prefers-color-scheme: dark) {
  :root { --ink: #eceff1; --muted: #9aa5b1; --line: #3a424b; --paper: #141414; --blue: #4ba3d9; }
  img { filter: invert(0.92) hue-rotate(180deg); }
}
body { margin: 0; background: var(--paper); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }
main { max-width: 900px; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; line-height: 1.2; margin: 0; overflow-wrap: anywhere; }
h2 { font-size: 1.15rem; margin: 2.5rem 0 0.25rem; }
.state { color: var(--muted); margin: 0.25rem 0 1rem; }
.note { color: var(--muted); font-size: 0.9rem; margin: 0.25rem 0 0.75rem; }
.wide { overflow-x: auto; }
.wide img { display: block; width: 100%; min-width: 640px; height: auto; }
.panels { display: grid; grid-template-columns: repeat(auto-fill, minmax(min(100%, 20rem), 1fr)); gap: 0.5rem 1rem; }
.panels img { display: block; width: 100%; height: auto; }
table { border-collapse: collapse; font-size: 0.85rem; font-variant-numeric: tabular-nums;
        margin: 0.5rem 0; }
th, td { text-align: left; vertical-align: top; white-space: nowrap; padding: 0.3rem 1rem 0.3rem 0;
         border-bottom: 1px solid var(--line); }
th:first-child { position: sticky; left: 0; background: var(--paper); }
th[scope=row] { font-weight: normal; }
td.long { white-space: normal; overflow-wrap: anywhere; min-width: 16rem; }
.heat table { border-collapse: separate; border-spacing: 2px; }
.heat :is(th, td) { text-align: center; padding: 0.3rem 0.5rem; border: 0; }
.heat th[scope=col] { white-space: normal; vertical-align: bottom; }
.heat th:first-child { text-align: left; padding-left: 0; }
.heat small { display: block; font-size: 0.7rem; font-weight: normal; }
.bars table { width: 100%; }
.bars th[scope=row] { white-space: normal; overflow-wrap: anywhere; min-width: 8rem; }
.bar { width: 45%; padding-right: 0; vertical-align: middle; }
.bar i { display: block; height: 0.7rem; border-radius: 2px; background: var(--blue);
         print-color-adjust: exact; -webkit-print-color-adjust: exact; }
.facts :is(th, td) { white-space: normal; overflow-wrap: anywhere; }
.facts th[scope=row] { color: var(--muted); overflow-wrap: normal; }
details { margin: 0.75rem 0; }
summary { cursor: pointer; }
pre { font-size: 0.8rem; overflow-x: auto; }
@page { margin: 15mm; }
@media print {
  main { max-width: none; padding: 0; }
  h2, h2 + .note { break-after: avoid; }
  p, tr, img, .heat { break-inside: avoid; }
  table { font-size: 0.75rem; }
  th, td { padding-right: 0.6rem; }
  .panels { grid-template-columns: 1fr 1fr; }
  .wide { overflow: visible; }
  .wide img { min-width: 0; }
  th:first-child { position: static; }  /* or the row's border would not be drawn under it */
  .heat table { font-size: 0.7rem; }
  .heat :is(th, td) { padding: 0.2rem; }
  .heat td small { white-space: normal; }
  .heat small { font-size: 0.6rem; }
  .heat td { print-color-adjust: exact; -webkit-print-color-adjust: exact; }
  details { display: none; }
}
"""


def page(title: str, state: str, parts: Sequence[str], style: str = "") -> str:
    """Return the complete document; `style` is CSS of its own."""
    document = "\n".join(
        [
            "<!doctype html>",
            '<html lang="en">',
            '<head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title><style>{_CSS}{style}</style></head>",
            "<body><main>",
            f'<h1>{escape(title)}</h1><p class="state">{escape(state)}</p>',
            *parts,
            "</main></body></html>\n",
        ]
    )
    return shown(document)


def paragraph(text: str, kind: str = "") -> str:
    """Return a paragraph of the CSS class `kind`; "note" is a muted one."""
    return f"<p{f' class={kind}' if kind else ''}>{escape(text)}</p>"


def section(title: str, note: str, *parts: str) -> str:
    """Return a section: a heading, a note on how to read it, and its parts."""
    return "\n".join([f"<section><h2>{escape(title)}</h2>", paragraph(note, "note"), *parts, "</section>"])


def scrolling(content: str, name: str, kind: str = "wide") -> str:
    """Wrap content that may be wider than the window in a region that scrolls, also by keyboard."""
    return f'<div class="{kind}" role="region" tabindex="0" aria-label="{escape(name)}">{content}</div>'


def folded(title: str, content: str) -> str:
    """Return text that is collapsed until clicked."""
    return f"<details><summary>{escape(title)}</summary><pre>{escape(content)}</pre></details>"
