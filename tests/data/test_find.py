"""Folders, patterns, links and streams: everything is read once, and what is not read is listed."""

from __future__ import annotations

import gzip
import os
import stat
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from support.documents import put, read_all

from ernie.data.read import Input, check_unchanged, find_inputs, read_input
from ernie.data.stream_copy import streams_copied
from ernie.errors import Remark, UserError


def names(folder: Path, *paths: Path | str) -> list[str]:
    return [str(Path(source.name).relative_to(folder)) for source in find_inputs(list(paths) or [folder])]


class TestLinks:
    @pytest.fixture
    def linked(self, tmp_path: Path) -> Path:
        """A folder with links of every kind."""
        put(tmp_path / "outside" / "far.txt", "far")
        folder = tmp_path / "in"
        put(folder / "a.txt", "a")
        put(folder / "sub" / "b.txt", "b")
        (folder / "other").symlink_to(tmp_path / "outside")
        (folder / "gone.txt").symlink_to("nowhere.txt")
        (folder / "latest.txt").symlink_to("a.txt")
        (folder / "loop").symlink_to(folder)
        (folder / "sub" / "up").symlink_to("..")
        (folder / "again").symlink_to("sub")
        (folder / "self.txt").symlink_to("self.txt")
        return folder

    @pytest.mark.parametrize("pattern", ["", "**/*", "**/*.txt"])
    def test_links_are_followed_once_by_folders_and_patterns_alike(self, linked: Path, pattern: str) -> None:
        given = f"{linked}/{pattern}" if pattern else linked
        with pytest.warns(Remark, match="not read:") as notes:
            assert names(linked, given) == ["a.txt", "other/far.txt", "sub/b.txt"]
        note = "\n".join(str(each.message) for each in notes)
        for said in (
            f"{linked}/gone.txt: is a link to nowhere.txt, which is not there",
            f"{linked}/self.txt: is a link that leads back to itself",
            f"{linked}/latest.txt: is the same file as {linked}/a.txt, by a link, and is counted once",
            f"{linked}/loop: is a link to a folder that it is in itself",
            f"{linked}/sub/up: is a link to a folder that it is in itself",
            f"{linked}/again: is a link to {linked}/sub, which is read already",
        ):
            assert said in note

    def test_a_link_to_a_file_or_folder_may_be_given_itself(self, linked: Path) -> None:
        assert [document.text for document in read_all(linked / "latest.txt")] == ["a"]
        assert [document.text for document in read_all(linked / "other")] == ["far"]
        assert [document.text for document in read_all(f"{linked}/late*.txt")] == ["a"]

    @pytest.mark.parametrize(
        ("name", "why"), [("gone.txt", "nowhere.txt, which is not"), ("self.txt", "back to itself")]
    )
    def test_a_link_that_leads_nowhere_is_an_error_where_it_is_given(self, linked: Path, name: str, why: str) -> None:
        with pytest.raises(UserError, match=f"{name}: is a link .*{why}"):
            find_inputs([linked / name])

    def test_many_loops_end(self, tmp_path: Path) -> None:
        put(tmp_path / "a.txt", "a")
        for i in range(30):
            (tmp_path / f"loop{i}").symlink_to(tmp_path)
        with pytest.warns(Remark, match="and 20 more"):
            assert names(tmp_path, f"{tmp_path}/**/*.txt") == ["a.txt"]

    def test_hard_links_are_one_file(self, tmp_path: Path) -> None:
        put(tmp_path / "a.txt", "a")
        os.link(tmp_path / "a.txt", tmp_path / "b.txt")
        with pytest.warns(Remark, match=r"b\.txt: is the same file as .*a\.txt, by a link"):
            assert names(tmp_path) == ["a.txt"]

    def test_a_link_before_its_file_gives_way_to_it(self, tmp_path: Path) -> None:
        put(tmp_path / "z.txt", "z")
        (tmp_path / "a.txt").symlink_to("z.txt")
        with pytest.warns(Remark, match=r"a\.txt: is the same file as .*z\.txt"):
            assert names(tmp_path) == ["z.txt"]

    def test_links_to_one_outer_folder_are_read_once(self, tmp_path: Path) -> None:
        put(tmp_path / "outside" / "far.txt", "far")
        (tmp_path / "in").mkdir()
        (tmp_path / "in" / "x").symlink_to(tmp_path / "outside")
        (tmp_path / "in" / "y").symlink_to(tmp_path / "outside")
        with pytest.warns(Remark, match=r"in/y: is a link to .*in/x, which is read already"):
            assert names(tmp_path / "in") == ["x/far.txt"]


class TestClosed:
    @pytest.fixture
    def without_rights(self) -> Iterator[Path]:
        """A folder of texts for a user who may do little: as root, rights are given up for the test."""
        with tempfile.TemporaryDirectory(dir="/tmp") as name:
            folder = Path(name)
            folder.chmod(0o755)
            put(folder / "a.txt", "a").chmod(0o644)
            put(folder / "closed" / "b.txt", "b")
            (folder / "closed").chmod(0)
            put(folder / "listed" / "c.txt", "c")
            (folder / "listed").chmod(0o444)
            root = os.geteuid() == 0
            if root:
                os.seteuid(65534)
            try:
                yield folder
            finally:
                if root:
                    os.seteuid(0)
                for path in folder.iterdir():
                    path.chmod(0o755)

    @pytest.mark.parametrize("pattern", ["", "**/*.txt"])
    def test_a_folder_that_may_not_be_read_is_listed(self, without_rights: Path, pattern: str) -> None:
        given = f"{without_rights}/{pattern}" if pattern else without_rights
        with pytest.warns(Remark, match="closed: the folder may not be read: Permission denied") as notes:
            assert names(without_rights, given) == ["a.txt"]
        assert any("listed/c.txt: may not be read: Permission denied" in str(note.message) for note in notes)

    @pytest.mark.filterwarnings("ignore::ernie.errors.Remark")
    def test_a_file_that_may_not_be_read_is_an_error_before_anything_is_read(self, without_rights: Path) -> None:
        root = os.geteuid()
        os.seteuid(os.getuid())
        (without_rights / "a.txt").chmod(0)
        os.seteuid(root)
        for given in (without_rights, without_rights / "a.txt", f"{without_rights}/a*"):
            with pytest.raises(UserError, match=r"a\.txt: may not be read: permission denied"):
                find_inputs([given])


class TestWhatIsNoText:
    def test_what_programs_keep_beside_their_data_is_not_read(self, tmp_path: Path) -> None:
        for name in ("_temporary/0/part-1.txt", "__MACOSX/a.txt", "_delta_log/0.json", "sub/_temporary/x.jsonl"):
            put(tmp_path / name, "left")
        for name in ("_staging/a.txt", "_impala_insert_staging/a.txt", "_logs/history/a.txt", "_change_data/a.txt"):
            put(tmp_path / name, "left")
        put(tmp_path / "_mine" / "a.txt", "kept")
        put(tmp_path / "_SUCCESS", "")
        for given in (tmp_path, f"{tmp_path}/**/*"):
            with pytest.warns(Remark, match="_temporary: holds what a program keeps beside its data") as notes:
                assert names(tmp_path, given) == ["_mine/a.txt"]
            assert str(notes[0].message).count("holds what a program") == 8
        assert [document.text for document in read_all(tmp_path / "_temporary")] == ["left"]

    def test_parts_of_spark_and_hadoop_without_a_suffix_are_read(self, tmp_path: Path) -> None:
        for name in ("part-00000", "part-r-00001", "part-m-00002"):
            put(tmp_path / "out" / name, f"{name} is here.")
        put(tmp_path / "out" / "part-00003.gz", gzip.compress(b"The last is here."))
        assert len(read_all(tmp_path)) == len(read_all(f"{tmp_path}/out/part-*")) == 4

    def test_pipes_in_a_folder_are_listed_and_not_waited_for(self, tmp_path: Path) -> None:
        put(tmp_path / "a.txt", "a")
        os.mkfifo(tmp_path / "pipe.txt")
        (tmp_path / "zero.txt").symlink_to("/dev/zero")
        for given in (tmp_path, f"{tmp_path}/*.txt"):
            with pytest.warns(Remark, match=r"pipe\.txt: is no regular file") as notes:
                assert names(tmp_path, given) == ["a.txt"]
            assert "zero.txt: is no regular file" in str(notes[0].message)

    def test_files_without_a_byte_are_listed(self, tmp_path: Path) -> None:
        put(tmp_path / "a.txt", "One.")
        for name in "bcdefgh":
            put(tmp_path / f"{name}.txt", "")
        with pytest.warns(Remark) as notes:
            assert len(find_inputs([tmp_path])) == 8
        names = ", ".join(str(tmp_path / f"{name}.txt") for name in "bcdef")
        assert [str(note.message) for note in notes] == [f"7 files of 0 bytes: {names} and 2 more"]

    @pytest.mark.parametrize("name", ["/dev/zero", "/dev/null"])
    def test_a_device_is_an_error(self, name: str) -> None:
        with pytest.raises(UserError, match=f"{name}: is a device or a socket; give a file, a pipe, or -"):
            find_inputs([name])

    def test_folders_that_a_pattern_matches_are_noted(self, tmp_path: Path) -> None:
        put(tmp_path / "a.txt", "a")
        put(tmp_path / "sub" / "b.txt", "b")
        with pytest.warns(Remark, match=r"folders are not searched \(.*sub\); \*\* stands for any number"):
            assert names(tmp_path, f"{tmp_path}/*") == ["a.txt"]

    @pytest.mark.parametrize(
        ("pattern", "expected"),
        [
            ("*/*.txt", ["x/1.txt"]),
            ("**/y/*.txt", ["x/y/2.txt"]),
            ("x/**", ["x/1.txt", "x/y/2.txt"]),
            ("x/[12].txt", ["x/1.txt"]),
            ("?/y/2.txt", ["x/y/2.txt"]),
            ("**/**/2.txt", ["x/y/2.txt"]),
        ],
    )
    def test_patterns_mean_what_they_mean_to_a_shell(self, tmp_path: Path, pattern: str, expected: list[str]) -> None:
        put(tmp_path / "x" / "1.txt", "1")
        put(tmp_path / "x" / "y" / "2.txt", "2")
        assert names(tmp_path, f"{tmp_path}/{pattern}") == expected

    def test_patterns_may_be_relative(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        put(tmp_path / "x" / "1.txt", "1")
        monkeypatch.chdir(tmp_path)
        assert [source.name for source in find_inputs(["*/*.txt"])] == ["x/1.txt"]


class TestChanges:
    @pytest.mark.parametrize(
        ("change", "message"),
        [
            (lambda path: path.write_text("One.\n"), "was changed while it was read .from .* to 5 bytes"),
            (lambda path: path.open("a").write("More.\n"), "was changed while it was read"),
            (lambda path: os.utime(path, (1, 1)), "was changed .*its size is the same"),
            (lambda path: path.unlink(), "there is no such file or folder; it was there before"),
        ],
        ids=["truncated", "grown", "touched", "removed"],
    )
    def test_a_file_that_is_changed_while_it_is_read_is_an_error(self, tmp_path: Path, change, message: str) -> None:
        (source,) = find_inputs([put(tmp_path / "a.txt", "One.\n\n" * 50_000)])
        documents = read_input(source)
        next(documents)
        change(source_path := Path(source.name))
        with pytest.raises(UserError, match=message):
            list(documents)
        assert source_path.name == "a.txt"

    def test_a_file_that_stays_is_no_error(self, tmp_path: Path) -> None:
        (source,) = find_inputs([put(tmp_path / "a.txt", "One.\n\n" * 5)])
        assert len(list(read_input(source))) == 5
        check_unchanged(source)


class TestStreams:
    def test_a_pipe_that_is_named_is_read_from_a_copy(self, tmp_path: Path) -> None:
        pipe = tmp_path / "pipe"
        os.mkfifo(pipe)
        writer = threading.Thread(target=pipe.write_text, args=("One.\n\nTwo.\n",))
        writer.start()
        with streams_copied(find_inputs([pipe]), tmp_path / "out") as (source,):
            for _ in range(2):
                assert [str(document.place) for document in read_input(source)] == [f"{pipe}:1", f"{pipe}:3"]
        writer.join()
        assert stat.S_ISFIFO(pipe.stat().st_mode)
        assert [path.name for path in tmp_path.iterdir()] == ["pipe"]

    def test_a_closed_standard_input_is_an_error(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(sys, "stdin", None)
        with (
            pytest.raises(UserError, match="standard input is closed"),
            streams_copied(find_inputs(["-"]), tmp_path / "o"),
        ):
            pytest.fail("was read")

    def test_without_streams_nothing_is_copied(self, tmp_path: Path) -> None:
        given = [Input("a.txt", 3)]
        with streams_copied(given, tmp_path / "out") as inputs:
            assert inputs == given
            assert not list(tmp_path.iterdir())

    def test_standard_input_is_given_once(self) -> None:
        with pytest.raises(UserError, match="standard input: is given twice"):
            find_inputs(["-", "/dev/stdin"])
