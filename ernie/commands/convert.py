"""Convert an encoder between this library's, Hugging Face's and PaddleNLP's formats, and certify the result.

SRC is a run or a model folder of this library's, a Hugging Face or PaddleNLP folder, an official ERNIE release or an
original BERT checkpoint; or NAME or NAME@REVISION of a model on the Hugging Face hub.  The head of a fine-tuned model
goes along, with its labels; plug-ins are not needed.  The certificate, also written into DST, gives the largest
difference of each layer's outputs.  Nothing is written when one is too large.

  ernie convert bert-base-uncased/ bert/ --to ernie
  ernie convert runs/first published/ --to hf
  ernie convert runs/first published/ --to paddlenlp --task 0
"""

from __future__ import annotations

import argparse
import math
import sys
from pathlib import Path

SUMMARY = "convert an encoder from or to Hugging Face's and PaddleNLP's formats, with a certificate"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("source", metavar="SRC", help="a folder, or NAME[@REVISION] on the hub")
    parser.add_argument("target", type=Path, metavar="DST", help="the folder to write, which must not exist")
    parser.add_argument("--to", required=True, choices=("ernie", "hf", "paddlenlp"), help="the format of DST")
    parser.add_argument(
        "--task",
        type=int,
        metavar="N",
        help="write the encoder for this one of its tasks, as a BERT: the task's embedding joins the segments'",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        default=1e-4,
        metavar="X",
        help="largest difference allowed, absolute for outputs up to 1, relative above (default: 1e-4)",
    )


def main(arguments: argparse.Namespace) -> int:
    """Convert; return 0 if DST was written, 1 if the differences were too large."""
    from ernie.errors import UserError
    from ernie.runtime import require_paddle

    if not 0 <= arguments.tolerance < math.inf:
        raise UserError(f"--tolerance: expected a difference of at least 0, found {arguments.tolerance:g}")
    require_paddle()

    from ernie.model.ernie import ErnieModel
    from ernie.model.pretrained import model_folder
    from ernie.model.published.convert import convert
    from ernie.model.published.hub import find
    from ernie.terminal import one_line

    source = model_folder(find(arguments.source))
    certificate = convert(source, arguments.target, arguments.to, ErnieModel, arguments.tolerance, arguments.task)
    for note in certificate.notes:
        print(f"ernie: {source}: {one_line(note)}", file=sys.stderr)
    print(certificate)
    if certificate.passed:
        print(arguments.target)
        return 0
    print(f"ernie: nothing was written to {arguments.target}", file=sys.stderr)
    return 1
