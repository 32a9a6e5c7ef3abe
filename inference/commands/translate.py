"""Translate standard input, one sentence per line, with a fine-tuned model; words are written once they are ready.

A model that stays some words behind the source (task.wait_k) writes while a line is still being typed.  With --by line
the lines available are translated as one batch: much faster, and the same words.  In languages without spaces a
character is a word.  A line that is too long or not UTF-8 is noted, and the others are translated; the exit status is
then 2.

  ernie translate runs/de-en < german.txt > english.txt
  ernie translate runs/de-en --wait-k 3 --show-latency
  ernie translate runs/de-en --wait-k 1 --confidence 0.6 --max-wait-k 9
  tail -f subtitles.txt | ernie translate runs/de-en --by line
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ernie.arguments import add_plugin, add_precision

SUMMARY = "translate standard input as it comes in"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a fine-tuning run of the kind translate")
    add_plugin(parser)
    parser.add_argument("--by", choices=("word", "line"), default="word", help="what is read at a time (default: word)")
    parser.add_argument(
        "--wait-k", type=int, metavar="K", help="tokens to stay behind the source (default: as in training)"
    )
    help_text = "probability below which a token waits for more of the source (default: as set)"
    parser.add_argument("--confidence", type=float, metavar="P", help=help_text)
    help_text = "source tokens less with which a token has to be the next one, or else it waits (default: as set)"
    parser.add_argument("--agreement", type=int, metavar="N", help=help_text)
    help_text = "tokens behind the source at which none waits any longer (default: as set)"
    parser.add_argument("--max-wait-k", type=int, metavar="K", help=help_text)
    parser.add_argument(
        "--beam", type=int, metavar="N", help="hypotheses to follow once a line is over (default: as set)"
    )
    parser.add_argument(
        "--show-latency",
        action="store_true",
        help="report latency on standard error, per line and on average",
    )
    add_precision(parser)


def main(arguments: argparse.Namespace) -> int:
    """Write the translations to standard output."""
    from ernie.errors import UserError
    from ernie.runtime import require_paddle

    for name, least in (("wait_k", 1), ("agreement", 0), ("max_wait_k", 1), ("beam", 1)):
        value = getattr(arguments, name)
        if value is not None and value < least:
            raise UserError(f"--{name.replace('_', '-')}: expected at least {least}, found {value}")
    require_paddle()

    from inference.commands.translate_lines import by_line, by_word
    from inference.rows import standard_characters, standard_lines
    from inference.translator import TextTranslator

    names = ("wait_k", "confidence", "agreement", "max_wait_k", "beam", "precision")
    chosen = {name: getattr(arguments, name) for name in names}
    translator = TextTranslator.load(arguments.run, **chosen)
    latency = sys.stderr if arguments.show_latency else None
    if arguments.by == "line":
        by_line(translator, standard_lines(), sys.stdout, latency)
    else:
        by_word(translator, standard_characters(), sys.stdout, latency)
    return 0
