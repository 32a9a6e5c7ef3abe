"""Atomic writes: files and folders appear complete or not at all."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

from ernie.atomic import (
    check_absent,
    disk_guard,
    final_name,
    inner_folder,
    partial_folder,
    put,
    put_text,
    replacing,
    temporary_file,
)
from ernie.errors import UserError


@pytest.fixture
def dead_pid() -> int:
    """The id of a process that has exited."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def filled(folder: Path, content: str) -> Path:
    folder.mkdir(parents=True)
    (folder / "file").write_text(content)
    return folder


def test_leftovers_of_a_dead_process_are_removed(tmp_path: Path, dead_pid: int) -> None:
    filled(tmp_path / f"c.partial-{dead_pid}", "half")
    filled(tmp_path / f"c.partial-{os.getpid()}", "half, by an earlier process of our id")
    assert not partial_folder(tmp_path / "c").exists()
    assert list(tmp_path.iterdir()) == []


def test_the_partial_folder_of_a_running_process_is_kept(tmp_path: Path) -> None:
    filled(tmp_path / f"c.partial-{os.getppid()}", "half")
    partial_folder(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == [f"c.partial-{os.getppid()}"]


def test_folders_with_other_names_are_kept(tmp_path: Path, dead_pid: int) -> None:
    names = [f"cc.partial-{dead_pid}", f"c.partial-{dead_pid}.bak", "c.partial-x", f"c.copy-{dead_pid}"]
    for name in names:
        filled(tmp_path / name, "mine")
    partial_folder(tmp_path / "c")
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


def test_an_old_folder_is_restored_if_its_replacement_is_missing(tmp_path: Path, dead_pid: int) -> None:
    filled(tmp_path / f"c.old-{dead_pid}", "whole")
    filled(tmp_path / f"c.partial-{dead_pid}", "half")
    partial_folder(tmp_path / "c")
    assert (tmp_path / "c" / "file").read_text() == "whole"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_an_old_folder_is_removed_if_its_replacement_exists(tmp_path: Path, dead_pid: int) -> None:
    filled(tmp_path / "c", "new")
    filled(tmp_path / f"c.old-{dead_pid}", "old")
    partial_folder(tmp_path / "c")
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_put_replaces_a_folder(tmp_path: Path) -> None:
    filled(tmp_path / "c", "old")
    put(filled(partial_folder(tmp_path / "c"), "new"), tmp_path / "c")
    assert (tmp_path / "c" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_the_old_folder_survives_a_failed_move(tmp_path: Path) -> None:
    filled(tmp_path / "c", "old")
    with pytest.raises(FileNotFoundError):
        put(tmp_path / "nowhere", tmp_path / "c")
    assert (tmp_path / "c" / "file").read_text() == "old"


def test_a_folder_created_meanwhile_is_kept_and_so_is_the_result(tmp_path: Path) -> None:
    target = tmp_path / "c"
    for made in ("first", "second"):
        folder = filled(partial_folder(target), made)
        if made == "first":
            filled(target, "mine")
        with pytest.raises(UserError, match=rf"c: is there already.*\n.*not lost: it is in {target}\.made-\d"):
            put(folder, target, lambda: check_absent(target))
    contents = {path.name: (path / "file").read_text() for path in tmp_path.iterdir()}
    assert contents == {"c": "mine", "c.made-1": "first", "c.made-2": "second"}


def test_an_empty_folder_is_replaced(tmp_path: Path) -> None:
    folder = filled(partial_folder(tmp_path / "c"), "new")
    (tmp_path / "c").mkdir()
    put(folder, tmp_path / "c", lambda: check_absent(tmp_path / "c"))
    assert (tmp_path / "c" / "file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["c"]


def test_a_missing_parent_folder_is_accepted(tmp_path: Path) -> None:
    assert partial_folder(tmp_path / "runs" / "c").parent == tmp_path / "runs"


def test_put_text_replaces_the_whole_file(tmp_path: Path) -> None:
    for text in ("first", "zweiter Versuch, größer\n"):
        put_text(tmp_path / "a.json", text)
        assert (tmp_path / "a.json").read_text(encoding="utf-8") == text
    assert [path.name for path in tmp_path.iterdir()] == ["a.json"]


def test_a_failed_write_leaves_the_file_unchanged(tmp_path: Path) -> None:
    put_text(tmp_path / "a.json", "first")
    with pytest.raises(UnicodeEncodeError):
        put_text(tmp_path / "a.json", "second \ud800")
    assert (tmp_path / "a.json").read_text(encoding="utf-8") == "first"


def test_no_link_is_followed_in_writing_a_file(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("untouched")
    (tmp_path / "run").mkdir()
    page = tmp_path / "run" / "report.html"
    for name in ("report.html", "report.html.partial", f"report.html.partial-{os.getpid()}"):
        (page.parent / name).symlink_to(tmp_path / "victim")
    put_text(page, "ours")
    assert (tmp_path / "victim").read_text() == "untouched"
    assert page.read_text() == "ours"
    assert not page.is_symlink()


def test_temporary_names_differ_and_leftovers_of_dead_processes_are_removed(tmp_path: Path, dead_pid: int) -> None:
    left = tmp_path / f"a.json.{dead_pid}-0123456789abcdef.partial"
    left.write_text("half")
    with replacing(tmp_path / "a.json") as first, replacing(tmp_path / "a.json") as second:
        assert first != second
        assert not left.exists()
        assert final_name(str(first)) == str(tmp_path / "a.json")
        assert first.stat().st_mode & 0o777 == 0o666 & ~_umask()


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def test_a_write_that_fails_leaves_no_temporary_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), replacing(tmp_path / "a.json"):
        raise RuntimeError
    assert list(tmp_path.iterdir()) == []
    kept = temporary_file(tmp_path / "a.json")  # for a caller who renames it
    assert kept.read_bytes() == b""


def test_a_folder_inside_another_is_no_link_that_leads_out_of_it(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "run" / "own").mkdir(parents=True)
    (tmp_path / "run" / "report").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "run" / "figures").symlink_to("own")
    assert inner_folder(tmp_path / "run", "new").is_dir()
    assert inner_folder(tmp_path / "run", "figures").is_dir()
    with pytest.raises(UserError, match=r"run/report: is a link that leads out of .*run, to .*elsewhere; nothing is"):
        inner_folder(tmp_path / "run", "report")


def test_a_partial_folder_that_is_a_link_is_removed_and_not_its_target(tmp_path: Path) -> None:
    filled(tmp_path / "disk", "mine")
    (tmp_path / f"c.partial-{os.getpid()}").symlink_to(tmp_path / "disk")
    assert not partial_folder(tmp_path / "c").is_symlink()
    assert (tmp_path / "disk" / "file").read_text() == "mine"


def test_put_follows_a_symbolic_link(tmp_path: Path) -> None:
    filled(tmp_path / "disk" / "real", "old")
    (tmp_path / "link").symlink_to(tmp_path / "disk" / "real")
    folder = partial_folder(tmp_path / "link")
    assert folder.parent == tmp_path / "disk"
    put(filled(folder, "new"), tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "disk" / "real" / "file").read_text() == "new"
    assert [path.name for path in (tmp_path / "disk").iterdir()] == ["real"]


def test_the_current_folder_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="is the current folder"):
        partial_folder(Path())


def test_a_full_disk_is_a_user_error_and_other_errors_are_unchanged(tmp_path: Path) -> None:
    full = OSError(errno.ENOSPC, "No space left on device")
    with pytest.raises(UserError, match="a: the disk is full; half is lost"), disk_guard(Path("a"), "half is lost"):
        raise full
    with pytest.raises(ValueError, match="other"), disk_guard(Path("a"), "half is missing"):
        raise ValueError("other")
