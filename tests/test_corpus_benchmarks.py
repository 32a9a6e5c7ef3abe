"""Benchmarks of corpora: text is dirtied and copies are planted as they say, by the seed alone."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.helpers import ROOT

sys.path.insert(0, str(ROOT / "benchmarks"))
sys.path.insert(0, str(ROOT / "benchmarks" / "peers"))

import clean_ours
import corpus_build
import dirty_text
import outcomes
import planted_duplicates
import tiny_documents
from record_files import TUNED, Records

WORDS = [f"word{number}" for number in range(400)]


def prose(seed: int, words: int = 200) -> str:
    """A document of so many different words, in sentences and paragraphs."""
    chosen = np.random.default_rng(seed).permutation(WORDS)[:words].tolist()
    sentences = [" ".join(chosen[first : first + 10]) + "." for first in range(0, words, 10)]
    return "\n".join(" ".join(sentences[first : first + 4]) for first in range(0, len(sentences), 4))


def test_dirtied_text_is_the_same_for_a_seed_and_has_every_fault() -> None:
    texts = [prose(seed) for seed in range(60)]
    first, again, other = (list(dirty_text.dirtied(texts, ["Der Fluss."], seed)) for seed in (0, 0, 1))
    assert first == again != other
    kinds = Counter(fault for kind, _ in first for fault in kind.split(", "))
    assert set(kinds) == {
        *("", "boilerplate", "personal data", "mojibake"),
        *("exact copy", "near copy", "other language", "repetition"),
    }


def test_an_exact_copy_has_the_text_of_an_earlier_document_and_a_near_one_most_words() -> None:
    earlier: list[str] = []
    found = Counter[str]()
    for kind, text in dirty_text.dirtied(map(prose, range(100)), ["Der Fluss."], 0):
        if kind == "exact copy":
            assert text in earlier
        elif kind == "near copy":
            assert text not in earlier
            likest = max(planted_duplicates.similarity(text, before) for before in earlier)
            assert 0.6 < likest < 1
        found[kind] += 1
        earlier.append(text)
    assert found["exact copy"] > 5 and found["near copy"] > 5


@pytest.mark.parametrize("passage", [False, True])
def test_a_share_of_the_words_is_changed_and_all_white_space_stays(passage: bool) -> None:
    text = prose(0)
    changed = dirty_text.changed(text, 0.1, np.random.default_rng(0), passage)
    assert [len(line.split()) for line in changed.split("\n")] == [len(line.split()) for line in text.split("\n")]
    pairs = zip(text.split(), changed.split(), strict=True)
    places = [number for number, (before, after) in enumerate(pairs) if before != after]
    assert 18 <= len(places) <= 20  # a word may be replaced by itself
    assert (places[-1] - places[0] < 20) == passage


def test_mojibake_is_what_ftfy_repairs() -> None:
    ftfy = pytest.importorskip("ftfy")
    text = 'The "ice" doesn\'t carry a man.'
    spoilt = dirty_text.mojibake(text, np.random.default_rng(0))
    assert spoilt != text
    assert ftfy.fix_text(spoilt) == text


def test_similarity_is_the_share_of_common_five_grams() -> None:
    # Of a b c d e f, two 5-grams; of the other, two, and one is in both.
    assert planted_duplicates.similarity("a b c d e f", "B, c d e f g!") == 1 / 3


def test_copies_are_planted_after_their_originals_and_found() -> None:
    texts = [prose(seed) for seed in range(100)]
    documents = planted_duplicates.planted(texts, 0, copies=5)
    for number, document in enumerate(documents):
        assert document.original is None or document.original < number
    record = planted_duplicates.found(texts, 0, copies=5)
    assert record["documents"] == len(documents)
    assert sum(cell["documents"] for cell in record["cells"]) == len(documents) - 60
    exact = [cell for cell in record["cells"] if cell["share"] == 0]
    assert [(cell["similar"], cell["dropped"]) for cell in exact] == [(5, 5), (5, 5)]


@pytest.mark.parametrize(
    ("dropped", "wrong", "verdict"), [(96, 0, "met"), (94, 0, "missed; met"), (96, 2, "met; missed")]
)
def test_the_target_on_planted_copies_is_met_or_missed(tmp_path: Path, dropped: int, wrong: int, verdict: str) -> None:
    cell = {"similar": 100, "similar and dropped": dropped}
    record = {"cells": [cell], "dropped": dropped + wrong, "wrong": wrong}
    (tmp_path / "planted-0.json").write_text(json.dumps(record), encoding="utf-8")
    assert outcomes.OUTCOMES["planted-duplicates"][1](Records(tmp_path)).verdict == verdict


def test_tiny_documents_are_the_same_each_time_and_a_tenth_repeats_earlier_ones() -> None:
    count = 2 * tiny_documents.BLOCK + 5
    texts = list(tiny_documents.documents(count))
    assert texts == list(tiny_documents.documents(count))
    assert len(texts) == count
    first, second = set(texts[: tiny_documents.BLOCK]), texts[tiny_documents.BLOCK : 2 * tiny_documents.BLOCK]
    long = [text for text in second if len(text.split()) > 8]  # which are hardly equal by chance
    assert 0.08 < sum(text in first for text in long) / len(long) < 0.12


def test_tiny_documents_are_written_a_row_each(tmp_path: Path) -> None:
    tiny_documents.write(tmp_path / "text", 25)
    files = sorted((tmp_path / "text").iterdir())
    rows = [json.loads(line)["text"] for file in files for line in file.read_text(encoding="utf-8").splitlines()]
    assert rows == list(tiny_documents.documents(25))


PAGE = f"Home\nThat is to be with the others.\n{prose(0)}"


@pytest.mark.parametrize(("case", "left"), [("rules", 3), ("exact", 2), ("near", 1)])
def test_the_cleaning_alone_takes_out_lines_and_drops_spam_and_copies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str, left: int
) -> None:
    near = PAGE.replace("others", "rest")
    texts = [("", PAGE), ("repetition", "buy now " * 60 + "."), ("exact copy", PAGE.upper()), ("near copy", near)]
    dirty_text.write_rows(tmp_path / "text", texts, files=2)
    words = {"input": tmp_path / "text", "output": tmp_path / "left", "work": tmp_path, "case": case, "processes": 0}
    monkeypatch.setattr(sys, "argv", ["clean_ours.py", *(f"--{name}={value}" for name, value in words.items())])
    clean_ours.main()
    rows = [json.loads(line)["text"] for line in (tmp_path / "left" / "left.jsonl").open(encoding="utf-8")]
    assert len(rows) == left
    assert rows[0] == PAGE.removeprefix("Home\n")


@pytest.mark.parametrize(
    ("ours", "memory", "verdict"),
    [(10, 900, "met"), (11, 900, "missed; met"), (10, 1000, "met; missed")],
)
def test_the_target_on_speed_is_about_the_best_of_the_others(
    tmp_path: Path, ours: float, memory: float, verdict: str
) -> None:
    for side, seconds, resident in (("ours", ours, memory), ("build", 60, 500), ("dolma", 40, 3000), ("nemo", 20, 100)):
        record = {"seconds": seconds, "resident MB": resident, "megabytes": 50, "documents left": 1}
        (tmp_path / "rules").mkdir(exist_ok=True)
        (tmp_path / "rules" / f"{side}-0.json").write_text(json.dumps(record), encoding="utf-8")
    found = outcomes.OUTCOMES["corpus-tools-rules"][1](Records(tmp_path))
    assert found.verdict == verdict
    assert f"times (nemo); {max(memory, 500) / 1000:.2f} GB" in found.figure


@pytest.mark.parametrize(
    ("loss", "score", "verdict"),
    [(3.94, 0.710, "met"), (3.96, 0.710, "missed; met"), (3.94, 0.703, "met; missed")],
)
def test_the_target_on_encoders_is_about_loss_and_dev_scores(
    tmp_path: Path, loss: float, score: float, verdict: str
) -> None:
    for seed in (0, 1):
        for arm, found in (("dirty", (4.0, 0.7)), ("cleaned", (loss, score))):
            record = {"hidden words": {"loss": found[0]}, TUNED: {"sst2": found[1] + 0.1, "mrpc": found[1] - 0.1}}
            (tmp_path / f"{arm}-{seed}.json").write_text(json.dumps(record), encoding="utf-8")
    assert outcomes.OUTCOMES["cleaning"][1](Records(tmp_path)).verdict == verdict


def test_a_command_that_was_not_watched_is_no_measurement(monkeypatch: pytest.MonkeyPatch) -> None:
    command = [sys.executable, "-c", "import time; time.sleep(1)"]
    seconds, resident, proportional = corpus_build.watch(command)
    assert seconds >= 1
    assert resident >= proportional > 1
    monkeypatch.setattr(corpus_build, "MOST_UNWATCHED", 0.1)
    with pytest.raises(SystemExit, match="measure again on an idle machine"):
        corpus_build.watch(command)
