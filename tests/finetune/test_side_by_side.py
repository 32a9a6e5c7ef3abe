"""`ernie finetune --jobs N` trains several trials at once, and ends with what it would have one after the other.

That is so bit for bit with as many threads for each trial; the models of these tests are too small for more than one.
"""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import load_file
from support.processes import processes_in, run_ernie, start_ernie, wait_until

from ernie.cli import main
from finetune.train.run_contents import training_trials

GRID = ["--set", "grid={peak: [1e-3, 1e-2]}", "--seeds", "2", "--set", "train.epochs=2"]
LONG = ["--set", "train.epochs=2000", "--seeds", "2", "--set", "save_minutes=100"]


def finetune(output: str, *more: str) -> list[str]:
    return ["finetune", "task.yaml", "--output", output, *more]


def outcome(run: Path) -> dict[str, Any]:
    """What scores.json has, except times."""
    scores = json.loads((run / "scores.json").read_text(encoding="utf-8"))
    for trial in scores["trials"]:
        del trial["seconds"]
        for evaluation in trial["curve"]:
            del evaluation["seconds"]
    return scores


def assert_same_model(one: Path, other: Path) -> None:
    names = {str(file.relative_to(one)) for file in one.rglob("*.safetensors")}
    assert names == {str(file.relative_to(other)) for file in other.rglob("*.safetensors")}
    for name in names:
        found, wanted = load_file(one / name), load_file(other / name)
        assert found.keys() == wanted.keys()
        for key, values in wanted.items():
            np.testing.assert_array_equal(found[key], values, err_msg=f"{name} {key}")


@pytest.mark.parametrize("change", ["keep=best", "keep=ensemble", "folds=2"])
def test_scores_and_model_are_those_of_trials_one_after_the_other(work: Path, change: str) -> None:
    for name, jobs in (("alone", "1"), ("at-once", "3")):
        done = run_ernie(finetune(name, *GRID, "--set", change, "--jobs", jobs), work)
        assert done.returncode == 0, done.stderr
    assert outcome(work / "at-once") == outcome(work / "alone")
    models = [work / name / "model" for name in ("at-once", "alone")]
    assert_same_model(*models)
    assert len({(model / "trial.txt").read_text(encoding="utf-8") for model in models}) == 1
    assert [path.name for path in (work / "at-once" / "trials").glob("*/model")] == []
    for line in ("trials, 3 at once", " left, about ", "(the last)"):
        assert line in done.stderr
    assert "was done before" not in done.stderr


def test_trials_that_are_done_are_not_run_again(work: Path) -> None:
    assert main(finetune("run", *GRID, "--quiet")) == 0
    kept = work / "run" / "trials" / "peak=0.001,seed=1" / "scores.json"
    before = kept.stat().st_mtime_ns
    done = run_ernie(finetune("run", *GRID, "--seeds", "4", "--jobs", "2"), work)
    assert done.returncode == 0, done.stderr
    assert kept.stat().st_mtime_ns == before
    assert "peak=0.001,seed=1: was done before" in done.stderr
    assert len(json.loads((work / "run" / "scores.json").read_text(encoding="utf-8"))["trials"]) == 8


def test_a_signal_saves_all_trials_and_the_same_command_goes_on(work: Path) -> None:
    with start_ernie(finetune("run", *LONG, "--jobs", "2"), work) as process:
        logs = [work / "run" / "trials" / f"seed={seed}" / "metrics.jsonl" for seed in (0, 1)]
        wait_until(lambda: all(log.is_file() and log.stat().st_size for log in logs), process)
        process.send_signal(signal.SIGTERM)
        said = process.communicate()[1].decode()
    assert process.returncode == 128 + signal.SIGTERM, said
    assert "SIGTERM: finishing the steps of all trials and saving" in said
    assert "stopped; the same command resumes from here" in said
    assert "Traceback" not in said
    for seed in (0, 1):
        assert list((work / "run" / "trials" / f"seed={seed}" / "checkpoints").iterdir())
    with start_ernie(finetune("run", *LONG), work) as process:
        assert process.stderr is not None
        while line := process.stderr.readline().decode():
            if "seed=0: resumes after step" in line:
                break
        process.kill()
    assert line


def test_when_the_command_is_killed_its_trials_save_and_end(work: Path) -> None:
    with start_ernie(finetune("run", *LONG, "--jobs", "2"), work) as process:
        log = work / "run" / "trials" / "seed=1" / "metrics.jsonl"
        wait_until(lambda: log.is_file() and log.stat().st_size > 0, process)
        process.kill()
        process.communicate()  # its workers have its standard error: this waits for their end
    assert list((work / "run" / "trials" / "seed=1" / "checkpoints").iterdir())


def test_a_trial_whose_process_is_killed_is_told_and_the_others_save(work: Path) -> None:
    with start_ernie(finetune("run", *LONG, "--jobs", "2"), work) as process:
        logs = [work / "run" / "trials" / f"seed={seed}" / "metrics.jsonl" for seed in (0, 1)]
        wait_until(lambda: all(log.is_file() and log.stat().st_size for log in logs), process)
        os.kill(processes_in(work, "trial_worker.py")[0], signal.SIGKILL)
        said = process.communicate()[1].decode()
    assert process.returncode == 2
    assert "its process was killed, perhaps for want of memory. The same command goes on; fewer --jobs take" in said
    assert sum((log.parent / "checkpoints").is_dir() for log in logs) == 1


def test_the_error_of_a_trial_ends_the_command_with_its_sentence_and_status(work: Path) -> None:
    grid = ["--set", "grid={peak: [1e-3, 1e+30]}", "--set", "train.clip=1e+30"]
    done = run_ernie(finetune("run", *grid, "--set", "train.epochs=20", "--jobs", "2"), work)
    assert done.returncode == 1, done.stderr
    assert "ernie: error: peak=1e+30,seed=0: " in done.stderr
    assert "Traceback" not in done.stderr


def test_of_equal_trials_the_first_is_kept_without_training_it_again(work: Path) -> None:
    done = run_ernie(
        finetune(
            "run",
            *GRID[:2],
            "--set",
            "train.lr.peak=1e-9",
            "--set",
            "grid.peak=[1e-9, 1e-8]",
            "--seeds",
            "2",
            "--jobs",
            "4",
        ),
        work,
    )
    assert done.returncode == 0, done.stderr
    assert "training it again" not in done.stderr
    assert (work / "run" / "model" / "trial.txt").read_text(encoding="utf-8") == "peak=1e-09,seed=0\n"


def test_rows_that_can_be_read_once_are_refused(work: Path) -> None:
    with start_ernie(finetune("run", "--seeds", "2", "--jobs", "2", "--set", "data.train=/dev/stdin"), work) as process:
        said = process.communicate((work / "train.tsv").read_bytes())[1].decode()
    assert process.returncode == 2
    assert "ernie: error: " in said and "Traceback" not in said


def test_a_second_signal_ends_the_command_though_a_trial_does_not(work: Path) -> None:
    with start_ernie(finetune("run", *LONG, "--jobs", "2"), work) as process:
        logs = [work / "run" / "trials" / f"seed={seed}" / "metrics.jsonl" for seed in (0, 1)]
        wait_until(lambda: all(log.is_file() and log.stat().st_size for log in logs), process)
        stopped = processes_in(work, "trial_worker.py")[0]
        os.kill(stopped, signal.SIGSTOP)
        process.send_signal(signal.SIGINT)
        wait_until(lambda: len(processes_in(work, "trial_worker.py")) == 1, process)
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 128 + signal.SIGINT
    assert processes_in(work, "trial_worker.py") == []


def test_what_a_plug_in_prints_is_no_answer_and_is_seen(work: Path) -> None:
    (work / "talking.py").write_text('print("hello", flush=True)\n', encoding="utf-8")
    done = run_ernie(finetune("run", *GRID, "--set", "plugins=[talking]", "--jobs", "2"), work)
    assert done.returncode == 0, done.stderr
    assert "(the last)" in done.stderr and "hello" in done.stderr


def test_trials_of_a_command_that_is_gone_are_not_trained_twice(work: Path) -> None:
    assert main(finetune("run", "--quiet")) == 0
    with training_trials(work / "run"):
        done = run_ernie(finetune("run", "--seeds", "2"), work)
    assert done.returncode == 2
    assert "run: trials of an earlier command, which is gone, are being saved" in done.stderr
    assert run_ernie(finetune("run", "--seeds", "2"), work).returncode == 0


def test_a_suite_trains_several_trials_of_a_task_at_once(work: Path) -> None:
    (work / "suite").mkdir()
    task = (work / "task.yaml").read_text(encoding="utf-8")
    blocks = "parallel: {data: 2}\ntune: {search: {train.lr.peak: {low: 1e-4, high: 1e-3}}, trials: 2}\n"
    (work / "suite" / "task.yaml").write_text(f"{task}\n{blocks}", encoding="utf-8")
    words = ["benchmark", "suite", "--model", "encoder", "--seeds", "3", "--output", "run"]
    done = run_ernie([*words, "--jobs", "2"], work)
    assert done.returncode == 0, done.stderr
    assert "(1 left, about " in done.stderr
    assert len(list((work / "run" / "task" / "trials").glob("*/scores.json"))) == 3


def test_wrong_numbers_of_jobs_are_refused(work: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(finetune("run", "--jobs", "0")) == 2
    assert "--jobs: expected at least 1, found 0" in capsys.readouterr().err
    assert main(finetune("run", "--jobs", "2", "--processes", "2")) == 2
    assert "--jobs: trains each trial on one process, and the run asks for several" in capsys.readouterr().err
