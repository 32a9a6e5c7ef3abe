"""Transcribe sound files, or live audio, with a model that was fine-tuned for it.

One output line per file, an empty one for a file that cannot be transcribed; the exit status is then 2.  With - in
place of a file, 16-bit mono PCM at the model's rate, or at --sample-rate, is read from standard input.  Words are
then written as they are said, by a model that was trained in chunks (task.encoder: chunks).

  ernie transcribe runs/digits call.wav
  ernie transcribe runs/digits --show-times *.flac
  ernie transcribe runs/digits --beam 16 --language-model words.arpa --alpha 0.5 call.wav
  ernie transcribe runs/digits --to srt talk.wav > talk.srt
  arecord -t raw -f S16_LE -r 8000 | ernie transcribe runs/digits --pause 0.8 -
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ernie.arguments import add_plugin, add_precision, add_quiet
from ernie.renames import add_renamed_flag

if TYPE_CHECKING:
    from tasks.downstream.transcribe import Transcribe

SUMMARY = "transcribe audio files or live audio"
WRITES_DATA = True
_PAUSE = 0.8  # seconds, after which lines with times end


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a fine-tuning run of the kind transcribe")
    add_plugin(parser)
    parser.add_argument("sounds", nargs="+", metavar="FILE", help="sound files, or - for standard input")
    parser.add_argument("--show-times", action="store_true", help="write the start time of each word, in seconds")
    parser.add_argument(
        "--to",
        choices=("text", "srt", "vtt", "jsonl"),
        default="text",
        help="lines with the times and the confidence of each word (jsonl), or captions; lines then end at pauses of "
        f"{_PAUSE:g} s unless --pause says otherwise (default: text)",
    )
    parser.add_argument("--pause", type=float, metavar="S", help="end a line after S seconds of silence (task.pause)")
    parser.add_argument(
        "--longest-line",
        type=float,
        metavar="S",
        help="after S seconds a quarter of it will do (task.longest_line)",
    )
    parser.add_argument("--beam", type=int, metavar="N", help="hypotheses to keep (default: the model's task.beam)")
    parser.add_argument(
        "--language-model", type=Path, metavar="FILE", help="ARPA or KenLM file that ranks them (task.language_model)"
    )
    parser.add_argument("--alpha", type=float, metavar="A", help="the weight of its log probabilities (task.alpha)")
    parser.add_argument("--beta", type=float, metavar="B", help="what each token or word adds (task.beta)")
    parser.add_argument(
        "--beam-ctc-weight", type=float, metavar="W", help="of CTC beside decoder: global (task.beam_ctc_weight)"
    )
    parser.add_argument("--channel", metavar="C", help="mix, left, right or a number from 1 on (task.channel)")
    parser.add_argument("--hot-words", type=Path, metavar="FILE", help="phrases to prefer, one a line (task.hot_words)")
    parser.add_argument(
        "--hot-weight", type=float, metavar="W", help="what each of their tokens adds (task.hot_weight)"
    )
    parser.add_argument("--n-best", type=int, metavar="N", help="alternatives of each sound, with --to jsonl")
    parser.add_argument("--sample-rate", type=int, metavar="HZ", help="of standard input (default: the model's)")
    add_renamed_flag(parser, "--language", "--language-model")
    add_renamed_flag(parser, "--rate", "--sample-rate")
    add_precision(parser)
    add_quiet(parser, "print only the transcripts")


def main(arguments: argparse.Namespace) -> int:
    """Write the transcripts to standard output."""
    from ernie.audio.convert import check_rate
    from ernie.errors import UserError
    from ernie.runtime import require_paddle

    if "-" in arguments.sounds and len(arguments.sounds) > 1:
        raise UserError("-: standard input is one sound; give it alone")
    if arguments.to in ("srt", "vtt") and len(arguments.sounds) > 1:
        raise UserError(f"--to {arguments.to}: captions are of one sound; give one file at a time, or --to jsonl")
    if arguments.to != "text" and arguments.show_times:
        raise UserError(f"--show-times: --to {arguments.to} has the times of words anyway; give one of them")
    if arguments.n_best is not None and (arguments.to != "jsonl" or arguments.sounds == ["-"]):
        raise UserError("--n-best: the alternatives of whole files are written as JSON lines; add --to jsonl")
    if arguments.sample_rate is not None and arguments.sounds != ["-"]:
        raise UserError("--sample-rate: files say themselves which one they have; it is for standard input, -")
    if arguments.channel is not None and arguments.sounds == ["-"]:
        raise UserError("--channel: standard input has one channel; it is for files")
    if arguments.sample_rate is not None:
        check_rate(arguments.sample_rate, "--sample-rate")
    require_paddle()

    from inference.captions import CaptionWriter
    from inference.commands.transcribe_sound import from_files, from_samples
    from inference.recognizer import transcribe_task
    from inference.rows import standard_input
    from inference.task_model import TaskModel

    model = TaskModel.load(arguments.run, precision=arguments.precision)
    task = transcribe_task(model)
    model.change_decoding(**decoding_changes(arguments, task))
    captions = None if arguments.to == "text" else CaptionWriter(arguments.to, sys.stdout)
    log = None if arguments.quiet else sys.stderr
    if arguments.sounds == ["-"]:
        from_samples(model, standard_input(), arguments.show_times, sys.stdout, log, arguments.sample_rate, captions)
    else:
        from_files(model, arguments.sounds, arguments.show_times, sys.stdout, log, captions)
    return 0


def decoding_changes(arguments: argparse.Namespace, task: Transcribe) -> dict[str, Any]:
    """Return what the arguments change in how a model decodes."""
    given = {name: value for name in task.decoding_fields if (value := getattr(arguments, name, None)) is not None}
    n_best = given.get("n_best", task.n_best)
    if arguments.to != "text" and task.hears_chunks and not task.pause and n_best == 1:
        return {"pause": _PAUSE, **given}
    return given
