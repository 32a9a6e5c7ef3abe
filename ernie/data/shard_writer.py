"""Atomic writing of a corpus: into a temporary folder, renamed to its final name when complete."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple

import numpy as np

from ernie.atomic import no_room
from ernie.data.destination import Destination, destination_of
from ernie.data.document import Document
from ernie.data.index import FORMAT
from ernie.data.shards import SPLITS, SUFFIXES, dtypes, shard_stem
from ernie.data.work_folder import WorkFolder
from ernie.errors import UserError
from ernie.sha256 import file_sha256
from ernie.text.tokenizer import Tokenizer

DEFAULT_SHARD_TOKENS = 50_000_000


class Documents(NamedTuple):
    """Concatenated documents in the layout of a shard.

    ids (n,), flags (n,); ends (s,) counted from the document's first token; marks (s,); docs (d, 4) with the columns
    of `shards.DOC_COLUMNS`, counted from the first of these documents.
    """

    ids: np.ndarray
    flags: np.ndarray
    ends: np.ndarray
    marks: np.ndarray
    docs: np.ndarray

    @classmethod
    def join(cls, documents: Sequence[Document], sources: Sequence[tuple[int, int]]) -> Documents:
        """Concatenate documents (at least one) with the (source, line) of each."""
        token_ends = np.cumsum([len(document.ids) for document in documents])
        sentence_ends = np.cumsum([len(document) for document in documents])
        docs = np.column_stack((token_ends, sentence_ends, np.asarray(sources, np.int64)))
        return cls(
            ids=np.concatenate([document.ids for document in documents]),
            flags=np.concatenate([document.flags for document in documents]),
            ends=np.concatenate([document.ends for document in documents]),
            marks=np.concatenate([document.marks for document in documents]),
            docs=docs,
        )

    def take(self, keep: np.ndarray) -> Documents:
        """Return the documents for which `keep` (d,) is true."""
        if keep.all():
            return self
        tokens, sentences = np.diff(self.docs[:, :2], axis=0, prepend=0).T
        keep_token, keep_sentence = np.repeat(keep, tokens), np.repeat(keep, sentences)
        docs = self.docs[keep]
        docs[:, 0], docs[:, 1] = np.cumsum(tokens[keep]), np.cumsum(sentences[keep])
        return Documents(
            self.ids[keep_token], self.flags[keep_token], self.ends[keep_sentence], self.marks[keep_sentence], docs
        )


class CorpusWriter:
    """A context manager that writes a corpus to `output`.

    Everything is written to `output.partial-PID` first, which `finish` renames and an error removes.  A shard ends with
    the document with which it has `shard_tokens` tokens or more.  With a `signature` of what is written, a writer goes
    on where a process that was killed had last called `save`, and its `state` is what that one gave; see WorkFolder.
    Raises UserError when `output` exists and may not be replaced, and when the disk is full.
    """

    def __init__(
        self,
        output: str | Path,
        tokenizer: Tokenizer,
        *,
        shard_tokens: int = DEFAULT_SHARD_TOKENS,
        overwrite: bool = False,
        signature: str = "",
    ):
        self._destination = corpus_destination(output, overwrite)
        self._destination.check()
        self.output = str(self._destination)
        self.work = WorkFolder(self._destination.place, signature)
        self._folder = self.work.path
        self._tokenizer = tokenizer
        types, saved = dtypes(tokenizer.vocab_size), self.work.state or {}
        self.state: dict[str, Any] | None = saved.get("state")
        take = partial(self._destination.take, self.work)
        self._splits = {name: _SplitWriter(self.work, name, types, shard_tokens, take) for name in SPLITS}
        for name, split in saved.get("splits", {}).items():
            self._splits[name].restore(split)

    def __enter__(self) -> CorpusWriter:
        try:
            self.work.create()
            (self._folder / "tokenizer").mkdir(exist_ok=True)
            self._tokenizer.save(self._folder / "tokenizer")
            self._destination.begin(self.work)
        except BaseException as error:
            self._discard(error)
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if error is not None:
            self._discard(error)

    def write(self, split: str, documents: Documents) -> None:
        """Append documents to the split `split`, "train" or "held_out"."""
        self._splits[split].write(documents)

    def save(self, state: dict[str, Any]) -> None:
        """Keep what is written so far, now and then, with a state as plain data that a later writer is to know."""
        splits = {name: split.record() for name, split in self._splits.items()}
        self.work.save({"splits": splits, "state": state})

    def finish(
        self,
        sources: Sequence[str],
        *,
        language: str,
        report: dict[str, Any] | None = None,
        recipe: dict[str, Any] | None = None,
    ) -> None:
        """Close the files, write the index and rename the folder to `output`.

        `sources` are the names that the documents' source numbers refer to, `recipe` the settings of the build.  Raises
        UserError when `output` may no longer be replaced; the corpus is then moved to an unused name beside it, which
        the message gives.
        """
        for split in self._splits.values():
            split.close()
        self.work.finish()
        files = dict(self.work.files)
        _write_json(self._folder / "sources.json", list(sources))
        for path in [self._folder / "sources.json", *sorted((self._folder / "tokenizer").iterdir())]:
            name = path.relative_to(self._folder).as_posix()
            files[name] = {"bytes": path.stat().st_size, "sha256": file_sha256(path)}
        index = {
            "format": FORMAT,
            "language": language,
            "recipe": recipe or {},
            "tokenizer": {"fingerprint": self._tokenizer.fingerprint, "vocab_size": self._tokenizer.vocab_size},
            "splits": {name: split.shards for name, split in self._splits.items()},
            "report": report or {},
            "files": dict(sorted(files.items())),
        }
        _write_json(self._folder / "corpus.json", index)
        self._destination.finish(self.work, files)

    def _discard(self, error: BaseException) -> None:
        self.work.leave(keep=not no_room(error))
        if reason := no_room(error):
            raise UserError(
                f"{self.output}: {reason}; what was written so far is removed. "
                "Free some space, or give --output on another disk."
            ) from error
        if isinstance(error, PermissionError):
            raise UserError(f"{self.output}: may not be written: {error.strerror}") from error


def corpus_destination(output: str | Path, overwrite: bool) -> Destination:
    """Return where a corpus is written to: the folder `output`, or one at an address."""
    return destination_of(output, ("corpus.json", "sources.json", "tokenizer", *SPLITS), overwrite)


class _SplitWriter:
    """Writes the shards of one split.  `shards` has the counts of each closed shard, `take` gets the files of each."""

    def __init__(
        self,
        work: WorkFolder,
        name: str,
        types: dict[str, np.dtype[Any]],
        shard_tokens: int,
        take: Callable[[list[str]], None],
    ):
        self.shards: list[dict[str, int]] = []
        self._work = work
        self._name = name
        self._dtypes = types
        self._shard_tokens = shard_tokens
        self._take = take
        self._counts = {"documents": 0, "sentences": 0, "tokens": 0}

    def record(self) -> dict[str, Any]:
        """Return what `restore` needs besides the files."""
        return {"shards": self.shards, "counts": self._counts}

    def restore(self, record: dict[str, Any]) -> None:
        """Go on where another writer was when it gave this record."""
        self.shards, self._counts = record["shards"], record["counts"]

    def write(self, documents: Documents) -> None:
        """Append documents."""
        while left := len(documents.docs):
            # As far as the document with which the shard is full, wherever the caller's batches end.
            room = self._shard_tokens - self._counts["tokens"]
            fits = min(left, int(np.searchsorted(documents.docs[:, 0], room)) + 1)
            self._append(documents.take(np.arange(left) < fits))
            documents = documents.take(np.arange(left) >= fits)

    def close(self) -> None:
        """Close the shard that is being written, if there is one."""
        if self._counts["documents"]:
            names = [self._file(suffix) for suffix in SUFFIXES]
            for name in names:
                self._work.complete(name)
            self._take(names)
            self.shards.append(self._counts)
            self._counts = dict.fromkeys(self._counts, 0)

    def _append(self, documents: Documents) -> None:
        base = np.array([self._counts["tokens"], self._counts["sentences"], 0, 0])
        columns = documents._replace(docs=documents.docs + base)
        for suffix, values in zip(SUFFIXES, columns, strict=True):
            content = np.ascontiguousarray(values, dtype=self._dtypes[suffix]).tobytes()
            self._work.file(self._file(suffix)).write(content)
        self._counts["documents"] += len(documents.docs)
        self._counts["sentences"] += len(documents.ends)
        self._counts["tokens"] += len(documents.ids)
        if self._counts["tokens"] >= self._shard_tokens:
            self.close()

    def _file(self, suffix: str) -> str:
        return f"{self._name}/{shard_stem(len(self.shards))}.{suffix}"


def _write_json(path: Path, content: Any) -> None:
    # Neither file names nor the column names of rows need be UTF-8.
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        json.dump(content, file, ensure_ascii=False, indent=1)
        file.flush()
        os.fsync(file.fileno())
