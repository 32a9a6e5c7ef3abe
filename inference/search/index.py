"""An index of passages in a folder: how it is made, and made anew when texts change.

| file | holds |
|---|---|
| `index.json` | what the index was made of, and how |
| `passages.jsonl` | a passage a line: its text, title, id, file and line |
| `passages.npz` | where each passage begins in that file, its document's number, and a digest of its text |
| `bm25.npz`, `terms.txt` | the postings of each word |
| `vectors.npy`, `vectors.faiss` | the vectors, if there is a model, and an approximate index of them |
| `README.md` | the card |

Legend: N passages, D width.
"""

from __future__ import annotations

import json
import shutil
import warnings
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from hashlib import blake2b
from itertools import islice
from pathlib import Path
from types import NoneType
from typing import Literal
from zipfile import BadZipFile

import numpy as np
from numpy.lib.format import open_memmap
from paddle import nn
from tqdm import tqdm

import ernie
from ernie.atomic import check_free, disk_guard, make_folder, partial_folder, put
from ernie.errors import Remark, UserError, about, check_count
from ernie.formatting import plural
from ernie.json_file import read_json
from ernie.model.inference import identity
from ernie.model.sentence import SentenceConfig
from ernie.model.sentence import normalized as unit_vectors
from ernie.train.run_folder import CARD, run_lock
from inference.answer_writer import as_json
from inference.encoder import TextEncoder
from inference.search import bm25
from inference.search.bm25 import Bm25
from inference.search.nearest import Kind, Nearest, chosen_kind
from inference.search.passages import Document, Passage, Reading, Spans, passages

INDEX, _TEXTS, _NUMBERS, VECTORS = "index.json", "passages.jsonl", "passages.npz", "vectors.npy"
_FILES = (INDEX, _TEXTS, _NUMBERS, VECTORS, "vectors.faiss", "bm25.npz", "terms.txt", CARD)
FORMAT = 1
AGAIN = "Make the index again, by ernie search index."
_USUAL_LENGTH = 256  # tokens
_BLOCK = 1024  # passages that are encoded before their vectors are saved
# Names of prompts for the two sides, as sentence-transformers looks for them.
_QUERY_PROMPTS, _PASSAGE_PROMPTS = ("query",), ("document", "passage", "corpus")
_KINDS = {
    "format": (int,),
    "model": (str, NoneType),
    "fingerprint": (str,),
    "width": (int,),
    "dimensions": (int,),
    "normalized": (bool,),
    "query_prompt": (str,),
    "passage_prompt": (str,),
    "vectors": (str,),
    "effort": (int,),
    "recall": (float, NoneType),
    "passages": (int,),
    "documents": (int,),
    "cut_documents": (int,),
    "length": (int,),
    "overlap": (int,),
    "sources": [str],
    "version": (str,),
}


@dataclass(frozen=True)
class IndexSettings:
    """How texts become an index.

    Passages have at most `length` tokens, 0 for what suits the model; `overlap` of them are also in the one before, by
    default an eighth.
    `query_prompt` and `passage_prompt` stand before a query and a passage; None takes the model's own, if it has any.
    `dimensions` keeps so many numbers of each vector, 0 all, for a model that was trained for it.
    """

    reading: Reading = field(default_factory=Reading)
    length: int = 0
    overlap: int | None = None
    vectors: Kind | Literal["auto"] = "auto"
    query_prompt: str | None = None
    passage_prompt: str | None = None
    dimensions: int = 0

    def __post_init__(self) -> None:
        if self.length:
            check_count("length", self.length, 8)
        check_count("overlap", self.overlap or 0, 0)
        check_count("dimensions", self.dimensions, 0)

    def check_without_model(self) -> None:
        """Raise UserError for a setting of vectors, which an index without a model does not have."""
        given = {
            "vectors": self.vectors != "auto",
            "dimensions": self.dimensions > 0,
            "query_prompt": self.query_prompt is not None,
            "passage_prompt": self.passage_prompt is not None,
        }
        if name := next((name for name, is_given in given.items() if is_given), None):
            raise UserError(
                f"{name}: has no effect without a model, which makes the vectors; give --model, or leave it out"
            )


@dataclass(frozen=True)
class IndexInfo:
    """What an index was made of, and how.

    Its vectors, of a `width`, are those of the `model` with this `fingerprint`; without a model it finds by words only.
    They were cut to so many `dimensions`, 0 for none.
    `recall` is that of an approximate index of the `vectors`.  `cut_documents` have several passages.
    """

    model: str | None
    fingerprint: str
    width: int
    dimensions: int
    normalized: bool
    query_prompt: str
    passage_prompt: str
    vectors: Kind
    effort: int
    recall: float | None
    passages: int
    documents: int
    cut_documents: int
    length: int
    overlap: int
    sources: list[str]
    version: str
    format: int = FORMAT

    @classmethod
    def read(cls, folder: Path) -> IndexInfo:
        """Read what a folder holds.  Raises UserError for one that holds no index, or one of another format."""
        path = folder / INDEX
        if not path.is_file():
            raise UserError(f"{folder}: holds no index, which ernie search index makes")
        found = read_json(path, {"format": (int,)}, AGAIN)
        if found["format"] != FORMAT:
            raise UserError(f"{path}: is of format {found['format']}, and this version reads {FORMAT}. {AGAIN}")
        found = read_json(path, _KINDS, AGAIN)
        return cls(**{name: found[name] for name in _KINDS})


@dataclass(frozen=True)
class Made:
    """What `make_index` did: `reused` of the passages had vectors already, and `dropped` ones are no longer there."""

    info: IndexInfo
    reused: int
    dropped: int


def fingerprint(encoder: TextEncoder) -> str:
    """Return a fingerprint of what turns texts into vectors: the encoder, its pooling, and layers on that."""
    ernie, config = encoder.model.ernie, encoder.model.ernie.sentence_config or SentenceConfig()
    described = (identity(ernie, nn.Layer()), config.summary, config.lowercase, config.include_prompt)
    digest = blake2b(repr(described).encode(), digest_size=16)
    for layer in config.layers:
        for name in sorted(layer.weights):
            digest.update(np.ascontiguousarray(layer.weights[name]).tobytes())
    return digest.hexdigest()


def prompts_of(encoder: TextEncoder) -> tuple[str, str]:
    """Return the model's own prompts for queries and for passages, "" where it has none."""
    config = encoder.model.ernie.sentence_config or SentenceConfig()
    query, passage = (
        next((config.prompts[name] for name in names if name in config.prompts), config.prompt(None, None))
        for names in (_QUERY_PROMPTS, _PASSAGE_PROMPTS)
    )
    return query, passage


def encode(encoder: TextEncoder, texts: Sequence[str], prompt: str, normalized: bool) -> np.ndarray:
    """Return the vectors (N, D) of texts after a prompt."""
    return np.asarray(encoder.encode(texts, prompt=prompt, normalize=normalized), np.float32)


def shortened(vectors_ND: np.ndarray, width: int, normalized: bool) -> np.ndarray:
    """Return the first numbers of each vector (N, width), scaled to length 1 if the whole was."""
    if vectors_ND.shape[1] <= width:
        return vectors_ND
    kept_ND = vectors_ND[:, :width]
    return unit_vectors(kept_ND).astype(np.float32) if normalized else kept_ND


def make_index(
    sources: Sequence[str],
    place: Path,
    settings: IndexSettings,
    encoder: TextEncoder | None,
    model: str | None = None,
    overwrite: bool = False,
    quiet: bool = True,
) -> Made:
    """Make the index of texts at a place, with vectors by an encoder, if there is one, which `model` names.

    Passages of the index that is there keep their vectors; an index by another model is replaced if `overwrite` says
    so.  Vectors that were computed before an interruption are not computed again.  Raises UserError for sources that
    cannot be read, or without text, and for a place that holds something else.
    """
    check_free(place, "index", INDEX, _FILES, overwrite=True)
    if encoder is None:
        settings.check_without_model()
    own = "" if encoder is None else fingerprint(encoder)
    before = IndexInfo.read(place) if (place / INDEX).is_file() and not overwrite else None
    query, passage = ("", "") if encoder is None else prompts_of(encoder)
    query = query if settings.query_prompt is None else settings.query_prompt
    passage = passage if settings.passage_prompt is None else settings.passage_prompt
    wanted = (own, passage, settings.dimensions)
    if before is not None and (before.fingerprint, before.passage_prompt, before.dimensions) != wanted:
        raise UserError(
            f"{place}: holds an index by {_named(before)}, whose vectors do not fit those of now. Give --overwrite to "
            "make it anew, or another --output"
        )
    unfinished = place.with_name(f"{place.name}.unfinished")
    make_folder(unfinished)
    with run_lock(unfinished), disk_guard(place, "the index was not made"):
        folder = partial_folder(place)
        folder.mkdir(parents=True)
        try:
            made = _Maker(settings, encoder, own, query, passage, unfinished, quiet).make(
                sources, folder, None if before is None else place, model
            )
            put(folder, place)
        finally:
            if folder.exists():
                shutil.rmtree(folder)
    shutil.rmtree(unfinished)
    return made


@dataclass(frozen=True, eq=False)
class _Maker:
    """Makes an index in an empty folder."""

    settings: IndexSettings
    encoder: TextEncoder | None
    fingerprint: str
    query_prompt: str
    passage_prompt: str
    unfinished: Path
    quiet: bool

    def make(self, sources: Sequence[str], folder: Path, before: Path | None, model: str | None) -> Made:
        length, spans = self._length()
        digests, documents, cut = self._write_passages(sources, folder, length, spans)
        texts = (passage.searched for passage in stored_passages(folder))
        Bm25.of(texts).write(folder)
        kind: Kind = "exact"
        reused, dropped, note, effort, recall, width = 0, 0, "", 0, None, 0
        if before is not None:
            old = {row.tobytes() for row in read_numbers(before)["digests"]}
            dropped = len(old - {row.tobytes() for row in digests})
        if self.encoder is not None:
            reused, width = self._write_vectors(folder, digests, before)
            kind, note = chosen_kind(len(digests), self.settings.vectors)
            if kind != "exact":
                found, recall = Nearest.of(kind, np.load(folder / VECTORS, mmap_mode="r"))
                found.write(folder)
                effort = found.effort
        if note:
            warnings.warn(note, Remark, stacklevel=2)
        info = IndexInfo(
            model=model,
            fingerprint=self.fingerprint,
            width=width,
            dimensions=self.settings.dimensions,
            normalized=self._normalized,
            query_prompt=self.query_prompt,
            passage_prompt=self.passage_prompt,
            vectors=kind,
            effort=effort,
            recall=recall,
            passages=len(digests),
            documents=documents,
            cut_documents=cut,
            length=length,
            overlap=self._overlap(length),
            sources=list(sources),
            version=ernie.__version__,
        )
        (folder / INDEX).write_text(json.dumps(asdict(info), indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
        (folder / CARD).write_text(_card(info), encoding="utf-8")
        return Made(info, reused, dropped)

    @property
    def _normalized(self) -> bool:
        """Whether vectors get length 1, as they are compared by their cosine unless the model says otherwise."""
        config = None if self.encoder is None else self.encoder.model.ernie.sentence_config
        return config is None or config.similarity not in ("dot", "dot_product")

    @property
    def _mark(self) -> str:
        """How names of files with vectors that are not in an index yet begin."""
        described = f"{self.fingerprint} {self.settings.dimensions} {self.passage_prompt}"
        return blake2b(described.encode(), digest_size=8).hexdigest()

    def _length(self) -> tuple[int, Spans]:
        """Return the length of passages, in the tokens that `spans` finds.  Raises UserError for too long ones."""
        wanted = self.settings.length
        if self.encoder is None:
            return wanted or _USUAL_LENGTH, bm25.words
        tokenizer, config = self.encoder.tokenizer, self.encoder.model.ernie.sentence_config or SentenceConfig()

        def spans(text: str) -> np.ndarray:
            return tokenizer.encode(text).offsets

        positions = self.encoder.model.ernie.config.max_positions
        most = min(positions, config.max_len or positions) - 2 - len(spans(self.passage_prompt))
        if wanted > most:
            raise UserError(f"length: the model reads {most} tokens of a passage, found {wanted}")
        return wanted or min(_USUAL_LENGTH, most), spans

    def _overlap(self, length: int) -> int:
        return length // 8 if self.settings.overlap is None else self.settings.overlap

    def _write_passages(
        self, sources: Sequence[str], folder: Path, length: int, spans: Spans
    ) -> tuple[np.ndarray, int, int]:
        """Write all passages; return their digests (N, 16), the number of documents, and of those with several."""
        overlap = self._overlap(length)
        if overlap >= length:
            raise UserError(f"overlap: expected fewer than the {length} tokens of a passage, found {overlap}")
        offsets, of_document, digests, cut, document_number = [0], list[int](), list[bytes](), 0, -1
        ids, again = set[str](), list[Document]()
        with (folder / _TEXTS).open("wb") as file:
            for document_number, document in enumerate(self.settings.reading.documents(sources)):
                again += [document] if document.id in ids else []
                ids.add(document.id)
                own = list(passages(document, spans, length, overlap))
                cut += len(own) > 1
                for passage in own:
                    line = (as_json(passage._asdict()) + "\n").encode("utf-8", "surrogatepass")
                    file.write(line)
                    offsets.append(offsets[-1] + len(line))
                    of_document.append(document_number)
                    digests.append(_digest(passage))
        if not digests:
            raise UserError(f"{', '.join(sources)}: there is no text to search in")
        if again:
            first = f"'{again[0].id:.40}' at {again[0].place}"
            note = (
                f"{plural(len(again), 'document')} with the id of an earlier one, the first {first}; scores count one"
            )
            warnings.warn(note, Remark, stacklevel=2)
        digests_N16 = np.frombuffer(b"".join(digests), np.uint8).reshape(-1, 16)
        np.savez(
            folder / _NUMBERS,
            offsets=np.array(offsets, np.int64),
            documents=np.array(of_document, np.int32),
            digests=digests_N16,
        )
        return digests_N16, document_number + 1, cut

    def _write_vectors(self, folder: Path, digests: np.ndarray, before: Path | None) -> tuple[int, int]:
        """Write the vectors of all passages; return how many were there already, and their width."""
        assert self.encoder is not None
        known, blocks = self._known(before)
        wanted = dict[bytes, list[int]]()
        for row, digest in enumerate(digests):
            wanted.setdefault(digest.tobytes(), []).append(row)
        new = [digest for digest in wanted if digest not in known]
        reused = len(digests) - sum(len(wanted[digest]) for digest in new)
        numbers = {wanted[digest][0] for digest in new}
        todo = ((row, each) for row, each in enumerate(stored_passages(folder)) if row in numbers)
        with tqdm(total=len(numbers), unit=" passages", disable=self.quiet or None) as bar:
            while block := list(islice(todo, _BLOCK)):
                with about(f"{block[0][1].file}:{block[0][1].line} and the passages after it"):
                    texts = [each.searched for _, each in block]
                    whole_BD = encode(self.encoder, texts, self.passage_prompt, self._normalized)
                vectors_BD = self._shortened(whole_BD)
                keys_B = digests[[row for row, _ in block]]
                np.savez(self.unfinished / f"{self._mark}-{len(blocks):06}.npz", keys=keys_B, vectors=vectors_BD)
                known |= {key.tobytes(): (len(blocks), n) for n, key in enumerate(keys_B)}
                blocks.append(vectors_BD)
                bar.update(len(block))
        width = blocks[0].shape[1]
        written = open_memmap(folder / VECTORS, mode="w+", dtype=np.float32, shape=(len(digests), width))
        for digest, rows in wanted.items():
            number, n = known[digest]
            written[rows] = blocks[number][n]
        written.flush()
        return reused, width

    def _shortened(self, vectors_BD: np.ndarray) -> np.ndarray:
        """Return as many numbers of each vector as are asked for.  Raises UserError for more than there are."""
        wanted = self.settings.dimensions or vectors_BD.shape[1]
        if wanted > vectors_BD.shape[1]:
            raise UserError(f"dimensions: expected at most {vectors_BD.shape[1]}, which the model has, found {wanted}")
        return shortened(vectors_BD, wanted, self._normalized)

    def _known(self, before: Path | None) -> tuple[dict[bytes, tuple[int, int]], list[np.ndarray]]:
        """Return where vectors of passages stand, by digest, in the index before and in what was not finished."""
        known, blocks = dict[bytes, tuple[int, int]](), list[np.ndarray]()
        sources = list[tuple[np.ndarray, np.ndarray]]()
        if before is not None:
            sources.append((read_numbers(before)["digests"], np.load(before / VECTORS, mmap_mode="r")))
        for file in sorted(self.unfinished.glob("*.npz")):
            # A file of another model, or one whose writer was killed, is of no use.
            with suppress(OSError, ValueError, KeyError, BadZipFile):
                if file.name.startswith(f"{self._mark}-"):
                    with np.load(file, allow_pickle=False) as found:
                        sources.append((found["keys"], found["vectors"]))
        for keys, vectors in sources:
            known |= {key.tobytes(): (len(blocks), n) for n, key in enumerate(keys)}
            blocks.append(vectors)
        return known, blocks


def passages_file(folder: Path) -> Path:
    """Return the file with the passages of an index."""
    return folder / _TEXTS


def stored_passages(folder: Path) -> Iterator[Passage]:
    """Yield all passages of an index."""
    with (folder / _TEXTS).open("rb") as file:
        yield from map(as_passage, file)


def as_passage(line: bytes) -> Passage:
    """Return the passage that a line holds."""
    return Passage(**json.loads(line.decode("utf-8", "surrogatepass")))


def read_numbers(folder: Path) -> dict[str, np.ndarray]:
    """Return where each passage begins, its document's number, and the digest of its text."""
    with np.load(folder / _NUMBERS, allow_pickle=False) as found:
        return {name: found[name] for name in ("offsets", "documents", "digests")}


def _digest(passage: Passage) -> bytes:
    return blake2b(passage.searched.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _named(info: IndexInfo) -> str:
    if info.model is None:
        return "no model"
    return f"the model {info.model}, with {info.width} numbers a vector and the prompt {info.passage_prompt!r}"


def _card(info: IndexInfo) -> str:
    """Return the card of an index, in Markdown."""
    lines = [
        "# A search index",
        "",
        f"{plural(info.passages, 'passage')} of {plural(info.documents, 'document')}, from "
        f"{', '.join(f'`{source}`' for source in info.sources)}.",
        f"Passages have at most {info.length} tokens, {info.overlap} of which are also in the one before. "
        f"{plural(info.cut_documents, 'document')} had to be cut into several.",
        "",
        "| by | how |",
        "|---|---|",
        "| words | BM25, k1 1.2, b 0.75 |",
    ]
    if info.model is not None:
        compared = "cosines" if info.normalized else "products"
        how = {"exact": "all of them compared", "hnsw": "a graph (HNSW)", "ivf": "lists by their centers (IVF)"}
        recall = "" if info.recall is None else f", recall of the 10 nearest {info.recall:.3f} of an exact search"
        lines.append(f"| vectors | {compared} of {info.width} numbers by `{info.model}`, {how[info.vectors]}{recall} |")
    return "\n".join([*lines, "", "```console", "ernie search query FOLDER 'some words'", "```", ""])
