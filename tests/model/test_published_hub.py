"""Models by name: from the hub's cache, or an error that says what to do without a hub."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.checkpoints import SETTINGS, hugging_face, hugging_face_bin, weights, write_vocabulary
from support.helpers import python
from support.sentences import pooling, write_modules

from ernie.errors import UserError
from ernie.model.ernie import ErnieModel
from ernie.model.published.hub import find

REVISION = "0123456789abcdef0123456789abcdef01234567"


def cached(home: Path, name: str) -> Path:
    """Create the folder in which the hub's cache under `home` stores a model."""
    model = home / "hub" / f"models--{name.replace('/', '--')}"
    folder = model / "snapshots" / REVISION
    folder.mkdir(parents=True)
    (model / "refs").mkdir()
    (model / "refs" / "main").write_text(REVISION)
    return folder


def find_in(home: Path, name: str, **environment: str) -> tuple[int, str]:
    """`find` in a process of its own: the hub's client reads the environment as it is imported."""
    settings = {"HF_HOME": str(home), "HF_HUB_OFFLINE": "1", **environment}
    code = (
        f"import os; os.environ.update({settings!r})\nfrom ernie.model.published.hub import find\nprint(find({name!r}))"
    )
    done = python("-c", code)
    return done.returncode, (done.stdout or done.stderr).strip().splitlines()[-1]


def test_the_path_of_a_folder_is_returned_as_it_is(tmp_path: Path) -> None:
    assert find(tmp_path) == tmp_path
    assert find(str(tmp_path)) == tmp_path


@pytest.mark.parametrize("write", [hugging_face, hugging_face_bin])
def test_a_model_in_the_hubs_cache_is_found_without_a_network(write: object, tmp_path: Path) -> None:
    folder = cached(tmp_path, "some/encoder")
    write(folder, weights(), SETTINGS)  # type: ignore[operator]
    write_vocabulary(folder)
    status, output = find_in(tmp_path, "some/encoder")
    assert (status, output) == (0, str(folder))
    assert ErnieModel.from_pretrained(output).config.layers == 2


def test_a_revision_after_the_name_pins_the_model(tmp_path: Path) -> None:
    folder = cached(tmp_path, "some/encoder")
    hugging_face(folder, weights(), SETTINGS)
    assert find_in(tmp_path, f"some/encoder@{REVISION}") == (0, str(folder))
    (folder.parents[1] / "refs" / "main").unlink()
    (folder.parents[1] / "refs" / "v1.0").write_text(REVISION)
    assert find_in(tmp_path, "some/encoder@v1.0") == (0, str(folder))
    assert find_in(tmp_path, "some/encoder")[0] == 1


def test_the_folders_of_a_sentence_encoders_modules_belong_to_the_model(tmp_path: Path) -> None:
    folder = cached(tmp_path, "some/encoder")
    (folder / "0_Transformer").mkdir()
    hugging_face(folder / "0_Transformer", weights(), SETTINGS)
    write_modules(folder, [pooling("cls_token")], encoder="0_Transformer")
    assert find_in(tmp_path, "some/encoder") == (0, str(folder))


def test_a_cached_model_without_readable_weights_raises_a_user_error(tmp_path: Path) -> None:
    (cached(tmp_path, "some/encoder") / "config.json").write_text("{}")
    status, output = find_in(tmp_path, "some/encoder")
    assert status == 1
    assert "the hub's model of that name holds no weights that can be read here" in output


@pytest.mark.parametrize("environment", [{}, {"HF_HUB_OFFLINE": "0", "HF_ENDPOINT": "http://127.0.0.1:9"}])
def test_without_a_hub_the_error_says_what_to_fetch_and_where_to_put_it(
    environment: dict[str, str], tmp_path: Path
) -> None:
    status, output = find_in(tmp_path, "some/encoder", **environment)
    assert status == 1
    assert "some/encoder: there is no such folder, and the hub cannot be reached" in output
    assert "fetch config.json, vocab.txt, tokenizer_config.json and model.safetensors" in output
    assert "put them into one folder, say models/encoder, and give models/encoder instead of some/encoder" in output


@pytest.mark.parametrize("name", ["/no/such/folder", "runs/first/model", "../encoder", "runs/first/"])
def test_a_name_that_is_invalid_on_the_hub_is_only_looked_for_locally(name: str) -> None:
    with pytest.raises(UserError, match=f"^{name}: there is no such folder$"):
        find(name)
