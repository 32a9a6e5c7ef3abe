"""The pretraining loop.  Order is a pure function of (seed, step); `Run.save` writes all state."""

from __future__ import annotations

import time

from ernie.parallel.collectives import any_rank
from ernie.train.interrupt import Interrupt
from pretrain.run import Run


def train(run: Run) -> bool:
    """Train from the run's step to the end of its schedule.  Returns False if a signal ended it early, after saving.

    Raises TrainingStopped or TrainingFailed when the loss, the gradients or the weights are not finite.
    """
    config, schedule = run.config, run.schedule
    patient = run.mesh.layout.processes > 1
    with Interrupt(run.log.say, "finishing this step and saving", patient=patient) as interrupt:
        for step in range(run.step, len(schedule)):
            slot = schedule[step]
            started = time.perf_counter()
            run.mesh.watch.at(step=step, task=", ".join(dict.fromkeys(slot.draws)), doing="making batches")
            batches = run.draw()
            fetched = time.perf_counter()
            report = run.train(batches)
            run.log_step(step, slot, batches, report, waited=fetched - started, took=time.perf_counter() - started)

            last, interrupted = run.step == len(schedule), any_rank(run.mesh, interrupt.asked is not None)
            if schedule.ends_stage(step) or (config.probe.every and run.step % config.probe.every == 0):
                run.probe(slot.stage, ends_stage=schedule.ends_stage(step))
            if last:
                run.check_finite()
            # Not in the middle of steps that are not finite: they would push out the last checkpoint before them.
            due = run.step % config.save.every == 0 or schedule.ends_stage(step)
            run.check_saved()
            if last or interrupted or (due and not run.trainer.bad_steps):
                run.save(wait=last or interrupted)
            if interrupted:
                run.log.say(f"stopped and saved after step {run.step}; run the same command again to resume")
                return last
    return True
