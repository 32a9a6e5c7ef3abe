"""Build a corpus: one process reads and writes, the others turn text into arrays.

Documents go out in chunks of fixed content and come back in the same order, so that the bytes on disk do not depend on
the number of processes.  Only a few chunks are in flight at a time, which bounds memory.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import Input, find_inputs, read_input
from ernie.data.remote import without_secrets
from ernie.data.shard_writer import CorpusWriter, check_output
from ernie.data.stream_copy import streams_copied
from ernie.errors import UserError
from ernie.text.load import load_tokenizer
from ernie.text.segment import default_segmenters
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.broadcast import Broadcast, CorpusWorkers
from pretrain.corpus.chunk import HASHES, Chunk, Encoder, Rules, text_hash
from pretrain.corpus.clean.compare import Items, compare
from pretrain.corpus.clean.pipeline import Pipeline, Verdict
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.language import LANGUAGES
from pretrain.corpus.report import CorpusReport, Counts
from pretrain.corpus.sample import fit, sample, sample_language

_CHUNK = 1 << 20  # total size at which a chunk of documents is complete

Progress = Callable[[int, int, Counts], None]  # bytes read, bytes to read (0: unknown), counts so far


class _Batch(NamedTuple):
    first: int  # the number of its first document
    items: list[tuple[int, RawDocument | Dropped]]
    bytes_read: int


def build_corpus(
    config: CorpusConfig,
    output: str | Path,
    *,
    processes: int = 0,
    overwrite: bool = False,
    progress: Progress | None = None,
) -> CorpusReport:
    """Build the corpus that `config` describes in the folder `output`.

    With 0 `processes` all work is done in this process.  Worker processes are spawned, so a script that calls this
    needs `if __name__ == "__main__"`.  Raises UserError for anything wrong with input, tokenizer or output, and if no
    document is kept.
    """
    started = time.perf_counter()
    check_output(Path(output), overwrite)
    tokenizer = load_tokenizer(config.tokenizer)
    with (
        streams_copied(find_inputs(config.input), Path(output)) as inputs,
        CorpusWorkers(processes, Path(output)) as workers,
    ):
        names, size = [without_secrets(source.name) for source in inputs], _size(inputs)
        pipeline = Pipeline(config.clean)
        pipeline.prepare()
        encoder, language = prepare(config, inputs, tokenizer, pipeline, workers)
        broadcast = workers.broadcast(encoder)
        first_reading = _shown(_batches(inputs, config.read, config.drop_repeated), progress, size)
        verdicts = compare(pipeline, first_reading, names, workers, Path(output))

        def write(hold_out_below: int) -> CorpusReport:
            batches = _batches(inputs, config.read, config.drop_repeated)
            judged = ((batch, verdicts.of(batch.first, len(batch.items))) for batch in batches)
            chunks = workers.map(partial(_encode, broadcast, hold_out_below), judged)
            with CorpusWriter(output, tokenizer, shard_tokens=config.shard_tokens, overwrite=overwrite) as writer:
                counts, hashes = _fill(writer, chunks, progress, size)
                _check_splits(counts, hashes, hold_out=hold_out_below > 0)
                counts.repeated = len(hashes) - len(np.unique(hashes))
                report = CorpusReport(counts, language, time.perf_counter() - started)
                writer.finish(names, language=language, report=report.to_dict(), recipe=config.settings())
            return report

        try:
            return write(int(config.held_out * HASHES))
        except _NoneHeldOut as error:  # such a corpus is small enough to be read again
            return write(error.least_hash + 1)


def _fill(
    writer: CorpusWriter, chunks: Iterator[tuple[int, Chunk]], progress: Progress | None, size: int
) -> tuple[Counts, np.ndarray]:
    """Write the chunks; return their counts, and the hashes of the documents' texts."""
    counts = Counts()
    hashes = [np.zeros(0, np.uint64)]
    for done, chunk in chunks:
        writer.write("train", chunk.train)
        writer.write("held_out", chunk.held_out)
        counts.add(chunk.counts)
        hashes.append(chunk.hashes)
        if progress is not None:
            progress(done, size, counts)
    return counts, np.concatenate(hashes)


def _size(inputs: Sequence[Input]) -> int:
    """Return the bytes of all inputs, or 0 if the size of one is unknown."""
    sizes = [source.size for source in inputs]
    return 0 if None in sizes else sum(size or 0 for size in sizes)


def prepare(
    config: CorpusConfig, inputs: Sequence[Input], tokenizer: Tokenizer, pipeline: Pipeline, workers: CorpusWorkers
) -> tuple[Encoder, str]:
    """Return the encoder for the documents of `inputs`, its segmenters fitted, and the language of most of the text.

    Segmenters are fitted on what the pipeline leaves of the sampled documents, without comparing them.  Unless the
    recipe gives the language, the segmenters of each language are fitted on its sampled documents.
    """
    detect = config.language == "auto"
    language = sample_language(inputs, config.read) if detect else config.language
    rules = Rules(language, config.min_sentences, config.min_tokens, detect)
    sampled: dict[str, list[RawDocument]] = {name: [] for name in (LANGUAGES if detect else [language])}
    for document in pipeline.cleaned(sample(inputs, config.read, int(config.sample_mb * 1e6))):
        sampled[rules.language_of(document)].append(document)
    broadcast, fitted = workers.broadcast(tokenizer), {}
    for name in sorted(sampled, key=lambda name: name != language):
        if config.segmenters is None:
            fitted[name] = fit(default_segmenters(name), sampled[name], name, broadcast, workers)
        elif sampled[name] or name == language:
            fitted[name] = fit(config.segmenters, sampled[name], name, broadcast, workers)
        else:  # a segmenter of one's own may not accept an empty sample
            fitted[name] = fitted[language]
    return Encoder(tokenizer, fitted, rules, pipeline), language


def _encode(
    encoder: Broadcast[Encoder], hold_out_below: int, judged: tuple[_Batch, dict[int, Verdict]]
) -> tuple[int, Chunk]:
    batch, verdicts = judged
    return batch.bytes_read, encoder.value(batch.items, hold_out_below, verdicts)


def _batches(inputs: Sequence[Input], options: ReadOptions, drop_repeated: bool) -> Iterator[_Batch]:
    items: list[tuple[int, RawDocument | Dropped]] = []
    first = size = before = current = 0
    seen: set[int] = set()  # the hashes of texts so far

    def note(bytes_read: int) -> None:
        nonlocal current
        current = bytes_read

    for number, source in enumerate(inputs):
        for item in read_input(source, options, note):
            if drop_repeated and not isinstance(item, Dropped):
                found = text_hash(item)
                if found in seen:
                    item = Dropped(item.place, "repeated", "an earlier document has this text")
                seen.add(found)
            items.append((number, item))
            size += item.size
            if size >= _CHUNK:
                yield _Batch(first, items, before + current)
                first, items, size = first + len(items), [], 0
        before, current = before + (source.size or 0), 0
    if items:
        yield _Batch(first, items, before)


def _shown(batches: Iterator[_Batch], progress: Progress | None, size: int) -> Iterator[Items]:
    """Yield the documents of batches, and report progress while they are compared."""
    for batch in batches:
        yield batch.items
        if progress is not None:
            progress(batch.bytes_read, size, Counts())


class _NoneHeldOut(Exception):
    """No document happens to have a hash below the hold-out threshold; `least_hash` is the lowest."""

    def __init__(self, least_hash: int):
        super().__init__(least_hash)
        self.least_hash = least_hash


def _check_splits(counts: Counts, hashes: np.ndarray, hold_out: bool) -> None:
    """Raise UserError if there is nothing to train on, _NoneHeldOut if a higher threshold could hold some out."""
    documents = counts.total("documents")
    if not documents:
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(counts.dropped.items()))
        examples = [*counts.examples, *(example for tally in counts.clean for example in tally.examples)]
        first = f" First: {examples[0]}" if examples else ""
        raise UserError(f"no document of the input is kept ({reasons or 'there is none'}).{first}")
    if not counts.splits["train"]["documents"]:
        raise UserError(
            f"held_out: all of the {documents:,} documents that are kept would be held out. Give more text, or hold "
            "out fewer, for instance none: --set held_out=0"
        )
    if hold_out and not counts.splits["held_out"]["documents"] and hashes.min() < hashes.max():
        raise _NoneHeldOut(int(hashes.min()))
