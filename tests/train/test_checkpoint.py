"""Checkpoints: written atomically even if the process is killed, pruned, and checked for damage."""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
import signal
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ernie.errors import Remark, UserError
from ernie.train import checkpoint as module
from ernie.train.checkpoint import MANIFEST, Checkpoints, await_visible, check, read_manifest


def content(text: str) -> Callable[[Path], None]:
    """Return a `write` function that fills a checkpoint with two files, one of them in a folder."""

    def write(folder: Path) -> None:
        (folder / "model").mkdir()
        (folder / "model" / "weights").write_text(text * 50)
        (folder / "state.json").write_text(json.dumps(text))

    return write


def verified_content(path: Path) -> str:
    """Verify the checksums of a checkpoint and return its content."""
    check(path)
    text = json.loads((path / "state.json").read_text())
    assert (path / "model" / "weights").read_text() == text * 50
    return text


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


# ----------------------------------------------------------------------------------------------- retention


def test_a_saved_checkpoint_is_found(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path / "new" / "checkpoints")
    assert checkpoints.latest() is None
    assert checkpoints.steps() == []
    path = checkpoints.save(7, content("seven"), score=0.5)
    assert path == checkpoints.latest() == tmp_path / "new" / "checkpoints" / "step-00000007"
    assert verified_content(path) == "seven"
    assert read_manifest(path)["step"] == 7
    assert read_manifest(path)["score"] == 0.5


def test_a_checkpoint_is_flushed_before_its_rename_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    flushed: list[int] = []
    before: list[int] = []
    rename = Path.rename

    def recording_rename(path: Path, target: Path) -> Path:
        before.extend(flushed)
        return rename(path, target)

    monkeypatch.setattr(os, "fsync", lambda file: flushed.append(os.fstat(file).st_ino))
    monkeypatch.setattr(Path, "rename", recording_rename)
    path = Checkpoints(tmp_path / "checkpoints").save(7, content("seven"))
    assert {entry.stat().st_ino for entry in (path, *path.rglob("*"))} == set(before)
    assert flushed[len(before) :] == [path.parent.stat().st_ino]


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "kept"),
    [
        (1, False, [60]),
        (2, False, [50, 60]),
        (9, False, [10, 20, 30, 40, 50, 60]),
        (2, True, [30, 50, 60]),
        (3, True, [30, 40, 50, 60]),
    ],
)
def test_the_newest_checkpoints_and_optionally_the_best_are_kept(
    tmp_path: Path, keep_last: int, keep_best: bool, kept: list[int]
) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last, keep_best)
    for step, score in ((10, 0.1), (20, 0.9), (30, 0.9), (40, None), (50, 0.3), (60, -0.5)):
        checkpoints.save(step, content(str(step)), score)
    assert checkpoints.steps() == kept
    assert names(tmp_path) == [f"step-{step:08d}" for step in kept]
    assert all(verified_content(checkpoints.path(step)) == str(step) for step in kept)


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch])
def test_what_is_only_named_as_a_checkpoint_is_passed_over_and_left_alone(
    make: Callable[[Path], None], tmp_path: Path
) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1)
    stray = tmp_path / "step-00000099"
    make(stray)
    assert checkpoints.latest() == stray  # alone it is reported: the run's checkpoint may be damaged
    for step in (7, 8):
        checkpoints.save(step, lambda folder: (folder / "state").touch())
    with pytest.warns(Remark, match=r"step-00000099: is passed over: it holds no manifest.json"):
        assert checkpoints.latest() == tmp_path / "step-00000008"
    assert stray.exists() and not (tmp_path / "step-00000007").exists()


def test_a_step_can_be_saved_again(tmp_path: Path) -> None:
    checkpoints = Checkpoints(tmp_path)
    for text in ("once", "twice"):
        checkpoints.save(3, content(text))
    assert verified_content(checkpoints.path(3)) == "twice"
    assert names(tmp_path) == ["step-00000003"]


# --------------------------------------------------------------------------------------- interrupted writes


def dies_at(moment: int, action: Callable[[], object]) -> bool:
    """Run `action` in a child process that kills itself at its `moment`-th disk operation; return False if the action
    finished first."""
    child = os.fork()
    if child == 0:
        operations = 0

        def watched(function: Callable) -> Callable:
            def wrapper(*arguments: object, **keywords: object) -> object:
                nonlocal operations
                if operations == moment:
                    os.kill(os.getpid(), signal.SIGKILL)
                operations += 1
                return function(*arguments, **keywords)

            return wrapper

        for owner, name in (
            (os, "fsync"),
            (os, "unlink"),
            (os, "rmdir"),
            (Path, "mkdir"),
            (Path, "rename"),
            (Path, "write_text"),
            (shutil, "rmtree"),
        ):
            setattr(owner, name, watched(getattr(owner, name)))
        try:
            action()
        finally:
            os._exit(0)
    return os.WIFSIGNALED(os.waitpid(child, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize(
    ("before", "step", "keep_last"),
    [((1,), 2, 1), ((1, 2), 3, 2), ((1, 2), 2, 2), ((2,), 2, 1)],  # the last two rewrite an existing step
)
def test_a_kill_at_any_moment_leaves_a_valid_checkpoint(
    tmp_path: Path, before: tuple[int, ...], step: int, keep_last: int
) -> None:
    outcomes, moment, died = set(), 0, True
    while died:
        folder = tmp_path / str(moment)
        checkpoints = Checkpoints(folder, keep_last)
        for old in before:
            checkpoints.save(old, content(f"old {old}"))
        died = dies_at(moment, lambda: Checkpoints(folder, keep_last).save(step, content("new")))  # noqa: B023
        latest = checkpoints.latest()
        assert latest is not None
        outcomes.add(verified_content(latest))
        for saved_step in checkpoints.steps():
            verified_content(checkpoints.path(saved_step))
        checkpoints.save(9, content("nine"))  # a later save still works and leaves nothing else behind
        assert names(folder) == [f"step-{kept:08d}" for kept in checkpoints.steps()]
        moment += 1
    assert moment > 10
    assert len(outcomes) > 1
    assert "new" in outcomes


@pytest.mark.parametrize(
    "error", [OSError(errno.ENOSPC, "No space left on device"), RuntimeError("I/O error: No space left on device")]
)
def test_a_full_disk_raises_a_clear_error_and_keeps_earlier_checkpoints(tmp_path: Path, error: Exception) -> None:
    checkpoints = Checkpoints(tmp_path, keep_last=1)
    checkpoints.save(1, content("one"))

    def write(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise error

    with pytest.raises(UserError, match="the disk is full; the checkpoint of step 2 was not written") as caught:
        checkpoints.save(2, write)
    assert "Free some space and run the same command again" in str(caught.value)
    assert names(tmp_path) == ["step-00000001"]
    assert verified_content(checkpoints.path(1)) == "one"


def test_any_other_error_propagates_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def write(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        Checkpoints(tmp_path).save(2, write)
    assert names(tmp_path) == []


# -------------------------------------------------------------------------------------------------- damage


@settings(max_examples=40)
@given(
    st.sampled_from(["state.json", "model/weights"]), st.integers(min_value=0), st.integers(min_value=0, max_value=7)
)
def test_a_flipped_bit_is_detected_and_its_file_named(
    tmp_path_factory: pytest.TempPathFactory, name: str, position: int, bit: int
) -> None:
    folder = tmp_path_factory.getbasetemp() / "flipped"
    path = Checkpoints(folder).save(1, content("some text"))
    data = bytearray((path / name).read_bytes())
    data[position % len(data)] ^= 1 << bit
    (path / name).write_bytes(data)
    with pytest.raises(UserError) as caught:
        check(path)
    assert str(caught.value).startswith(f"{path / name}: does not match its checksum: the checkpoint is damaged.")
    assert f"delete the folder {path}" in str(caught.value)


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(1, content("text"))
    (path / "model" / "weights").unlink()
    with pytest.raises(UserError, match="model/weights: is missing: the checkpoint is damaged"):
        check(path)


@pytest.mark.parametrize(
    ("listed", "message"),
    [
        ({}, "manifest.json: sha256: is empty, so that nothing could be checked; the checkpoint is damaged"),
        ({"../../../victim": "0" * 64}, "sha256: names '../../../victim', which is no file in"),
        ({"/etc/passwd": "0" * 64}, "sha256: names '/etc/passwd', which is no file in"),
        ({"state.json": ""}, "sha256.state.json: is no SHA-256"),
        (
            {"notes": hashlib.sha256(b"none").hexdigest()},
            "state.json: has no checksum in manifest.json: the checkpoint is damaged",
        ),
    ],
)
def test_a_manifest_cannot_switch_checking_off(tmp_path: Path, listed: dict[str, str], message: str) -> None:
    def write(folder: Path) -> None:
        (folder / "state.json").write_text("{}")
        (folder / "notes").write_text("none")

    path = Checkpoints(tmp_path / "run").save(1, write)
    manifest = json.loads((path / MANIFEST).read_text())
    (path / MANIFEST).write_text(json.dumps({**manifest, "sha256": listed}))
    with pytest.raises(UserError, match=re.escape(message)):
        check(path)


@pytest.mark.parametrize("manifest", ["", '{"step": 1', "[]", "{}", '{"step": 1, "score": null, "sha257": {}}', "\xff"])
def test_a_damaged_manifest_raises_a_clear_error(tmp_path: Path, manifest: str) -> None:
    path = Checkpoints(tmp_path).save(1, content("text"))
    (path / MANIFEST).write_text(manifest, encoding="latin-1")
    with pytest.raises(UserError, match=r"manifest\.json: .*delete the folder .*step-00000001"):
        check(path)


def test_a_folder_that_is_not_a_checkpoint_raises_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"is not a checkpoint: it has no manifest.json"):
        check(tmp_path)


# ----------------------------------------------------------------------------------------------- network disks


def test_a_checkpoint_that_a_network_disk_shows_late_is_waited_for(tmp_path: Path) -> None:
    path = Checkpoints(tmp_path).save(7, content("seven"))
    hidden = path.rename(tmp_path / "not yet seen")
    shown = threading.Timer(0.3, hidden.rename, (path,))
    shown.start()
    await_visible(path, 1)
    shown.join()
    assert verified_content(path) == "seven"


def test_a_checkpoint_that_another_machine_does_not_have_is_an_error_with_the_way_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_TO_APPEAR", 0.1)
    with pytest.raises(UserError, match=r"step-00000007: rank 0 resumes from this .* rank 3 does not see it on its"):
        await_visible(tmp_path / "step-00000007", 3)


@pytest.mark.parametrize("number", [errno.ESTALE, errno.EIO, errno.ETIMEDOUT])
def test_a_network_disk_that_fails_while_a_checkpoint_is_flushed_leaves_the_one_before(
    number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkpoints = Checkpoints(tmp_path)
    before = checkpoints.save(7, content("seven"))

    def fsync(_: int) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match=re.escape(os.strerror(number))):
        checkpoints.save(8, content("eight"))
    assert checkpoints.latest() == before
    assert verified_content(before) == "seven"
    monkeypatch.undo()
    assert verified_content(checkpoints.save(8, content("eight"))) == "eight"
