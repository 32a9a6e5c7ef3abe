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
    from ernie.kernels.precision import precision
    from ernie.model.config import EncoderConfig
    from ernie.model.ernie import ErnieModel
    from ernie.model.pretrained import ErnieTokenizer
    from ernie.train.adamw import AdamW

__version__ = "0.1.0"
__all__ = ["AdamW", "EncoderConfig", "ErnieModel", "ErnieTokenizer", "__version__", "precision"]

# Imported lazily: importing Paddle takes a second.
_LAZY = {
    "AdamW": "ernie.train.adamw",
    "EncoderConfig": "ernie.model.config",
    "ErnieModel": "ernie.model.ernie",
    "ErnieTokenizer": "ernie.model.pretrained",
    "precision": "ernie.kernels.precision",
}

runtime.prepare()


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            if name not in ("EncoderConfig", "ErnieTokenizer"):  # which need no Paddle
                runtime.check_paddle()
            return getattr(import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'ernie' has no attribute '{name}'.{nearest(name, _LAZY)}")
