"""`ernie data build` and `ernie tokenizer train` on the command line: output, streams and exit status."""

from __future__ import annotations

import gzip
import io
import json
import lzma
import os
import re
import shutil
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ernie.cli import main
from ernie.data.document import Flag
from ernie.data.shards import Corpus
from ernie.errors import UserError
from ernie.text.load import load_tokenizer
from ernie.text.train import train_wordpiece
from ernie.text.wordpiece import WordPiece
from pretrain.commands import tokenizer_train
from pretrain.corpus import build
from pretrain.corpus.build import build_corpus
from pretrain.corpus.config import CorpusConfig

TEXT = "\n\n".join(f"Number {i} is a number. The one before {i} was smaller. So it goes on." for i in range(60))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A working folder with a text and a tokenizer."""
    monkeypatch.chdir(tmp_path)
    Path("in.txt").write_text(TEXT)
    assert main(["tokenizer", "train", "--input", "in.txt", "--output", "tok", "--vocab-size", "80", "--quiet"]) == 0
    return tmp_path


def data_build(*arguments: str) -> int:
    return main(["data", "build", "--processes", "0", "--output", "corpus", *arguments])


class TestDataBuild:
    def test_text_at_an_address_gives_the_corpus_that_a_local_file_gives(self, folder):
        import fsspec

        fsspec.filesystem("memory").pipe("/corpus/in.txt", TEXT.encode())
        assert data_build("--input", "memory://corpus", "--tokenizer", "tok") == 0
        there = Corpus.open("corpus")
        assert there.train.source(0).startswith("memory:///corpus/in.txt:")
        assert data_build("--input", "in.txt", "--tokenizer", "tok", "--overwrite") == 0
        assert Corpus.open("corpus").fingerprint == there.fingerprint

    @pytest.mark.parametrize("scheme", ["file", "local"])
    def test_an_address_of_this_machine_is_a_folder_of_it(self, folder, scheme):
        words = ["data", "build", "--input", f"file://{folder}/in.txt", "--tokenizer", "tok", "--processes", "0"]
        there = folder / "with%20space"
        assert main([*words, "--output", f"{scheme}://{folder}/with%20space"]) == 0
        assert len(Corpus.open(there).train) > 50
        assert main([*words, "--output", f"{scheme}://{folder}/with%20space"]) == 2
        assert main([*words, "--output", f"{scheme}://{folder}/with%20space", "--overwrite"]) == 0

    def test_the_report_goes_to_standard_output_only(self, folder, capsys):
        capsys.readouterr()
        assert data_build("--input", "in.txt", "--tokenizer", "tok") == 0
        out, err = capsys.readouterr()
        assert "documents read                 60" in out
        assert err == ""
        assert len(Corpus.open("corpus").train) + len(Corpus.open("corpus").held_out) == 60

    def test_a_recipe_file_and_overrides(self, folder):
        Path("corpus.yaml").write_text(
            "input: [in.txt]\ntokenizer: tok\nheld_out: 0.5\nsegmenters:\n  - {kind: dictionary, file: words.txt}\n"
        )
        Path("words.txt").write_text("so it goes\tphrase\n")
        assert data_build("corpus.yaml", "--language", "en", "--set", "held_out=0") == 0
        corpus = Corpus.open("corpus")
        assert (len(corpus.train), len(corpus.held_out)) == (60, 0)
        begins = sum(int(((document.flags & int(Flag.BEGINS_PHRASE)) != 0).sum()) for document in corpus.train)
        assert begins == 60

    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--tokenizer", "tok"], "the input is missing: give --input PATH, or the key `input`"),
            (["--input", "in.txt"], "the tokenizer is missing: give --tokenizer PATH"),
            (["--input", "none.txt", "--tokenizer", "tok"], "none.txt: there is no such file or folder"),
            (["--input", "in.txt", "--tokenizer", "none"], "none"),
            (["--input", "in.txt", "--tokenizer", "tok", "--set", "heldout=1"], "heldout: unknown key. Did you mean"),
            (["--input", "in.txt", "--tokenizer", "tok", "--set", "read.strickt=true"], "Did you mean 'strict'?"),
            (["--input", "in.txt", "--tokenizer", "tok", "--set", "segmenters=[{kind: mind}]"], "mined"),
            (["--input", "in.txt", "--tokenizer", "tok", "--set", "plugins=[no_such_lab]"], "no_such_lab"),
        ],
    )
    def test_user_errors_are_one_message_with_status_2(self, folder, capsys, arguments, message):
        assert data_build(*arguments) == 2
        err = capsys.readouterr().err
        assert message in err
        assert "Traceback" not in err
        assert not Path("corpus").exists()

    def test_an_existing_corpus_is_replaced_only_with_overwrite(self, folder, capsys):
        assert data_build("--input", "in.txt", "--tokenizer", "tok") == 0
        assert data_build("--input", "in.txt", "--tokenizer", "tok") == 2
        assert "Give --overwrite" in capsys.readouterr().err
        assert data_build("--input", "in.txt", "--tokenizer", "tok", "--overwrite") == 0

    def test_a_folder_with_a_tokenizer_in_it_gives_the_corpus_that_the_tokenizer_gives(self, folder):
        assert data_build("--input", "in.txt", "--tokenizer", "tok") == 0
        there = Corpus.open("corpus").fingerprint
        for place in ("published/tokenizer", "run/model/tokenizer"):
            shutil.copytree("tok", place)
            assert data_build("--input", "in.txt", "--tokenizer", place.split("/")[0], "--overwrite") == 0
            assert Corpus.open("corpus").fingerprint == there

    def test_the_corpus_contains_its_tokenizer(self, folder):
        data_build("--input", "in.txt", "--tokenizer", "tok")
        assert Corpus.open("corpus").tokenizer.tokens == load_tokenizer(Path("tok")).tokens

    def test_a_changed_tokenizer_in_the_corpus_is_detected(self, folder, capsys):
        data_build("--input", "in.txt", "--tokenizer", "tok")
        vocabulary = Path("corpus/tokenizer/vocab.txt")
        vocabulary.write_bytes(vocabulary.read_bytes().replace(b"\nnumber\n", b"\nnumbre\n"))
        with pytest.raises(UserError, match="does not hold the tokenizer that the corpus was built with"):
            _ = Corpus.open("corpus").tokenizer

    def test_few_held_out_documents_are_noted(self, folder, capsys):
        assert data_build("--input", "in.txt", "--tokenizer", "tok") == 0
        held = len(Corpus.open("corpus").held_out)
        assert f"only {held} document" in capsys.readouterr().out
        assert data_build("--input", "in.txt", "--tokenizer", "tok", "--overwrite", "--set", "held_out=0.5") == 0
        assert len(Corpus.open("corpus").held_out) >= 10
        assert "held out: the intervals" not in capsys.readouterr().out

    def test_text_that_the_tokenizer_does_not_know_is_reported(self, folder, capsys):
        row = {"text": "今天天气很好。我们去公园。" * 5}
        rows = [json.dumps(row | {"title": str(n)}, ensure_ascii=False) for n in range(5)]
        Path("zh.jsonl").write_text("\n".join(rows), encoding="utf-8")
        assert data_build("--input", "zh.jsonl", "--tokenizer", "tok") == 0
        assert re.search(r"\d\d% of the tokens are unknown: the tokenizer lacks", capsys.readouterr().out)
        assert data_build("--input", "in.txt", "--tokenizer", "tok", "--overwrite") == 0
        assert "of the tokens are unknown" not in capsys.readouterr().out

    def test_letters_that_lose_a_mark_are_counted_and_noted(self, folder, capsys):
        rows = [json.dumps({"text": f"{n}: がくせいです。ここでがんばる。" * 5}, ensure_ascii=False) for n in range(5)]
        Path("ja.jsonl").write_text("\n".join(rows), encoding="utf-8")
        vocabulary = Path("tok/vocab.txt").read_text(encoding="utf-8")
        Path("kana.txt").write_text(vocabulary + "\n".join("かくせいてすここてはんるがでば。"), encoding="utf-8")
        assert data_build("--input", "ja.jsonl", "--tokenizer", "kana.txt", "--language", "zh") == 0
        printed = capsys.readouterr().out
        assert re.search(r"letters that lose a mark +125\n", printed)
        assert re.search(r"\d\d% of the characters lose a mark that is part of a letter, as か is not が", printed)
        assert json.loads(Path("corpus/corpus.json").read_text())["report"]["stripped"] == 125
        assert data_build("--input", "in.txt", "--tokenizer", "tok", "--overwrite") == 0
        assert "lose a mark" not in capsys.readouterr().out

    def test_the_language_is_detected(self, folder, capsys):
        row = {"text": "今天天气很好。我们去公园。" * 5}
        Path("zh.jsonl").write_text("\n".join(json.dumps(row, ensure_ascii=False) for _ in range(5)))
        assert data_build("--input", "zh.jsonl", "--tokenizer", "tok") == 0
        assert Corpus.open("corpus").language == "zh"
        assert len(Corpus.open("corpus").train[0]) == 10


class TestTokenizerTrain:
    @pytest.mark.parametrize(("kind", "size"), [("wordpiece", "90"), ("sentencepiece", "40")])
    def test_both_kinds_learn_a_vocabulary_that_loads(self, folder, capsys, kind, size):
        arguments = ["--input", "in.txt", "--output", kind, "--kind", kind, "--vocab-size", size]
        assert main(["tokenizer", "train", *arguments]) == 0
        assert kind in capsys.readouterr().out
        tokenizer = load_tokenizer(Path(kind))
        assert tokenizer.kind == kind
        assert tokenizer.lowercase
        assert tokenizer.unk_id not in tokenizer.encode("Number 7 is a number.").ids

    def test_fewer_entries_than_asked_for_are_noted(self, folder, capsys):
        assert main(["tokenizer", "train", "--input", "in.txt", "--output", "new", "--vocab-size", "9000"]) == 0
        assert "this text gives no more entries, though 9,000 were asked for" in capsys.readouterr().err

    def test_cased_vocabularies_keep_capitals(self, folder):
        assert (
            main(["tokenizer", "train", "--input", "in.txt", "--output", "cased", "--vocab-size", "90", "--cased"]) == 0
        )
        tokenizer = load_tokenizer(Path("cased"))
        assert not tokenizer.lowercase
        assert tokenizer.encode("Number").ids.tolist() != tokenizer.encode("number").ids.tolist()

    def test_an_existing_tokenizer_is_replaced_only_with_overwrite(self, folder, capsys):
        arguments = ["tokenizer", "train", "--input", "in.txt", "--output", "tok", "--vocab-size", "70", "--quiet"]
        assert main(arguments) == 2
        assert "Give --overwrite" in capsys.readouterr().err
        assert main([*arguments, "--overwrite"]) == 0
        assert load_tokenizer(Path("tok")).vocab_size == 70

    def test_unusable_documents_are_reported(self, folder, capsys):
        rows = [{"text": "It runs. It falls."}, {"content": "It runs."}] * 1100
        Path("rows.jsonl").write_text("\n".join(map(json.dumps, rows)))
        arguments = ["tokenizer", "train", "--input", "rows.jsonl", "--output", "new", "--vocab-size", "40"]
        message = "1,100 documents could not be used. The first: rows.jsonl:2: no text under 'text'"
        assert main(arguments) == 0
        assert f"tokenizer train: {message}" in capsys.readouterr().err
        Path("rows.jsonl").write_text("\n".join(map(json.dumps, [{}, *rows[1::2]])))
        assert main([*arguments, "--overwrite", "--quiet"]) == 2
        err = capsys.readouterr().err
        assert "there is no text to train a tokenizer on\n1,101 documents could not be used. The first: rows.j" in err

    def test_what_is_no_document_is_counted_apart(self, folder, capsys):
        pytest.importorskip("warcio")
        answer = "HTTP/1.1 404 Not Found\r\n\r\n"
        parts = [("conversion", "text/plain", TEXT), *[("response", "application/http; msgtype=response", answer)] * 2]
        records = "".join(
            f"WARC/1.0\r\nWARC-Type: {kind}\r\nWARC-Target-URI: http://a/\r\nContent-Type: {form}\r\n"
            f"Content-Length: {len(body)}\r\n\r\n{body}\r\n\r\n"
            for kind, form, body in parts
        )
        Path("a.warc").write_bytes(records.encode())
        assert main(["tokenizer", "train", "--input", "a.warc", "--output", "new", "--vocab-size", "40"]) == 0
        err = capsys.readouterr().err
        assert "2 records that are no documents, such as redirects, were left out" in err
        assert "could not be used" not in err

    def test_an_output_at_an_address_is_refused(self, folder, capsys):
        with pytest.raises(SystemExit) as ended:
            main(["tokenizer", "train", "--input", "in.txt", "--output", "s3://bucket/new"])
        assert ended.value.code == 2
        assert "--output: s3://bucket/new: is an address; give a folder" in capsys.readouterr().err

    def test_an_empty_input_is_an_error_and_leaves_no_files(self, folder, capsys):
        Path("empty.txt").write_text("\n\n")
        assert main(["tokenizer", "train", "--input", "empty.txt", "--output", "new", "--vocab-size", "70"]) == 2
        assert "there is no text" in capsys.readouterr().err
        assert not [path for path in folder.iterdir() if path.name.startswith("new")]


class TestInterrupted:
    @pytest.fixture
    def building(self, folder: Path) -> Iterator[subprocess.Popen[str]]:
        """A long build with worker processes that has started writing."""
        Path("in.txt").write_text(f"{TEXT}\n\n" * 1600)
        command = [sys.executable, "-m", "ernie.cli", "data", "build", "--input", "in.txt", "--tokenizer", "tok"]
        options = ["--output", "corpus", "--processes", "1", "--set", "segmenters=[]"]
        process = subprocess.Popen([*command, *options], stderr=subprocess.PIPE, text=True, start_new_session=True)
        deadline = time.monotonic() + 60
        while not list(Path().glob("corpus.partial-*/train")):
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.02)
        yield process
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    @pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
    def test_a_signal_leaves_no_partial_files(self, building, number, status):
        building.send_signal(number)
        _, err = building.communicate(timeout=60)
        assert (building.returncode, "Traceback" in err) == (status, False), err
        assert sorted(path.name for path in Path().iterdir()) == ["in.txt", "tok"]

    def test_the_next_build_removes_the_files_of_a_killed_one(self, building):
        os.killpg(building.pid, signal.SIGKILL)
        building.wait()
        assert len(list(Path().glob("corpus.partial-*"))) == len(list(Path().glob("corpus.shared.partial-*"))) == 1
        Path("in.txt").write_text(TEXT)
        assert data_build("--input", "in.txt", "--tokenizer", "tok") == 0
        assert sorted(path.name for path in Path().iterdir()) == ["corpus", "in.txt", "tok"]


class TestNoDataLoss:
    def test_a_tokenizer_only_replaces_a_tokenizer(self, folder, capsys):
        args = ["tokenizer", "train", "--input", "in.txt", "--vocab-size", "80", "--quiet", "--overwrite", "--output"]
        Path("precious").mkdir()
        Path("precious/thesis.txt").write_text("thesis")
        Path("file").write_text("text")
        Path("tok/notes.txt").write_text("notes")
        paths = {"precious": "is not empty and holds no tokenizer", "file": "is a file", "tok": "holds 'notes.txt'"}
        for path, message in paths.items():
            assert main([*args, path]) == 2
            assert message in capsys.readouterr().err
        assert Path("precious/thesis.txt").read_text() == "thesis"
        Path("tok/notes.txt").unlink()
        assert main([*args, "tok"]) == 0

    def test_overwriting_a_corpus_does_not_delete_other_files(self, folder, capsys):
        build = ["--input", "in.txt", "--tokenizer", "tok", "--quiet"]
        assert data_build(*build) == 0
        Path("corpus/notes.txt").write_text("notes")
        assert data_build(*build, "--overwrite") == 2
        assert "holds 'notes.txt', too" in capsys.readouterr().err
        Path("corpus/notes.txt").unlink()
        assert data_build(*build, "--overwrite") == 0

    def test_files_created_in_the_output_during_a_build_are_kept_and_so_is_the_corpus(self, folder):
        def save_a_thesis(*_: object) -> None:
            Path("out").mkdir(exist_ok=True)
            Path("out/thesis.txt").write_text("thesis")

        config = CorpusConfig(["in.txt"], Path("tok"))
        for overwrite in (False, True):
            with suppress(FileNotFoundError):
                Path("out/thesis.txt").unlink()
            with pytest.raises(UserError, match=r"out: is not empty and holds no corpus.*\n.*it is in out\.made-"):
                build_corpus(config, "out", overwrite=overwrite, progress=save_a_thesis)
        assert [path.name for path in Path("out").iterdir()] == ["thesis.txt"]
        assert len(Corpus.open("out.made-1").train) == len(Corpus.open("out.made-2").train) > 0

    def test_a_build_does_not_replace_the_corpus_of_a_concurrent_one(self, folder):
        config = CorpusConfig(["in.txt"], Path("tok"))

        def finish_another(*_: object) -> None:
            if not Path("out").exists():
                Path("another").rename("out")

        Path("more.txt").write_text(TEXT * 2)
        build_corpus(replace(config, input=["more.txt"]), "another")
        with pytest.raises(UserError, match=r"holds a corpus already\. Give --overwrite.*\n.*out\.made-1"):
            build_corpus(config, "out", progress=finish_another)
        assert len(Corpus.open("out").train) > len(Corpus.open("out.made-1").train)

    def test_files_created_in_the_output_while_a_tokenizer_is_trained_are_kept(self, folder, capsys, monkeypatch):
        def train(*args: Any, **kwargs: Any) -> WordPiece:
            Path("new").mkdir()
            Path("new/thesis.txt").write_text("thesis")
            return train_wordpiece(*args, **kwargs)

        monkeypatch.setattr(tokenizer_train, "train_wordpiece", train)
        assert main(["tokenizer", "train", "--input", "in.txt", "--vocab-size", "80", "--output", "new"]) == 2
        assert "new: is not empty and holds no tokenizer" in capsys.readouterr().err
        assert [path.name for path in Path("new").iterdir()] == ["thesis.txt"]
        assert load_tokenizer(Path("new.made-1")).vocab_size == 80

    def test_a_symlink_is_followed(self, folder):
        Path("disk").mkdir()
        Path("corpus").symlink_to("disk")
        assert data_build("--input", "in.txt", "--tokenizer", "tok", "--quiet") == 0
        assert (Path("disk") / "corpus.json").is_file()
        assert Path("corpus").is_symlink()


def test_file_names_and_row_keys_need_not_be_valid_utf_8(folder):
    name = os.fsdecode(b"caf\xe9.jsonl")
    Path(name).write_text('{"text": "It runs."}\n{"\\ud800x": 1}\n')
    command = [sys.executable, "-m", "ernie.cli", "data", "build", "--processes", "0", "--tokenizer", "tok"]
    done = subprocess.run([*command, "--input", name, "--output", "corpus"], capture_output=True, check=False)
    assert (done.returncode, done.stderr) == (0, b"")
    assert rb"caf\udce9.jsonl:2: no text" in done.stdout
    assert rb"keys: \ud800x" in done.stdout
    assert "caf" in (Path("corpus") / "sources.json").read_text()


def test_a_vocabulary_that_is_too_small_is_an_error_that_names_the_minimum(folder, capsys):
    arguments = [
        "tokenizer",
        "train",
        "--input",
        "in.txt",
        "--kind",
        "sentencepiece",
        "--vocab-size",
        "10",
        "--output",
        "s",
    ]
    assert main(arguments) == 2
    assert "too small for this text: its characters alone take" in capsys.readouterr().err


def test_all_of_many_small_files_are_trained_on(folder, capsys):
    Path("many").mkdir()
    for number in range(300):
        Path(f"many/{number}.txt").write_text(f"number {number} is here")
    arguments = ["tokenizer", "train", "--input", "many", "--sample-mb", "1", "--vocab-size", "60", "--output", "small"]
    assert main(arguments) == 0
    assert "learned from 300 documents" in capsys.readouterr().err


class TestStandardInput:
    @pytest.mark.parametrize("form", ["text", "json lines", "gzip", "parquet"])
    def test_a_corpus_is_built_from_standard_input(self, folder, monkeypatch, form):
        texts = TEXT.split("\n\n")
        content = {
            "text": TEXT.encode(),
            "json lines": "".join(json.dumps({"text": text}) + "\n" for text in texts).encode(),
            "gzip": gzip.compress(TEXT.encode()),
            "parquet": _parquet(texts),
        }[form]
        Path("given").write_bytes(content)
        with Path("given").open("rb") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert data_build("--input", "-", "--tokenizer", "tok") == 0
        corpus = Corpus.open("corpus")
        assert len(corpus.train) + len(corpus.held_out) == 60
        assert corpus.train.source(0).startswith("standard input:")
        assert sorted(path.name for path in Path().iterdir()) == ["corpus", "given", "in.txt", "tok"]

    def test_a_tokenizer_is_trained_from_standard_input(self, folder, monkeypatch):
        with Path("in.txt").open("rb") as file:
            monkeypatch.setattr("sys.stdin", file)
            assert main(["tokenizer", "train", "--input", "-", "--output", "new", "--vocab-size", "80"]) == 0
        assert load_tokenizer(Path("new")).tokens == load_tokenizer(Path("tok")).tokens

    def test_a_pipe_of_the_shell_is_read(self, folder):
        command = f"{sys.executable} -m ernie.cli data build --quiet --tokenizer tok --output corpus --input"
        done = subprocess.run([*command.split(), "/dev/stdin"], input=TEXT, text=True, capture_output=True)
        assert done.returncode == 0, done.stderr
        assert len(Corpus.open("corpus").train) > 50


def _parquet(texts: list[str]) -> bytes:
    file = io.BytesIO()
    pq.write_table(pa.table({"text": texts}), file)
    return file.getvalue()


class TestFaultyInput:
    def test_wrapped_lines_are_joined_and_reported(self, folder, capsys):
        text = "This number is a number and the one before was smaller, so it goes on. " * 8
        Path("book.txt").write_text("\n\n".join(textwrap.fill(text, 60) for _ in range(3)))
        assert data_build("--input", "book.txt", "--tokenizer", "tok", "--set", "held_out=0") == 0
        out = capsys.readouterr().out
        assert "kept with lines put together 3" in out
        assert "in 3 documents lines were wrapped at a width, and were put together" in out
        assert [len(document) for document in Corpus.open("corpus").train] == [8, 8, 8]
        keep = ["--set", "read.wrapped=false", "--set", "held_out=0", "--overwrite"]
        assert data_build("--input", "book.txt", "--tokenizer", "tok", *keep) == 0
        assert "wrapped" not in capsys.readouterr().out

    def test_a_file_that_is_changed_while_it_is_read_leaves_no_corpus(self, folder, capsys, monkeypatch):
        fit = build.fit

        def grow(*arguments: Any) -> Any:  # as a program that still writes the file would, between two readings
            with Path("in.txt").open("a") as file:
                file.write("\n\nOne more.")
            return fit(*arguments)

        monkeypatch.setattr(build, "fit", grow)
        assert data_build("--input", "in.txt", "--tokenizer", "tok") == 2
        assert "in.txt: was changed while it was read" in capsys.readouterr().err
        assert sorted(path.name for path in Path().iterdir()) == ["in.txt", "tok"]

    def test_a_tokenizer_is_not_trained_on_a_file_that_breaks_off(self, folder, capsys):
        Path("a.txt.xz").write_bytes(lzma.compress(TEXT.encode())[:-40])
        assert main(["tokenizer", "train", "--input", "a.txt.xz", "--output", "new", "--vocab-size", "80"]) == 2
        assert "the xz file breaks off after line" in capsys.readouterr().err
        assert not Path("new").exists()
