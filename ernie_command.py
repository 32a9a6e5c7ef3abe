"""The console script `ernie`, which Ctrl-C ends without a traceback even while the library is being imported.

It stands outside the package, whose import takes a tenth of a second, and imports only what Python has loaded already.
"""

import _signal  # type: ignore[import-not-found]  # built in; `signal` itself has to be searched and run
import os


def expect_interrupts() -> None:
    """Let Ctrl-C end the process at once, wherever no command handles it, unless it is ignored as in `ernie ... &`."""
    if _signal.getsignal(_signal.SIGINT) == _signal.default_int_handler:
        _signal.signal(_signal.SIGINT, end_at_once)


def end_at_once(number: int, frame: object) -> None:
    """End the process as an interrupted command does.  Only for moments at which it has nothing to clean up."""
    try:
        os.write(2, b"ernie: interrupted\n")
    finally:
        os._exit(128 + number)


def main() -> int:
    """Run the command line."""
    expect_interrupts()
    from ernie.cli import main

    return main()
