"""Checkpoints by name, from the Hugging Face hub or from its cache on this machine."""

from __future__ import annotations

import os
import re
from pathlib import Path

from ernie.errors import UserError
from ernie.model.published.folder import recognise

# All that a checkpoint can consist of here; hubs also keep the same weights for other frameworks.
_FILES = ("*.json", "vocab.txt", "*.model", "*.safetensors", "*.bin", "*.pdparams")
_NAME = re.compile(r"[\w.-]+(/[\w.-]+)?")


def find(name: str | Path) -> Path:
    """The folder that `name` is, or the one that the hub's model of that name was fetched to.

    The hub's own cache and settings hold (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE).  Raises UserError when there is no
    such folder and the hub cannot be reached or has no such model; the message says where to put the files.
    """
    path = Path(name)
    if path.exists():
        return path
    if not _NAME.fullmatch(str(name)):
        raise UserError(f"{name}: there is no such folder")
    # Here, because it takes half a second to import, for those who have the files.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError, RepositoryNotFoundError

    try:
        fetched = Path(snapshot_download(str(name), allow_patterns=list(_FILES)))
    except RepositoryNotFoundError:
        raise UserError(f"{name}: there is no such folder, and no such model on the hub. {_by_hand(path)}") from None
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = str(error).strip().split("\n")[0]
        raise UserError(
            f"{name}: there is no such folder, and the hub cannot be reached ({type(error).__name__}: {reason}). "
            f"{_by_hand(path)}"
        ) from None
    if recognise(fetched) is None:
        raise UserError(f"{name}: the hub's model of that name has no weights of BERT or ERNIE ({fetched})")
    return fetched


def _by_hand(path: Path) -> str:
    """How to get a model without the hub."""
    place = Path(os.path.relpath(path.absolute()))
    return (
        "Fetch config.json, vocab.txt, tokenizer_config.json and model.safetensors (or pytorch_model.bin) on a "
        f"machine that reaches it, put them into one folder, for instance {place}, and give that folder instead of "
        "the name"
    )
