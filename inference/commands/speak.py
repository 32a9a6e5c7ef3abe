"""Speak texts with a voice that was fine-tuned, to a file or as a live stream.

With - in place of a text, lines of standard input are spoken as they come.  A line that cannot be spoken is noted and
left out; the exit status is then 2.  With --output - 16-bit mono PCM at the voice's rate is streamed to standard
output.

  ernie speak runs/voice "seven three five" --output number.wav
  ernie speak runs/voice "Room 735." --normalize en --output room.wav
  ernie speak runs/voice "seven" "three" --output - | aplay -t raw -f S16_LE -r 8000
  ernie translate runs/de-en --by line | ernie speak runs/voice - --output - | aplay -t raw -f S16_LE -r 8000
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from ernie.arguments import add_plugin, add_precision, add_quiet, output_path

SUMMARY = "speak texts"
WRITES_DATA = True


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a fine-tuning run of the kind synthesize")
    add_plugin(parser)
    parser.add_argument("texts", nargs="+", metavar="TEXT", help="what to say, or - for lines of standard input")
    parser.add_argument(
        "--output", type=output_path, required=True, metavar="FILE", help="a sound file to write, or - for samples"
    )
    parser.add_argument(
        "--vocoder",
        choices=("wavenet", "flow", "griffin_lim"),
        help="what makes the samples (default: the last one trained; every voice has griffin_lim)",
    )
    parser.add_argument(
        "--seed", type=int, default=0, help="seed of the noise that samples are generated from (default: 0)"
    )
    parser.add_argument(
        "--normalize",
        choices=("none", "en", "zh", "ja"),
        help="write numbers, dates, units and abbreviations as words of this language (default: as in training)",
    )
    add_precision(parser)
    add_quiet(parser, "say nothing")


def main(arguments: argparse.Namespace) -> int:
    """Write the audio."""
    from ernie.errors import UserError
    from ernie.runtime import require_paddle
    from ernie.text.blank import is_blank

    if "-" in arguments.texts and len(arguments.texts) > 1:
        raise UserError("-: standard input is one text; give it alone")
    require_paddle()

    from ernie.data.read_lines import Line
    from inference.commands.speak_lines import into_file, into_stream
    from inference.rows import standard_lines
    from inference.speaker import TextSpeaker

    speaker = TextSpeaker.load(
        arguments.run,
        arguments.vocoder,
        arguments.seed,
        text_normalization=arguments.normalize,
        precision=arguments.precision,
    )
    if arguments.texts == ["-"]:
        lines = standard_lines()
    else:  # all of them are checked before the first is spoken
        for text in arguments.texts:
            if not is_blank(text) and (problem := speaker.problem(text)):
                raise UserError(problem)
        lines = (Line(number, text) for number, text in enumerate(arguments.texts, 1))
    log = None if arguments.quiet else sys.stderr
    if arguments.output == Path("-"):
        into_stream(speaker, lines, sys.stdout.buffer, log)
    else:
        into_file(speaker, lines, arguments.output, log)
    return 0
