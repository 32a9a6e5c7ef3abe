"""Build a corpus: workers read parts of the text and turn them into arrays, and one process writes these in order.

Every document gives the same arrays whoever reads it, so that the bytes on disk depend neither on the number of workers
nor on the parts.  Only a few parts are in flight at a time, which bounds memory.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np

from ernie.data.parts import Item
from ernie.data.raw import RawDocument
from ernie.data.read import Input, find_inputs
from ernie.data.remote import without_secrets
from ernie.data.shard_writer import CorpusWriter, check_output
from ernie.data.stream_copy import streams_copied
from ernie.errors import UserError
from ernie.text.load import load_tokenizer
from ernie.text.segment import default_segmenters
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.chunk import HASHES, Chunk, Encoder, Rules
from pretrain.corpus.clean.compare import Noted, Verdicts, compare, take_notes
from pretrain.corpus.clean.duplicates import ExactDuplicates
from pretrain.corpus.clean.pipeline import Pipeline, Verdict
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.engine import Engine
from pretrain.corpus.engines import EngineName, open_engine
from pretrain.corpus.language import LANGUAGES
from pretrain.corpus.reading import Made, readings
from pretrain.corpus.report import CorpusReport, Counts
from pretrain.corpus.sample import fit, sample, sample_language

Progress = Callable[[int, int, Counts], None]  # bytes read, bytes to read (0: unknown), counts so far


def build_corpus(
    config: CorpusConfig,
    output: str | Path,
    *,
    processes: int | None = 0,
    engine: EngineName = "local",
    overwrite: bool = False,
    progress: Progress | None = None,
) -> CorpusReport:
    """Build the corpus that `config` describes in the folder `output`.

    With 0 `processes` all work is done in this process.  Worker processes are spawned, so a script that calls this
    needs `if __name__ == "__main__"`.  With the engine "ray" a cluster does the work, see `RayEngine`.  Raises
    UserError for anything wrong with input, tokenizer or output, and if no document is kept.
    """
    started = time.perf_counter()
    check_output(Path(output), overwrite)
    tokenizer = load_tokenizer(config.tokenizer)
    with (
        streams_copied(find_inputs(config.input), Path(output)) as inputs,
        open_engine(engine, processes, Path(output)) as workers,
    ):
        names, size = [without_secrets(source.name) for source in inputs], _size(inputs)
        repeated = [ExactDuplicates(fold=False)] if config.drop_repeated else []
        pipeline = Pipeline([*repeated, *config.clean])
        pipeline.prepare()
        encoder, language = prepare(config, inputs, tokenizer, pipeline, workers)
        lengths = array("q", [0])  # the number of items before each part, if they are compared
        verdicts = Verdicts(names)
        if pipeline.comparisons:
            noted = readings(inputs, config.read, workers, partial(_note, pipeline))
            verdicts = compare(pipeline, _noted(noted, lengths, progress, size), names, Path(output))

        def judged(number: int) -> dict[int, Verdict]:
            first, last = lengths[number : number + 2] if pipeline.comparisons else (0, 0)
            return verdicts.of(first, last - first)

        def write(hold_out_below: int) -> CorpusReport:
            encoded = readings(inputs, config.read, workers, partial(_encode, encoder, hold_out_below), judged)
            with CorpusWriter(output, tokenizer, shard_tokens=config.shard_tokens, overwrite=overwrite) as writer:
                counts, hashes = _fill(writer, encoded, progress, size)
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
    writer: CorpusWriter, encoded: Iterable[Made[Chunk]], progress: Progress | None, size: int
) -> tuple[Counts, np.ndarray]:
    """Write what was encoded; return the counts, and the hashes of the documents' texts."""
    counts = Counts()
    hashes = [np.zeros(0, np.uint64)]
    for made in encoded:
        for chunk in made.results:
            writer.write("train", chunk.train)
            writer.write("held_out", chunk.held_out)
            counts.add(chunk.counts)
            hashes.append(chunk.hashes)
        if progress is not None:
            progress(made.part.end, size, counts)
    return counts, np.concatenate(hashes)


def _noted(
    readings: Iterable[Made[Noted]], lengths: array[int], progress: Progress | None, size: int
) -> Iterator[Noted]:
    """Yield what was noted; append the number of items so far to `lengths` after each part."""
    for made in readings:
        yield from made.results
        lengths.append(lengths[-1] + made.items)
        if progress is not None:
            progress(made.part.end, size, Counts())


def _size(inputs: Sequence[Input]) -> int:
    """Return the bytes of all inputs, or 0 if the size of one is unknown."""
    sizes = [source.size for source in inputs]
    return 0 if None in sizes else sum(size or 0 for size in sizes)


def prepare(
    config: CorpusConfig, inputs: Sequence[Input], tokenizer: Tokenizer, pipeline: Pipeline, engine: Engine
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
    broadcast, fitted = engine.broadcast(tokenizer), {}
    for name in sorted(sampled, key=lambda name: name != language):
        if config.segmenters is None:
            fitted[name] = fit(default_segmenters(name), sampled[name], name, broadcast, engine)
        elif sampled[name] or name == language:
            fitted[name] = fit(config.segmenters, sampled[name], name, broadcast, engine)
        else:  # a segmenter of one's own may not accept an empty sample
            fitted[name] = fitted[language]
    return Encoder(tokenizer, fitted, rules, pipeline), language


def _encode(encoder: Encoder, hold_out_below: int, items: Sequence[Item], verdicts: Mapping[int, Verdict]) -> Chunk:
    return encoder(items, hold_out_below, verdicts)


def _note(pipeline: Pipeline, items: Sequence[Item], verdicts: Mapping[int, Verdict]) -> Noted:
    return take_notes(pipeline, items)


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
