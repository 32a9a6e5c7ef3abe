"""A corpus of a sample of a recipe's input, to see what the recipe does before all of the input is read."""

from __future__ import annotations

import tempfile
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from ernie import config as configuration
from ernie.data.raw import Dropped, RawDocument
from ernie.data.read import find_inputs
from ernie.data.shard_writer import CorpusWriter
from ernie.data.shards import Corpus
from ernie.data.stream_copy import streams_copied
from ernie.errors import Remark, UserError
from ernie.model.pretrained import tokenizer_at
from ernie.registry import import_plugins
from pretrain.corpus.build import prepare
from pretrain.corpus.clean.pipeline import Pipeline
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.engine import LocalEngine
from pretrain.corpus.report import CorpusReport
from pretrain.corpus.sample import sample


@contextmanager
def trial_corpus(recipe: Path, overrides: Sequence[str]) -> Iterator[Corpus]:
    """Build a corpus of about `sample_mb` MB of a recipe's input in a temporary folder, with nothing held out.

    It is what the recipe makes of these documents, but filters that compare documents drop none.  Raises UserError as
    `build_corpus` does.
    """
    tree = configuration.read(recipe, overrides)
    import_plugins(tree.get("plugins"))
    config = configuration.build(CorpusConfig, tree)
    tokenizer = tokenizer_at(config.tokenizer)
    with tempfile.TemporaryDirectory(prefix="ernie-show-") as folder:
        output = Path(folder) / recipe.stem
        with (
            streams_copied(find_inputs(config.input), output) as inputs,
            LocalEngine(0, output) as workers,
            CorpusWriter(output, tokenizer) as writer,
        ):
            pipeline = Pipeline(config.clean)
            pipeline.prepare()
            if pipeline.comparisons:
                names = ", ".join(config.clean[number].name for number in pipeline.comparisons)
                warnings.warn(f"{recipe}: of a sample, {names} drops no document", Remark, stacklevel=3)
            encoder, language = prepare(config, inputs, tokenizer, pipeline, workers)
            numbers: dict[str, int] = {}
            items: list[RawDocument | Dropped] = []
            items += sample(inputs, config.read, int(config.sample_mb * 1e6), items.append)
            numbered = [(numbers.setdefault(item.place.file, len(numbers)), item) for item in items]
            chunk = encoder(numbered, hold_out_below=0)
            writer.write("train", chunk.train)
            if not chunk.counts.total("documents"):
                dropped = ", ".join(f"{number:,} {reason}" for reason, number in chunk.counts.dropped.items())
                raise UserError(f"{recipe}: no document of the sample is kept ({dropped or 'there is none'})")
            report = CorpusReport(chunk.counts, language, 0.0).to_dict()
            writer.finish(list(numbers), language=language, report=report, recipe=config.settings())
        yield Corpus.open(output)
