"""Locating the folders of pretrained models and their tokenizers."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from ernie.errors import UserError
from ernie.model.checksums import check_model
from ernie.model.published import hub
from ernie.model.published.sentence_folder import encoder_path
from ernie.text.load import load_tokenizer
from ernie.text.tokenizer import Tokenizer

CONFIG_FILE, WEIGHTS_FILE, TOKENIZER_FOLDER = "config.json", "model.safetensors", "tokenizer"
MASKED_HEAD_FILE = "masked_head.safetensors"
HEAD_FILE = "head.safetensors"  # of a fine-tuned model
TASK_FILE = "task.json"  # marks the folder of a fine-tuned model, which has a head besides its encoder
# Any of them marks a model folder: ours and Hugging Face's, older PaddleNLP's, official ERNIE's, original BERT's.
_CONFIG_FILES = (CONFIG_FILE, "model_config.json", "ernie_config.json", "bert_config.json")
_WEIGHTS = (".safetensors", ".bin", ".pdparams", ".index")  # how files with weights are called
_SHOWN = 3  # folders that a message names


class ErnieTokenizer:
    """Loads tokenizers under the class name that users of other libraries expect; needs no Paddle.

    `from_pretrained` returns whichever kind of `Tokenizer` the folder holds; this class has no instances.
    """

    def __new__(cls, *given: object, **named: object) -> NoReturn:
        """Raise UserError: this class cannot be instantiated."""
        raise UserError("ErnieTokenizer.from_pretrained(path) loads a tokenizer; there are no objects of this class")

    @staticmethod
    def from_pretrained(path: str | Path) -> Tokenizer:
        """Load the tokenizer of a model folder, a run, a checkpoint or a corpus, or a tokenizer's own folder or file.

        A name that is not a path is looked up on the hub.  Raises UserError when there is no tokenizer.
        """
        return tokenizer_at(Path(path) if Path(path).exists() else hub.find(path))


def tokenizer_at(path: Path) -> Tokenizer:
    """Load a tokenizer as `ErnieTokenizer.from_pretrained` does, but only from this machine."""
    for folder in (path, path / "model"):
        if (folder / TOKENIZER_FOLDER).is_dir():
            tokenizer = load_tokenizer(folder / TOKENIZER_FOLDER)
            check_model(folder, f"{TOKENIZER_FOLDER}/")
            return tokenizer
    return load_tokenizer(path)


def model_folder(path: Path) -> Path:
    """Return the folder with the weights: `path` itself, its subfolder `model`, as in runs and checkpoints, or that of
    the encoder in an older sentence encoder.

    Raises UserError when none holds a model.
    """
    if path.is_file():
        raise UserError(f"{path}: is a file; give the folder of the model")
    for folder in (path, path / "model", path / (encoder_path(path) or "")):
        if any((folder / name).is_file() for name in _CONFIG_FILES):
            return folder
    checkpoints = sorted(path.glob("checkpoints/step-????????"))
    hint = f"; the run in it is not done, and its newest checkpoint is {checkpoints[-1]}" if checkpoints else ""
    for finished in sorted(path.glob("model-step-*"))[-1:]:  # set aside while the run is extended
        hint += f"; the encoder of its finished part is {finished}"
    hint = hint or models_inside(path)
    raise UserError(f"{path}: holds no model: there is neither {CONFIG_FILE} nor model/{CONFIG_FILE} in it{hint}")


def models_inside(path: Path) -> str:
    """Say which folders of a folder hold models, as the end of a sentence; "" if none does."""
    places = ("*", "*/model", "model/*")  # models, runs, and the models of a run's ensemble
    files = (file for name in _CONFIG_FILES for place in places for file in path.glob(f"{place}/{name}"))
    whole = (file.parent for file in files if any(each.suffix in _WEIGHTS for each in file.parent.iterdir()))
    found = {str((each.parent if each.name == "model" else each).relative_to(path)) for each in whole}
    names = sorted(found, key=lambda name: (len(name), name))
    more = ", ..." if len(names) > _SHOWN else ""
    return f"; did you mean a folder in it: {', '.join(names[-_SHOWN:])}{more}?" if names else ""
