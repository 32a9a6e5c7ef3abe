"""The cost of a pretraining step and of what surrounds it: making batches, waiting for them, checkpoints, resuming.

    python benchmarks/pretraining.py CORPUS [--preset small] [--steps 30]

prints five Markdown tables: how fast one worker makes batches of each task, and what that costs each of several
processes; the share of a step spent waiting for them; the time to save and to resume; and the cost of a step as
sequence length and batch size grow.  CORPUS is a folder written by `ernie data build`.  Figures are medians; run it on
an idle machine (the first two tables count only CPU time).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import tempfile
import time
from pathlib import Path

from ernie.data.shards import Corpus
from ernie.data.stream import Feed
from ernie.kernels.precision import precision, resolve
from ernie.train.checkpoint import check
from ernie.train.log import Log, read_records
from pretrain.config import DataConfig, ModelConfig, PretrainConfig, ProbeConfig, SaveConfig, complete
from pretrain.feeds import sources
from pretrain.loop import train
from pretrain.run import Run
from pretrain.schedule import ScheduleConfig
from tasks.base import pretrain_tasks

TASKS = (
    "knowledge_masking",
    "capitalization",
    "token_document",
    "sentence_reordering",
    "sentence_distance",
    "discourse_relation",
    "ir_relevance",
)
BLOCKS = 5  # made of each task, at most
REPLICAS, DRAWN = 8, 1024  # processes that split a step; batches of all of them


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus", type=Path)
    parser.add_argument("--preset", default="small")
    parser.add_argument("--steps", type=int, default=30, help="steps of each measurement")
    arguments = parser.parse_args()
    corpus = Corpus.open(arguments.corpus)
    measure_making(corpus, arguments.preset)
    measure_data_shards(corpus, arguments.preset)
    measure_waiting(corpus, arguments.preset, arguments.steps)
    measure_checkpoints(corpus, arguments.preset)
    measure_growth(corpus, arguments.preset, max(5, arguments.steps // 5))


def measure_making(corpus: Corpus, preset: str) -> None:
    """Measure how many tokens per second one worker puts into batches."""
    config = _config(corpus, preset, len(TASKS), max_len=128, micro_batch_tokens=4096)
    print("\n## Making batches (4,096 tokens, samples of up to 128)\n\n| task | tokens/s of one worker |\n|---|---|")
    for source in sources(config, corpus, held_out=False):
        size = source.items_per_block()
        speeds = []
        for block in range(min(BLOCKS, len(source.items) // size)):
            started = time.process_time()
            batches = source.batches(0, block * size, (block + 1) * size)
            speeds.append(sum(batch.layout.tokens for batch in batches) / (time.process_time() - started))
        print(f"| {source.name} | {statistics.median(speeds):,.0f} |")


def measure_data_shards(corpus: Corpus, preset: str) -> None:
    """Measure the CPU time that one of several processes spends on batches, by the data_shards that they are dealt
    from.
    """
    config = _config(corpus, preset, 1, max_len=128, micro_batch_tokens=4096, tasks=TASKS[:1])
    [source] = sources(config, corpus, held_out=False)
    print(f"\n## Making batches on {REPLICAS} processes (batches of 4,096 tokens, {source.name})\n")
    print("| data shards | CPU seconds of each process for a million tokens of all |\n|---|---|")
    for data_shards in (1, REPLICAS):
        feed = Feed([source])
        stream = feed.stream(source.name, data_shards, range(data_shards)[:1])
        started = time.process_time()
        for _ in range(DRAWN):
            next(stream)
        feed.close()
        seconds, tokens = time.process_time() - started, DRAWN * config.data.micro_batch_tokens
        print(f"| {data_shards} | {1e6 * seconds / tokens:.2f} |")


def measure_waiting(corpus: Corpus, preset: str, steps: int) -> None:
    """Measure the share of a step spent waiting for data, with all seven tasks in turn."""
    records = _run(corpus, preset, steps, max_len=128, micro_batch_tokens=4096)
    print(f"\n## Waiting for data ({preset}, batches of 4,096 tokens, samples of up to 128, {len(records)} steps)\n")
    print("| task | tokens/s | waiting, share of the steps' time | longest wait, ms |\n|---|---|---|---|")
    for name in (*TASKS, "all"):
        chosen = [record for record in records if name in (*record["loss"], "all")]
        seconds, waited = (sum(record[key] for record in chosen) for key in ("seconds", "waited"))
        speed = statistics.median(record["tokens"] / record["seconds"] for record in chosen)
        longest = 1000 * max(record["waited"] for record in chosen)
        print(f"| {name} | {speed:,.0f} | {waited / seconds:.2%} | {longest:.1f} |")


def measure_checkpoints(corpus: Corpus, preset: str) -> None:
    """Measure the time to write a checkpoint and to resume from it, early and late in a run."""
    print(f"\n## Checkpoints ({preset})\n\n| after step | size, MB | save, s | resume, s |\n|---|---|---|---|")
    for steps in (len(TASKS), 10 * len(TASKS)):
        with tempfile.TemporaryDirectory() as folder:
            config = _config(corpus, preset, steps, 128, 1024)
            log = Log(Path(folder), steps, quiet=True)
            run = Run(config, Path(folder), corpus, log)
            train(run)
            saves, resumes = [], []
            for _ in range(3):
                started = time.perf_counter()
                run.save()
                saves.append(time.perf_counter() - started)
            path = run.checkpoints.path(steps)
            for _ in range(3):
                started = time.perf_counter()
                check(path)
                again = Run(config, Path(folder), corpus, log, checkpoint=path)
                next(again.streams[TASKS[0]])
                resumes.append(time.perf_counter() - started)
                again.close()
            size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) / 1e6
            print(f"| {steps} | {size:.0f} | {statistics.median(saves):.2f} | {statistics.median(resumes):.2f} |")
            run.close()
            log.close()


def measure_growth(corpus: Corpus, preset: str, steps: int) -> None:
    """Measure tokens per second of masked language modeling as sequence length and batch size grow."""
    print(f"\n## A step as length and batch grow ({preset}, knowledge masking)\n")
    print(
        "| longest sample | tokens a batch | seconds a step | tokens/s | padding in attention |\n|---|---|---|---|---|"
    )
    for max_len, micro_batch_tokens in (
        (64, 4096),
        (128, 4096),
        (256, 4096),
        (512, 4096),
        (128, 1024),
        (128, 2048),
        (128, 8192),
    ):
        records = _run(corpus, preset, steps, max_len=max_len, micro_batch_tokens=micro_batch_tokens, tasks=TASKS[:1])[
            1:
        ]
        seconds = statistics.median(record["seconds"] for record in records)
        speed = statistics.median(record["tokens"] / record["seconds"] for record in records)
        padding = statistics.median(record["padding"] for record in records)
        print(f"| {max_len} | {micro_batch_tokens:,} | {seconds:.2f} | {speed:,.0f} | {padding:.0%} |")


def _run(
    corpus: Corpus, preset: str, steps: int, *, max_len: int, micro_batch_tokens: int, tasks: tuple[str, ...] = TASKS
) -> list[dict]:
    """The step records of a short run, without its first steps, which warm up."""
    folder = Path(tempfile.mkdtemp())
    try:
        config = _config(corpus, preset, steps, max_len, micro_batch_tokens, tasks)
        log = Log(folder, steps, quiet=True)
        run = Run(config, folder, corpus, log)
        with precision(resolve(config.train.precision)):
            for step in range(steps):
                slot = run.schedule[step]
                started = time.perf_counter()
                batches = [(task, next(run.streams[task])) for task in slot.draws]
                waited = time.perf_counter() - started
                report = run.trainer.step(step, batches, run.model.loss, run.lr(step))
                run.log_step(step, slot, batches, report, waited=waited, took=time.perf_counter() - started)
        run.close()
        log.close()
        return read_records(folder, "step")[len(tasks) if steps > 2 * len(tasks) else 0 :]
    finally:
        shutil.rmtree(folder)


def _config(
    corpus: Corpus, preset: str, steps: int, max_len: int, micro_batch_tokens: int, tasks: tuple[str, ...] = TASKS
) -> PretrainConfig:
    share = -(-steps // len(tasks))
    return complete(
        PretrainConfig(
            corpus=corpus.folder,
            schedule=ScheduleConfig(stages=[dict.fromkeys(tasks, share)]),
            tasks={name: pretrain_tasks[name]() for name in tasks},
            model=ModelConfig(preset=preset),
            data=DataConfig(max_len=max_len, micro_batch_tokens=micro_batch_tokens),
            probe=ProbeConfig(batches=1),
            save=SaveConfig(every=10**9),
        )
    )


if __name__ == "__main__":
    main()
