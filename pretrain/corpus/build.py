"""Builds a corpus: one process reads and writes, the others turn text into arrays.

Documents go out in chunks of fixed content and come back in the same order, so that the bytes on the disk do not
depend on how many processes there are.  Only a few chunks are under way at a time: memory stays bounded.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from ernie.data.raw import Dropped, RawDocument, ReadOptions
from ernie.data.read import Input, find_inputs, read_input
from ernie.data.shard_writer import CorpusWriter, check_output
from ernie.errors import UserError
from ernie.text.load import load_tokenizer
from ernie.text.segment import default_segmenters
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.chunk import Chunk, Encoder, Rules
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.report import CorpusReport, Counts
from pretrain.corpus.sample import fit, sample, sample_language
from pretrain.corpus.workers import Shared, Workers

_CHUNK = 1 << 20  # characters of text in a chunk, or one document

Progress = Callable[[int, int, Counts], None]  # bytes read, bytes to read (0: unknown), counts so far


class _Batch(NamedTuple):
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

    `processes` worker processes, or none: all work is done here.  They are spawned, so a script that calls this
    needs `if __name__ == "__main__"`.  Raises UserError for anything wrong with input, tokenizer or output, and when
    no document is kept.
    """
    started = time.perf_counter()
    check_output(Path(output), overwrite)
    tokenizer = load_tokenizer(config.tokenizer)
    inputs = find_inputs(config.input)
    counts = Counts()
    total = sum(source.size for source in inputs) if all(source.size for source in inputs) else 0
    with (
        Workers(processes) as workers,
        CorpusWriter(output, tokenizer, shard_tokens=config.shard_tokens, overwrite=overwrite) as writer,
    ):
        encoder, language = prepare(config, inputs, tokenizer, workers)
        encode = partial(_encode, workers.share(encoder))
        for done, chunk in workers.map(encode, _batches(inputs, config.read)):
            writer.write("train", chunk.train)
            writer.write("held_out", chunk.held_out)
            counts.add(chunk.counts)
            if progress is not None:
                progress(done, total, counts)
        report = CorpusReport(counts, language, time.perf_counter() - started)
        _check_any(report)
        writer.finish([source.name for source in inputs], language=language, report=report.to_dict())
    return report


def prepare(
    config: CorpusConfig, inputs: Sequence[Input], tokenizer: Tokenizer, workers: Workers
) -> tuple[Encoder, str]:
    """What encodes the documents of `inputs`, its segmenters having learnt; and the language."""
    language = sample_language(inputs, config.read) if config.language == "auto" else config.language
    segmenters = default_segmenters(language) if config.segmenters is None else config.segmenters
    documents = sample(inputs, config.read, int(config.sample_mb * 1e6))
    fitted = fit(segmenters, documents, language, workers.share(tokenizer), workers)
    rules = Rules(language, config.held_out, config.min_sentences, config.min_tokens)
    return Encoder(tokenizer, fitted, rules), language


def _encode(encoder: Shared[Encoder], batch: _Batch) -> tuple[int, Chunk]:
    return batch.bytes_read, encoder.thing(batch.items)


def _batches(inputs: Sequence[Input], options: ReadOptions) -> Iterator[_Batch]:
    items: list[tuple[int, RawDocument | Dropped]] = []
    size = before = current = 0

    def note(bytes_read: int) -> None:
        nonlocal current
        current = bytes_read

    for number, source in enumerate(inputs):
        for item in read_input(source, options, note):
            items.append((number, item))
            size += len(item.text) if isinstance(item, RawDocument) else 1
            if size >= _CHUNK:
                yield _Batch(items, before + current)
                items, size = [], 0
        before, current = before + source.size, 0
    if items:
        yield _Batch(items, before)


def _check_any(report: CorpusReport) -> None:
    if not report.counts.total("documents"):
        reasons = ", ".join(f"{number:,} {reason}" for reason, number in sorted(report.counts.dropped.items()))
        first = f" First: {report.counts.examples[0]}" if report.counts.examples else ""
        raise UserError(f"no document of the input is kept ({reasons or 'there is none'}).{first}")
