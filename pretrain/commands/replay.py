"""Rebuild a step of a pretraining run in one process, and say what went wrong in it.

The step starts from the nearest checkpoint before it, with the same samples, masks, dropout and weights, whatever the
layout of the run.  Prints each layer's outputs, gradients and updates, the first tensor that is not finite with the
samples that did it, and whether the run's records and checkpoints agree.  Writes that as RUN/replay/step-N.html, one
file with figures, and beside it as JSON.

--against compares the step with that of another run, or with the JSON of another replay (of another machine, say), and
names the first tensor that differs.  --bisect finds the first step at which two runs differ, and replays that.

  ernie replay runs/first --step 120
  ernie replay runs/first --step 120 --against runs/second
  ernie replay runs/first --bisect runs/second
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from ernie.arguments import add_plugin, add_quiet, output_path

if TYPE_CHECKING:
    from pretrain.diagnosis import Diagnosis
    from pretrain.replay import Observed, Replay

SUMMARY = "rebuild a step of a run, and name what went wrong in it"
FOLDER = "replay"  # in the folder of a run


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a pretraining run")
    parser.add_argument("--step", type=int, metavar="N", help="the step to replay, counted from 1")
    other = parser.add_mutually_exclusive_group()
    other.add_argument(
        "--against", type=Path, metavar="RUN|JSON", help="name the first tensor that differs from this run or replay"
    )
    other.add_argument("--bisect", type=Path, metavar="RUN", help="find the first step at which this run differs")
    parser.add_argument(
        "--tolerance",
        type=float,
        default=0.0,
        metavar="R",
        help="relative difference that --against and --bisect pass over, such as 1e-5 for rounding (default: 0)",
    )
    parser.add_argument("--samples", action="store_true", help="list the loss and the gradient of each sample")
    parser.add_argument(
        "--from-start", action="store_true", help="train from the beginning if there is no earlier checkpoint"
    )
    parser.add_argument(
        "--other-version", action="store_true", help="replay although the run is of another version of the library"
    )
    parser.add_argument(
        "--precision", choices=("fp32", "bf16", "fp16"), help="type of matrix products (default: that of the run)"
    )
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="where the run's corpus is now, if it was moved")
    parser.add_argument(
        "--output", type=output_path, metavar="FILE.html", help="the page (default: RUN/replay/step-N.html)"
    )
    add_plugin(parser)
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the command: 0 if the step is as it should be, 1 if values are not finite or differ."""
    from ernie.errors import UserError
    from ernie.runtime import require_paddle

    if (arguments.step is None) == (arguments.bisect is None):
        raise UserError("give the step to replay, --step N, or the run to compare all steps with, --bisect RUN")
    if arguments.output is not None and arguments.output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--output: a report is a web page; give a name that ends in .html, not {arguments.output}")
    if not arguments.tolerance >= 0:
        raise UserError(f"--tolerance: expected a number from 0, found {arguments.tolerance:g}")
    if (arguments.run / "trials").is_dir():
        raise UserError(f"{arguments.run}: is a fine-tuning run; ernie replay rebuilds steps of pretraining runs")
    require_paddle()

    from pretrain.diagnosis import bisect
    from pretrain.replay import Replay

    def open_replay(folder: Path, step: int) -> Replay:
        return Replay(
            folder,
            step,
            corpus_folder=arguments.corpus,
            precision=arguments.precision,
            from_start=arguments.from_start,
            other_version=arguments.other_version,
            quiet=arguments.quiet,
        )

    if arguments.bisect is None:
        return _replay(open_replay, arguments, arguments.run, arguments.step - 1, arguments.against, [])
    arguments.from_start = True
    parting = bisect(arguments.run, arguments.bisect, open_replay, arguments.tolerance)
    if parting.step is None:
        print("\n".join(parting.lines))
        return 0
    lines = [*parting.lines, f"the first step at which they differ is step {parting.step + 1:,}"]
    run, against = arguments.run, arguments.bisect if parting.replays else None
    if parting.odd == 1:
        run = arguments.bisect
    return _replay(open_replay, arguments, run, parting.step, against, lines)


def _replay(
    open_replay: Callable[[Path, int], Replay],
    arguments: argparse.Namespace,
    run: Path,
    step: int,
    against: Path | None,
    lines: list[str],
) -> int:
    """Replay one step, print what is to be said about it, and write its report; return the exit status."""
    from ernie.replay.layers import layers, rows
    from ernie.replay.report import Story, write_report
    from pretrain.diagnosis import diagnose
    from pretrain.ledger import markdown

    replay = open_replay(run, step)
    try:
        observed = replay.observe()
        diagnosis = diagnose(replay, observed)
        lines = [*lines, *replay.notes, *diagnosis.lines]
        holds = diagnosis.holds
        if against is not None:
            compared = _compared(open_replay, replay, observed, against, arguments.tolerance)
            lines += compared.lines
            holds = holds and compared.holds
        samples = _samples(replay, observed) if arguments.samples else []
    finally:
        replay.close()
    losses = ", ".join(f"{task} {loss:.6g}" for task, loss in observed.report.losses.items())
    facts = {
        "replayed from": f"the checkpoint of step {replay.since:,}" if replay.since else "the beginning of the run",
        "loss": losses,
        "gradient norm": f"{observed.report.gradient_norm:.6g}",
        "learning rate": f"{replay.training.lr(step):.3g}",
        "precision": str(replay.config.train.precision),
        "layout of the run": replay.layout.described(),
    }
    state = f"a replay of step {step + 1:,}, of {len(replay.training.schedule):,}"
    story = Story(run, step + 1, state, lines, facts, samples, observed.readings)
    page = write_report(story, arguments.output or run / FOLDER / f"step-{step + 1:08d}.html")
    print("\n".join(f"{name}: {value}" for name, value in facts.items()), end="\n\n")
    print(markdown(rows(layers(observed.readings))), end="\n\n")
    if samples:
        print(markdown(samples), end="\n\n")
    print("\n".join([*lines, str(page)]))
    return 0 if holds else 1


def _compared(
    open_replay: Callable[[Path, int], Replay], replay: Replay, observed: Observed, against: Path, tolerance: float
) -> Diagnosis:
    """Compare a step with that of another run, or with the readings in a file."""
    from ernie.replay.report import read_readings
    from pretrain.diagnosis import compare

    if against.suffix == ".json":
        return compare(replay, observed, read_readings(against, replay.step + 1), None, tolerance)
    other = open_replay(against, replay.step)
    try:
        readings = other.observe().readings
        return compare(replay, observed, readings, lambda place: other.observe([place]).kept[place], tolerance)
    finally:
        other.close()


def _samples(replay: Replay, observed: Observed) -> list[list[str]]:
    """Return a table of all samples of a step, those with the largest gradients first."""
    found = [
        each for task, batch in observed.batches if batch is not None for each in replay.sample_losses(task, batch)
    ]
    found.sort(key=lambda sample: (not sample.is_wrong, -sample.gradient_norm))
    return [["sample", "loss", "gradient, norm"], *([str(s), f"{s.loss:.4g}", f"{s.gradient_norm:.4g}"] for s in found)]
