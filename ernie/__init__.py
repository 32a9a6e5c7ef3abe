"""ernie: continual multi-task pretraining in the manner of ERNIE 2.0, on PaddlePaddle."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ernie import runtime

if TYPE_CHECKING:
    from ernie.model.ernie import ErnieModel

__version__ = "0.1.0"
__all__ = ["ErnieModel", "__version__"]

runtime.prepare()


def __getattr__(name: str) -> Any:
    # Paddle takes a second to import: only those who ask for the model pay for it.
    if name == "ErnieModel":
        from ernie.model.ernie import ErnieModel

        return ErnieModel
    raise AttributeError(f"module 'ernie' has no attribute '{name}'")
