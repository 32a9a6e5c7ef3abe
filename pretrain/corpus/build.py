"""Build a corpus: workers read parts of the text and turn them into arrays, and one process writes these in order.

Every document gives the same arrays whoever reads it, so that the bytes on disk depend neither on the number of workers
nor on the parts.  Only a few parts are in flight at a time, which bounds memory.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import numpy as np

from ernie.atomic import disk_guard
from ernie.data.parts import Item
from ernie.data.raw import RawDocument
from ernie.data.read import Input, find_inputs
from ernie.data.remote import without_secrets
from ernie.data.shard_writer import CorpusWriter, corpus_destination
from ernie.data.stream_copy import streams_copied
from ernie.data.work_folder import WorkFolder
from ernie.errors import Remark, UserError
from ernie.formatting import plural
from ernie.model.pretrained import tokenizer_at
from ernie.text.segment import default_segmenters, unmarked
from ernie.text.segment.base import Segmenter
from ernie.text.sentences import LANGUAGES
from ernie.text.tokenizer import Tokenizer
from pretrain.corpus.chunk import HASHES, Chunk, Encoder, Rules
from pretrain.corpus.clean.compare import Findings, Noted, compare
from pretrain.corpus.clean.duplicates import ExactDuplicates
from pretrain.corpus.clean.groups import blocks
from pretrain.corpus.clean.mapped import mapped
from pretrain.corpus.clean.pipeline import Pipeline, Verdicts
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.engine import Engine
from pretrain.corpus.engines import EngineName, open_engine
from pretrain.corpus.language import OTHER, segmented_as, split_as
from pretrain.corpus.reading import Done, Made, Make, readings
from pretrain.corpus.report import CorpusReport, Counts
from pretrain.corpus.sample import fit, sample, sample_language
from pretrain.corpus.signature import signature_of
from pretrain.corpus.texts import TextsConfig

_HASHES = "hashes"  # the file of the texts' hashes
_AT_ONCE = 1 << 21  # hashes in memory at a time
# Bytes read, bytes to read (0: unknown), and the counts so far; no counts while text is read to compare documents.
Progress = Callable[[int, int, Counts | None], None]


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
    destination = corpus_destination(output, overwrite)
    destination.check()
    place = destination.place.absolute()  # beside which is what is needed meanwhile
    tokenizer = tokenizer_at(config.tokenizer)
    with (
        streams_copied(find_inputs(config.input), place) as inputs,
        open_engine(engine, processes, place) as workers,
    ):
        names, size = [without_secrets(source.name) for source in inputs], _size(inputs)
        config.texts.check(output, config.input, [source.name for source in inputs], overwrite)
        signature = signature_of(config, inputs, tokenizer)
        repeated = [ExactDuplicates(fold=False)] if config.drop_repeated else []
        pipeline = Pipeline([*repeated, *config.clean])
        pipeline.prepare()
        encoder, language = prepare(config, inputs, tokenizer, pipeline, workers)
        read = partial(readings, inputs, config.read, workers)

        def noted(take: Make[Verdicts, Noted], findings: Findings, done: Done) -> Iterator[Made[Noted]]:
            for made in read(take, findings, done):
                yield made
                if progress is not None:
                    progress(made.part.end, size, None)

        def write(findings: Findings, hold_out_below: int) -> CorpusReport:
            encode = partial(_encode, encoder, hold_out_below, config.texts)
            with CorpusWriter(
                output,
                tokenizer,
                shard_tokens=config.shard_tokens,
                overwrite=overwrite,
                signature=f"{signature}-{hold_out_below}",
            ) as writer:
                counts = _fill(writer, partial(read, encode, findings), progress, size)
                hashes = _hashes(writer.work)
                try:
                    _check_splits(counts, hashes, hold_out=hold_out_below > 0)
                except _NoneHeldOut:
                    writer.work.forget()  # the next writer has another signature
                    raise
                counts.repeated = len(hashes) - _distinct(hashes)
                report = CorpusReport(counts, language, time.perf_counter() - started)
                for name in config.texts.files:
                    writer.work.file(name)  # also where nothing is in it
                config.texts.export(writer.work)
                for name in (_HASHES, *config.texts.files):
                    writer.work.remove(name)
                writer.finish(names, language=language, report=report.to_dict(), recipe=config.settings())
            return report

        with ExitStack() as stack:
            findings = Findings()
            if pipeline.comparisons:
                work = stack.enter_context(WorkFolder(place.with_name(f"{place.name}.notes"), signature))
                with disk_guard(place, "the corpus was not built"):
                    findings = compare(pipeline, noted, names, work)
            try:
                return write(findings, int(config.held_out * HASHES))
            except _NoneHeldOut as error:  # such a corpus is small enough to be read again
                return write(findings, error.least_hash + 1)


def _fill(
    writer: CorpusWriter, read: Callable[..., Iterable[Made[Chunk]]], progress: Progress | None, size: int
) -> Counts:
    """Write what is read, after what an interrupted writer has done, and the hashes of all texts; return the counts."""
    counts, done = Counts(), Done()
    if writer.state is not None:
        counts, done = Counts.restored(writer.state["counts"]), Done(**writer.state["done"])
        before = plural(counts.total("documents"), "document")
        what = f"goes on after {before} that an interrupted build has left"
        warnings.warn(f"{writer.output}: {what}", Remark, stacklevel=3)
    for made in read(done=done):
        for chunk in made.results:
            writer.write("train", chunk.train)
            writer.write("held_out", chunk.held_out)
            counts.add(chunk.counts)
            writer.work.file(_HASHES).write(chunk.hashes.tobytes())
            for name, rows in chunk.texts.items():
                writer.work.file(name).write(rows)
        writer.save({"counts": counts.state(), "done": vars(made.done)})
        if progress is not None:
            progress(made.part.end, size, counts)
    return counts


def _hashes(work: WorkFolder) -> np.ndarray:
    """Return the hashes of the texts of all documents, mapped into memory."""
    work.file(_HASHES)
    return mapped(work.path / _HASHES, np.dtype(np.uint64))


def _distinct(hashes: np.ndarray) -> int:
    """Return how many different hashes there are, with a bounded number of them in memory at a time."""
    shares = np.uint64(len(hashes) // _AT_ONCE + 1)
    distinct = 0
    for share in range(int(shares)):
        found = [some[some % shares == share] for some in (hashes[block] for block in blocks(len(hashes)))]
        distinct += len(np.unique(np.concatenate(found))) if found else 0
    return distinct


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
    detect, identify = config.language in ("auto", "identify"), config.language == "identify"
    language = sample_language(inputs, config.read) if detect else config.language
    rules = Rules(language, config.min_sentences, config.min_tokens, detect, identify)
    sampled: dict[str, list[RawDocument]] = {name: [] for name in _names(language, detect, identify)}
    for document in pipeline.cleaned(sample(inputs, config.read, int(config.sample_mb * 1e6))):
        sampled[segmented_as(rules.language_of(document))].append(document)
    broadcast = engine.broadcast(tokenizer)
    fitted: dict[str, Sequence[Segmenter]] = {}
    for name in sorted(sampled, key=lambda name: name != language):
        if config.segmenters is None:
            if sampled[name] and (sentence := unmarked(name)):
                warnings.warn(sentence, Remark, stacklevel=2)
            fitted[name] = fit(default_segmenters(name), sampled[name], split_as(name), broadcast, engine)
        elif sampled[name] or name == language:
            fitted[name] = fit(config.segmenters, sampled[name], split_as(name), broadcast, engine)
        else:  # a segmenter of one's own may not accept an empty sample
            fitted[name] = fitted[language]
    return Encoder(tokenizer, fitted, rules, pipeline), language


def _names(language: str, detect: bool, identify: bool) -> list[str]:
    """Return the languages that have segmenters of their own."""
    return [*LANGUAGES, *([OTHER] if identify else [])] if detect else [language]


def _encode(
    encoder: Encoder, hold_out_below: int, texts: TextsConfig, items: Sequence[Item], verdicts: Verdicts
) -> Chunk:
    return encoder(items, hold_out_below, verdicts, texts)


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
