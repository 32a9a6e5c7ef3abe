"""Checkpoints by name, from the Hugging Face hub or its local cache."""

from __future__ import annotations

from pathlib import Path

from ernie.errors import UserError
from ernie.model.published.formats import detect_format
from ernie.model.published.sentence_folder import encoder_path, module_paths

# Hub repositories often hold the same weights in several formats: only the first usable one is fetched.
_WEIGHTS = (("model*.safetensors",), ("pytorch_model*.bin", "*.pdparams"))
_OTHERS = ("*.json", "vocab.txt", "*.model")


def find(name: str | Path) -> Path:
    """Return the folder `name` or, if there is none, the hub's model of that name, fetched to its cache if needed.

    NAME@REVISION is the model at one commit, branch or tag, for results that others can repeat: a name alone means
    whatever is newest there.
    The hub's own cache and settings apply (HF_HOME, HF_ENDPOINT, HF_HUB_OFFLINE).  Raises UserError when there is no
    such folder and the hub cannot be reached or has no such model; the message says which files to put where.
    """
    if not isinstance(name, (str, Path)) or not str(name):
        raise UserError(f"expected the folder or the name of a model, found {name!r:.60}")
    path = Path(name)
    if path.exists():
        return path
    repository, _, revision = str(name).partition("@")
    for weights in _WEIGHTS:
        patterns = [*_OTHERS, *weights]
        fetched = _fetch(repository, revision, patterns)
        if modules := module_paths(fetched):  # the folders of a sentence encoder's parts
            _fetch(repository, revision, [f"{path}/{pattern}" for path in modules for pattern in patterns], deep=True)
        if detect_format(fetched / (encoder_path(fetched) or "")) is not None:
            return fetched
    raise UserError(f"{name}: the hub's model of that name holds no weights that can be read here, see {fetched}")


def _fetch(name: str, revision: str, patterns: list[str], deep: bool = False) -> Path:
    """Fetch a model's files that match the patterns, if needed, and return their folder in the hub's cache.

    Files in folders of the model's are left out unless `deep`.
    """
    # Imported here since it takes half a second, which local folders do not need.
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import (
        HfHubHTTPError,
        HFValidationError,
        LocalEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    try:
        ignored = None if deep else ["*/*"]
        return Path(
            snapshot_download(name, revision=revision or None, allow_patterns=patterns, ignore_patterns=ignored)
        )
    except HFValidationError:  # a path rather than a hub name
        raise UserError(f"{name}: there is no such folder") from None
    except RepositoryNotFoundError:
        reason = "the hub has no such model"
    except RevisionNotFoundError:
        reason = f"the hub's model of that name has no revision {revision}"
    except (LocalEntryNotFoundError, HfHubHTTPError, OSError) as error:
        reason = f"the hub cannot be reached ({str(error).strip().splitlines()[0]})"
    raise UserError(
        f"{name}: there is no such folder, and {reason}. On a machine that reaches it, fetch config.json, vocab.txt, "
        f"tokenizer_config.json and model.safetensors (or pytorch_model.bin); put them into one folder, say "
        f"models/{name.rpartition('/')[2]}, and give models/{name.rpartition('/')[2]} instead of {name}"
    )
