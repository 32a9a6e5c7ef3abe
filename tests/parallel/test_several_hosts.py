"""Pretraining on several hosts: the bytes of one host, and one sentence when a host or a link is lost."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

import pytest
from support.hosts import Hosts, hosts
from support.processes import run_ernie
from support.running import CONFIG, build_corpus, made_up_text

from ernie.cli import main

ERNIE = Path(sys.executable).with_name("ernie")
LIMIT = 6  # seconds of silence
SIZES = "layers: 2, vocab_size: 2000, dropout: 0.0, attention_dropout: 0.0}"
LONG = "schedule.steps_per_task=5000"


@pytest.fixture(scope="module")
def config(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The configuration of a tiny run of 24 steps without dropout, with sizes that divide evenly."""
    folder = tmp_path_factory.mktemp("hosts")
    text = CONFIG.format(corpus=build_corpus(made_up_text(folder / "text.txt"), folder))
    text = text.replace("layers: 1}", SIZES).replace("1e-3}}", "1e-3}, micro_batches: 4, precision: fp32}")
    (folder / "run.yaml").write_text(f"{text}parallel: {{timeout: {LIMIT}}}\n", encoding="utf-8")
    return folder / "run.yaml"


@pytest.fixture
def two() -> Iterator[Hosts]:
    with hosts(2) as made:
        yield made


def start(
    host: int, on: Hosts, words: Sequence[object], stdout: IO[str] | int = subprocess.PIPE
) -> subprocess.Popen[str]:
    """Start a command on a host, with the machine's interpreter: no fork of this process is on another host."""
    kept = {name: value for name, value in os.environ.items() if name != "CUDA_VISIBLE_DEVICES"}
    return on.start(
        host,
        [sys.executable, *map(str, words)],
        env={**kept, "MKL_NUM_THREADS": "1", "OMP_NUM_THREADS": "1"},
        stdout=stdout,
        stderr=subprocess.STDOUT,
        text=True,
    )


def launch(
    on: Hosts, config: Path, output: Path, each: int = 1, *more: str, count: int = 2
) -> list[subprocess.Popen[str]]:
    """Start a run on the first hosts with Paddle's launcher, as the documentation says."""
    launcher = ["-m", "paddle.distributed.launch", "--master", f"{on.address(1)}:6170", "--nnodes", count]
    run = [ERNIE, "pretrain", config, "--output", output, "--quiet", *more]
    return [
        start(host, on, [*launcher, "--nproc_per_node", each, "--log_dir", output.parent / f"log-{host}", *run])
        for host in range(1, count + 1)
    ]


def wait_until(condition: Callable[[], Any], processes: Sequence[subprocess.Popen[str]]) -> None:
    """Wait until `condition` holds, while all processes live."""
    end = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < end
        for process in processes:
            assert process.poll() is None, process.communicate()[0]
        time.sleep(0.1)


def has_done(step: int, output: Path) -> bool:
    metrics = output / "metrics.jsonl"
    return metrics.exists() and f'"step": {step},' in metrics.read_text(encoding="utf-8")


def weights(output: Path) -> dict[str, bytes]:
    """All files of the last checkpoint but its state, which also says which steps were logged."""
    last = max((output / "checkpoints").iterdir())
    return {file.name: file.read_bytes() for file in sorted(last.rglob("*.safetensors"))}


def errors(folder: Path, host: int) -> list[str]:
    """What the processes of a host said in the end."""
    logs = (folder / f"log-{host}").glob("workerlog.*")
    lines = [line for log in logs for line in log.read_text(encoding="utf-8").splitlines()]
    return [line for line in lines if line.startswith("ernie: error: ")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("count", "each", "parallel"),
    [
        (2, 1, "{data: 2}"),
        (2, 1, "{tensor: 2}"),
        (2, 1, "{pipeline: 2}"),
        (2, 1, "{sharding: 2, sharding_stage: 2}"),
        (2, 1, "{sharding: 2, sharding_stage: 3}"),
        (2, 2, "{pipeline: 2, tensor: 2}"),
        (2, 2, "{data: 2, sharding: 2}"),
        (4, 1, "{data: 4}"),
        (4, 1, "{data: 2, pipeline: 2}"),
        (4, 1, "{tensor: 2, sharding: 2}"),
    ],
)
def test_several_hosts_compute_the_bytes_of_one(
    count: int, each: int, parallel: str, config: Path, tmp_path: Path
) -> None:
    more = ("--set", f"parallel={parallel[:-1]}, timeout: 60}}", "--set", "schedule.steps_per_task=3")
    with hosts(count) as made:
        for process in launch(made, config, tmp_path / "several" / "run", each, *more, count=count):
            assert process.wait(150) == 0, process.communicate()[0]
    alone = tmp_path / "one"
    alone.mkdir()
    words = ["pretrain", str(config), "--output", str(alone / "run"), "--quiet", "--processes", str(count * each)]
    done = run_ernie([*words, *more], alone)
    assert done.returncode == 0, done.stderr
    assert weights(tmp_path / "several" / "run") == weights(alone / "run")


@pytest.mark.parametrize("lost", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_a_link_that_is_cut_ends_both_sides_with_a_sentence_that_names_the_host(
    lost: int, config: Path, two: Hosts, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    running = launch(two, config, output, 1, "--set", LONG)
    wait_until(lambda: has_done(3, output), running)
    two.cut(lost)
    began = time.monotonic()
    while not all(errors(tmp_path, host) for host in (1, 2)):
        assert time.monotonic() - began < 3 * LIMIT
        time.sleep(0.1)
    [first], [second] = (errors(tmp_path, host) for host in (1, 2))
    assert re.search(rf"rank 1 of 2 on 10\.77\.0\.2 has said nothing for {LIMIT} s since step \d+, task \w+", first)
    assert re.search(rf"rank 0 on 10\.77\.0\.1 of 2 has said nothing for {LIMIT} s; rank 1 was at step \d+", second)


@pytest.mark.slow
def test_a_host_that_is_lost_ends_the_others_with_a_sentence_that_names_it(
    config: Path, two: Hosts, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    running = launch(two, config, output, 1, "--set", LONG)
    wait_until(lambda: has_done(3, output), running)
    two.kill(2)
    began = time.monotonic()
    while not errors(tmp_path, 1):
        assert time.monotonic() - began < 3 * LIMIT
        time.sleep(0.1)
    assert re.search(rf"rank 1 of 2 on 10\.77\.0\.2 has said nothing for {LIMIT} s since step", errors(tmp_path, 1)[0])


@pytest.mark.slow
def test_a_host_that_does_not_share_the_folder_of_the_run_is_told_so(config: Path, two: Hosts, tmp_path: Path) -> None:
    output = tmp_path / "run"
    for process in launch(two, config, output):
        assert process.wait(150) == 0, process.communicate()[0]
    two.run(2, f"mount -t tmpfs none {output}")
    for process in launch(two, config, output, 1, "--set", "parallel.timeout=60"):
        process.wait(150)
    assert any("rank 1 does not see it on its machine" in error for error in errors(tmp_path, 1))


def together(
    host: int, on: Hosts, config: Path, output: Path, *more: str, machines: str = "1:2"
) -> subprocess.Popen[str]:
    """Start a run on as many hosts as come; what it says goes to a file."""
    words = ["pretrain", config, "--output", output, "--machines", machines, "--max-restarts", 3, *more]
    with (output.parent / f"host-{host}.txt").open("a", encoding="utf-8") as file:
        return start(host, on, [ERNIE, *words], stdout=file)


def said(output: Path, host: int) -> str:
    return (output.parent / f"host-{host}.txt").read_text(encoding="utf-8")


@pytest.fixture
def poorly_named(two: Hosts, tmp_path: Path) -> Hosts:
    """Two hosts whose own names lead to their loopback interfaces, as Debian installs it."""
    for host in (1, 2):
        file = tmp_path / f"hosts-{host}"
        file.write_text(f"127.0.0.1 localhost\n127.0.1.1 {two.name(host)}\n", encoding="utf-8")
        two.run(host, f"mount --bind {file} /etc/hosts")
    return two


@pytest.mark.slow
def test_a_run_goes_on_bit_for_bit_with_the_hosts_that_are_left(
    config: Path, poorly_named: Hosts, tmp_path: Path
) -> None:
    """As one host does that resumes from the same checkpoint."""
    two, output = poorly_named, tmp_path / "run"
    more = ("--set", "schedule.steps_per_task=60", "--set", "save={every: 10, keep_last: 99}")
    running = [together(host, two, config, output, *more) for host in (1, 2)]
    wait_until(lambda: has_done(25, output), running)
    two.kill(2)
    assert running[0].wait(200) == 0, said(output, 1)
    text = said(output, 1)
    assert text.count("training on 2 machines: 10.77.0.1, 10.77.0.2") == 1
    assert "rank 1 of 2 on 10.77.0.2 has said nothing for" in text
    assert text.count("training on 1 machine: 10.77.0.1") == 1
    [resumed] = map(int, re.findall(r"resuming from step (\d+) of 180", text))
    assert 20 <= resumed < 180

    alone = tmp_path / "alone" / "run"
    shutil.copytree(output, alone)
    shutil.rmtree(alone / "model")
    for checkpoint in (alone / "checkpoints").iterdir():
        if int(checkpoint.name.removeprefix("step-")) > resumed:
            shutil.rmtree(checkpoint)
    done = run_ernie(["pretrain", str(config), "--output", str(alone), "--quiet", *more], alone.parent)
    assert done.returncode == 0, done.stderr
    assert weights(output) == weights(alone)


@pytest.mark.slow
def test_a_host_that_comes_back_is_taken_in_and_one_that_leaves_is_let_go(
    config: Path, two: Hosts, tmp_path: Path
) -> None:
    output = tmp_path / "run"
    more = ("--set", LONG, "--set", "save.every=20")
    first, second = (together(host, two, config, output, *more) for host in (1, 2))
    wait_until(lambda: has_done(30, output), [first, second])
    two.kill(2)
    wait_until(lambda: "training on 1 machine: 10.77.0.1" in said(output, 1), [first])
    two.mend(2)
    second = together(2, two, config, output, *more)
    wait_until(lambda: said(output, 1).count("training on 2 machines: 10.77.0.1, 10.77.0.2") == 2, [first, second])
    wait_until(lambda: said(output, 1).count("resuming from step") == 2, [first, second])
    begun = int(re.findall(r"resuming from step (\d+)", said(output, 1))[-1])
    wait_until(lambda: has_done(begun + 5, output), [first, second])
    first.send_signal(signal.SIGTERM)
    assert first.wait(60) == 128 + signal.SIGTERM, said(output, 1)
    wait_until(lambda: "training on 1 machine: 10.77.0.2" in said(output, 2), [second])
    wait_until(lambda: "resuming from step" in said(output, 2), [second])
    second.send_signal(signal.SIGTERM)
    assert second.wait(60) == 128 + signal.SIGTERM, said(output, 2)
    assert main(["verify", str(output), "--quiet"]) == 0


@pytest.mark.slow
def test_the_first_host_may_be_lost_and_a_spare_one_takes_part(config: Path, tmp_path: Path) -> None:
    """Three hosts do not divide the four micro-batches of a step, so that two train; the third one finishes the run."""
    output = tmp_path / "run"
    with hosts(3) as three:
        more = ("--set", "schedule.steps_per_task=200", "--set", "save.every=20")
        running = [together(host, three, config, output, *more, machines="2:4") for host in (1, 2, 3)]
        wait_until(lambda: has_done(25, output), running)
        assert "training on 2 machines: 10.77.0.1, 10.77.0.2" in said(output, 1)
        assert "training on" not in said(output, 3)
        three.kill(1)
        for host in (2, 3):
            assert running[host - 1].wait(200) == 0, said(output, host)
    assert "rank 0 on 10.77.0.1 of 2 has said nothing for 6 s; rank 1 was at step" in said(output, 2)
    for host in (2, 3):
        assert said(output, host).count("training on 2 machines: 10.77.0.2, 10.77.0.3") == 1
    assert (output / "model" / "model.safetensors").is_file()
    assert main(["verify", str(output), "--quiet"]) == 0


@pytest.mark.slow
def test_all_listen_on_the_ports_that_are_open_in_a_firewall(config: Path, two: Hosts, tmp_path: Path) -> None:
    """With the key and the setting of the system that the documentation names."""
    output, ports = tmp_path / "run", range(21000, 22000)
    for host in (1, 2):
        two.run(host, f'echo "{ports[0]} {ports[-1]}" > /proc/sys/net/ipv4/ip_local_port_range')
    more = ("--set", LONG, "--set", f"parallel.ports=[{ports[0]}, {ports[-1]}]")
    running = [together(host, two, config, output, *more) for host in (1, 2)]
    wait_until(lambda: has_done(3, output), running)
    listening = [two.listening(host) for host in (1, 2)]
    assert len(listening[0]) > len(listening[1]) > 0  # the first one has the store and the watchdog
    assert [port for of_host in listening for port in of_host if port not in ports] == []
    for process in running:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in running] == [128 + signal.SIGTERM] * 2


@pytest.mark.slow
def test_a_host_whose_link_is_cut_waits_until_it_reaches_the_others_again(
    config: Path, two: Hosts, tmp_path: Path
) -> None:
    """Both still see the folder of the run, as over another network."""
    output = tmp_path / "run"
    more = ("--set", LONG, "--set", "save.every=20")
    running = [together(host, two, config, output, *more) for host in (1, 2)]
    wait_until(lambda: has_done(30, output), running)
    two.cut(2)
    wait_until(lambda: "training on 1 machine: 10.77.0.1" in said(output, 1), running)
    wait_until(lambda: "resuming from step" in said(output, 1), running)
    assert "training on 1 machine" not in said(output, 2)
    two.mend(2)
    wait_until(lambda: said(output, 1).count("training on 2 machines: 10.77.0.1, 10.77.0.2") == 2, running)
    wait_until(lambda: said(output, 1).count("resuming from step") == 2, running)
    for process in running:
        process.send_signal(signal.SIGTERM)
    assert [process.wait(60) for process in running] == [128 + signal.SIGTERM] * 2
    assert main(["verify", str(output), "--quiet"]) == 0
