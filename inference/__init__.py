"""Inference: loaded models of every kind, what they are asked for, and their export to other runtimes."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from ernie import runtime
from ernie.errors import nearest

if TYPE_CHECKING:
    from ernie.outcome import Outcome
    from inference.encoder import TextEncoder
    from inference.loading import load
    from inference.predictor import Predictor
    from inference.recognizer import SpeechRecognizer
    from inference.speaker import TextSpeaker
    from inference.translator import TextTranslator

__all__ = ["Outcome", "Predictor", "SpeechRecognizer", "TextEncoder", "TextSpeaker", "TextTranslator", "load"]

# Imported lazily: importing Paddle takes a second.
_LAZY = {
    "Outcome": "ernie.outcome",
    "Predictor": "inference.predictor",
    "SpeechRecognizer": "inference.recognizer",
    "TextEncoder": "inference.encoder",
    "TextSpeaker": "inference.speaker",
    "TextTranslator": "inference.translator",
    "load": "inference.loading",
}


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if not TYPE_CHECKING:  # otherwise type checkers would accept any name

    def __getattr__(name: str) -> Any:
        if name in _LAZY:
            runtime.check_paddle()
            return getattr(import_module(_LAZY[name]), name)
        raise AttributeError(f"module 'inference' has no attribute '{name}'.{nearest(name, _LAZY)}")
