"""Documents of text files: plain text with blank lines in between, WikiExtractor's output, or words with POS tags."""

from __future__ import annotations

import json
import math
import re
import warnings
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, dropwhile, pairwise

import numpy as np

from ernie.data.raw import Dropped, Place, RawDocument, ReadOptions
from ernie.data.read_json import json_form, read_json_document, read_json_lines
from ernie.data.read_lines import Line, LineFile
from ernie.data.text_layout import broken_into_lines, has_other_breaks, unescaped
from ernie.data.wrapped import unwrapped, wrap_width
from ernie.errors import DamagedFile, Remark, UserError
from ernie.text.scripts import NO_SPACES
from ernie.text.segment.base import Kind
from ernie.text.sentences import detect_language

MAX_DOCUMENT = 1 << 22  # characters; a longer document is cut between two lines, so that memory stays bounded

_FINAL = frozenset(".!?…。！？；;:：,，、\"'”’」』》)）]】")  # characters that do not end a title
_TITLE_LENGTH = 100  # characters
_LONG_TITLE = 40  # characters; where the next line goes on in lower case, this is a line that was wrapped
_END = "<|endoftext|>"  # with which GPT-2's corpora end a document
_BEGINS_WITH_TAG = re.compile(r"<[?!]?[A-Za-z][^<>]*>(?:.*>)?\Z")
_PROBE_LINES = 5  # used to detect the format
_PROBE_SIZE = 100_000  # characters used to find out whether lines are wrapped


def read_text(file: str, lines: LineFile, options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield the documents of a text file.  Unless `options.format` is set, the first lines decide how the file is read.

    Raises UserError for a file that begins like JSON, but cannot be read as such.
    """
    form = json_form(lines) if options.format == "auto" else ""
    if form == "broken":
        raise UserError(
            f"{file}: begins like JSON, but its first object cannot be read. Mend it, or give the file a name that "
            "ends in .jsonl, so that lines that are not JSON are dropped; --set read.format=plain reads it as text"
        )
    if form:
        yield from (read_json_lines if form == "lines" else read_json_document)(file, lines, options)
    else:
        yield from _read_lines(file, _text_lines(file, lines), options)


def _read_lines(file: str, lines: Iterable[Line], options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    first, remaining = _taken(dropwhile(_is_blank, lines), number=_PROBE_LINES)
    read = _read_plain
    if options.format == "tagged" or (options.format == "auto" and _are_tagged(first)):
        read = _read_tagged
    elif options.format == "auto":
        begins = (first[0].text or "").strip() if first else ""
        if _WIKI_OPEN.match(begins) or any(map(_is_wiki_tag, first)):
            read = _read_wiki
        elif _BEGINS_WITH_TAG.match(begins):
            problem = "as SGML and XML do: its tags are read as text. Write its documents as JSON lines"
            warnings.warn(f"{file}: begins with {begins:.80}, {problem}", Remark, stacklevel=2)
        else:
            read = _read_plain_then_wiki
    yield from read(file, chain(first, remaining), options)


def _read_plain_then_wiki(file: str, lines: Iterable[Line], options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Read plain text, and from WikiExtractor's first tag on its documents: the file may be a part of one."""
    remaining, tags = iter(lines), list[Line]()

    def before() -> Iterator[Line]:
        for line in remaining:
            if _is_wiki_tag(line):
                tags.append(line)
                return
            yield line

    yield from _read_plain(file, before(), options)
    if tags:
        yield from _read_wiki(file, chain(tags, remaining), options)


def _taken(
    lines: Iterator[Line], number: float = math.inf, size: float = math.inf
) -> tuple[list[Line], Iterator[Line]]:
    """Return the first `number` lines, or as many as have `size` characters, and those that remain.

    An error among the first lines is raised by those that remain: what is before it is read.
    """
    first: list[Line] = []
    try:
        for line in lines:
            first.append(line)
            size -= len(line.text or "") + 1
            if len(first) >= number or size <= 0:
                break
    except DamagedFile as error:
        return first, _raising(error)
    return first, lines


def _raising(error: Exception) -> Iterator[Line]:
    raise error
    yield


def _is_blank(line: Line) -> bool:
    return line.text is not None and not line.text.strip()


def _text_lines(file: str, lines: Iterable[Line]) -> Iterator[Line]:
    """Yield lines, cut where other marks than line feeds end them, with a blank one for each mark of a document's end.

    Warns of the first such mark, and of the first line that is an object of JSON.
    """
    warned = ended = False
    for line in lines:
        text = line.text
        if text is None:
            yield line
            continue
        if not warned and text.startswith('{"') and _is_object(text):
            warned = True
            problem = "the line is an object of JSON, and is read as text like those before it"
            warnings.warn(f"{file}:{line.number}: {problem}", Remark, stacklevel=2)
        if _END in text:
            if not ended:
                ended = True
                problem = f"{_END} is read as the end of a document, as blank lines are"
                warnings.warn(f"{file}:{line.number}: {problem}", Remark, stacklevel=2)
            text = text.replace(_END, "\n\n")
            yield from (Line(line.number, part) for part in broken_into_lines(text).split("\n"))
        elif has_other_breaks(text):
            # The end of a page is no blank line.
            text = broken_into_lines(text.strip("\f") if text.strip() else text)
            yield from (Line(line.number, part) for part in text.split("\n"))
        else:
            yield line


def _is_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, RecursionError):
        return False


class _Gathered:
    """The lines of the document being read."""

    def __init__(self, file: str):
        self._file = file
        self.clear()

    def clear(self) -> None:
        self.texts: list[str] = []
        self.first = 0
        self.size = 0
        self.title = ""
        self._dropped: Dropped | None = None

    def add(self, line: Line) -> None:
        self.first = self.first or line.number
        if line.text is None:
            self._dropped = self._dropped or line.dropped(self._file)
            return
        self.texts.append(line.text)
        self.size += len(line.text)

    def take(self) -> tuple[Place, list[str], str] | Dropped | None:
        """Return and clear what was gathered, or None if nothing; keeps the title for the rest of a cut document."""
        place, texts, title, dropped = Place(self._file, self.first), self.texts, self.title, self._dropped
        self.clear()
        self.title = title
        if dropped is not None:
            return dropped
        return (place, texts, title) if texts or title else None


# ------------------------------------------------------------------------------------------------- plain


def _read_plain(file: str, lines: Iterable[Line], options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    probed, remaining = _taken(iter(lines), size=_PROBE_SIZE)
    width = wrap_width([line.text or "" for line in probed]) if options.wrapped == "auto" else 0
    gathered = _Gathered(file)
    continued = False  # the rest of a document that was cut has no title
    for line in chain(probed, remaining, [_BLANK]):
        blank = _is_blank(line)
        if not blank:
            gathered.add(line)
        full = gathered.size > MAX_DOCUMENT
        if (blank or full) and (taken := gathered.take()):
            yield taken if isinstance(taken, Dropped) else _plain(*taken[:2], continued, options, width)
        continued = full or (continued and not blank)


def _plain(place: Place, texts: list[str], continued: bool, options: ReadOptions, width: int) -> RawDocument:
    paragraphs = unwrapped(texts, options.wrapped, width)
    document = RawDocument(place, "\n".join(paragraphs), unwrapped=len(texts) - len(paragraphs))
    if options.titles and not continued and len(paragraphs) > 1 and _is_title_of(paragraphs[0], texts):
        return document._replace(text="\n".join(paragraphs[1:]), title=paragraphs[0].strip())
    return document


def _is_title_of(first: str, lines: Sequence[str]) -> bool:
    """Whether the first paragraph of a document is its title, and neither part of a sentence nor of several lines."""
    goes_on = len(first) >= _LONG_TITLE and lines[1].lstrip(" \t>")[:1].islower()  # > quotes in a mail
    return _is_title(first) and first.strip() == lines[0].strip() and not goes_on


def _is_title(text: str) -> bool:
    stripped = text.strip()
    if not 0 < len(stripped) <= _TITLE_LENGTH or stripped[-1] in _FINAL:
        return False
    return any(map(str.isalnum, stripped))


# ------------------------------------------------------------------------------------------------- wiki

# The tag is the whole line, or text follows it.
_WIKI_OPEN = re.compile(r"<doc(?:\s+[\w:-]+=\"[^\"]*\")+\s*>|<doc(?:\s+[\w:-]+=.*)?>\Z(?<!</doc>)|<doc>(?=.*</doc>\Z)")
_LONGEST_TAG = 10_000  # characters
_WIKI_CLOSE = "</doc>"
_WIKI_TAG = re.compile(r'<doc id="[^"]*" (?:\w+="[^"]*" )*title=".*">')  # as WikiExtractor writes it
# A title may contain quotes and >: it ends before the next attribute or the end of the tag.
_WIKI_TITLE = re.compile(r'\btitle="(.*?)"(?=\s+[\w:-]+="|\s*>)')
_HEADING_LENGTH = 80  # characters
_HEADING_WORDS = 10
# Words that are frequent in sentences and rare in headings.
_SENTENCE_WORD = re.compile(
    r"\b(?:is|are|was|were|be|been|has|have|had|did|does|can|could|will|would|may|might|must|became|becomes|"
    r"he|she|it|they|we|you)\b"
)


def _is_wiki_tag(line: Line) -> bool:
    return line.text is not None and line.text.startswith("<doc ") and bool(_WIKI_TAG.match(line.text))


def _read_wiki(file: str, lines: Iterable[Line], options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    gathered = _Gathered(file)
    for line in chain(lines, [Line(0, "</doc>")]):
        for tag, part in _wiki_parts(line):
            if (tag or gathered.size > MAX_DOCUMENT) and (taken := gathered.take()):
                yield taken if isinstance(taken, Dropped) else _wiki(*taken)
            if tag:
                found = _WIKI_TITLE.search(tag)
                gathered.title = unescaped(found.group(1)) if found else ""
                gathered.first = line.number
            if part.text is None or part.text.strip():
                gathered.add(part)


def _wiki_parts(line: Line) -> Iterator[tuple[str, Line]]:
    """Yield a line, or its parts after a tag that begins or ends a document, each with that tag before it."""
    text = line.text.strip() if line.text and "<" in line.text else ""
    opening = _wiki_opening(text)
    if opening:
        text = text[opening.end() :]
    elif not text.startswith(_WIKI_CLOSE) and not text.endswith(_WIKI_CLOSE):
        yield "", line
        return
    before, closing, after = text.partition(_WIKI_CLOSE)
    if opening or before.strip():
        yield opening.group() if opening else "", line._replace(text=before)
    if closing:  # another tag follows where files without a last line end were joined
        following = _wiki_opening(after)
        yield closing, line._replace(text="" if following else after)
        if following:
            yield following.group(), line._replace(text=after[following.end() :])


def _wiki_opening(text: str) -> re.Match[str] | None:
    opening = _WIKI_OPEN.match(text)
    return opening if opening and opening.end() <= _LONGEST_TAG else None


def _wiki(place: Place, texts: list[str], title: str) -> RawDocument:
    texts = list(map(unescaped, texts))  # WikiExtractor escapes them, unless told not to
    if texts and " ".join(texts[0].split()) == " ".join(title.split()):
        texts = texts[1:]
    # The first paragraph is the lead, and the last cannot be a heading: nothing follows it.
    headings = frozenset(i for i in range(1, len(texts) - 1) if _is_wiki_heading(texts[i]))
    # WikiExtractor adds a full stop to headings.
    texts = [text[:-1] if i in headings else text for i, text in enumerate(texts)]
    return RawDocument(place, "\n".join(texts), title=title, headings=headings)


def _is_wiki_heading(text: str) -> bool:
    if not text.endswith(".") or len(text) > _HEADING_LENGTH or ". " in text:
        return False
    return 0 < len(text[:-1].split()) <= _HEADING_WORDS and not _SENTENCE_WORD.search(text)


# ------------------------------------------------------------------------------------------------ tagged

_WITH_TAG = re.compile(r"\S+/[A-Za-z]{1,4}(?:\][A-Za-z]{1,4})?")
_MIN_TAGGED = 5  # tokens in the first lines
_ARTICLE = re.compile(r"(\d{8}-\d\d-\d{3})-\d{3}/m\s*")  # date-page-article, then the paragraph's number
_ENTITY_TAGS = frozenset(("nr", "ns", "nt", "nz"))
_LANGUAGE_CHARACTERS = 10_000  # of a document, used to detect its language
# Tokens without a space before them (including n't, which treebanks split from its verb) and without one after them.
_CLOSING = (*".,:;!?%)]}'’”…", "n't", "n’t")
_OPENING = tuple("([{$#“‘`")
_SPACELESS = re.compile(f"[{NO_SPACES}]")
_BLANK = Line(0, "")


def _read_tagged(file: str, lines: Iterable[Line], options: ReadOptions) -> Iterator[RawDocument | Dropped]:
    """Yield documents; each ends at a blank line, at a new article number, or before a title after a full stop."""
    gathered = _Gathered(file)
    article, finished, continued = "", False, False
    for line in chain(lines, [_BLANK]):
        text = line.text or ""
        numbered = _ARTICLE.match(text)
        if numbered:
            text = text[numbered.end() :]
        words = _untagged(text)
        begins_article = numbered is not None and numbered.group(1) != article
        begins_title = options.titles and not numbered and finished and _is_title(words)
        blank = line.text is not None and not words
        ended, full = blank or begins_article or begins_title, gathered.size > 4 * MAX_DOCUMENT
        if (ended or full) and (taken := gathered.take()):
            yield taken if isinstance(taken, Dropped) else _tagged(*taken[:2], options.titles and not continued)
        continued = not ended and (full or continued)
        if not blank:
            gathered.add(line._replace(text=text) if line.text is not None else line)
            finished = bool(words) and words[-1] in _FINAL
        article = numbered.group(1) if numbered else article


def _are_tagged(lines: Sequence[Line]) -> bool:
    """Whether every word of the given lines has a tag, which only tagged text does."""
    tokens = [token for line in lines for token in (line.text or "").split()]
    return len(tokens) >= _MIN_TAGGED and all(map(_WITH_TAG.fullmatch, tokens))


def _untagged(text: str) -> str:
    return "".join(word for word, _ in map(_tag, text.split()))


def _tag(token: str) -> tuple[str, str]:
    """Split `word/tag`, dropping the brackets around a compound ([word/n word/n]nt)."""
    word, slash, tag = token.rpartition("/")
    if not slash:
        return token, ""
    return (word[1:] if len(word) > 1 and word.startswith("[") else word), tag.partition("]")[0]


def _tagged(place: Place, texts: list[str], titles: bool) -> RawDocument:
    chinese = detect_language(_untagged(" ".join(texts)[:_LANGUAGE_CHARACTERS])) == "zh"
    title = ""
    if titles and len(texts) > 1 and _is_title(_untagged(texts[0])):
        title, texts = _joined([word for word, _ in map(_tag, texts[0].split())], not chinese)[0], texts[1:]
    paragraphs: list[str] = []
    spans: list[tuple[int, int, int]] = []
    at = 0
    for text in texts:
        tokens = [_tag(token) for token in text.split()]
        paragraph, starts = _joined([word for word, _ in tokens], not chinese)
        spans.extend(_tagged_spans(tokens, [at + start for start in starts]))
        paragraphs.append(paragraph)
        at += len(paragraph) + 1
    return RawDocument(
        place,
        "\n".join(paragraphs),
        title=title,
        spans=np.asarray(spans, dtype=np.int64).reshape(-1, 3),
        # The tag sets of other languages do not mark entities.
        annotated=(Kind.WORD, Kind.ENTITY) if chinese else (Kind.WORD,),
    )


def _joined(words: list[str], spaces: bool) -> tuple[str, list[int]]:
    """Join words into text, with or without spaces between them, and return it with the start of each word."""
    parts = [f" {word}" if spaces and _needs_space(left, word) else word for left, word in pairwise(["", *words])]
    ends = accumulate(map(len, parts))
    return "".join(parts), [end - len(word) for end, word in zip(ends, words, strict=True)]


def _needs_space(left: str, right: str) -> bool:
    """Whether a language written with spaces has one between two words."""
    boundary = left[-1:] + right[:1]
    return bool(left) and not (left.endswith(_OPENING) or right.startswith(_CLOSING) or _SPACELESS.search(boundary))


def _tagged_spans(tokens: list[tuple[str, str]], starts: list[int]) -> Iterator[tuple[int, int, int]]:
    """Yield the words and entities of one paragraph; adjacent nr tags are one person: family name and given name."""
    person = -1
    for i, ((word, tag), at) in enumerate(zip(tokens, starts, strict=True)):
        end = at + len(word)
        yield at, end, Kind.WORD
        if tag == "nr":
            person = at if person < 0 else person
            if i + 1 == len(tokens) or tokens[i + 1][1] != "nr":
                yield person, end, Kind.ENTITY
                person = -1
        elif tag in _ENTITY_TAGS:
            yield at, end, Kind.ENTITY
