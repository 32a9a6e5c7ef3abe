"""Export a fine-tuned model or an encoder for other runtimes, and compare it with the original.

RUN is a run or a model's folder.  DIR gets the model, its tokenizer, its labels and a README that says how to call
it.  The exported model is run by its own runtime on random rows and on rows of --input or of the run: those of dev or,
if it has none, of train.  If outputs differ, nothing is written.

  ernie export runs/sst2 --to onnx --output sst2-onnx
  ernie export runs/sst2 --to onnx --int8 --output sst2-int8
  ernie export runs/first --to paddle --output encoder --input sentences.txt
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ernie.arguments import add_output, add_plugin

if TYPE_CHECKING:
    from ernie.data.labeled.row import Row

SUMMARY = "export a model to ONNX or to Paddle's inference format, compared with the original"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="a run, a model's folder, or a name on the hub")
    add_plugin(parser)
    parser.add_argument("--to", required=True, choices=("paddle", "onnx"), help="the format")
    add_output(parser, "the folder to write, which must not be there")
    parser.add_argument("--int8", action="store_true", help="quantize linear layers to int8 (for --to onnx)")
    parser.add_argument("--input", metavar="FILE", help="rows to compare on; lines of text for an encoder")
    parser.add_argument("--task", type=int, metavar="N", help="an encoder's task embedding (default: 0)")


def main(arguments: argparse.Namespace) -> int:
    """Export: return 0 when DIR was written, 1 when the differences were too large."""
    from ernie.runtime import require_paddle

    require_paddle()

    from finetune.train.run_contents import read_run, split_rows
    from inference.export.write import Export, export
    from tasks.downstream.saved import find_model

    def own_rows() -> Iterator[Row]:
        config = read_run(arguments.run)
        return split_rows(config, "dev" if "dev" in config.data.splits() else "train")

    def say(sentence: str) -> None:
        print(f"ernie: {sentence}", file=sys.stderr)

    rows_of_run = None if find_model(arguments.run) is None else own_rows
    request = Export(arguments.run, arguments.to, arguments.int8, arguments.input, arguments.task, rows_of_run)
    differences = export(request, arguments.output, say)
    print(*differences, sep="\n")
    if all(map(request.passes, differences)):
        print(arguments.output)
        return 0
    kind = "relative norm" if request.int8 else "largest difference"
    say(f"a {kind} is above {request.tolerance:g}: nothing was written to {arguments.output}")
    return 1
