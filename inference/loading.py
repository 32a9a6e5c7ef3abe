"""Loading a model of any kind, as the face that its kind names."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ernie.errors import UserError, check_exists
from ernie.kernels.precision import InferencePrecisionChoice
from ernie.model.ernie import ErnieModel
from inference import predictor, recognizer, speaker, translator  # noqa: F401 - they register their faces
from inference.encoder import LoadedEncoder
from inference.face import Face, faces
from inference.search.searching import LoadedIndex, is_index
from inference.task_model import TaskModel
from tasks.downstream.saved import find_model


def load(
    path: str | Path,
    precision: InferencePrecisionChoice | None = None,
    trust_plugins: Sequence[str] | bool = (),
    base: str | Path | ErnieModel | None = None,
    **decoding: Any,
) -> Face:
    """Load the model of a run, or a published one, as its face: what models of its kind are asked for.

    A fine-tuned model is a Predictor, and also translates, transcribes or speaks if its kind does; one of the kind
    `embed`, and any other model, is a TextEncoder.  The folder of a search index is a SearchIndex.  `precision`,
    `trust_plugins` and `base` are those of `TaskModel.load`; `decoding` changes how answers are found, such as `beam=4`
    (see `TaskModel.change_decoding`), or for an index `rerank=RUN`.  Raises UserError when there is no such model, and
    as these methods do.
    """
    if base is not None:
        check_exists(Path(path))
        if is_index(path) or find_model(Path(path)) is None:
            raise UserError(f"{path}: holds no fine-tuned model, and only one has a base")
    if is_index(path):
        if unknown := sorted({*decoding} - {"rerank", "model"}):
            raise UserError(f"{path}: is a search index, which takes rerank and model; found {unknown[0]}")
        return faces["search"](LoadedIndex.load(path, precision, trust_plugins=trust_plugins, **decoding))
    if find_model(Path(path)) is None:
        if decoding:
            raise UserError(f"{path}: is an encoder, which decodes nothing; leave out {', '.join(decoding)}")
        return faces["encode"](LoadedEncoder.load(path, precision))
    model = TaskModel.load(path, trust_plugins, precision, base)
    if decoding:
        model.change_decoding(**decoding)
    if model.task.face == "encode":
        return faces["encode"](LoadedEncoder(model.ernie, model.precision or "auto"))
    return faces[model.task.face](model)
