"""The faces of loaded models: what each is asked for, by name.

A kind of fine-tuning task names its face (`FinetuneTask.face`); encoders have the face "encode".  Another distribution
adds faces by `@face("NAME")`, in a module that it lists under the entry-point group `ernie.faces`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ernie.decode.stream import StreamDecoder
from ernie.errors import UserError
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.registry import Registry
from ernie.text.tokenizer import Tokenizer
from inference.operation import Operation

if TYPE_CHECKING:
    from paddle import nn


class Following(Protocol):
    """Follows one stream, from a state on: it is shown the state after each later step."""

    def add(self, state: Any, stream: int = 0) -> Mapping[str, Any]:
        """Return what is new in a state, of which this is one of the streams; nothing if nothing is."""


@dataclass(frozen=True)
class Streaming:
    """How a model is streamed: its `decoder`, and what that takes and gives.

    `takes` and `gives` are rates of sound in samples a second, None for text.  `trial` is input that exercises the
    decoder, for a caller that measures the time; None if there is none.  `follow` returns what follows a
    stream from a state on, given the state and the stream's number there; None if there is only its output to tell.
    """

    decoder: StreamDecoder[Any, Any, Any]
    takes: int | None
    gives: int | None
    trial: Any = None
    follow: Callable[[Any, int], Following] | None = None


@dataclass(frozen=True)
class Facts:
    """What a model is.

    Its encoder has `layers` of a `width`, and the model so many `weights`.  A fine-tuned model is of a `kind`, may have
    `labels`, and reads the `columns` of a row, by their roles in the task.  None stands for what is not known.
    """

    layers: int | None = None
    width: int | None = None
    weights: int | None = None
    kind: str | None = None
    labels: list[str] | None = None
    columns: dict[str, list[str]] | None = None


class Face:
    """What a loaded model is asked for.  A face is made of the model alone, which it keeps as `model`.

    Any number of threads may call one face.
    """

    # Packages of the extra `speech` without which files of its inputs, or of its outputs, cannot be read or written.
    packages: ClassVar[tuple[str, ...]] = ()

    def __init__(self, model: Any):
        self.model = model

    @property
    def name(self) -> str:
        """The name under which the face is registered."""
        return faces.name_of(type(self)) or ""

    @property
    def precision(self) -> InferencePrecisionChoice:
        """The precision of matrix products, the same in every thread."""
        chosen: InferencePrecisionChoice | None = self.model.precision
        return chosen or "fp32"

    @property
    def tokenizer(self) -> Tokenizer:
        """The model's tokenizer.  Raises UserError when it has none."""
        found: Tokenizer = self.model.tokenizer
        return found

    @property
    def facts(self) -> Facts:
        """What the model is."""
        return Facts()

    @property
    def operations(self) -> Mapping[str, Operation]:
        """What the model is asked for by single inputs, by name; streams are no part of it."""
        return {}

    @property
    def streaming(self) -> Streaming:
        """How the model is streamed.  Raises UserError for a model that takes no streams."""
        raise UserError(
            f"a model with the face {self.name} takes no streams; those that transcribe, translate or speak do"
        )


def weight_count(layer: nn.Layer) -> int:
    """Return the number of weights of a layer and those in it."""
    return sum(weight.size for weight in layer.parameters())


faces: Registry[type[Face]] = Registry("face of a loaded model", "ernie.faces", Face)

face = faces.register  # class decorator: registers a face under its name
