"""Check before the first step of a run on several processes that they agree on what they are about to do.

Which task feeds which step, with which samples, is a pure function that each process computes by itself.  Processes
with different configurations, corpora or versions would train on without an error, or wait for each other forever.
"""

from __future__ import annotations

from importlib import metadata

from ernie.config import dump
from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.parallel.collectives import differing_ranks
from ernie.parallel.layout import ParallelConfig
from ernie.parallel.mesh import Mesh
from ernie.parallel.pipeline_schedule import Deadlock, pipeline_schedule, simulate
from pretrain.config import PretrainConfig
from pretrain.feeds import label_files
from pretrain.schedule import Schedule


def check_agreement(mesh: Mesh, config: PretrainConfig, corpus: Corpus, step: int) -> None:
    """Raise UserError in every process if they differ, naming the ranks that differ from rank 0 and in what.

    `step` is the step that this process resumes from.
    """
    if mesh.layout.processes == 1:
        return
    schedule = Schedule(config.schedule, config.train.micro_batches)
    differences = []
    for what, value in {
        "version of the library": metadata.version("ernie-continual"),
        "configuration": dump(config),
        "corpus": corpus.fingerprint,
        "label files": repr(label_files(config)),
        "checkpoint": str(step),
        "schedule": schedule.digest(),
    }.items():
        differing = differing_ranks(mesh, value)
        if differing:
            ranks = ", ".join(map(str, differing))
            differences.append(f"{'rank' if len(differing) == 1 else 'ranks'} {ranks}: another {what} than rank 0")
    if differences:
        raise UserError("the processes would not do the same:\n" + "\n".join(differences))
    check_pipeline(mesh.layout, config.train.micro_batches)


def check_pipeline(layout: ParallelConfig, micro_batches: int) -> None:
    """Simulate a step of a pipeline without computing.  Raises UserError if its stages would deadlock."""
    per_replica = max(micro_batches // layout.replicas, 2 * layout.pipeline if layout.virtual_stages > 1 else 1)
    tables = [
        pipeline_schedule(stage, layout.pipeline, per_replica, layout.virtual_stages)
        for stage in range(layout.pipeline)
    ]
    unit = [1.0] * (layout.pipeline * layout.virtual_stages)
    try:
        simulate(tables, unit, unit)
    except Deadlock as error:
        raise UserError(f"parallel: {error}") from None
