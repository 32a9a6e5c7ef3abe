"""ernie: continual multi-task pretraining in the manner of ERNIE 2.0, on PaddlePaddle."""

import sys

import ernie_command

if sys.argv[:1] == ["-m"] and "ernie.cli" in sys.orig_argv:  # `python -m ernie.cli`, before the imports that take time
    ernie_command.expect_interrupts()

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ernie import runtime
from ernie.errors import nearest

if TYPE_CHECKING:
    from ernie.model.config import EncoderConfig
    from ernie.model.ernie import ErnieModel
    from ernie.model.pretrained import ErnieTokenizer

__version__ = "0.1.0"
__all__ = ["EncoderConfig", "ErnieModel", "ErnieTokenizer", "__version__"]

# Imported lazily: importing Paddle takes a second.
_LAZY = {
    "EncoderConfig": "ernie.model.config",
    "ErnieModel": "ernie.model.ernie",
    "ErnieTokenizer": "ernie.model.pretrained",
}

runtime.prepare()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            if name == "ErnieModel":  # the others need no Paddle
                runtime.check_paddle()
            return getattr(import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'ernie' has no attribute '{name}'.{nearest(name, _LAZY)}")
