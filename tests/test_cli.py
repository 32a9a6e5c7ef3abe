"""The command line: its output, error messages and exit status."""

from __future__ import annotations

import shlex
import shutil
import subprocess
import sys
import warnings
from pathlib import Path

import pytest
from support.helpers import ROOT, install, python

from ernie import __version__
from ernie.cli import GROUP, main
from ernie.errors import Remark
from ernie.terminal import plain_warnings

COMMAND = '''
"""Greet somebody, at length."""
import signal
from ernie.errors import UserError
SUMMARY = "greet somebody"
def add_arguments(parser):
    parser.add_argument("name")
def main(arguments):
    if arguments.name == "nobody":
        raise UserError("there is nobody to greet. Name somebody.")
    if arguments.name == "file":
        open("/no/such/file")
    if arguments.name == "unfinished":
        open("/no/such/run.partial-7/report.html.partial", "w")
    if arguments.name == "stop":
        raise KeyboardInterrupt
    if arguments.name == "hang up":
        signal.raise_signal(signal.SIGHUP)
    if arguments.name.startswith("SIG"):
        try:
            signal.raise_signal(signal.Signals[arguments.name])
        except KeyboardInterrupt:
            raise RuntimeError("what C++ makes of it")
    if arguments.name == "many":
        print("hello " * 100_000)
    print("hello", arguments.name)
    return 3 if arguments.name == "three" else None
'''


@pytest.fixture
def greeter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A distribution that adds the commands `greet` and `greet again`."""
    install(tmp_path, "greeter", GROUP, {"greet": "greeter_command", "greet-again": "greeter_command"})
    (tmp_path / "greeter_command.py").write_text(COMMAND)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_help_lists_every_command_with_its_summary(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for line in ("greet ", "greet again ", "data build ", "pretrain ", "tasks "):
        assert f"\n  {line}" in shown
    assert "greet somebody" in shown
    assert main([]) == 0
    assert capsys.readouterr().out == shown


def test_help_of_a_group_shows_its_commands(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["data", "--help"]) == 0
    shown = capsys.readouterr().out
    assert "data build" in shown
    assert "pretrain " not in shown


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"ernie {__version__}\n"


def test_a_command_from_another_distribution_runs(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "you"]) == 0
    assert main(["greet", "again", "you"]) == 0
    assert main(["greet", "three"]) == 3
    assert capsys.readouterr().out == "hello you\nhello you\nhello three\n"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["pretain"], "there is no command 'pretain'. Did you mean 'pretrain'?"),
        (["data", "bild"], "there is no command 'data bild'. Did you mean 'data build'?"),
        (["greet", "nobody"], "there is nobody to greet. Name somebody."),
        (["greet", "file"], "/no/such/file: No such file or directory"),
        (["greet", "unfinished"], "/no/such/run/report.html: No such file or directory"),
    ],
)
def test_a_user_error_prints_one_message_and_exits_with_status_2(
    greeter: Path, words: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(words) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"ernie: error: {message}")


def test_an_interrupt_exits_with_status_130(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "stop"]) == 130
    assert capsys.readouterr().err == "ernie: interrupted\n"


def test_sighup_ends_a_command_like_sigterm(greeter: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["greet", "hang up"]) == 143
    assert capsys.readouterr().err == "ernie: terminated\n"


@pytest.mark.parametrize(("name", "status", "word"), [("SIGTERM", 143, "terminated"), ("SIGINT", 130, "interrupted")])
def test_a_signal_inside_native_code_prints_no_traceback(
    greeter: Path, capsys: pytest.CaptureFixture[str], name: str, status: int, word: str
) -> None:
    assert main(["greet", name]) == status
    assert capsys.readouterr().err == f"ernie: {word}\n"


def test_a_command_provided_by_two_distributions_is_an_error(
    greeter: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    install(tmp_path, "rival", GROUP, {"greet": "rival_command"})
    assert main(["greet", "you"]) == 2
    shown = capsys.readouterr().err
    assert "command 'greet' is provided twice" in shown
    assert "greeter_command" in shown
    assert "rival_command" in shown


@pytest.mark.parametrize("name", ["you", "many"])
def test_a_closed_pipe_causes_no_traceback(greeter: Path, name: str) -> None:
    code = f"import os, sys; os.close(0); sys.path.insert(0, {str(greeter)!r}); "
    code += f"from ernie.cli import main; sys.exit(main(['greet', {name!r}]))"
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
    assert process.returncode == 141


def test_a_closed_standard_output_is_a_user_error() -> None:
    shell = f"exec {shlex.quote(sys.executable)} -m ernie.cli --version >&-"
    done = subprocess.run(["sh", "-c", shell], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith("ernie: error: standard output is closed")


@pytest.mark.parametrize("inside", ["tasks.py", "tasks/__init__.py"])
def test_a_module_that_shadows_a_library_package_is_named(tmp_path: Path, inside: str) -> None:
    stray = tmp_path / inside
    stray.parent.mkdir(exist_ok=True)
    stray.write_text("")
    done = python("-m", "ernie.cli", "tasks", cwd=tmp_path, fresh=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"ernie: error: {stray.resolve()} hides ernie's own package 'tasks'")


def test_a_shadowing_module_next_to_the_library_packages_is_named(tmp_path: Path) -> None:
    for name in ("ernie", "tasks", "pretrain", "inference", "finetune"):
        shutil.copytree(ROOT / name, tmp_path / name)
    stray = tmp_path / "examples" / "tasks.py"
    stray.parent.mkdir()
    stray.write_text("")
    done = python("-m", "ernie.cli", "tasks", cwd=stray.parent, path=[tmp_path], fresh=True)
    assert done.returncode == 2
    assert f"{stray} hides ernie's own package 'tasks' ({tmp_path / 'tasks'})" in done.stderr


def test_help_does_not_import_paddle() -> None:
    done = python("-c", "import sys; from ernie.cli import main; main(['--help']); sys.exit('paddle' in sys.modules)")
    assert done.returncode == 0
    assert "usage: ernie COMMAND" in done.stdout


def test_a_note_is_printed_once_however_often_it_is_given(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_warnings():
        warnings.simplefilter("always")
        for text in ("the first", "the second", "the first"):
            warnings.warn(text, Remark, stacklevel=1)
    assert capsys.readouterr().err == "note: the first\nnote: the second\n"


def test_a_note_that_names_something_forged_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    with plain_warnings():
        warnings.warn("the label 'x\nernie: error: forged' is left out", Remark, stacklevel=1)
    assert capsys.readouterr().err == "note: the label 'x ernie: error: forged' is left out\n"
