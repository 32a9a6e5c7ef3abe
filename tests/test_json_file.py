"""Reading back JSON files that the library has written."""

from __future__ import annotations

import json
from pathlib import Path
from types import NoneType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ernie.errors import UserError
from ernie.json_file import check_kind, check_not_lfs_pointer, parsing, read_json

KEYS = {"step": (int,), "score": (float, type(None)), "files": (dict,)}


def test_a_written_file_is_read_back_with_keys_of_other_versions(tmp_path: Path) -> None:
    content = {"step": 3, "score": None, "files": {"a": 1}, "later": True}
    (tmp_path / "a.json").write_text(json.dumps(content))
    assert read_json(tmp_path / "a.json", KEYS, "") == content


def test_a_file_that_an_editor_began_with_a_byte_order_mark_is_read(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text('{"step": 3}', encoding="utf-8-sig")
    assert read_json(tmp_path / "a.json", {"step": (int,)}, "") == {"step": 3}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "is not JSON"),
        (b"\xff", "is not JSON"),
        (b"[" * 100_000, "is not JSON"),
        (b'{"step": ' + b"9" * 5000 + b"}", "is not JSON"),
        (b"[]", "expected an object"),
        (b'{"step": 1, "score": 0.5}', "files: this key is missing"),
        (b'{"step": true, "score": 0.5, "files": {}}', "step: expected a whole number"),
        (b'{"step": 1, "score": "high", "files": {}}', "score: expected a number or null"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_any_other_content_is_an_error_with_a_remedy(tmp_path: Path, content: bytes | None, message: str) -> None:
    file = tmp_path / "a.json"
    if content is not None:
        file.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_json(file, KEYS, "Delete it.")
    assert str(caught.value) == f"{file}: {message}. Delete it."


SCORE = {"value": (float, NoneType), "draws?": [float]}
NESTED = {"scores": {str: SCORE}, "start": ({"epoch": int}, {"lanes": [int]})}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"scores": {}, "start": {"epoch": 0}}, ""),
        ({"scores": {"f1": {"value": 1, "draws": [0.5, float("nan")]}}, "start": {"lanes": []}}, ""),
        ({"scores": [], "start": {"epoch": 0}}, "scores: expected an object"),
        ({"scores": {"f1": {"value": True}}, "start": {}}, "scores.f1.value: expected a number or null"),
        ({"scores": {"f1": {"value": float("inf")}}, "start": {}}, "scores.f1.value: expected a number or null"),
        ({"scores": {"f1": {"value": None, "draws": [1, "x"]}}, "start": {}}, "scores.f1.draws[1]: expected a number"),
        ({"scores": {"f1": {}}, "start": {}}, "scores.f1.value: this key is missing"),
        ({"scores": {}, "start": {"epoch": 2**63}}, "start.epoch: expected a whole number"),
        ({"scores": {}, "start": {"lanes": [1.5]}}, "start.epoch: this key is missing"),
        ({"scores": {}, "start": 5}, "start: expected an object"),
    ],
)
def test_the_path_of_a_nested_key_of_another_kind_is_named(content: object, message: str) -> None:
    if not message:
        check_kind(content, NESTED, "a.json", "Delete it.")
        return
    with pytest.raises(UserError) as caught:
        check_kind(content, NESTED, "a.json", "Delete it.")
    assert str(caught.value) == f"a.json: {message}. Delete it."


def test_content_that_fits_together_in_no_known_way_is_an_error_with_a_remedy() -> None:
    says = r"a\.json: holds what no run writes .KeyError: 'dev'.\. Delete it\."
    with pytest.raises(UserError, match=says), parsing("a.json", "Delete it."):
        {}["dev"]


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([*KEYS, "x"]), inner, max_size=4),
)


@given(anything)
def test_arbitrary_content_raises_only_user_errors(tmp_path_factory: pytest.TempPathFactory, content: object) -> None:
    file = tmp_path_factory.getbasetemp() / "saved.json"
    file.write_text(json.dumps(content))
    try:
        read = read_json(file, KEYS, "Delete it.")
    except UserError:
        return
    assert set(KEYS) <= set(read)


POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"4d" * 32 + b"\nsize 12345\n"


def test_a_git_lfs_pointer_is_named_as_such_with_the_way_to_the_real_file(tmp_path: Path) -> None:
    file = tmp_path / "config.json"
    file.write_bytes(POINTER)
    for read in (check_not_lfs_pointer, lambda path: read_json(path, KEYS, "Delete it.")):
        with pytest.raises(UserError, match=r"config\.json: is a Git LFS pointer, .*: run git lfs pull"):
            read(file)


def test_other_files_are_no_git_lfs_pointers(tmp_path: Path) -> None:
    file = tmp_path / "notes"
    check_not_lfs_pointer(file)  # who reads it says that it is missing
    for content in (b"", b"version https", b"a version https://git-lfs.github.com/spec/v1"):
        file.write_bytes(content)
        check_not_lfs_pointer(file)
