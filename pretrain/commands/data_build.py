"""Build a corpus for pretraining from text.

Reads plain text (a blank line between documents, a paragraph a line), WikiExtractor's output, JSON, tables (CSV, TSV,
Parquet, Arrow), web archives (WARC, WET), HTML, Wikipedia's dumps in XML, and data sets of the `datasets` library.  All
files but Parquet and Arrow may be compressed (.gz, .bz2, .xz, .zst).  Files, folders and patterns may be at addresses,
such as s3://bucket/books or https://host/a.txt.  Splits sentences, tokenizes, marks words, phrases and entities, and
writes memory-mapped shards.  Documents that cannot be used are dropped and counted; the report goes to standard output
and into corpus.json.

examples:
  ernie data build --input books/ --tokenizer tok --output corpus
  ernie data build --input 'wiki/**/*.txt.gz' --tokenizer vocab.txt --language en --output corpus
  zcat news-*.jsonl.gz | ernie data build --input - --tokenizer tok --output corpus
  ernie data build --input 's3://bucket/crawl/*.warc.wet.gz' --tokenizer tok --output corpus
  ernie data build --input hf:wikitext:wikitext-103-raw-v1 --tokenizer tok --output corpus
  ernie data build corpus.yaml --output s3://bucket/corpus --engine ray
  ernie data build corpus.yaml --output corpus --set held_out=0.05 --set 'segmenters=[{kind: jieba}]'
"""

from __future__ import annotations

import argparse

from ernie import config as configuration
from ernie.arguments import add_config, add_output, add_overwrite, add_quiet, add_set
from ernie.errors import UserError
from ernie.registry import import_plugins
from ernie.runtime import cores
from ernie.text.sentences import LANGUAGES
from pretrain.corpus.build import build_corpus
from pretrain.corpus.config import CorpusConfig
from pretrain.corpus.engines import ENGINES
from pretrain.corpus.progress import ConsoleProgress

SUMMARY = "make a corpus for pretraining from text, JSON, tables, web archives or a data set"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_config(parser, "YAML file with the corpus's recipe", optional=True)
    parser.add_argument(
        "--input",
        nargs="+",
        action="extend",
        metavar="PATH",
        help="files, folders, patterns, addresses, data sets as hf:NAME[:CONFIG][:SPLIT], or - for standard input",
    )
    parser.add_argument(
        "--tokenizer",
        metavar="PATH",
        help="folder of a tokenizer, a model or a run; a vocab.txt, or a SentencePiece model",
    )
    parser.add_argument(
        "--language",
        choices=("auto", "identify", *LANGUAGES),
        help="language of the text (default: that of each document by its script; identify: also by its words)",
    )
    add_output(parser, "folder to write the corpus to, or the address of one", addresses=True)
    add_overwrite(parser, "corpus")
    add_set(parser, "override a key of the recipe")
    parser.add_argument(
        "--processes",
        type=int,
        metavar="N",
        help=f"worker processes, 0 for none (default: one a core, here {cores()}), or tasks of Ray at a time (default: "
        "two for each core of the cluster); they do not change the result",
    )
    parser.add_argument(
        "--engine",
        choices=ENGINES,
        default="local",
        help="what does the work: processes of this machine, or a Ray cluster (default: %(default)s)",
    )
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the command; return its exit status."""
    config = _config(arguments)
    how = {"processes": arguments.processes, "engine": arguments.engine, "overwrite": arguments.overwrite}
    if arguments.quiet:
        report = build_corpus(config, arguments.output, **how)
    else:
        with ConsoleProgress() as progress:
            report = build_corpus(config, arguments.output, **how, progress=progress)
    print(report.table())
    return 0


def _config(arguments: argparse.Namespace) -> CorpusConfig:
    """Return the recipe: the file's, overridden by the options, then by --set."""
    options = {name: getattr(arguments, name) for name in ("input", "tokenizer", "language")}
    given = {name: value for name, value in options.items() if value is not None}
    tree = configuration.read(arguments.config, arguments.set, given)
    for name in ("input", "tokenizer"):
        if tree.get(name) is None:
            raise UserError(f"the {name} is missing: give --{name} PATH, or the key `{name}` in a CONFIG")
    import_plugins(tree.get("plugins"))
    return configuration.build(CorpusConfig, tree)
