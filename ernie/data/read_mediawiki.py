"""Documents of MediaWiki's own dumps, such as those of Wikipedia: a page is an article in wiki markup, inside XML."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterator
from functools import partial
from typing import Any

from ernie.data.compressed import Damaged
from ernie.data.raw import Dropped, Place, RawDocument, ReadOptions, Unparsed
from ernie.data.read_lines import LineFile
from ernie.data.read_web import Sequential, needed
from ernie.errors import DamagedFile, UserError

_FILE, _CATEGORY = 6, 14  # the numbers of these namespaces, in every wiki
_NO_TEXT = frozenset("ref references table gallery math chem timeline score syntaxhighlight source pre style".split())
_BRACKETS = re.compile(r" ?[(（]\s*(?:[,;，；]\s*)*[)）]")  # of which a template was all
_LEADING = re.compile(r"(?<=[(（])\s*[,;，；]\s*")  # where it was the first of several
_TOO_LONG = 1 << 22  # characters of markup; the largest wikis allow half of it


def read_mediawiki(name: str, file: LineFile, options: ReadOptions) -> Iterator[Dropped | Unparsed]:
    """Yield the articles of a dump in XML, as they were last; the place counts pages.

    Templates, tables, references, files and categories are left out, and headings are marked.  Redirects and pages that
    are no articles are dropped.  Raises UserError without mwxml and mwparserfromhell, and for damaged XML.
    """
    mwxml, _ = needed("mwxml", name), needed("mwparserfromhell", name)
    elements = needed("mwxml.element_iterator", name).ElementIterator
    number = 0
    with file.binary() as content:
        try:
            root = elements.from_file(Sequential(content))
            if root.tag != "mediawiki":
                raise UserError(f"{name}: is no dump of MediaWiki: the XML begins with <{root.tag}>")
            dump = mwxml.Dump.from_element(root)
            left_out = _left_out(dump.site_info)
            for number, page in enumerate(dump.pages, 1):
                yield _article(page, Place(name, number), left_out)
                root.element.clear()  # what was read stays in memory otherwise
        except (UserError, Damaged, OSError, MemoryError):
            raise
        except Exception as error:  # of XML, mwxml's own, and those of its code on elements that nothing checks
            what = " ".join(str(error).split())
            kind = DamagedFile if number else UserError
            raise kind(f"{name}: breaks off or is damaged, in or after page {number:,}: {what:.200}") from None


def _left_out(site: Any) -> tuple[str, ...]:
    """Return how links to files and categories begin, in English and in the wiki's language."""
    names = {space.name for space in site.namespaces or () if space.id in (_FILE, _CATEGORY) and space.name}
    return tuple(f"{name.lower()}:" for name in sorted({"File", "Image", "Category", *names}))


def _article(page: Any, place: Place, left_out: tuple[str, ...]) -> Dropped | Unparsed:
    title = page.title or ""
    if page.namespace not in (0, None):
        return Dropped(place, "no article", f"'{title:.100}' is in the namespace {page.namespace}", by_kind=True)
    if page.redirect:
        return Dropped(place, "redirect", f"'{title:.100}' leads to '{page.redirect:.100}'", by_kind=True)
    last = next(iter(deque(page, maxlen=1)), None)
    text = (last.text or "") if last is not None else ""
    if len(text) > _TOO_LONG:
        return Dropped(place, "page too long", f"'{title:.100}' is longer than {_TOO_LONG >> 20} million characters")
    if last is not None and last.model not in (None, "wikitext"):
        return Dropped(place, "no article", f"'{title:.100}' is {last.model}, not wiki text", by_kind=True)
    return Unparsed(place, len(text), partial(_parsed, text, title, place, left_out))


def _parsed(text: str, title: str, place: Place, left_out: tuple[str, ...]) -> RawDocument | Dropped:
    parser = needed("mwparserfromhell", place.file)
    try:
        paragraphs, headings = _paragraphs(parser.parse(text), left_out)
    except (parser.parser.ParserError, RecursionError, ValueError) as error:
        return Dropped(place, "wrong markup", f"'{title:.100}' cannot be parsed: {error}")
    return RawDocument(place, "\n".join(paragraphs), title=" ".join(title.split()), headings=frozenset(headings))


def _paragraphs(code: Any, left_out: tuple[str, ...]) -> tuple[list[str], list[int]]:
    """Return the lines of text of an article, and which of them are headings; one without text below is left out."""
    from mwparserfromhell.nodes import Heading, Tag, Wikilink

    for node in code.filter(
        forcetype=(Tag, Wikilink), matches=lambda node: _is_left_out(node, left_out), recursive=True
    ):
        try:
            code.remove(node)
        except ValueError:  # it was in another that was removed
            continue
    paragraphs: list[str] = []
    headings: list[tuple[int, int]] = []  # their lines and levels
    parts: list[str] = []

    def end() -> None:
        text = _LEADING.sub("", _BRACKETS.sub("", "".join(parts)))
        paragraphs.extend(" ".join(line.split()) for line in text.split("\n") if line.strip())
        parts.clear()

    def leave_out_empty(level: int) -> None:
        while headings and headings[-1][0] == len(paragraphs) - 1 and headings[-1][1] >= level:
            paragraphs.pop(headings.pop()[0])

    for node in code.nodes:
        if isinstance(node, Heading):
            end()
            leave_out_empty(node.level)
            if heading := " ".join(str(node.title.strip_code()).split()):
                headings.append((len(paragraphs), node.level))
                paragraphs.append(heading)
        else:
            parts.append(str(node.__strip__(normalize=True, collapse=True, keep_template_params=False) or ""))
    end()
    leave_out_empty(0)
    return paragraphs, [line for line, _ in headings]


def _is_left_out(node: Any, left_out: tuple[str, ...]) -> bool:
    if hasattr(node, "tag"):
        return str(node.tag).strip().lower() in _NO_TEXT
    return str(node.title).strip().lower().startswith(left_out)
