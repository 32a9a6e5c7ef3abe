"""Raw documents from files, folders, patterns and data sets, one at a time."""

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
# What stands together in a tokenizer, in a corpus, in a run.
_MADE = ({"tokenizer_config.json"}, {"corpus.json", "sources.json"}, {"origin.json", "metrics.jsonl"})


@dataclass(frozen=True)
class Input:
    """One file or data set to read.  `size` is in bytes; 0 when unknown."""

    name: str
    size: int = 0


def find_inputs(paths: Sequence[str | Path]) -> list[Input]:
    """The files and data sets that `paths` mean, in a fixed order.

    A path is a file (without a suffix it is read as text), a folder (searched for files with one of SUFFIXES, or
    saved by the `datasets` library), a pattern with * or **, or a data set's name with "hf:" before it.  Raises
    UserError for one that means nothing, and for a file that two of them mean.
    """
    found: dict[str, tuple[Input, str]] = {}
    for path in map(str, paths):
        for source in _find(path):
            place = source.name if source.name.startswith("hf:") else str(Path(source.name).resolve())
            if place in found:
                first, by = found[place]
                also = "" if first.name == source.name else f", as {first.name}"
                raise UserError(
                    f"{source.name}: is given twice, by {by}{also} and by {path}: its documents would count twice. "
                    "Give it once"
                )
            found[place] = source, path
    return [source for source, _ in found.values()]


def read_documents(paths: Sequence[str | Path], options: ReadOptions | None = None) -> Iterator[RawDocument | Dropped]:
    """All documents of `paths`, and in their place those that could not be read.

    Raises UserError for a file that cannot be read at all, and with `options.strict` for a document as well.
    """
    for source in find_inputs(paths):
        yield from read_input(source, options)


def read_input(
    source: Input, options: ReadOptions | None = None, progress: Callable[[int], None] | None = None
) -> Iterator[RawDocument | Dropped]:
    """The documents of one input; `progress` is told how many bytes of the file were read so far."""
    options = options or ReadOptions()
    for document in _open(source.name, options, progress or _silent):
        if options.strict and isinstance(document, Dropped):
            raise UserError(f"{document.place}: {document.detail}. Without read.strict the document would be dropped.")
        yield document


def _open(name: str, options: ReadOptions, progress: Callable[[int], None]) -> Iterator[RawDocument | Dropped]:
    path = Path(name)
    if name.startswith("hf:"):
        yield from read_hub_dataset(name, options)
    elif path.is_dir():
        yield from read_saved_dataset(path, options)
    elif name.endswith(".parquet"):
        size = path.stat().st_size
        yield from read_parquet(path, options, lambda share: progress(round(share * size)))
    else:
        lines = LineFile(path)
        read = read_json_lines if name.removesuffix(".gz").endswith(".jsonl") else read_text
        for document in read(name, lines, options):
            progress(lines.bytes_read)
            yield document


def _silent(bytes_read: int) -> None:
    pass


def _find(path: str) -> list[Input]:
    if path.startswith("hf:"):
        return [Input(path)]
    place = Path(path)
    if place.is_dir():
        return _find_in(place)
    if place.is_file():
        if not _is_readable(place) and place.suffix:
            raise UserError(f"{path}: expected a name that ends in {', '.join(SUFFIXES)}")
        return [_input(place)]
    if glob.has_magic(path):
        matches = sorted(Path(match) for match in glob.glob(path, recursive=True))  # noqa: PTH207 - takes any pattern
        # A folder that is called like a file holds the parts of one, as other programs write them.
        files = [match for match in matches if match.is_file() or match.name.endswith(SUFFIXES)]
        found = [_find_in(file) if file.is_dir() else [_input(file)] for file in files if _is_readable(file)]
        # A pattern may match such a folder, and the files in it.
        if inputs := list({one.name: one for part in found for one in part}.values()):
            return inputs
        raise UserError(f"{path}: no file matches this pattern and ends in {', '.join(SUFFIXES)}")
    raise UserError(f"{path}: there is no such file or folder")


def _find_in(folder: Path) -> list[Input]:
    if any((folder / name).is_file() for name in _DATASET_FILES):
        return [Input(str(folder))]
    files = sorted(path for path in folder.rglob("*") if _is_readable(path) and path.is_file())
    visible = [path for path in files if not any(part.startswith(".") for part in path.relative_to(folder).parts)]
    made = {place for path in visible for place in path.relative_to(folder).parents if _is_made(folder / place)}
    for place in sorted(made, key=str):
        warnings.warn(f"{folder / place}: is of this library's own making and not read as text", Remark, stacklevel=2)
    texts = [path for path in visible if made.isdisjoint(path.relative_to(folder).parents)]
    if not texts:
        raise UserError(f"{folder}: the folder holds no file that ends in {', '.join(SUFFIXES)}")
    return [_input(path) for path in texts]


def _is_made(folder: Path) -> bool:
    """Whether a folder is a tokenizer, a corpus or a run: its files end as texts do, and are none."""
    return any(all((folder / name).is_file() for name in names) for names in _MADE)


def _is_readable(path: Path) -> bool:
    """Whether a file looks like text for us by its name; WikiExtractor calls its files wiki_00, wiki_01, ..."""
    return path.name.endswith(SUFFIXES) or re.fullmatch(r"wiki_\d+", path.name) is not None


def _input(path: Path) -> Input:
    return Input(str(path), path.stat().st_size)
