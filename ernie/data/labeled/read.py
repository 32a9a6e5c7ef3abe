"""Rows from files, saved data sets and hub data sets."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

from ernie.data import remote
from ernie.data.compressed import uncompressed_name
from ernie.data.find import absent, is_endless
from ernie.data.labeled.lines import checked_row, read_columns, read_json_rows, read_plain, read_separated
from ernie.data.labeled.questions import is_questions, load_json, read_questions
from ernie.data.labeled.row import Fault, Row, RowOptions, is_empty
from ernie.data.parquet import load_saved, parquet_rows, saved_rows
from ernie.data.raw import Place
from ernie.data.reach import offline_unless_reachable
from ernie.data.read_lines import Line, LineFile, decoded
from ernie.data.remote import Address, is_address
from ernie.errors import UserError
from ernie.formatting import plural

_FORMATS = {
    **{".tsv": "tsv", ".csv": "csv", ".jsonl": "jsonl", ".json": "json", ".parquet": "parquet", ".txt": "text"},
    **{".conll": "conll", ".bio": "conll"},
}
_SLICE = re.compile(r"(?P<name>.+)\[(?P<start>\d*):(?P<stop>\d*)\]")
_PARALLEL = re.compile(r"(?P<before>[^{}]*)\{(?P<names>[^{}]+)\}(?P<after>[^{}]*)")
_SHOWN = 5  # faults listed in a message


@dataclass(frozen=True)
class Split:
    """The rows of a split, in order; `skipped` counts rows that the options left out.

    `unlabeled` names the columns that are empty in every row, although the options skip rows with an empty cell there.
    """

    name: str
    rows: list[Row]
    skipped: int = 0
    unlabeled: tuple[str, ...] = ()


def read_split(name: str, sources: Sequence[str], options: RowOptions) -> Split:
    """Read all rows of a split.

    A column that is empty in all rows, such as the labels of a test split, skips none of them, whatever the options
    say.  Raises UserError that lists the unusable rows, and for a split without rows.
    """
    split = _read_split(name, sources, options)
    optional = [column for column, cells in options.skip.items() if "" in cells]
    if not split.rows and split.skipped and optional and not any(is_stream(Path(source)) for source in sources):
        kept = _read_split(name, sources, options.keeping_empty(optional))
        empty = [column for column in optional if all(is_empty(row.get(column)) for row in kept.rows)]
        if empty:
            split = _read_split(name, sources, options.keeping_empty(empty))
            split = replace(split, unlabeled=tuple(empty))
    if not split.rows:
        left_out = f" ({split.skipped} were skipped, see 'skip' and 'faulty')" if split.skipped else ""
        raise UserError(f"{', '.join(sources)}: there are no rows{left_out}")
    return split


def _read_split(name: str, sources: Sequence[str], options: RowOptions) -> Split:
    rows: list[Row] = []
    faults: list[Fault] = []
    skipped = 0
    for source in sources:
        for row in read_rows(source, options):
            if row is None or (isinstance(row, Fault) and options.faulty == "skip"):
                skipped += 1
            elif isinstance(row, Fault):
                faults.append(row)
            else:
                rows.append(row)
    raise_faults(faults)
    return Split(name, rows, skipped)


def raise_faults(faults: Sequence[Fault]) -> None:
    """Raise UserError with the first faults and the number of the others, if there are any.

    Only the first of several rows with the same fault is named: a column may be missing in all of them.
    """
    if not faults:
        return
    kinds: dict[str, list[Fault]] = {}
    for fault in faults:
        kinds.setdefault(fault.reason, []).append(fault)
    shown = list(kinds.values())[:_SHOWN]
    lines = [
        f"{alike[0]} ({plural(len(alike) - 1, 'more row')} alike)" if len(alike) > 1 else str(alike[0])
        for alike in shown
    ]
    more = len(faults) - sum(map(len, shown))
    raise UserError("\n".join(lines + ([f"and {plural(more, 'more row')} that cannot be used"] if more else [])))


def read_rows(source: str, options: RowOptions) -> Iterator[Row | Fault | None]:
    """Yield the adapted rows of one source: a Fault for one that cannot be used, None for one that is skipped.

    `source` is a file, also one at an address such as s3://bucket/a.csv, a folder that the `datasets` library saved
    (`FOLDER:SPLIT` for one of several splits), or `hf:NAME[@REVISION][:CONFIG]:SPLIT`.  Files end in .tsv, .csv,
    .jsonl, .json, .parquet, .txt or .conll, all but Parquet also in a further .gz, .bz2, .xz or .zst.  `train.{de,en}`
    are two parallel files of plain text, read as rows with the columns `de` and `en`.  `[a:b]` after any of them
    selects the rows from a to before b, counted from 0; for the hub these may be percentages.  Raises UserError for a
    source that cannot be read at all.
    """
    sliced = None if source.startswith("hf:") else _SLICE.fullmatch(source)
    if sliced is None:
        return adapted(_open(source, options), options)
    start, stop = (int(sliced[name]) if sliced[name] else None for name in ("start", "stop"))
    return adapted(islice(_open(sliced["name"], options), start, stop), options)


def is_there(source: str) -> bool:
    """Whether the file or folder of a local source exists."""
    sliced = _SLICE.fullmatch(source)
    name = sliced["name"] if sliced else source
    if is_address(name):
        return True  # whoever reads it will find out
    if parallel := _PARALLEL.fullmatch(name):
        return all(Path(file).exists() for file in _parallel_files(parallel).values())
    return Path(name).exists() or (":" in name and Path(name.rpartition(":")[0]).is_dir())


def adapted(rows: Iterable[Row | Fault], options: RowOptions) -> Iterator[Row | Fault | None]:
    """Apply the options to rows; yields None for rows to be skipped."""
    for row in rows:
        if isinstance(row, Fault):
            yield row
            continue
        try:
            yield options.adapt(row)
        except UserError as error:
            yield Fault(row.place, str(error))


def parse_lines(file: str, lines: Iterable[Line], form: str, options: RowOptions) -> Iterator[Row | Fault]:
    """Parse lines of a format ("tsv", "csv", "jsonl", "conll" or "text") into rows that are not adapted yet."""
    lines = map(_without_nul, lines)
    if form in ("tsv", "csv"):
        return read_separated(file, lines, options, comma=form == "csv")
    if form == "jsonl":
        return read_json_rows(file, lines)
    if form == "conll":
        return read_columns(file, lines, options)
    return read_plain(file, lines)


def _without_nul(line: Line) -> Line:
    """Return the line, marked unreadable if it holds a NUL character, as UTF-16 and binary files do."""
    if line.text is None or "\0" not in line.text:
        return line
    problem = "the line holds NUL characters, which text does not; is the file binary, or UTF-16? (iconv -f UTF-16LE)"
    return Line(line.number, None, "NUL", problem)


def _open(source: str, options: RowOptions) -> Iterator[Row | Fault]:
    if source.startswith("hf:"):
        return _hub(source)
    if parallel := _PARALLEL.fullmatch(source):
        return _read_parallel(_parallel_files(parallel))
    path = remote.place(source)
    if isinstance(path, Path):
        if is_stream(path):
            return _read_stream(source, path, options)
        folder = Path(source.rpartition(":")[0]) if not path.exists() and ":" in source else path
        if folder.is_dir():
            return _saved(folder, source.rpartition(":")[2] if folder != path else "")
        if not path.is_file():
            raise UserError(f"{source}: {absent(path)}")
    form = _format(path) if options.format == "auto" else options.format
    if form == "parquet":
        return _parquet(path)
    lines = LineFile(path)
    if form in ("json", "squad"):
        return _json(source, lines)
    if options.format == "auto" and form in ("text", "csv", "tsv"):
        remaining = iter(lines)
        first = list(islice(remaining, 1))
        form = _detect_format(first[0].text or "" if first else "", form)
        return parse_lines(source, chain(first, remaining), form, options)
    return parse_lines(source, lines, form, options)


def is_stream(path: Path) -> bool:
    """Whether a path is a pipe or device, such as /dev/stdin or the file that a shell substitutes for <(...)."""
    return path.exists() and not path.is_dir() and (not path.is_file() or path.parts[:2] == ("/", "dev"))


def stream_lines(path: Path) -> Iterator[Line]:
    """Yield the lines of a pipe as they arrive.  Raises UserError for a device that never ends."""
    if is_endless(path):
        raise UserError(f"{path}: is a device that never ends; give a file, or a pipe")
    with path.open("rb") as file:
        yield from decoded(file)


def _read_stream(source: str, path: Path, options: RowOptions) -> Iterator[Row | Fault]:
    lines = stream_lines(path)
    form: str = options.format
    if form == "auto" and path.suffix:
        form = _format(path)
    if form == "parquet":
        raise UserError(f"{source}: Parquet cannot be read from a pipe; give a file")
    if form in ("json", "squad"):
        return _json(source, lines)
    if form == "auto":
        first = list(islice(lines, 1))
        text = first[0].text or "" if first else ""
        if text.lstrip().startswith("["):
            return _json(source, chain(first, lines))
        form = _detect_format(text, "tsv" if "\t" in text else "csv" if "," in text or ";" in text else "text")
        lines = chain(first, lines)
    return parse_lines(source, lines, form, options)


def _detect_format(line: str, form: str) -> str:
    """Detect JSON lines and CoNLL columns by the first line of a file, else return `form`."""
    if line.startswith("-DOCSTART-"):
        return "conll"
    return "jsonl" if is_json_row(line) else form


def is_json_row(line: str) -> bool:
    """Whether a line is a JSON object, as in a .jsonl file, and not only text that begins with a brace."""
    return line.startswith("{") and isinstance(load_json(line), dict)


def _parallel_files(match: re.Match[str]) -> dict[str, str]:
    """Expand a source with names in braces into its files, by name."""
    names = [name.strip() for name in match["names"].split(",")]
    return {name: f"{match['before']}{name}{match['after']}" for name in names}


def _read_parallel(files: dict[str, str]) -> Iterator[Row | Fault]:
    """Yield one row per line number of parallel files.  Raises UserError when their numbers of lines differ."""
    for file in files.values():
        if not is_address(file) and not Path(file).is_file():
            raise UserError(f"{file}: there is no such file")
    counts = dict.fromkeys(files, 0)
    first = next(iter(files.values()))
    for number, lines in enumerate(zip_longest(*(LineFile(remote.place(file)) for file in files.values())), 1):
        for name, line in zip(files, lines, strict=True):
            counts[name] += line is not None
        if None in lines:
            continue
        problems = [line.problem for line in lines if line.text is None]
        place = Place(first, number)
        yield (
            Fault(place, problems[0])
            if problems
            else Row(dict(zip(files, (line.text for line in lines), strict=True)), place)
        )
    if len(set(counts.values())) > 1:
        lengths = ", ".join(f"{files[name]} has {plural(count, 'line')}" for name, count in counts.items())
        raise UserError(f"{lengths}: the files must match line by line; find where one has a line too many")


def _format(path: Path | Address) -> str:
    suffix = Path(uncompressed_name(path.name)).suffix.lower()
    if suffix not in _FORMATS:
        raise UserError(
            f"{path}: expected a name that ends in {', '.join(_FORMATS)}; for another name say its format (the key "
            "'format' of the data, or --format)"
        )
    return _FORMATS[suffix]


def _json(file: str, lines: Iterable[Line]) -> Iterator[Row | Fault]:
    """Read a .json file: questions on passages, a list of objects, or (as in some data sets) JSON lines."""
    lines = list(lines)
    for line in lines:
        if line.text is None:
            raise UserError(f"{file}:{line.number}: {line.problem}")
    content = load_json("\n".join(line.text or "" for line in lines))
    if is_questions(content):
        return read_questions(file, content)
    if isinstance(content, list):
        return (
            checked_row(item, place) if isinstance(item, dict) else Fault(place, "is not an object")
            for place, item in ((Place(file, number), item) for number, item in enumerate(content, 1))
        )
    nonempty = [line.text for line in lines if line.text and line.text.strip()]
    if content is None and nonempty and load_json(nonempty[0]) is None:
        raise UserError(f"{file}: is neither a JSON document nor JSON lines")
    if content is not None and len(nonempty) > 1:
        raise UserError(f"{file}: is a JSON document, but neither a list of rows nor questions on passages")
    return read_json_rows(file, lines)


def _parquet(path: Path | Address) -> Iterator[Row | Fault]:
    for number, cells in enumerate(parquet_rows(path), 1):
        place = Place(str(path), number)
        yield Fault(place, cells) if isinstance(cells, str) else Row(cells, place)


def _saved(folder: Path, split: str) -> Iterator[Row | Fault]:
    import datasets

    loaded = load_saved(folder)
    if isinstance(loaded, datasets.DatasetDict):
        if split not in loaded:
            raise UserError(f"{folder}: has the splits {', '.join(loaded)}; name one: {folder}:{next(iter(loaded))}")
        loaded = loaded[split]
    elif split:
        raise UserError(f"{folder}: is one data set without splits; give it without ':{split}'")
    return _dataset(f"{folder}:{split}" if split else str(folder), loaded)


def _hub(source: str) -> Iterator[Row | Fault]:
    parts = re.split(r":(?![^\[]*\])", source.removeprefix("hf:"))  # not inside a slice: train[:90%]
    if len(parts) not in (2, 3) or not all(parts):
        raise UserError(f"{source}: expected hf:NAME:SPLIT or hf:NAME:CONFIG:SPLIT")
    name, _, revision = parts[0].partition("@")
    offline_unless_reachable()
    import datasets

    try:
        loaded = datasets.load_dataset(name, *parts[1:-1], split=parts[-1], revision=revision or None)
    except Exception as error:  # the library documents no set of exceptions
        raise UserError(
            f"{source}: the data set cannot be loaded: {error}. Check the name and the connection; without one, give "
            "local files in its place: their folder as --data DIR where the configuration has a block `local`, or for "
            "example --set data.train=FILE."
        ) from error
    return _dataset(source, loaded)


def _dataset(name: str, loaded: Any) -> Iterator[Row | Fault]:
    """Yield the rows of a data set, with class numbers replaced by class names, and -1, for "unknown", by None.

    Audio and images are not decoded: a cell has {bytes: ..., path: ...}.
    """
    features = loaded.features or {}
    for column, feature in features.items():
        if getattr(feature, "decode", False):  # decoding audio and images takes further packages
            loaded = loaded.cast_column(column, replace(feature, decode=False))
    class_names = {column: _class_names(feature) for column, feature in features.items()}
    class_columns = {column: names for column, names in class_names.items() if names}
    for number, cells in enumerate(saved_rows(loaded), 1):
        place = Place(name, number)
        if isinstance(cells, str):
            yield Fault(place, cells)
            continue
        for column, names in class_columns.items():
            cells[column] = _name_classes(cells[column], names)
        yield Row(cells, place)


def _class_names(feature: Any) -> list[str] | None:
    inner = getattr(feature, "feature", feature)  # for a list of classes, such as the tags of words
    return getattr(inner, "names", None)


def _name_classes(cell: Any, names: list[str]) -> Any:
    if isinstance(cell, list):
        return [_name_classes(item, names) for item in cell]
    return names[cell] if isinstance(cell, int) and 0 <= cell < len(names) else None
