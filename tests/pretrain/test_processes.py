"""Pretraining on several processes from the command line: equal results, and one message if a process fails."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from support.helpers import ROOT
from support.processes import run_ernie

from ernie.cli import main
from ernie.errors import UserError
from ernie.kernels import build
from ernie.train.checkpoint import Checkpoints
from ernie.train.log import read_records
from ernie.train.run_folder import run_lock
from pretrain.diagnosis import diagnose
from pretrain.planner.machine import Machine
from pretrain.replay import Replay
from pretrain.training import read_state

PARTS = {
    "vocab_size": 2000,
    "layers": 2,
    "dropout": 0.0,
    "attention_dropout": 0.0,
}
# A custom task that fails once, in one process, at its fifth batch.
STUMBLING = '''
import os, signal, sys, time
from dataclasses import dataclass
from pathlib import Path
from tasks.base import pretrain_task
from tasks.pretraining.capitalization import Capitalization

FIFTH = 5
batches = 0

@pretrain_task("stumbling")
@dataclass(frozen=True, kw_only=True)
class Stumbling(Capitalization):
    """Capitalization, until it stumbles."""

    def loss(self, head, hidden_TD, batch):
        global batches
        batches += 1
        how, rank, mark = os.environ["STUMBLE"].split()
        if batches == FIFTH and rank == os.environ.get("PADDLE_TRAINER_ID") and not Path(mark).exists():
            Path(mark).touch()
            if how == "raise":
                raise ArithmeticError("one and one are three")
            if how == "sleep":
                time.sleep(3600)
            print("half a line", end="", file=sys.stderr, flush=True)
            os.kill(os.getpid(), getattr(signal, how))
            time.sleep(3600)
        return super().loss(head, hidden_TD, batch)
'''


@pytest.fixture(autouse=True)
def hidden_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a job scheduler leaves it on a machine without GPUs; Paddle's launcher would look for one of an empty name."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture(scope="session")
def parallel_config(config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a tiny run without dropout, with sizes that divide evenly."""
    file = tmp_path_factory.mktemp("spread") / "run.yaml"
    model = ", ".join(f"{key}: {value}" for key, value in PARTS.items())
    text = config.read_text(encoding="utf-8")
    text = re.sub(r"layers: 1\}", model + "}", text).replace("1e-3}}", "1e-3}, micro_batches: 2, precision: fp32}")
    file.write_text(text, encoding="utf-8")
    return file


@pytest.fixture(scope="session")
def single_run(parallel_config: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of its run on one process."""
    folder = tmp_path_factory.mktemp("alone") / "run"
    assert main(["pretrain", str(parallel_config), "--output", str(folder), "--quiet"]) == 0
    return folder


LONG = ("--processes", "2", "--set", "schedule.steps_per_task=5000", "--set", "save.every=100000")


def has_done(step: int, output: Path) -> bool:
    """Whether a run has completed `step`."""
    metrics = output / "metrics.jsonl"
    return metrics.exists() and f'"step": {step},' in metrics.read_text(encoding="utf-8")


def pretrain_arguments(config: Path, output: Path, *more: str) -> list[str]:
    return ["pretrain", str(config), "--output", str(output), "--quiet", *more]


def pretrain(config: Path, output: Path, *more: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return run_ernie(pretrain_arguments(config, output, *more), output.parent, **environment)


def check_same(found: Path, expected: Path) -> None:
    """Check for the same samples, and losses and gradient norms within 1e-6."""
    for record, reference in zip(read_records(found, "step"), read_records(expected, "step"), strict=True):
        assert record["samples"] == reference["samples"]
        assert record["loss"] == pytest.approx(reference["loss"], rel=1e-6)
        assert record["gradient_norm"] == pytest.approx(reference["gradient_norm"], rel=1e-6)


@pytest.mark.parametrize(
    ("processes", "parallel"),
    [
        (2, "{}"),
        pytest.param(4, "{pipeline: 2, tensor: 2}", marks=pytest.mark.slow),
        pytest.param(2, "{tensor: 2}", marks=pytest.mark.slow),
        pytest.param(2, "{pipeline: 2}", marks=pytest.mark.slow),
        pytest.param(2, "{sharding: 2}", marks=pytest.mark.slow),
        pytest.param(2, "{sharding: 2, sharding_stage: 3}", marks=pytest.mark.slow),
        pytest.param(4, "{tensor: 2}", marks=pytest.mark.slow),
        pytest.param(4, "{pipeline: 2}", marks=pytest.mark.slow),
        pytest.param(8, "{pipeline: 2, tensor: 2}", marks=pytest.mark.slow),
    ],
)
def test_results_equal_those_of_one_process(
    processes: int, parallel: str, parallel_config: Path, single_run: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    done = pretrain(parallel_config, output, "--processes", str(processes), "--set", f"parallel={parallel}")
    assert (done.returncode, done.stdout) == (0, f"{output / 'model'}\n"), done.stderr
    check_same(output, single_run)
    assert (output / "model" / "model.safetensors").is_file()
    assert main(["verify", str(output), "--quiet"]) == 0
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run"]  # no stray files


@pytest.mark.slow
@pytest.mark.parametrize("parallel", ["{}", "{tensor: 2, sequence: true}", "{pipeline: 2}", "{sharding: 2}"])
def test_one_process_replays_a_step_of_any_layout_with_its_dropout(
    parallel: str, parallel_config: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    words = ["--set", "model.dropout=0.1", "--set", "model.attention_dropout=0.1", "--set", f"parallel={parallel}"]
    done = pretrain(parallel_config, output, "--processes", "2", *words)
    assert done.returncode == 0, done.stderr
    replay = Replay(output, 23)
    found = diagnose(replay, replay.observe())
    replay.close()
    assert len(replay.agreements) == 3 and found.holds, found.lines
    alone = json.loads((output / "origin.json").read_text(encoding="utf-8"))
    (output / "origin.json").write_text(json.dumps({**alone, "layout": "one process"}), encoding="utf-8")
    otherwise = Replay(output, 23)
    differs = bool(otherwise.agreements[0].differences)
    otherwise.close()
    assert differs == ("tensor" in parallel or "pipeline" in parallel)


@pytest.mark.slow  # takes a minute or two
def test_a_run_reports_the_prediction_of_the_plan_for_this_machine(parallel_config: Path, tmp_path: Path) -> None:
    cache, output = tmp_path / "cache" / "ernie-continual", tmp_path / "run"
    cache.mkdir(parents=True)
    (cache / "kernels").symlink_to(build.cache())  # avoids compiling them again
    home = {"XDG_CACHE_HOME": str(cache.parent)}
    plan = run_ernie(["plan", str(parallel_config), "--devices", "2", "--calibrate"], tmp_path, **home)
    assert plan.returncode == 0, plan.stderr
    assert "assumed: this machine, measured with layers of 32 x 64 in fp32" in plan.stderr
    machine = Machine.read(cache / "machine.json")
    assert 1e8 < machine.products < 1e13
    assert 1e4 < machine.near.bandwidth < 1e12
    assert 20 < machine.kept < 100
    again = run_ernie(["plan", str(parallel_config), "--devices", "2", "--kind", "here"], tmp_path, **home)
    assert again.stdout == plan.stdout
    done = run_ernie(
        ["pretrain", str(parallel_config), "--output", str(output), "--processes", "2", "--set", "parallel={data: 2}"],
        tmp_path,
        **home,
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"a step took .* m?s, the process that needs most .*B; predicted: .* m?s, .*B", done.stderr)
    [record] = read_records(output, "layout")
    assert record["layout"] == "data 2"
    assert 0.2 < record["predicted_memory"] / record["memory"] < 2
    assert record["predicted_seconds"] > 0
    (cache / "machine.json").write_text("{}", encoding="utf-8")
    damaged = run_ernie(["pretrain", str(parallel_config), "--output", str(tmp_path / "alone")], tmp_path, **home)
    assert damaged.returncode == 0
    assert "name: this key is missing" in damaged.stderr


@pytest.mark.slow
def test_a_run_resumes_under_other_layouts(parallel_config: Path, single_run: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    stages: list[tuple[int, str]] = [(2, "{pipeline: 2}"), (1, "{}"), (2, "{tensor: 2}")]
    for last, (processes, parallel) in zip((5, 10, 24), stages, strict=True):
        options = ["--processes", str(processes), "--set", f"parallel={parallel}", "--set", "save.keep_last=9"]
        done = pretrain(parallel_config, output, *options)
        assert done.returncode == 0, done.stderr
        if last < 24:  # simulates a kill soon after
            for checkpoint in (output / "checkpoints").iterdir():
                if int(checkpoint.name.removeprefix("step-")) > last:
                    subprocess.run(["rm", "-r", str(checkpoint)], check=True)
    check_same(output, single_run)
    assert main(["verify", str(output), "--quiet"]) == 0


@pytest.mark.slow
def test_processes_that_make_only_their_own_data_shards_get_the_results_of_one_process(
    parallel_config: Path, single_run: Path, tmp_path: Path
) -> None:
    """And a run may go on with another number of processes."""
    alone, output, lanes = tmp_path / "alone", tmp_path / "run", ("--set", "data.data_shards=2")
    assert main([*pretrain_arguments(parallel_config, alone), *lanes]) == 0
    samples = [[record["samples"] for record in read_records(run, "step")] for run in (alone, single_run)]
    assert samples[0] != samples[1]

    done = pretrain(parallel_config, output, *lanes, "--processes", "2")
    assert done.returncode == 0, done.stderr
    check_same(output, alone)
    states = [read_state(Checkpoints(run / "checkpoints").latest()) for run in (alone, output)]
    assert states[0]["streams"] == states[1]["streams"]
    assert main(["verify", str(output), "--quiet"]) == 0

    shutil.rmtree(output / "checkpoints" / "step-00000024")
    shutil.rmtree(output / "model")
    assert main([*pretrain_arguments(parallel_config, output), *lanes]) == 0
    check_same(output, alone)
    assert main(["verify", str(output), "--quiet"]) == 0


def rejection(config: Path, output: Path, capsys: pytest.CaptureFixture[str], *more: str) -> str:
    start = time.monotonic()
    assert main(["pretrain", str(config), "--output", str(output), "--quiet", *more]) == 2
    assert not output.exists()
    assert time.monotonic() - start < 5  # no process was started
    return capsys.readouterr().err


def test_sizes_that_do_not_divide_are_rejected_before_anything_starts(
    parallel_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = rejection(parallel_config, tmp_path / "run", capsys, "--processes", "3", "--set", "parallel={tensor: 3}")
    assert error.splitlines() == [
        "ernie: error: parallel: heads: 2 / tensor 3 = 0.67, which is no whole number; 3 would do",
        "parallel: inner width: 64 / tensor 3 = 21.33, which is no whole number; 66 would do",
        "parallel: vocabulary: 2,000 / tensor 3 = 666.67, which is no whole number; 2,001 would do",
    ]
    error = rejection(parallel_config, tmp_path / "run", capsys, "--processes", "4")
    assert "micro-batches of a step: 2 / data x sharding 4 = 0.50, which is no whole number; 4 would do" in error


def test_a_layout_with_more_processes_is_rejected_with_how_to_start_them(
    parallel_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = rejection(parallel_config, tmp_path / "run", capsys, "--set", "parallel={pipeline: 2}")
    assert "pipeline 2 x sharding 1 x tensor 1 = 2 processes, but there is 1; --processes says how many" in error


@pytest.mark.parametrize("number", ["0", "-2"])
def test_fewer_than_one_process_is_rejected(
    number: str, parallel_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    error = rejection(parallel_config, tmp_path / "run", capsys, "--processes", number)
    assert error == f"ernie: error: --processes: expected at least 1, found {number}\n"


@pytest.fixture
def stumbling(parallel_config: Path, tmp_path: Path) -> Path:
    """The configuration of a run that fails as set in the environment variable STUMBLE."""
    (tmp_path / "stumbling.py").write_text(STUMBLING, encoding="utf-8")
    file = tmp_path / "run.yaml"
    text = parallel_config.read_text(encoding="utf-8").replace("capitalization, sentence_reordering", "stumbling")
    text = re.sub(r"sentence_reordering: \{.*\}", "stumbling: {}", text)
    file.write_text(text + "plugins: [stumbling]\nparallel: {timeout: 5}\n", encoding="utf-8")
    return file


@pytest.fixture
def stumble(stumbling: Path, tmp_path: Path) -> Callable[..., tuple[subprocess.CompletedProcess[str], Path]]:
    """A function that runs two processes, of which `rank` fails by `how`."""

    def run(how: str, rank: int, *more: str) -> tuple[subprocess.CompletedProcess[str], Path]:
        mark = tmp_path / "stumbled"
        options = ["--processes", "2", *more]
        return pretrain(stumbling, tmp_path / "run", *options, STUMBLE=f"{how} {rank} {mark}"), tmp_path / "run"

    return run


def test_differing_configurations_of_processes_are_reported_before_the_first_step(
    stumble: Callable[..., Any], tmp_path: Path
) -> None:
    plugin = tmp_path / "stumbling.py"
    by_rank = "    lower: int = int(os.environ.get('PADDLE_TRAINER_ID', 0)) + 1\n\n    def loss"
    plugin.write_text(plugin.read_text().replace("    def loss", by_rank), encoding="utf-8")
    done, output = stumble("raise", 9)
    assert done.returncode == 2
    assert "the processes would not do the same:\nrank 1: another configuration than rank 0" in done.stderr
    assert not (output / "checkpoints").exists()


@pytest.mark.parametrize(
    ("how", "rank", "message"),
    [
        ("raise", 1, r"rank 1 of 2 failed at step \d+, task stumbling, forward and backward: ArithmeticError: one and"),
        (
            "sleep",
            1,
            r"rank 1 is at step \d+, task stumbling, forward and backward for \d+ s, while rank 0 of 2 waited",
        ),
        pytest.param("SIGKILL", 1, r"rank 1 of 2 has died at step \d+, task \w+, ", marks=pytest.mark.slow),
        ("SIGKILL", 0, r"rank 0 of 2 has died at step \d+, task \w+, "),
        ("SIGSTOP", 0, r"rank 0 of 2 has said nothing for 5 s since step \d+, task \w+, "),
        pytest.param(
            "SIGSTOP", 1, r"rank 1 of 2 has said nothing for 5 s since step \d+, task \w+, ", marks=pytest.mark.slow
        ),
    ],
)
def test_if_one_process_fails_all_stop_with_one_message(
    how: str, rank: int, message: str, stumble: Callable[..., Any]
) -> None:
    start = time.monotonic()
    done, output = stumble(how, rank)
    assert done.returncode == 1
    errors = [line for line in done.stderr.splitlines() if line.startswith("ernie: error: ")]
    assert len(errors) == 1, done.stderr
    assert re.search(message, errors[0])
    assert errors[0].endswith("; all processes stop")
    assert time.monotonic() - start < 60
    logs = [(output / "processes" / f"rank-{rank}.log").read_text() for rank in range(2)]
    assert ("Traceback" in "".join(logs)) == (how == "raise")


def test_a_run_with_restarts_recovers_by_itself(
    stumble: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done, output = stumble("SIGKILL", 1, "--max-restarts", "2", "--set", "schedule.steps_per_task=6")
    assert done.returncode == 0, done.stderr
    assert "starting again from the last checkpoint (restart 1 of 2)" in done.stderr
    assert "restart 2" not in done.stderr
    assert [record["step"] for record in read_records(output, "step")] == list(range(12))
    monkeypatch.syspath_prepend(str(tmp_path))
    assert main(["verify", str(output), "--quiet", "--plugin", "stumbling"]) == 0


def test_a_port_that_another_program_takes_first_is_replaced(stumble: Callable[..., Any], tmp_path: Path) -> None:
    plugin = tmp_path / "stumbling.py"
    taking = """
import socket

mark = Path(os.environ["STUMBLE"].split()[2])
if os.environ.get("PADDLE_TRAINER_ID") == "0" and not mark.exists():
    mark.touch()
    other = socket.create_server(("", int(os.environ["PADDLE_MASTER"].rsplit(":", 1)[1])))
"""
    plugin.write_text(plugin.read_text(encoding="utf-8") + taking, encoding="utf-8")
    done, output = stumble("raise", 9, "--set", "schedule.steps_per_task=1")
    assert done.returncode == 0, done.stderr
    assert re.search(r"port \d+, which was free when the processes were started, is in use by another", done.stderr)
    assert "starting the processes again, with another port" in done.stderr
    assert (output / "model").is_dir()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--max-restarts", "1"], "is for several processes"),
        (["--max-restarts", "-1"], "expected at least 0, found -1"),
    ],
)
def test_max_restarts_is_rejected_for_one_process_or_if_negative(
    parallel_config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    assert main(["pretrain", str(parallel_config), "--output", str(tmp_path / "run"), *arguments]) == 2
    assert f"--max-restarts: {message}" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


def test_a_user_error_does_not_trigger_a_restart(parallel_config: Path, single_run: Path, tmp_path: Path) -> None:
    output = shutil.copytree(single_run, tmp_path / "run")
    for checkpoint in (output / "checkpoints").iterdir():
        (checkpoint / "state.json").write_text("{}")
    done = pretrain(parallel_config, output, "--processes", "2", "--max-restarts", "2")
    assert done.returncode == 2
    assert "state.json: does not match its checksum" in done.stderr
    assert "starting again" not in done.stderr


@contextmanager
def running(arguments: list[str], folder: Path, **environment: str) -> Iterator[subprocess.Popen[str]]:
    """Run `ernie` with these arguments and with the modules in `folder` on its path."""
    with subprocess.Popen(
        [sys.executable, "-m", "ernie.cli", *arguments],
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(folder)]), **environment},
    ) as run:
        yield run


def wait_for(condition: Callable[[], bool], run: subprocess.Popen[str]) -> None:
    """Wait until `condition` holds while `run` is alive."""
    deadline = time.monotonic() + 150
    while not condition():
        assert run.poll() is None, run.communicate()
        assert time.monotonic() < deadline, run.kill()
        time.sleep(0.1)


def launcher_of(run: subprocess.Popen[str]) -> int:
    """The process id of Paddle's launcher."""
    return int(Path(f"/proc/{run.pid}/task/{run.pid}/children").read_text())


def has_ended(output: Path) -> bool:
    """Whether the processes of a run have ended or end soon."""
    for _ in range(60):
        with suppress(UserError), run_lock(output):
            return True
    return False


def check_saved(output: Path) -> None:
    """Check that the last checkpoint contains every step that was done."""
    saved = sorted((output / "checkpoints").glob("step-????????"))
    assert saved, "\n".join(log.read_text(encoding="utf-8") for log in (output / "processes").iterdir())
    last = saved[-1]
    assert json.loads((last / "state.json").read_text())["step"] == len(read_records(output, "step"))


@pytest.mark.parametrize("number", [signal.SIGTERM, pytest.param(signal.SIGINT, marks=pytest.mark.slow)])
def test_a_signal_saves_and_ends_all_processes_before_the_launcher_can_kill_them(
    number: signal.Signals, parallel_config: Path, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    with running(pretrain_arguments(parallel_config, output, *LONG), tmp_path) as run:
        wait_for(lambda: has_done(3, output), run)
        launcher = launcher_of(run)
        os.kill(launcher, signal.SIGSTOP)
        run.send_signal(number)
        wait_for((output / "checkpoints").exists, run)
        os.kill(launcher, signal.SIGCONT)
        assert run.wait(60) == 128 + number
    check_saved(output)


def test_if_the_command_is_killed_its_processes_save_and_end(parallel_config: Path, tmp_path: Path) -> None:
    output = tmp_path / "run"
    with running(pretrain_arguments(parallel_config, output, *LONG), tmp_path) as run:
        wait_for(lambda: has_done(3, output), run)
        run.kill()
    assert has_ended(output)
    check_saved(output)


@pytest.mark.slow
def test_a_hangup_asks_the_processes_to_end_and_a_second_signal_kills_them(stumbling: Path, tmp_path: Path) -> None:
    output, mark = tmp_path / "run", tmp_path / "stumbled"
    options = [str(stumbling), "--output", str(output), "--processes", "2", "--set", "parallel.timeout=100"]
    with running(["pretrain", *options], tmp_path, STUMBLE=f"sleep 1 {mark}") as run:
        wait_for(mark.exists, run)
        run.send_signal(signal.SIGHUP)
        log = output / "processes" / "rank-0.log"
        wait_for(lambda: "SIGTERM: finishing this step and saving" in log.read_text(), run)
        run.send_signal(signal.SIGHUP)  # the same hangup, passed on by the shell
        run.send_signal(signal.SIGTERM)
        error = run.communicate(timeout=60)[1]
    assert run.returncode == 128 + signal.SIGKILL
    assert error.endswith("ernie: a second signal: the processes were killed; what they had not saved is lost\n")
    assert has_ended(output)
