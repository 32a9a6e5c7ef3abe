"""Pretrain an encoder on a corpus, through the stages of a schedule.

The run's folder gets the resolved configuration, checkpoints, metrics.jsonl, and at the end the encoder in model/
with its card, README.md.
Run the same command again to resume an interrupted run; the result is bit-identical to an uninterrupted one.
SIGTERM and Ctrl-C save first.

  ernie data build --input texts/ --tokenizer tokenizer/ --output corpus/
  ernie pretrain ernie2-en --set corpus=corpus --check
  ernie pretrain ernie2-en --set corpus=corpus --output runs/first
  ernie report runs/first
"""

from __future__ import annotations

import argparse
import sys
from contextlib import ExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from ernie.arguments import add_config, add_output, add_processes, add_quiet, add_seed, add_set, overridden

if TYPE_CHECKING:
    from ernie.data.shards import Corpus
    from ernie.parallel.layout import ParallelConfig
    from pretrain.config import PretrainConfig

SUMMARY = "pretrain an encoder on a corpus, through the stages of a schedule"
_PAST_CHANGED = (
    "schedule: step {:,}, which is done, would have drawn other tasks by it. The schedule in the run's "
    "configuration no longer describes what was trained, and `ernie verify` will report it. To train more after the "
    "steps that are done, keep their stages as they were, under schedule.stages, and append one"
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    add_config(parser, "YAML file, see docs/howto/pretraining.md", part="pretrain")
    add_set(parser, "override a key, for example train.lr.peak=1e-4")
    add_output(parser)
    add_seed(parser)
    parser.add_argument(
        "--allow-change",
        action="append",
        default=[],
        metavar="KEY",
        help="let a resumed run differ in this key, or in all keys under it (repeatable)",
    )
    parser.add_argument(
        "--check", action="store_true", help="test the corpus, each task's samples and one step, then exit"
    )
    add_processes(parser)
    parser.add_argument("--machines", metavar="N", help="train on N machines, or on as many as come: LEAST:MOST")
    parser.add_argument("--address", metavar="A", help="where other machines reach this one (default: found)")
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the command: 0 if the schedule was finished, 130 if a signal ended it early, 1 if training broke down."""
    from ernie.data.shards import Corpus
    from ernie.errors import UserError
    from ernie.kernels.precision import resolve
    from ernie.parallel.launch import check_restarts, count, is_launched, launch, ranks
    from ernie.runtime import require_paddle
    from pretrain import folder
    from pretrain.config import load

    config = overridden(load(arguments.config, arguments.set), arguments, "output", "seed")
    output = config.output
    if output is None and not arguments.check:
        raise UserError("where should the run go? Give --output DIR, or the key `output`")
    together = arguments.machines is not None and not is_launched() and not arguments.check
    layout = config.parallel if together else config.parallel.over(count(arguments.processes))
    check_restarts(arguments.max_restarts, 2 if together else layout.processes)
    require_paddle()
    precision = resolve(config.train.precision)  # recorded: a run resumes in the precision it started with
    config = replace(config, train=replace(config.train, precision=precision))
    corpus = Corpus.open(config.corpus, config.data.cache_mb)

    if arguments.check:
        from pretrain.preflight import check

        layout.check(config.sizes(config.model.shape(corpus.tokenizer.vocab_size)))
        print(f"ok: {arguments.config} has no unknown or mistyped key", flush=True)
        for line in check(config, corpus):
            print(line, flush=True)
        return 0
    assert output is not None
    if together:
        if ranks() > 1:
            raise UserError("--machines: starts the processes of each machine itself; leave Paddle's launcher out")
        return _train_together(config, corpus, output, arguments)
    if layout.processes == ranks():
        return _train(config, layout, corpus, output, arguments)
    layout.check(config.sizes(config.model.shape(corpus.tokenizer.vocab_size)))
    with folder.open_run(config, corpus, output, arguments.allow_change, layout.described()):
        pass  # reports mistakes before processes are started; rank 0 opens the run again
    return launch(arguments.words, layout.processes, output, arguments.max_restarts)


def _train_together(config: PretrainConfig, corpus: Corpus, output: Path, arguments: argparse.Namespace) -> int:
    """Train on this machine and others, with as many of them as there are and the layout allows."""
    from ernie.errors import UserError
    from ernie.parallel.launch import launch_together
    from ernie.parallel.machines import Roster, members

    sizes = config.sizes(config.model.shape(corpus.tokenizer.vocab_size))
    least, most = members(arguments.machines)

    def check(machines: int) -> None:
        config.parallel.over(machines * arguments.processes).check(sizes)

    def fits(machines: int) -> bool:
        try:
            check(machines)
        except UserError:
            return False
        return True

    if not any(map(fits, range(least, most + 1))):
        check(most)  # says why not
    parallel, address = config.parallel, arguments.address or ""
    roster = Roster(output, address, parallel.timeout, (least, most), fits, parallel.ports)
    return launch_together(arguments.words, arguments.processes, output, arguments.max_restarts, roster)


def _train(
    config: PretrainConfig, layout: ParallelConfig, corpus: Corpus, output: Path, arguments: argparse.Namespace
) -> int:
    """Train in this process, which may be one of several."""
    from ernie.config import to_dict
    from ernie.formatting import plural
    from ernie.kernels.precision import precision
    from ernie.parallel.collectives import on_rank0
    from ernie.parallel.mesh import Mesh
    from ernie.train.checkpoint import Checkpoints, await_visible, check, read_manifest
    from ernie.train.log import Log
    from ernie.train.run_folder import CHECKPOINTS
    from ernie.train.trackers import TrackedRun, tracked_by
    from ernie.train.trainer import TrainingStopped
    from pretrain import folder
    from pretrain.agreement import check_agreement
    from pretrain.loop import train
    from pretrain.report.card import write_card
    from pretrain.report.downstream import saved_downstream
    from pretrain.report.evidence import read_evidence
    from pretrain.run import Run
    from pretrain.schedule import Schedule

    mesh = Mesh.connect(layout)
    log, run = None, None
    with ExitStack() as stack, mesh.watch:
        try:
            opened = folder.open_run(config, corpus, output, arguments.allow_change, layout.described())
            on_rank0(mesh, "opening the run", lambda: stack.enter_context(opened))
            checkpoint = on_rank0(mesh, "finding the last checkpoint", Checkpoints(output / CHECKPOINTS).latest)
            if checkpoint is not None:
                on_rank0(mesh, "checking the checkpoint", partial(check, checkpoint))
                with mesh.watch.doing("waiting to see the checkpoint"):
                    await_visible(checkpoint, mesh.rank)
            step = read_manifest(checkpoint)["step"] if checkpoint else 0
            check_agreement(mesh, config, corpus, step)
            steps = len(Schedule(config.schedule))
            place = output if mesh.is_first else None
            tracked = TrackedRun(output.resolve().name, settings=to_dict(config), trackers=tracked_by(config))
            log = Log(place, steps, resume_at=step, quiet=arguments.quiet, tracked=tracked)
            for remark in config.remarks:
                log.say(f"note: {remark}")
            if checkpoint is None and log.dropped:
                log.say(
                    "note: there is no checkpoint, so the run starts from its beginning, and the records of the "
                    f"{plural(log.dropped, 'step')} in metrics.jsonl are replaced"
                )
            if mesh.is_first and log.kept < step:
                log.say(
                    f"note: metrics.jsonl lacks the records of {step - log.kept:,} of the {step:,} steps that are "
                    "done; report and card leave them out, and `ernie verify` will name them"
                )
            run = Run(config, output, corpus, log, checkpoint=checkpoint, mesh=mesh)
            if step == steps:
                log.say(f"all {steps:,} steps are done already; append a stage to the schedule to continue")
            if checkpoint is not None and step < steps:
                changed_step = on_rank0(
                    mesh, "comparing schedules", lambda: folder.first_changed_step(config, output, step)
                )
                aside = on_rank0(
                    mesh, "resuming", lambda: folder.record_resume(config, corpus, output, layout.described(), step)
                )
                log.say(f"resuming from step {step} of {steps}")
                if aside is not None:
                    log.say(f"the encoder of the finished run is now in {aside}")
                if changed_step is not None:
                    log.say(_PAST_CHANGED.format(changed_step + 1))
            with precision(config.train.precision, config.train.amp_level):
                finished = train(run)
            if not finished:
                return 130
            run.score()
            final = run.finish()
            if mesh.is_first:
                evidence = read_evidence(output)
                write_card(evidence, saved_downstream(evidence))
                print(final)
        except TrainingStopped as error:  # in all processes alike
            if mesh.is_first:
                print(f"ernie: error: {error} A lower peak rate or a longer warm-up usually helps.", file=sys.stderr)
            return 1
        finally:
            if log is not None:
                log.close()
            if run is not None:
                run.close()
    return 0
