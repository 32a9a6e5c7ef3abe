"""Folders that appear whole or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ernie.atomic import check_absent, disk_guard, partial_folder, put, put_text
from ernie.errors import UserError


@pytest.fixture
def dead() -> int:
    """The id of a process that ran and is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def filled(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_text(content)
    return folder


def test_what_a_killed_process_left_is_removed(tmp_path: Path, dead: int) -> None:
    filled(tmp_path / f"c.partial-{dead}", "half")
    filled(tmp_path / f"c.partial-{os.getpid()}", "half, by an earlier process of our id")
    assert not partial_folder(tmp_path / "c").exists()
    assert list(tmp_path.iterdir()) == []


def test_what_a_living_process_fills_is_left_alone(tmp_path: Path) -> None:
    filled(tmp_path / f"c.partial-{os.getppid()}", "half")
    partial_folder(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == [f"c.partial-{os.getppid()}"]


def test_folders_of_other_names_are_left_alone(tmp_path: Path, dead: int) -> None:
    names = [f"cc.partial-{dead}", f"c.partial-{dead}.bak", "c.partial-x", f"c.copy-{dead}"]
    for name in names:
        filled(tmp_path / name, "mine")
    partial_folder(tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_a_folder_whose_successor_never_came_is_put_back(tmp_path: Path, dead: int) -> None:
    filled(tmp_path / f"c.old-{dead}", "whole")
    filled(tmp_path / f"c.partial-{dead}", "half")
    partial_folder(tmp_path / "c")
    assert (tmp_path / "c" / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_folder_whose_successor_came_is_removed(tmp_path: Path, dead: int) -> None:
    filled(tmp_path / "c", "new")
    filled(tmp_path / f"c.old-{dead}", "old")
    partial_folder(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_folder_takes_the_place_of_another(tmp_path: Path) -> None:
    filled(tmp_path / "c", "old")
    put(filled(partial_folder(tmp_path / "c"), "new"), tmp_path / "c")
    assert (tmp_path / "c" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_when_moving_fails_the_old_folder_stays(tmp_path: Path) -> None:
    filled(tmp_path / "c", "old")
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "nowhere", tmp_path / "c")
    assert (tmp_path / "c" / "file").read_text() == "old"


def test_what_came_to_the_place_meanwhile_stays_and_so_does_what_was_made(tmp_path: Path) -> None:
    place = tmp_path / "c"
    for made in ("first", "second"):
        folder = filled(partial_folder(place), made)
        if made == "first":
            filled(place, "mine")
        with pytest.raises(UserError, match=rf"c: is there already.*\n.*not lost: it is in {place}\.made-\d"):
            put(folder, place, lambda: check_absent(place))
    contents = {path.name: (path / "file").read_text() for path in tmp_path.iterdir()}
    assert contents == {"c": "mine", "c.made-1": "first", "c.made-2": "second"}


def test_an_empty_folder_is_no_hindrance(tmp_path: Path) -> None:
    folder = filled(partial_folder(tmp_path / "c"), "new")
    (tmp_path / "c").mkdir()
    put(folder, tmp_path / "c", lambda: check_absent(tmp_path / "c"))
    assert (tmp_path / "c" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_the_parent_of_the_place_need_not_exist_yet(tmp_path: Path) -> None:
    assert partial_folder(tmp_path / "runs" / "c").parent == tmp_path / "runs"


def test_a_file_is_replaced_whole(tmp_path: Path) -> None:
    for text in ("first", "zweiter Versuch, größer\n"):
        put_text(tmp_path / "a.json", text)
        assert (tmp_path / "a.json").read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path) -> None:
    put_text(tmp_path / "a.json", "first")
    with pytest.raises(UnicodeEncodeError):
        put_text(tmp_path / "a.json", "second \ud800")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "first"


def test_a_link_leads_to_where_the_folder_is_put(tmp_path: Path) -> None:
    filled(tmp_path / "disk" / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    folder = partial_folder(tmp_path / "link")
    assert folder.parent == tmp_path / "disk"
    put(filled(folder, "new"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "real" / "file").read_text() == "new"
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real"]


def test_the_folder_that_one_is_in_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is the current folder"):
        partial_folder(Path())


def test_a_full_disk_is_a_sentence_and_another_error_stays_what_it_is(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UserError, match="a: the disk is full; half is lost"), disk_guard(Path("a"), "half is lost"):
        raise full
    with pytest.raises(ValueError, match="other"), disk_guard(Path("a"), "half is missing"):
        raise ValueError("other")
