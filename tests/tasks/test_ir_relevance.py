"""IR relevance: grades that are correct by construction, from headings, titles, click logs and judgments."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from support.helpers import numbered, vocabulary

from ernie.data.document import Document, Mark, Sample
from ernie.errors import UserError
from tasks.pretraining.ir_relevance import RANDOM, STRONG, WEAK, IRRelevance, Judged, Judgements, Pairs

TOKENIZER = numbered(20_000)
T, H = Mark.TITLE, Mark.HEADING
OTHER_LENGTHS = [5] * 6


def distinct(lengths: list[int], marks: list[int] | None = None, offset: int = 10) -> Document:
    """A document of distinct tokens, so that a sample shows where each token came from."""
    ids = np.arange(offset, offset + sum(lengths))
    found = np.array(marks or [0] * len(lengths), np.uint8)
    return Document(0, ids, np.zeros(len(ids), np.uint8), np.cumsum(lengths), found)


def samples(task: IRRelevance, lengths: list[int], marks: list[int] | None = None, seeds: int = 200) -> list[Sample]:
    items = [distinct(lengths, marks), distinct(OTHER_LENGTHS, offset=10_000)]
    return [s for seed in range(seeds) for s in task.samples(items, TOKENIZER, np.random.default_rng(seed))]


def sides(sample: Sample) -> tuple[list[int], list[int]]:
    return sample.ids[sample.segments == 0][1:-1].tolist(), sample.ids[sample.segments == 1][:-1].tolist()


def sentences_of(passage: list[int], lengths: list[int]) -> list[int]:
    """The indices of the sentences in a passage, which starts at a sentence; [-1] for another document's passage."""
    if passage[0] >= 10_000:
        return [-1]
    bounds = np.cumsum([10, *lengths]).tolist()
    first, last = bounds.index(passage[0]), int(np.searchsorted(bounds, passage[-1], side="right"))
    assert passage == list(range(passage[0], passage[-1] + 1))
    return list(range(first, last))


# ----------------------------------------------------------------------------------------- from documents


def test_a_headings_own_section_is_strong_other_sections_weak_other_documents_random() -> None:
    lengths = [2, 4, 2, 5, 4, 2, 3, 4]
    marks = [T, 0, H, 0, 0, H, 0, 0]
    sections = {(10, 11, 16, 17): {3, 4}, (10, 11, 27, 28): {6, 7}}  # query: the title and the heading
    seen = Counter[int]()
    weak: dict[tuple[int, ...], set[int]] = {query: set() for query in sections}
    for sample in samples(IRRelevance(), lengths, marks):
        query, passage = sides(sample)
        own = sections[tuple(query)]
        found, grade = set(sentences_of(passage, lengths)), int(sample.labels["label"])
        seen[grade] += 1
        if grade == STRONG:
            assert found <= own
        elif grade == WEAK:
            weak[tuple(query)] |= found
        else:
            assert grade == RANDOM
            assert found == {-1}
    assert list(weak.values()) == [{1, 6, 7}, {1, 3, 4}]  # the text before and after the section
    assert set(seen) == {STRONG, WEAK, RANDOM}
    assert max(seen.values()) < 1.4 * min(seen.values())


def test_headings_of_the_other_document_are_never_passages() -> None:
    first, second = distinct([3, 5, 5, 5], [T, 0, 0, 0]), distinct([5] * 6, [T, 0, H, 0, 0, H], offset=10_000)
    found = set()
    for seed in range(200):
        for sample in IRRelevance().samples([first, second], TOKENIZER, np.random.default_rng(seed)):
            if int(sample.labels["label"]) == RANDOM:
                found |= {(token - 10_000) // 5 for token in sides(sample)[1]}
    assert found == {1, 3, 4}


def test_without_headings_the_title_is_the_query_for_the_beginning() -> None:
    lengths, marks = [3, 4, 4, 4, 4, 4, 4], [T, 0, 0, 0, 0, 0, 0]
    found = samples(IRRelevance(), lengths, marks)
    assert {int(sample.labels["label"]) for sample in found} == {STRONG, WEAK, RANDOM}
    for sample in found:
        query, passage = sides(sample)
        assert query == [10, 11, 12]
        allowed = {STRONG: {1, 2}, WEAK: {3, 4, 5, 6}, RANDOM: {-1}}[int(sample.labels["label"])]
        assert set(sentences_of(passage, lengths)) <= allowed


def test_without_a_title_the_first_sentence_is_the_query_unless_disabled() -> None:
    lengths = [3, 4, 4, 4]
    queries = {tuple(sides(sample)[0]) for sample in samples(IRRelevance(), lengths)}
    assert queries == {(10, 11, 12)}
    passages = {s for sample in samples(IRRelevance(), lengths) for s in sentences_of(sides(sample)[1], lengths)}
    assert passages == {-1, 1, 2, 3}
    assert samples(IRRelevance(first_sentence=False), lengths) == []


def test_a_single_section_leaves_no_other_passage_to_be_weak() -> None:
    """Then the title is the query, as without headings, and passages can come from anywhere in the text."""
    found = samples(IRRelevance(), [2, 2, 4, 4, 4], [T, H, 0, 0, 0])
    assert found
    assert all(sides(sample)[0] == [10, 11] for sample in found)


@pytest.mark.parametrize(
    ("lengths", "marks"), [([], []), ([5], [0]), ([5], [T]), ([5, 5], [T, H]), ([5, 5], [T, 0]), ([5, 5], [H, 0])]
)
def test_documents_with_nothing_to_compare_yield_no_samples(lengths: list[int], marks: list[int]) -> None:
    assert samples(IRRelevance(), lengths, marks, seeds=5) == []


def test_passage_lengths_do_not_depend_on_the_grade() -> None:
    lengths: dict[int, Counter[int]] = {grade: Counter() for grade in (STRONG, WEAK, RANDOM)}
    for sample in samples(IRRelevance(max_len=16), [3, 6, 6, 20, 6, 6, 6, 6, 6, 6], [T] + [0] * 9, seeds=2000):
        _, passage = sides(sample)
        assert len(sample) <= 16
        lengths[int(sample.labels["label"])][len(passage)] += 1
    # Up to a quarter less than a sentence of 5 or 6 tokens, of either document; never the beginning of a long one.
    assert set(lengths[STRONG]) == {3, 4, 5}
    shares = [{length: count / found.total() for length, count in found.items()} for found in lengths.values()]
    assert max(share[5] for share in shares) - min(share[5] for share in shares) < 0.08


def test_the_end_of_a_sentence_does_not_tell_the_grade() -> None:
    rng = np.random.default_rng(0)
    ends: dict[int, list[bool]] = {grade: [] for grade in (STRONG, WEAK, RANDOM)}
    for seed in range(300):
        here, there = rng.integers(3, 15, 40), rng.integers(3, 15, 40)
        marks = [int(T), *(int(H) if i % 4 == 0 else 0 for i in range(1, 40))]  # sections of three sentences
        items = [distinct(here.tolist(), marks), distinct(there.tolist(), offset=10_000)]
        last = {*(10 + np.cumsum(here) - 1).tolist(), *(10_000 + np.cumsum(there) - 1).tolist()}
        for sample in IRRelevance(max_len=64).samples(items, TOKENIZER, np.random.default_rng(seed)):
            ends[int(sample.labels["label"])].append(sides(sample)[1][-1] in last)
    shares = [float(np.mean(found)) for found in ends.values()]
    assert max(shares) - min(shares) < 0.06


def test_a_query_leaves_half_of_the_sample_to_the_passage() -> None:
    found = samples(IRRelevance(max_len=21), [30, 6, 6, 20, 6], [T, 0, 0, 0, 0])
    assert found
    for sample in found:
        query, passage = sides(sample)
        assert query == list(range(10, 19))
        assert len(passage) in (3, 4)  # a quarter or less below the 5 tokens of the other document's sentences


# ------------------------------------------------------------------------------------- clicks and judgments

WORDS = vocabulary("red green blue apple sky grass 0 1 2")


def judged(task: IRRelevance, held_out: bool = False, seeds: int = 60) -> Counter[tuple[str, str, int]]:
    """(query, passage, grade) of the samples from a task's file."""
    items = task.items([], held_out=held_out)
    found = Counter[tuple[str, str, int]]()
    for seed in range(seeds):
        for i in range(len(items)):
            window = [items[i], items[(i + 1) % len(items)]]
            for sample in task.samples(window, WORDS, np.random.default_rng(seed)):
                query, passage = (" ".join(WORDS.tokens[t] for t in side) for side in sides(sample))
                found[query, passage, int(sample.labels["label"])] += 1
    return found


def log(folder: Path, rows: list[tuple[str, str, str]]) -> Path:
    path = folder / "clicks.tsv"
    path.write_text("query\tpassage\tclicked\n" + "".join("\t".join(row) + "\n" for row in rows))
    return path


def test_clicked_is_strong_shown_is_weak_and_another_rows_passage_is_random(tmp_path: Path) -> None:
    task = IRRelevance(
        clicks=log(tmp_path, [("red", "red apple", "1"), ("red", "red sky", "0"), ("green", "grass", "1")])
    )
    found = judged(task) + judged(task, held_out=True)
    assert set(found) <= {
        ("red", "red apple", STRONG),
        ("red", "red sky", WEAK),
        ("green", "grass", STRONG),
        ("red", "grass", RANDOM),
        ("green", "red apple", RANDOM),
        ("green", "red sky", RANDOM),
    }
    assert {grade for _, _, grade in found} == {STRONG, WEAK, RANDOM}


def test_passages_of_the_same_query_are_never_random(tmp_path: Path) -> None:
    task = IRRelevance(clicks=log(tmp_path, [("red", f"red {i}", "1") for i in range(3)] * 5))
    assert {grade for _, _, grade in judged(task)} == {STRONG}


def test_a_click_log_query_is_held_out_with_all_its_rows(tmp_path: Path) -> None:
    shown = [(f"q{q}", f"p{q} {p}", str(clicked)) for q in range(40) for p in range(5) for clicked in (0, 1)]
    task = IRRelevance(clicks=log(tmp_path, shown))
    train, held_out = ({row.query for row in task.items([], held_out=side)} for side in (False, True))
    assert len(train | held_out) == 40
    assert 1 <= len(held_out) <= 10
    assert not train & held_out


def test_a_click_that_is_neither_0_nor_1_raises_an_error(tmp_path: Path) -> None:
    task = IRRelevance(clicks=log(tmp_path, [("red", "apple", "yes")] * 3))
    with pytest.raises(UserError, match=r"clicks.tsv:2: clicked: expected 0 or 1, found 'yes'"):
        judged(task) + judged(task, held_out=True)


def judgment_task(folder: Path, qrels: str, **fields: object) -> IRRelevance:
    (folder / "qrels").write_text(qrels)
    queries = "".join(f"q{i}\tred {i % 3}\n" for i in range(20)) + "q20\tone\nq20\tother\n"
    (folder / "queries.tsv").write_text(f"id\ttext\n{queries}")
    (folder / "passages.jsonl").write_text("".join(f'{{"id": "p{i}", "text": "sky {i}"}}\n' for i in range(3)))
    files = {"judgements": "qrels", "queries": "queries.tsv", "passages": "passages.jsonl"}
    return IRRelevance(**{key: folder / name for key, name in files.items()}, **fields)  # type: ignore[arg-type]


def test_judgments_are_graded_by_relevance(tmp_path: Path) -> None:
    qrels = "q0 0 p0 2\nq0 0 p1 1\nq0 0 p2 0\n\nq1 0 p2 3\n"
    found = {key for key in judged(judgment_task(tmp_path, qrels)) if key[2] != RANDOM}
    assert found == {("red 0", "sky 0", STRONG), ("red 0", "sky 1", WEAK), ("red 1", "sky 2", STRONG)}
    found = {key for key in judged(judgment_task(tmp_path, qrels, strong_from=3)) if key[2] != RANDOM}
    assert found == {("red 0", "sky 0", WEAK), ("red 0", "sky 1", WEAK), ("red 1", "sky 2", STRONG)}


def test_a_byte_order_mark_is_not_part_of_the_first_query(tmp_path: Path) -> None:
    found = judged(judgment_task(tmp_path, "\ufeffq0 0 p0 2\nq1 0 p1 2\n"))
    assert ("red 0", "sky 0", STRONG) in found


def test_only_judged_texts_are_held_in_memory(tmp_path: Path) -> None:
    items = judgment_task(tmp_path, "q0 0 p0 2\nq1 0 p1 2\n").items([], held_out=False)
    assert [(items[i].query, items[i].passage) for i in range(2)] == [("red 0", "sky 0"), ("red 1", "sky 1")]
    assert items._texts == ({"q0": "red 0", "q1": "red 1"}, {"p0": "sky 0", "p1": "sky 1"})


def test_one_query_in_ten_is_held_out_with_all_its_judgments(tmp_path: Path) -> None:
    task = judgment_task(tmp_path, "".join(f"q{i} 0 p{i % 3} 1\nq{i} 0 p{(i + 1) % 3} 2\n" for i in range(20)))
    train, held_out = (task.items([], held_out=side) for side in (False, True))
    assert (len(train), len(held_out)) == (36, 4)


def test_a_passage_that_another_row_shows_for_the_query_is_never_random(tmp_path: Path) -> None:
    shown = [(f"red {n}", f"sky {m}", str((n + m) % 2)) for n in range(2) for m in range(3)]
    other_rows = [("green", "grass", "1")] * 3
    found = judged(IRRelevance(clicks=log(tmp_path, shown + other_rows)), seeds=200)
    random = {(query, passage) for query, passage, grade in found if grade == RANDOM}
    assert random
    assert not random & {(query, passage) for query, passage, _ in shown}


def test_a_passage_judged_irrelevant_is_never_random(tmp_path: Path) -> None:
    found = judged(judgment_task(tmp_path, "q0 0 p0 2\nq0 0 p1 0\nq1 0 p1 2\n"), seeds=200)
    assert ("red 0", "sky 1", RANDOM) not in found
    assert ("red 1", "sky 0", RANDOM) in found


@pytest.mark.parametrize(
    ("qrels", "message"),
    [
        ("q0 0 p0 1\nq0 p1 1\n", "qrels:2: expected 'query 0 passage relevance', found 'q0 p1 1'"),
        ("q0 0 p0 high\n", "qrels:1: expected 'query 0 passage relevance'"),
        ("q0 0 p0 1\nq1 0 p9 1\n", "qrels:2: PATH/passages.jsonl has no row with the id 'p9'"),
        ("q99 0 p0 1\nq0 0 p1 1\n", "qrels:1: PATH/queries.tsv has no row with the id 'q99'"),
        ("q0 0 p0 1\nq20 0 p1 1\n", "queries.tsv:23: the id 'q20' is that of line 22, too"),
    ],
)
def test_invalid_judgments_raise_an_error(tmp_path: Path, qrels: str, message: str) -> None:
    with pytest.raises(UserError) as caught:
        judged(judgment_task(tmp_path, qrels))
    assert str(caught.value).startswith(f"{tmp_path}/{message.replace('PATH', str(tmp_path))}")


def test_an_unknown_id_is_reported_before_it_is_wanted(tmp_path: Path) -> None:
    """Otherwise a run would end in the middle, wherever the id comes up."""
    task = judgment_task(tmp_path, "q0 0 p0 1\nq1 0 p1 1\nq99 0 p1 1\n")
    for held_out in (False, True):
        with pytest.raises(UserError, match=r"qrels:3: .*queries\.tsv has no row with the id 'q99'"):
            task.items([], held_out=held_out)


def test_conflicting_fields_raise_an_error() -> None:
    path = Path("x.tsv")
    with pytest.raises(UserError, match="clicks and judgements: give one of them"):
        IRRelevance(clicks=path, judgements=path, queries=path, passages=path)
    with pytest.raises(UserError, match="judgements: needs the files queries and passages too"):
        IRRelevance(judgements=path, queries=path)


def test_a_query_stays_in_its_split_when_others_are_added(tmp_path: Path) -> None:
    (tmp_path / "texts.tsv").write_text("id\ttext\n" + "".join(f"{name}\tt{name}\n" for name in range(400)))

    def held_out_queries(names: list[int]) -> set[str]:
        (tmp_path / "qrels.txt").write_text("".join(f"{name} 0 {name} 1\n" for name in names))
        paths = [tmp_path / name for name in ("qrels.txt", "texts.tsv", "texts.tsv")]
        return {Judgements(*paths, 1, True)[n].query for n in range(len(Judgements(*paths, 1, True)))}

    few, many = held_out_queries(list(range(100))), held_out_queries(list(range(400)))
    assert few == {query for query in many if int(query[1:]) < 100}
    assert 20 <= len(many) <= 60


def test_one_pair_in_three_is_random() -> None:
    task, tokenizer, none = IRRelevance(max_len=32), vocabulary("red blue green grass"), Pairs([])
    first, second = (
        Judged("red", "green", WEAK, ("q0", "p0"), none),
        Judged("blue", "grass", STRONG, ("q1", "p1"), none),
    )
    found = Counter(
        int(sample.labels["label"])
        for seed in range(600)
        for sample in task.samples([first, second], tokenizer, np.random.default_rng(seed))
    )
    assert set(found) == {WEAK, RANDOM}
    assert found[RANDOM] == pytest.approx(200, abs=60)  # five standard deviations


def test_the_same_text_under_another_id_is_never_random() -> None:
    task, tokenizer = IRRelevance(max_len=32), vocabulary("red blue green")
    first, second = (Judged(q, "green", WEAK, (q, p), Pairs([])) for q, p in (("red", "p0"), ("blue", "p1")))
    found = [s for seed in range(60) for s in task.samples([first, second], tokenizer, np.random.default_rng(seed))]
    assert {int(sample.labels["label"]) for sample in found} == {WEAK}


def test_files_lists_every_file_the_task_reads() -> None:
    """A run uses them to detect that its training data changed."""
    files = {name: Path(name) for name in ("judgements", "queries", "passages")}
    assert set(IRRelevance(**files).files) == set(files.values())  # type: ignore[arg-type]
    assert IRRelevance(clicks=Path("clicks")).files == (Path("clicks"),)
    assert IRRelevance().files == ()


def test_a_passage_judged_for_both_queries_is_never_random() -> None:
    task, tokenizer = IRRelevance(max_len=32), vocabulary("red blue green")
    known = Pairs([("red", "green"), ("blue", "green")])
    first, second = (Judged(query, "green", STRONG, (query, "green"), known) for query in ("red", "blue"))
    found = [s for seed in range(100) for s in task.samples([first, second], tokenizer, np.random.default_rng(seed))]
    assert {int(sample.labels["label"]) for sample in found} == {STRONG}
