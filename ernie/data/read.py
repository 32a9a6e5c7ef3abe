"""Streaming of raw documents from files, folders, glob patterns and data sets."""

from __future__ import annotations

import glob
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read_lines import LineFile
from ernie.data.read_rows import read_hub_dataset, read_json_lines, read_parquet, read_saved_dataset
from ernie.data.read_text import read_text
from ernie.errors import Remark, UserError

SUFFIXES = (".txt", ".txt.gz", ".jsonl", ".jsonl.gz", ".parquet")
_DATASET_FILES = ("dataset_dict.json", "dataset_info.json")
# Files by which a tokenizer, a corpus or a run of this library is recognized.
_OWN_FILES = ({"tokenizer_config.json"}, {"corpus.json", "sources.json"}, {"origin.json", "metrics.jsonl"})


@dataclass(frozen=True)
class Input:
    """One file or data set to read.  `size` is in bytes; None when unknown."""

    name: str
    size: int | None = None


def find_inputs(paths: Sequence[str | Path]) -> list[Input]:
    """Resolve `paths` to files and data sets, in a deterministic order.

    A path is a file (without a suffix it is read as text), a folder (searched for files with one of SUFFIXES, or
    saved by the `datasets` library), a pattern with * or **, or the name of a hub data set prefixed by "hf:".  Raises
    UserError for a path that matches nothing, and for a file that is matched twice.
    """
    found: dict[str, tuple[Input, str]] = {}
    for path in map(str, paths):
        for source in _find(path):
            key = source.name if source.name.startswith("hf:") else str(Path(source.name).resolve())
            if key in found:
                first, by = found[key]
                also = "" if first.name == source.name else f", as {first.name}"
                raise UserError(
                    f"{source.name}: is given twice, by {by}{also} and by {path}: its documents would count twice. "
                    "Give it once"
                )
            found[key] = source, path
    return [source for source, _ in found.values()]


def read_documents(paths: Sequence[str | Path], options: ReadOptions | None = None) -> Iterator[RawDocument | Dropped]:
    """Yield all documents of `paths`, with a Dropped in place of each that could not be read.

    Raises UserError for a file that cannot be read at all, and with `options.strict` also for a single document.
    """
    for source in find_inputs(paths):
        yield from read_input(source, options)


def read_input(
    source: Input, options: ReadOptions | None = None, progress: Callable[[int], None] | None = None
) -> Iterator[RawDocument | Dropped]:
    """Yield the documents of one input; `progress` is called with the number of bytes read so far."""
    options = options or ReadOptions()
    for document in _open(source.name, options, progress or _no_progress):
        if options.strict and isinstance(document, Dropped):
            raise UserError(f"{document.place}: {document.detail}. Without read.strict the document would be dropped.")
        yield document


def _open(name: str, options: ReadOptions, progress: Callable[[int], None]) -> Iterator[RawDocument | Dropped]:
    path = Path(name)
    if name.startswith("hf:"):
        yield from read_hub_dataset(name, options)
    elif path.is_dir():
        yield from read_saved_dataset(path, options)
    elif name.lower().endswith(".parquet"):
        size = path.stat().st_size
        yield from read_parquet(path, options, lambda share: progress(round(share * size)))
    else:
        lines = LineFile(path)
        read = read_json_lines if name.lower().removesuffix(".gz").endswith(".jsonl") else read_text
        for document in read(name, lines, options):
            progress(lines.bytes_read)
            yield document


def _no_progress(bytes_read: int) -> None:
    pass


def _find(path: str) -> list[Input]:
    if path.startswith("hf:"):
        return [Input(path)]
    file = Path(path)
    if file.is_dir():
        return _find_in(file)
    if file.is_file():
        if not _is_readable(file) and file.suffix:
            raise UserError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
        return [_input(file)]
    if glob.has_magic(path):
        matches = sorted(Path(match) for match in glob.glob(path, recursive=True))  # noqa: PTH207 - takes any pattern
        # A folder with the name of a file holds its parts, as some programs write Parquet.
        files = [match for match in matches if match.is_file() or _is_readable(match)]
        inputs = [_find_in(file) if file.is_dir() else [_input(file)] for file in files if _is_readable(file)]
        # A pattern may match both such a folder and the files in it.
        if unique := list({source.name: source for part in inputs for source in part}.values()):
            _note_unread(path, [file for file in files if not _is_readable(file)])
            return unique
        raise UserError(f"{path}: no file matches this pattern and ends in {', '.join(SUFFIXES)}")
    raise UserError(f"{path}: there is no such file or folder")


def _find_in(folder: Path) -> list[Input]:
    if any((folder / name).is_file() for name in _DATASET_FILES):
        return [Input(str(folder))]
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    unhidden = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    visible = [path for path in unhidden if _is_readable(path)]
    own = {parent for path in visible for parent in path.relative_to(folder).parents if _is_own(folder / parent)}
    for parent in sorted(own, key=str):
        warnings.warn(f"{folder / parent}: was made by this library and is not read as text", Remark, stacklevel=2)
    texts = [path for path in visible if own.isdisjoint(path.relative_to(folder).parents)]
    unread = [path for path in unhidden if not _is_readable(path)]
    if not texts:
        raise UserError(f"{folder}: the folder holds no file that ends in {', '.join(SUFFIXES)}")
    _note_unread(str(folder), [path for path in unread if own.isdisjoint(path.relative_to(folder).parents)])
    return [_input(path) for path in texts]


def _note_unread(path: str, unread: Sequence[Path]) -> None:
    """Warn of the files of a folder or pattern that are not read."""
    suffixes = sorted({file.suffix for file in unread} - {""})
    kinds = [f"files that end in {', '.join(suffixes[:5])}{', ...' * (len(suffixes) > 5)}"] if suffixes else []
    if bare := sum(not file.suffix for file in unread):
        kinds.append(f"files without a suffix ({bare:,})")
    if kinds:
        warnings.warn(f"{path}: {' and '.join(kinds)} are not read as text", Remark, stacklevel=3)


def _is_own(folder: Path) -> bool:
    """Whether a folder is a tokenizer, a corpus or a run, whose files have the suffixes of texts but are none."""
    return any(all((folder / name).is_file() for name in names) for names in _OWN_FILES)


def _is_readable(path: Path) -> bool:
    """Whether a file's name looks like text; WikiExtractor names its files wiki_00, wiki_01, ..."""
    return path.name.lower().endswith(SUFFIXES) or re.fullmatch(r"wiki_\d+", path.name) is not None


def _input(path: Path) -> Input:
    return Input(str(path), path.stat().st_size)
