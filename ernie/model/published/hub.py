"""Checkpoints by name, from the Hugging Face hub or from its cache on this machine."""

from __future__ import annotations

from pathlib import Path

from ernie.errors import UserError
from ernie.model.published.folder import recognise

# A hub's folder often holds the same weights several times: the first of these that makes a checkpoint is fetched.
_WEIGHTS = (("model*.safetensors",), ("pytorch_model*.bin", "*.pdparams"))
_OTHERS = ("*.json", "vocab.txt", "*.model")


def find(name: str | Path) -> Path:
    """The folder that `name` is, or the one that the hub's model of that name was fetched to.

    The hub's own cache and settings hold (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE).  Raises UserError when there is no
    such folder and the hub cannot be reached or has no such model; the message says which files to put where.
    """
    path = Path(name)
    if path.exists():
        return path
    for weights in _WEIGHTS:
        fetched = _fetch(str(name), [*_OTHERS, *weights])
        if recognise(fetched) is not None:
            return fetched
    raise UserError(f"{name}: the hub's model of that name holds no weights that can be read here, see {fetched}")


def _fetch(name: str, patterns: list[str]) -> Path:
    """The folder in the hub's cache with a model's files of these patterns, fetched where it can be."""
    # Here, because it takes half a second to import, which those who have the files can do without.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
    )

    try:
        return Path(snapshot_download(name, allow_patterns=patterns, ignore_patterns=["*/*"]))
    except HFValidationError:  # a path, and no name on a hub
        raise UserError(f"{name}: there is no such folder") from None
    except RepositoryNotFoundError:
        reason = "the hub has no such model"
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = f"the hub cannot be reached ({str(error).strip().splitlines()[0]})"
    raise UserError(
        f"{name}: there is no such folder, and {reason}. On a machine that reaches it, fetch config.json, vocab.txt, "
        f"tokenizer_config.json and model.safetensors (or pytorch_model.bin); put them into one folder, say "
        f"models/{name.rpartition('/')[2]}, and give models/{name.rpartition('/')[2]} instead of {name}"
    )
