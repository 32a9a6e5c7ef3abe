"""Streaming of raw documents from files, folders, glob patterns, data sets and standard input."""

from __future__ import annotations

import glob
import os
import stat
import warnings
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from ernie.data import compressed, remote
from ernie.data.find import LEFT_BY_PROGRAMS, Finder, identity, is_folder, unreachable
from ernie.data.formats import FORMATS, SUFFIXES, Format, format_of_content, format_of_name, lowest_ranked
from ernie.data.raw import DAMAGED, Dropped, Place, RawDocument, ReadOptions, Unparsed
from ernie.data.read_lines import LineFile
from ernie.data.read_rows import read_hub_dataset, read_saved_dataset
from ernie.data.remote import Address, Found, is_address
from ernie.errors import DamagedFile, Remark, UserError
from ernie.formatting import plural

_DATASET_FILES = ("dataset_dict.json", "dataset_info.json")
# Files by which a tokenizer, a corpus or a run of this library is recognized.
_OWN_FILES = ({"tokenizer_config.json"}, {"corpus.json", "sources.json"}, {"origin.json", "metrics.jsonl"})
STANDARD_INPUT = "standard input"  # the name of this input
_SHOWN = 5  # names that a note lists


_DEFAULTS = ReadOptions()  # where there is no key to set others


File = TypeVar("File", Path, Address)


@dataclass(frozen=True)
class Input:
    """One file, data set or stream to read.

    `size` is in bytes; None when unknown.  `changed` is the time of the last change, in nanoseconds, or what a store
    says of the version.  A stream is read from the file `copy`, see ernie.data.stream_copy.
    """

    name: str
    size: int | None = None
    changed: int | str | None = None
    is_stream: bool = False
    copy: Path | None = None


def find_inputs(paths: Sequence[str | Path]) -> list[Input]:
    """Resolve `paths` to files, data sets and streams, in a deterministic order.

    A path is a file, a folder, a pattern with * or **, or an address of one (see ernie.data.remote).  It may also be a
    pipe, "-" for standard input, or the name of a hub data set after "hf:".  A file without a suffix is read as text.
    A folder is searched for files of known formats (see ernie.data.formats), unless the `datasets` library has saved
    it.  Links are followed.  Raises UserError for a path that matches nothing, and for a file that two paths name;
    warns of what is not read.
    """
    found: dict[object, tuple[Input, str]] = {}
    for path in map(str, paths):
        for source in _find(path):
            named = source.is_stream or source.name.startswith("hf:") or is_address(source.name)
            key = source.name if named else identity(Path(source.name))
            if key in found:
                first, by = found[key]
                also = "" if first.name == source.name else f", as {first.name}"
                raise UserError(
                    f"{source.name}: is given twice, by {by}{also} and by {path}: its documents would count twice. "
                    "Give it once"
                )
            found[key] = source, path
    _note_empty([source for source, _ in found.values()])
    return [source for source, _ in found.values()]


def read_documents(paths: Sequence[str | Path], options: ReadOptions | None = None) -> Iterator[RawDocument | Dropped]:
    """Yield all documents of `paths`, with a Dropped in place of each that could not be read.

    Raises UserError for a file that cannot be read at all, and with `options.strict` also for a single document;
    DamagedFile for one that breaks off or is damaged, unless `options.damaged` is "drop".
    """
    for source in find_inputs(paths):
        yield from read_input(source, options)


def read_input(
    source: Input, options: ReadOptions | None = None, progress: Callable[[int], None] = lambda bytes_read: None
) -> Iterator[RawDocument | Dropped]:
    """Yield the documents of one input; `progress` is called with the number of bytes read so far.

    Raises UserError also for a file that was changed since it was found, or holds more text than a file of its size may
    (see ernie.data.compressed).
    """
    options = options or _DEFAULTS
    for item in read_unparsed(source, options, progress):
        yield parsed(item, options)


def parsed(item: RawDocument | Dropped | Unparsed, options: ReadOptions) -> RawDocument | Dropped:
    """Return a document, parsed if it was not.  Raises UserError for one that cannot be read, with `options.strict`."""
    document = item.parse() if isinstance(item, Unparsed) else item
    if options.strict and isinstance(document, Dropped) and not document.by_kind:
        raise UserError(f"{document.place}: {document.detail}. Without read.strict the document would be dropped.")
    return document


def read_unparsed(
    source: Input, options: ReadOptions, progress: Callable[[int], None] = lambda bytes_read: None
) -> Iterator[RawDocument | Dropped | Unparsed]:
    """As `read_input`, but what takes long to parse is left to `parsed`."""
    most = None if source.size is None else compressed.limit(source.size)
    total, line = 0, 1
    try:
        for document in _open(source, options, progress):
            total, line = total + document.size, document.place.line
            if most is not None and total > most:
                raise compressed.too_large(source.name, source.size or 0)
            yield document
    except DamagedFile as error:
        check_unchanged(source)  # or somebody is writing it
        what = str(error).rstrip(".")
        if source.copy is not None:  # which goes when the build ends
            what = what.partition(". Fetch it again")[0].replace(str(source.copy), source.name)
        if options.damaged == "stop":
            or_else = (
                "" if options is _DEFAULTS else ". To go on without the rest of such files: --set read.damaged=drop"
            )
            raise DamagedFile(f"{what}{or_else}") from None
        warnings.warn(f"{what}. The rest of it is left out", Remark, stacklevel=2)
        name = remote.without_secrets(source.name)
        yield Dropped(Place(name, line), DAMAGED, what.removeprefix(f"{name}: "))
        return
    check_unchanged(source)


def check_unchanged(source: Input) -> None:
    """Raise UserError if a file was changed since it was found."""
    if source.is_stream or source.changed is None:
        return
    try:
        here = not is_address(source.name)
        now = _file_input(Path(source.name)) if here else _remote_input(remote.current(Address(source.name)))
    except OSError as error:
        raise UserError(f"{source.name}: {unreachable(Path(source.name), error)}; it was there before") from None
    if now != source:
        sizes = f"from {source.size:,} to {now.size:,} bytes" if now.size != source.size else "its size is the same"
        raise UserError(
            f"{source.name}: was changed while it was read ({sizes}). Start again when nothing writes to it any more, "
            "or give a copy"
        )


def _open(
    source: Input, options: ReadOptions, progress: Callable[[int], None]
) -> Iterator[RawDocument | Dropped | Unparsed]:
    name, path = remote.without_secrets(source.name), source.copy or remote.place(source.name)
    if name.startswith("hf:"):
        yield from read_hub_dataset(name, options)
    elif isinstance(path, Path) and path.is_dir():
        yield from read_saved_dataset(path, options)
    else:
        file = LineFile(path, compressed.compression_of(_begins(path)) if source.is_stream else None, returns=True)
        for document in _format(source, file, options).read(name, file, options):
            progress(file.bytes_read)
            yield document


def _format(source: Input, file: LineFile, options: ReadOptions) -> Format:
    """Return the format that the options name, else that of the name, else that of the content of a stream."""
    if found := FORMATS.get(options.format) or format_of_name(source.name):
        return found
    unnamed = source.is_stream or is_address(source.name)
    return format_of_content(file) if unnamed and options.format == "auto" else FORMATS["text"]


def _begins(path: Path | Address) -> bytes:
    with path.open("rb") as file:
        return file.read(8)


def _find(path: str) -> list[Input]:
    if path.startswith("hf:"):
        return [Input(path)]
    if path in ("-", "/dev/stdin"):
        return [Input(STANDARD_INPUT, is_stream=True)]
    if not path:
        raise UserError("an input is empty; was a variable of the shell not set?")
    if is_address(path):
        return _find_remote(path)
    file = Path(path)
    try:
        mode = file.stat().st_mode
    except (OSError, ValueError) as error:
        if glob.has_magic(path):
            return _find_matches(path)
        raise UserError(f"{path}: {unreachable(file, error)}") from None
    if stat.S_ISDIR(mode):
        return _find_in(file)
    if stat.S_ISREG(mode):
        if not _is_readable(file) and file.suffix:
            raise UserError(f"{path}: expected a name that ends in {_suffixes()}")
        return [_file_input(file)]
    if stat.S_ISFIFO(mode):
        return [Input(path, is_stream=True)]
    raise UserError(f"{path}: is a device or a socket; give a file, a pipe, or - for standard input")


def _find_remote(url: str) -> list[Input]:
    found = remote.find(url)
    if isinstance(found, Found):
        on_the_web = url.lower().startswith(("http://", "https://"))  # where the names of pages end in anything
        if not _is_readable(found.address) and found.address.suffix and not on_the_web:
            raise UserError(f"{url}: expected a name that ends in {_suffixes()}")
        return [_remote_input(found)]
    folder = remote.folder_of(url)
    files = [each for each in found if not any(map(_is_hidden, each.address.url.split("/")[folder.count("/") + 1 :]))]
    chosen = set(_chosen([each.address for each in files]))
    if not chosen:
        which = "no file matches this pattern and" if remote.is_pattern(url) else "the folder holds no file that"
        raise UserError(f"{url}: {which} ends in {_suffixes()}")
    _note_unread(url, [each.address for each in files if each.address not in chosen])
    return [_remote_input(each) for each in files if each.address in chosen]


def _is_hidden(part: str) -> bool:
    return part.startswith(".") or part in LEFT_BY_PROGRAMS


def _remote_input(found: Found) -> Input:
    # A file of unknown size is copied: some formats are not read without it.
    return Input(found.address.url, found.size, found.version, is_stream=found.size is None)


def _find_matches(pattern: str) -> list[Input]:
    finder = Finder(pattern)
    matches = finder.matches(pattern, _is_readable)
    # A folder with the name of a file holds its parts, as some programs write Parquet.
    files = [match for match in matches if not is_folder(match)]
    chosen = _chosen(files)
    parts = [_find_in(match) for match in matches if is_folder(match) and _is_readable(match)]
    inside = {source.name for part in parts for source in part}  # which the pattern may match, too
    inputs = [_file_input(file) for file in finder.once(chosen) if str(file) not in inside]
    inputs += [source for part in parts for source in part]
    finder.note_unread()
    if not inputs:
        raise UserError(f"{pattern}: no file matches this pattern and ends in {_suffixes()}")
    _note_unread(pattern, [file for file in files if file not in chosen])
    folders = [str(match) for match in matches if is_folder(match) and not _is_readable(match)]
    if folders and "**" not in pattern:
        warnings.warn(
            f"{pattern}: folders are not searched ({folders[0]}); ** stands for any number", Remark, stacklevel=3
        )
    return sorted(inputs, key=lambda source: Path(source.name))


def _find_in(folder: Path) -> list[Input]:
    if any((folder / name).is_file() for name in _DATASET_FILES):
        return [Input(str(folder))]
    finder = Finder(str(folder))
    files = finder.files(folder)
    own = {parent for path in files for parent in path.relative_to(folder).parents if _is_own(folder / parent)}
    for parent in sorted(own, key=str):
        warnings.warn(f"{folder / parent}: was made by this library and is not read as text", Remark, stacklevel=2)
    others = [path for path in files if own.isdisjoint(path.relative_to(folder).parents)]
    texts = _chosen(others)
    once = finder.once(texts)
    finder.note_unread()
    if not texts:
        raise UserError(f"{folder}: the folder holds no file that ends in {_suffixes()}")
    _note_unread(str(folder), [path for path in others if path not in texts])
    return [_file_input(path) for path in once]


def _chosen(files: Sequence[File]) -> list[File]:
    """Return the files to read: texts, or those of other formats where there is nothing else."""
    names = lowest_ranked([file.name for file in files])
    return [file for file in files if file.name in names]


def _suffixes() -> str:
    return f"{', '.join(SUFFIXES)}, or a compression's after that ({', '.join(compressed.COMPRESSIONS)})"


def _note_unread(path: str, unread: Sequence[Path | Address]) -> None:
    """Warn of the files of a folder or pattern that are not read."""
    other = [file for file in unread if not _is_readable(file)]
    if readable := [file for file in unread if _is_readable(file)]:
        counts = Counter(_whole_suffix(file.name) for file in readable)
        shown = ", ".join(f"{count:,} {suffix}" for suffix, count in counts.most_common(5)) + ", ..." * (
            len(counts) > 5
        )
        warnings.warn(
            f"{path}: {plural(len(readable), 'file')} of other formats left out, since there are texts: {shown}. "
            f"A pattern reads them, such as '**/*{counts.most_common(1)[0][0]}'",
            Remark,
            stacklevel=3,
        )
    suffixes = sorted({file.suffix for file in other} - {""})
    kinds = [f"files that end in {', '.join(suffixes[:5])}{', ...' * (len(suffixes) > 5)}"] if suffixes else []
    if bare := sum(not file.suffix for file in other):
        kinds.append(f"files without a suffix ({bare:,})")
    if kinds:
        warnings.warn(f"{path}: {' and '.join(kinds)} are not read as text", Remark, stacklevel=3)


def _whole_suffix(name: str) -> str:
    """Return the suffix of a name, with that of a compression."""
    plain = compressed.uncompressed_name(name)
    return Path(plain).suffix + name[len(plain) :]


def _note_empty(inputs: Sequence[Input]) -> None:
    """Warn of files without a single byte, which a broken download or a full disk leaves."""
    empty = [source.name for source in inputs if source.size == 0]
    if empty:
        shown = ", ".join(empty[:_SHOWN]) + (f" and {len(empty) - _SHOWN:,} more" if len(empty) > _SHOWN else "")
        warnings.warn(f"{plural(len(empty), 'file')} of 0 bytes: {shown}", Remark, stacklevel=3)


def _is_own(folder: Path) -> bool:
    """Whether a folder is a tokenizer, a corpus or a run, whose files have the suffixes of texts but are none."""
    return any(all((folder / name).is_file() for name in names) for names in _OWN_FILES)


def _is_readable(path: Path | Address) -> bool:
    """Whether a file's name looks like text."""
    return format_of_name(path.name) is not None


def _file_input(path: Path) -> Input:
    status = path.stat()
    if not os.access(path, os.R_OK, effective_ids=os.access in os.supports_effective_ids):
        raise UserError(f"{path}: may not be read: permission denied")
    return Input(str(path), status.st_size, status.st_mtime_ns)
