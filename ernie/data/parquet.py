"""Rows of Parquet and Arrow files, and of data sets saved by the `datasets` library."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from ernie.data import compressed
from ernie.data.remote import Address, size_of
from ernie.errors import DamagedFile, UserError
from ernie.json_file import check_not_lfs_pointer

_ROWS = 64  # decoded at a time
_MEMORY = 1 << 28  # bytes of these rows
_ARROW = b"ARROW1"  # how a file begins that is no stream
_PARQUET = b"PAR1"
_SUSPECT, _DENSE = 1 << 24, 50  # bytes, and how many times less of them were written


def parquet_rows(
    path: Path | Address,
    choose: Callable[[list[str]], Sequence[str]] = list,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Iterator[dict[str, Any] | str]:
    """Yield the rows of a file, reading in bounded memory; a row that is not UTF-8 text gives an error message instead.

    `choose` selects columns by name; `progress` is called with the fraction of rows read so far.  Raises UserError when
    the file is damaged, or holds more than a file of its size may (see ernie.data.compressed).
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    if isinstance(path, Path):
        check_not_lfs_pointer(path)
    try:
        with nullcontext(path) if isinstance(path, Path) else path.open() as source, pq.ParquetFile(source) as file:
            columns = list(choose(file.schema_arrow.names))
            rows = _rows_at_once(path, file.metadata, columns)
            read = 0
            for batch in file.iter_batches(batch_size=rows, columns=columns):
                if batch.nbytes > _MEMORY:
                    _check_rows(path, batch, read)
                read += batch.num_rows
                progress(read / file.metadata.num_rows)
                yield from _decode_batch(batch)
    except (pa.ArrowInvalid, OSError) as error:
        raise _unreadable(path, error, is_one=_begins(path, _PARQUET))(
            f"{path}: cannot be read as a Parquet file: {error}"
        ) from None


def arrow_rows(
    path: Path | Address,
    choose: Callable[[list[str]], Sequence[str]] = list,
    progress: Callable[[float], None] = lambda fraction: None,
) -> Iterator[dict[str, Any] | str]:
    """As `parquet_rows`, of a file in Arrow's format for files (Feather) or streams, whose records come in batches.

    `progress` is called with the fraction of batches read so far, where their number is known.
    """
    import pyarrow as pa

    size, total, read = size_of(path), 0, 0
    try:
        with pa.memory_map(str(path)) if isinstance(path, Path) and size else path.open("rb") as file:
            is_file = file.read(len(_ARROW)) == _ARROW
            file.seek(0)
            opened = pa.ipc.open_file if is_file else pa.ipc.open_stream
            names = opened(file).schema.names
            fields = [names.index(name) for name in choose(names)]
            file.seek(0)
            reader = opened(file, options=pa.ipc.IpcReadOptions(included_fields=fields))
            batches = map(reader.get_batch, range(reader.num_record_batches)) if is_file else reader
            for number, batch in enumerate(batches, 1):
                total += batch.nbytes
                if total > compressed.limit(size):
                    raise compressed.too_large(path, size)
                _check_layout(batch)
                for first in range(0, batch.num_rows, _ROWS):
                    rows = batch.slice(first, _ROWS)
                    if rows.nbytes > _MEMORY:
                        _check_rows(path, rows, read)
                    read += rows.num_rows
                    yield from _decode_batch(rows)
                if is_file:
                    progress(number / reader.num_record_batches)
    except (pa.ArrowException, OSError, UnicodeDecodeError) as error:
        if isinstance(error, MemoryError):
            raise
        raise _unreadable(path, error, is_one=read > 0 or _begins(path, _ARROW))(
            f"{path}: cannot be read as an Arrow file after row {read:,}: {error}"
        ) from None


def _unreadable(path: Path | Address, error: Exception, is_one: bool) -> type[UserError]:
    """Return the kind of an error: damage of what `is_one`, or something else, as of the disk."""
    return DamagedFile if is_one and getattr(error, "errno", None) is None else UserError


def _begins(path: Path | Address, magic: bytes) -> bool:
    with path.open("rb") as file:
        return file.read(len(magic)) == magic


def _check_layout(batch: Any) -> None:
    """Raise ArrowInvalid if the parts of a batch do not fit together, which ends the process where they are read.

    Texts need not be UTF-8: their rows are told apart later.
    """
    import pyarrow as pa

    as_bytes = {pa.string(): pa.binary(), pa.large_string(): pa.large_binary()}
    for column in batch.columns:
        column.validate()
        (column.view(as_bytes[column.type]) if column.type in as_bytes else column).validate(full=True)


def _check_rows(path: Path | Address, batch: Any, before: int) -> None:
    """Raise UserError for a row that takes more memory than several may; `before` are the rows before the batch."""
    for i in range(batch.num_rows):
        if batch.slice(i, 1).nbytes > _MEMORY:
            raise UserError(
                f"{path}: row {before + i + 1:,} holds more than {_MEMORY >> 20:,} MB. Divide it into several"
            )


def _rows_at_once(path: Path | Address, metadata: Any, columns: Sequence[str]) -> int:
    """Return how many rows to decode at a time: fewer where they are large, or unpack to much more than was written."""
    size, rows = size_of(path), _ROWS
    total = 0
    for number in range(metadata.num_row_groups):
        group = metadata.row_group(number)
        chunks = [group.column(i) for i in range(group.num_columns)]
        chosen = [chunk for chunk in chunks if chunk.path_in_schema.split(".")[0] in columns]
        unpacked = sum(chunk.total_uncompressed_size for chunk in chosen)
        total += unpacked
        rows = min(rows, _MEMORY * group.num_rows // max(unpacked, 1))
        if unpacked > _SUSPECT and unpacked > _DENSE * sum(chunk.total_compressed_size for chunk in chosen):
            rows = 1  # each may be a long value of a dictionary
    if total > compressed.limit(size):
        raise compressed.too_large(path, size)
    return max(rows, 1)


def saved_rows(rows: Any) -> Iterator[dict[str, Any] | str]:
    """Yield the rows of a `datasets.Dataset`; a row that is not UTF-8 text gives an error message instead."""
    for first in range(0, len(rows), _ROWS):
        stop = min(first + _ROWS, len(rows))
        try:
            columns = rows[first:stop]
        except UnicodeDecodeError:
            yield from (_decode_saved(rows, i) for i in range(first, stop))
            continue
        yield from (dict(zip(columns, cells, strict=True)) for cells in zip(*columns.values(), strict=True))


def _decode_saved(rows: Any, i: int) -> dict[str, Any] | str:
    try:
        return rows[i]
    except UnicodeDecodeError:
        return _decode_row(rows.with_format("arrow")[i])


def _decode_batch(batch: Any) -> list[dict[str, Any] | str]:
    try:
        return batch.to_pylist()
    except UnicodeDecodeError:  # Arrow accepts any bytes as a string
        return [_decode_row(batch.slice(i, 1)) for i in range(batch.num_rows)]


def _decode_row(row: Any) -> dict[str, Any] | str:
    cells = {}
    for name, column in zip(row.schema.names, row.columns, strict=True):
        try:
            cells[name] = column[0].as_py()
        except UnicodeDecodeError as error:
            return f"column '{name}': byte {error.start + 1} is not UTF-8 text"
    return cells


def load_saved(folder: Path) -> Any:
    """Load a Dataset or DatasetDict that `save_to_disk` wrote.  Raises UserError when it cannot be read."""
    import datasets

    try:
        return datasets.load_from_disk(str(folder))
    except Exception as error:  # the library documents no set of exceptions
        raise UserError(f"{folder}: cannot be read as a saved data set: {error}") from error
