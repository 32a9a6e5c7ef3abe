"""A build that was interrupted goes on from what is finished, and gives the same bytes."""

from __future__ import annotations

import gzip
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from ernie.errors import Remark, UserError
from ernie.text.segment.dictionary import Dictionary
from ernie.text.train import train_wordpiece
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.base import Filter
from pretrain.corpus.clean.passages import RepeatedPassages
from pretrain.corpus.config import CorpusConfig

WORDS = "the river Spree runs past an old stone mill where Anna Weber grinds wheat for Berlin".split()
KILLED = """
import os, signal, sys
from pathlib import Path
import ernie.data.parts, ernie.data.work_folder
from pretrain.corpus.build import build_corpus
from pretrain.corpus.clean.passages import RepeatedPassages
from pretrain.corpus.config import CorpusConfig
ernie.data.parts.PART, ernie.data.work_folder.SAVED_EVERY = 3000, 0
left = int(sys.argv[1])
def progress(*_):
    global left
    left -= 1
    if not left:
        os.kill(os.getpid(), signal.SIGKILL)
clean = [RepeatedPassages(words=3)]
config = CorpusConfig(
    ["in"], Path("tokenizer"), "en", [], held_out=0.1, shard_tokens=500, drop_repeated=True, clean=clean
)
build_corpus(config, "c", progress=progress)
"""


def story(seed: int) -> str:
    rng = random.Random(seed)
    return "\n".join(" ".join(rng.choices(WORDS, k=12)).capitalize() + "." for _ in range(1 + seed % 5))


@pytest.fixture
def config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CorpusConfig:
    """A recipe whose text is read in some twenty parts, with several shards; every part is saved."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("ernie.data.parts.PART", 3000)
    monkeypatch.setattr("ernie.data.work_folder.SAVED_EVERY", 0)
    Path("in").mkdir()
    for name in "ab":
        rows = [json.dumps({"text": story(i % 90)}) for i in range(100)]
        Path(f"in/{name}.jsonl").write_text("\n".join([*rows, "nonsense"]))
    train_wordpiece([story(i) for i in range(30)], vocab_size=120, lowercase=True, folder=tmp_path / "tokenizer")
    clean: list[Filter] = [RepeatedPassages(words=3)]
    return CorpusConfig(
        ["in"], Path("tokenizer"), "en", [], held_out=0.1, shard_tokens=500, drop_repeated=True, clean=clean
    )


def content(folder: str) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in Path(folder).rglob("*") if path.is_file()}


def names() -> list[str]:
    return sorted(path.name for path in Path().iterdir())


class Stop:
    """Progress that interrupts the build after some steps, as Ctrl-C does, and counts them."""

    def __init__(self, after: int = 1_000_000):
        self.after, self.steps = after, 0

    def __call__(self, done: int, size: int, counts: Any) -> None:
        self.steps += 1
        if self.steps == self.after:
            raise KeyboardInterrupt


def interrupted(config: CorpusConfig, after: int) -> None:
    with pytest.warns(Remark, match="the same command goes on from there"), pytest.raises(KeyboardInterrupt):
        build_corpus(config, "c", progress=Stop(after))


@pytest.mark.parametrize("share", [0.05, 0.3, 0.55, 0.8, 0.95])
def test_an_interrupted_build_goes_on_from_what_is_finished(config: CorpusConfig, share: float) -> None:
    build_corpus(config, "whole", progress=(whole := Stop()))
    assert whole.steps > 30
    after = round(share * whole.steps)
    interrupted(config, after)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        build_corpus(config, "c", progress=(rest := Stop()))
    goes_on = any("goes on after" in str(warning.message) for warning in caught)
    assert goes_on == (share > 0.67)  # comparisons come first, with two readings
    assert rest.steps <= whole.steps - after + 1
    assert content("c") == content("whole")
    assert names() == ["c", "in", "tokenizer", "whole"]


def test_a_build_whose_process_is_killed_goes_on_with_any_number_of_processes(config: CorpusConfig) -> None:
    build_corpus(config, "whole", progress=(whole := Stop()))
    for after in (5, whole.steps // 2 + 8, 4):
        done = subprocess.run(
            [sys.executable, "-c", KILLED, str(after)], env=os.environ, capture_output=True, text=True
        )
        assert done.returncode == -signal.SIGKILL, done.stderr
        assert [name for name in names() if ".partial-" in name]
    build_corpus(config, "c", processes=1, progress=(rest := Stop()))
    assert rest.steps < whole.steps // 2
    assert content("c") == content("whole")
    assert names() == ["c", "in", "tokenizer", "whole"]


def test_another_recipe_or_another_text_begins_anew(config: CorpusConfig) -> None:
    Path("words.tsv").write_text("river\tentity\n")
    config = replace(config, segmenters=[Dictionary(Path("words.tsv"))], drop_repeated=False)
    for change in (
        lambda: replace(config, min_tokens=2),
        lambda: os.utime("words.tsv", (1, 1)) or config,
        lambda: Path("in/b.jsonl").write_text(json.dumps({"text": "It runs."})) and config,
    ):
        interrupted(config, 8)
        changed = change()
        with warnings.catch_warnings():
            warnings.simplefilter("error", Remark)
            build_corpus(changed, "c", overwrite=True)
            build_corpus(changed, "again", overwrite=True)
        assert content("c") == content("again")
        assert names() == ["again", "c", "in", "tokenizer", "words.tsv"]
        shutil.rmtree("c")


@pytest.mark.parametrize("name", ["train/shard-00000.ids", "train/shard-00002.flags", "unfinished.json"])
def test_what_is_damaged_is_found_and_made_anew(config: CorpusConfig, name: str) -> None:
    config = replace(config, clean=[], drop_repeated=False)
    build_corpus(config, "whole", progress=(whole := Stop()))
    interrupted(config, whole.steps - 2)
    (left,) = Path().glob("c.partial-*")
    file = left / name
    file.write_bytes(b"x" + file.read_bytes()[1:])
    if name.endswith(".json"):
        build_corpus(config, "c", progress=(rest := Stop()))
    else:
        with pytest.warns(Remark, match=r"made anew, since what was left there is damaged: .* is not what was written"):
            build_corpus(config, "c", progress=(rest := Stop()))
    assert rest.steps == whole.steps
    assert content("c") == content("whole")


def test_what_was_written_after_the_last_save_is_written_again(config: CorpusConfig) -> None:
    config = replace(config, clean=[], drop_repeated=False)
    build_corpus(config, "whole")
    interrupted(config, 9)
    (left,) = Path().glob("c.partial-*")
    for file in left.rglob("shard-*"):
        recorded = json.loads((left / "unfinished.json").read_text())
        if str(file.relative_to(left)) in recorded["grown"]:
            file.write_bytes(file.read_bytes() + b"more")
    build_corpus(config, "c")
    assert content("c") == content("whole")


def test_an_error_in_the_text_keeps_what_is_finished_and_says_where(config: CorpusConfig) -> None:
    Path("in/z.txt.gz").write_bytes(gzip.compress("\n\n".join(map(story, range(300))).encode())[:-20])
    config = replace(config, clean=[], drop_repeated=False, sample_mb=1e-3)
    with pytest.warns(Remark, match="the same command goes on"), pytest.raises(UserError, match="breaks off"):
        build_corpus(config, "c")
    assert [name for name in names() if name.startswith("c.partial-")]


def test_a_short_build_that_fails_leaves_nothing(config: CorpusConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ernie.data.work_folder.SAVED_EVERY", 60)
    with pytest.raises(KeyboardInterrupt):
        build_corpus(config, "c", progress=Stop(30))
    assert names() == ["in", "tokenizer"]
