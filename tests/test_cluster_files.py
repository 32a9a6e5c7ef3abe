"""The job files for Slurm and Kubernetes: their syntax, their keys, and the command that they start."""

from __future__ import annotations

import re
import shlex
import subprocess
from argparse import Namespace
from typing import Any

import yaml
from support.helpers import ROOT

from ernie.cli import command_parser
from ernie.parallel.machines import members
from pretrain.commands import pretrain

SLURM = ROOT / "examples" / "pretrain.slurm"
# Those of sbatch(1) that a job of several nodes needs.
KEYS = (
    "job-name nodes ntasks-per-node gpus-per-node cpus-per-task time signal requeue no-kill open-mode output"
).split()
WITHOUT_VALUE = ("requeue", "no-kill")


def parsed(words: list[str]) -> Namespace:
    """The arguments of the command in a job file."""
    assert words[:2] == ["ernie", "pretrain"]
    return command_parser("pretrain", pretrain).parse_args(words[2:])


def test_the_job_for_slurm_is_a_program_of_bash() -> None:
    done = subprocess.run(["bash", "-n", str(SLURM)], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_job_for_slurm_has_keys_of_slurm_before_its_first_command() -> None:
    lines = SLURM.read_text(encoding="utf-8").splitlines()
    first = next(number for number, line in enumerate(lines) if line and not line.startswith("#"))
    options = [line.removeprefix("#SBATCH --") for line in lines if line.startswith("#SBATCH")]
    assert all(line.startswith("#SBATCH --") for line in lines[:first] if line.startswith("#SBATCH"))
    assert not any(line.startswith("#SBATCH") for line in lines[first:])  # sbatch would not read them
    given = dict(option.partition("=")[::2] for option in options)
    assert set(given) <= set(KEYS)
    for key, value in given.items():
        assert bool(value) != (key in WITHOUT_VALUE), key
    assert given["ntasks-per-node"] == "1"  # the command starts the processes of its machine
    assert re.fullmatch(r"TERM@\d+", given["signal"])

    text = SLURM.read_text(encoding="utf-8").replace("\\\n", " ").replace('"$@"', "spread.yaml --output runs/spread")
    [command] = re.findall(r"^srun.*?(ernie .*?) \|\|", text, re.MULTILINE)
    arguments = parsed(shlex.split(command))
    assert members(arguments.machines) == (2, int(given["nodes"]))
    assert arguments.processes == int(given["gpus-per-node"])


def test_a_job_of_slurm_that_has_saved_is_queued_again_and_others_are_not() -> None:
    """Run by bash, with functions in place of Slurm's programs."""
    fake = 'srun() { return "$STATUS"; }; scontrol() { echo "$@"; }; SLURM_JOB_ID=7; '
    script = fake + SLURM.read_text(encoding="utf-8")
    for status, shown in ((143, "requeue 7\n"), (0, ""), (1, "")):
        done = subprocess.run(
            ["bash", "-c", script], env={"STATUS": str(status)}, capture_output=True, text=True, check=False
        )
        assert (done.returncode, done.stdout, done.stderr) == (status, shown, "")


def test_the_job_for_kubernetes_has_what_the_cluster_and_the_command_need() -> None:
    text = (ROOT / "examples" / "pretrain_kubernetes.yaml").read_text(encoding="utf-8")
    parts: dict[str, Any] = {part["kind"]: part for part in yaml.safe_load_all(text)}
    claim, job = parts["PersistentVolumeClaim"], parts["Job"]
    assert (claim["apiVersion"], job["apiVersion"]) == ("v1", "batch/v1")
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]
    spec, pod = job["spec"], job["spec"]["template"]["spec"]
    assert (spec["completionMode"], spec["completions"]) == ("Indexed", spec["parallelism"])
    assert pod["restartPolicy"] == "Never"  # which backoffLimitPerIndex asks for
    [container] = pod["containers"]
    arguments = parsed([*container["command"], *container["args"]])
    assert members(arguments.machines) == (2, spec["parallelism"])
    assert arguments.processes == container["resources"]["limits"]["nvidia.com/gpu"]
    assert spec["maxFailedIndexes"] == spec["parallelism"] - 2  # as many may be lost
    [variable] = container["env"]
    assert arguments.address == f"$({variable['name']})"
    mounted = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
    assert set(mounted) == {volume["name"] for volume in pod["volumes"]}
    assert pod["volumes"][0]["persistentVolumeClaim"]["claimName"] == claim["metadata"]["name"]
    assert str(arguments.output).startswith(mounted["runs"])
