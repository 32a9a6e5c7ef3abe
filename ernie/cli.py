"""The command `ernie`.  Its sub-commands are entry points of the group `ernie.commands`.

An entry point's name is the sub-command ("data-build" for the two words `data build`).  Its value is a module with
`SUMMARY` (one line), `add_arguments(parser)` and `main(arguments) -> int | None`.  The module also has
`WRITES_DATA = True` if its standard output is data rather than a message to people.  `ernie --help` is fast: only
`ernie SUB-COMMAND` imports the module.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module, metadata, util
from pathlib import Path
from types import FrameType, ModuleType

import ernie_command
from ernie import __version__
from ernie.arguments import place_of_key
from ernie.atomic import final_name, without_room
from ernie.errors import UserError, about, nearest
from ernie.registry import import_plugins
from ernie.runtime import SIGHUP, ending_signals, leave_terminal
from ernie.terminal import bounded, escaping, pass_data, plain_warnings
from ernie.train.origin import running

GROUP = "ernie.commands"
_OUT_OF_MEMORY = ("ResourceExhausted", "bad_alloc")  # in errors of Paddle
_TOO_MANY_FILES = os.strerror(errno.EMFILE)
# The order of our own commands in the help; those of other distributions follow, sorted by name.
_ORDER = (
    *(
        "data build",
        "data show",
        "data diff",
        "tokenizer train",
        "tokenizer check",
        "tokenizer compare",
        "tasks",
        "pretrain",
        "plan",
        "scaling",
        "report",
        "verify",
        "replay",
    ),
    *("finetune", "tune", "check", "evaluate", "compare", "predict", "translate", "transcribe", "speak"),
    *("benchmark", "tradeoff"),
    *("search index", "search query", "search evaluate", "search mine"),
    *("convert", "ensemble", "export", "migrate", "doctor"),
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command line; return the exit status: 0 success, 1 failure, 2 an error that the user can fix."""
    with escaping():
        return _main(argv)


def _main(argv: Sequence[str] | None) -> int:
    words = list(sys.argv[1:] if argv is None else argv)
    _occupy_closed_streams()
    if sys.stdout is None:
        print("ernie: error: standard output is closed; send it to a file, or to /dev/null", file=sys.stderr)
        return 2
    signals: list[int] = []
    try:
        with _terminable(signals), plain_warnings():
            status = _dispatch(words)
        sys.stdout.flush()  # here, so that a BrokenPipeError is raised where it is handled
        return status
    except UserError as error:
        print(f"ernie: error: {bounded(str(error))}", file=sys.stderr)
        return error.status
    except BrokenPipeError:
        # The reader of our output is gone (`ernie tasks | head`): print nothing more, not even at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 128 + signal.SIGPIPE
    except KeyboardInterrupt as interrupt:  # its argument is the number of a signal that was handled elsewhere
        return _ended(signals[-1] if signals else next(iter(interrupt.args), signal.SIGINT))
    except Exception as error:
        if signals:  # inside Paddle's C++ the KeyboardInterrupt becomes another error
            return _ended(signals[-1])
        if not (sentence := _sentence(error)):
            raise
        print(f"ernie: error: {sentence}", file=sys.stderr)
        return 2


def _occupy_closed_streams() -> None:
    """Keep the numbers of closed standard streams from files that are opened later: Paddle's C++ writes to number 2."""
    for number in (0, 1, 2):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free
    if sys.stderr is None:
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115 - for the rest of the process


def _sentence(error: Exception) -> str:
    """Return what the user can do about an error of the system or of a limit, "" for any other error."""
    if isinstance(error, RecursionError):
        return "something that was read is nested too deeply"
    if isinstance(error, MemoryError) or any(sign in str(error) for sign in _OUT_OF_MEMORY):
        details = " ".join(str(error).split())[:200]
        return f"memory ran out{f' ({details})' if details else ''}: what was asked for does not fit into this machine"
    if isinstance(error, UnicodeEncodeError):
        text = error.object[error.start : error.end][:20]
        if error.encoding.replace("-", "").lower() != "utf8":
            return f"standard output takes only {error.encoding}, not {text!a}: set PYTHONIOENCODING=utf-8"
        return f"{text!a}: is not UTF-8, perhaps in the name of a file or folder; rename it"
    filename = getattr(error, "filename", None)
    name = f"{final_name(str(filename))}: " if filename else ""
    if sentence := without_room(error):
        return f"{name}{sentence}"
    if _TOO_MANY_FILES in str(error):  # perhaps of Paddle, which loads libraries at their first use
        return f"{name}too many files are open. Raise the limit (`ulimit -n`) and run the same command again"
    if not isinstance(error, OSError) or (filename is None and error.errno is None):
        return ""
    return f"{name}{error.strerror or error}"


def _ended(number: int) -> int:
    """Report that a signal has ended the command; return the exit status."""
    interrupted = number == signal.SIGINT
    print("ernie: interrupted" if interrupted else "ernie: terminated", file=sys.stderr)
    return 128 + (signal.SIGINT if interrupted else signal.SIGTERM)


@contextmanager
def _terminable(signals: list[int]) -> Iterator[None]:
    """Make SIGTERM and SIGHUP end a command as Ctrl-C does: by an exception, so that partial output is cleaned up.

    Signals that arrive are appended to `signals`.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread may handle signals
        return

    def end(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        if number == SIGHUP:
            signal.signal(number, signal.SIG_IGN)  # sent twice, by the shell and by the kernel
        leave_terminal()
        raise KeyboardInterrupt

    usual = (signal.default_int_handler, ernie_command.end_at_once)
    ignored = signal.getsignal(signal.SIGINT) not in usual  # as for a shell's background jobs (`&`)
    numbers = [number for number in ending_signals() if number != signal.SIGINT or not ignored]
    before = {number: signal.signal(number, end) for number in numbers}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _dispatch(words: list[str]) -> int:
    found = commands()
    if not words or words[0] in ("-h", "--help"):
        print(_help(found))
        return 0
    if words[0] == "--version":
        print(f"ernie {__version__}")
        return 0
    _check_own_packages()
    for length in (2, 1):
        name = " ".join(words[:length])
        if len(words) >= length and name in found:
            return _run(name, found[name], words[length:])
    group = {name: point for name, point in found.items() if name.split()[0] == words[0]}
    if group and words[1:] in ([], ["-h"], ["--help"]):
        print(_help(group))
        return 0
    name = " ".join(words[:2]) if group else words[0]
    raise UserError(f"there is no command '{name}'.{nearest(name, group or found)} See 'ernie --help'.")


def _run(name: str, point: metadata.EntryPoint, words: list[str]) -> int:
    module: ModuleType = import_module(point.value)
    arguments = command_parser(name, module).parse_args(words)
    arguments.words = [*name.split(), *words]  # for commands that launch themselves on several processes
    if getattr(module, "WRITES_DATA", False):
        pass_data()
    with running(["ernie", *arguments.words]):
        import_plugins(getattr(arguments, "plugin", []), "--plugin")
        try:
            return module.main(arguments) or 0
        except UserError as error:
            place = "" if error.file else place_of_key(arguments, str(error))
            if not place:
                raise
            with about(place):
                raise


def command_parser(name: str, module: ModuleType) -> argparse.ArgumentParser:
    """Return the parser of a command's arguments."""
    description = module.__doc__ or module.SUMMARY
    parser = argparse.ArgumentParser(
        prog=f"ernie {name}", description=description, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    module.add_arguments(parser)
    return parser


def commands() -> dict[str, metadata.EntryPoint]:
    """Return the entry point of every command, in the order of the help."""
    found: dict[str, metadata.EntryPoint] = {}
    for point in metadata.entry_points(group=GROUP):
        name = point.name.replace("-", " ")
        if name in found and found[name].value != point.value:
            raise UserError(f"command '{name}' is provided twice: {found[name].value}, {point.value}")
        found[name] = point
    known = [name for name in _ORDER if name in found]
    return {name: found[name] for name in [*known, *sorted(set(found) - set(known))]}


def _summary(point: metadata.EntryPoint) -> str:
    """Return the SUMMARY of a command's module, read from its source to avoid importing it."""
    spec = util.find_spec(point.value)
    if spec is None or spec.origin is None:
        return f"(its module {point.value} is missing)"
    for line in Path(spec.origin).read_text(encoding="utf-8").splitlines():
        if line.startswith("SUMMARY = "):
            return line.removeprefix("SUMMARY = ").strip("\"'")
    return ""


def _help(commands: dict[str, metadata.EntryPoint]) -> str:
    width = max(map(len, commands), default=0)
    lines = [f"  {name:<{width}}  {_summary(point)}" for name, point in commands.items()]
    return "\n".join(
        [
            "usage: ernie COMMAND [ARGUMENTS]",
            "",
            "Continual multi-task pretraining in the manner of ERNIE 2.0, on PaddlePaddle.",
            "",
            *lines,
            "",
            "'ernie COMMAND --help' describes a command.  Results go to standard output, all else to",
            "standard error.  Exit status: 0 done, 1 failed, 2 user error, 130 or 143 interrupted.",
        ]
    )


def _check_own_packages() -> None:
    """Check that our sibling packages are not shadowed: their names are common, such as `tasks`."""
    home = Path(__file__).resolve().parent.parent
    for name in ("tasks", "pretrain", "inference", "finetune", "serving"):
        spec = util.find_spec(name)
        if spec is None or spec.origin is None:
            raise UserError(f"the package '{name}', a part of ernie, is not installed; reinstall ernie-continual")
        origin = Path(spec.origin).resolve()
        if origin.parent != home / name:
            raise UserError(
                f"{origin} hides ernie's own package '{name}' ({home / name}). "
                "Rename it, or take its folder off the Python path."
            )


if __name__ == "__main__":
    sys.exit(main())
