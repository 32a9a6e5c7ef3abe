"""`ernie scaling`: nested fractions, the runs of a ladder, and conclusions from a curve."""

from __future__ import annotations

import math
import re
import shutil
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from ernie.cli import main
from ernie.data.shards import Corpus, Subset
from ernie.errors import UserError
from pretrain.scaling.answer import curve, needed, race, verdict
from pretrain.scaling.ladder import ladder
from pretrain.scaling.law import Law
from pretrain.scaling.points import Point, best, read_run, read_table

SIZES = [2.0**k * 1e5 for k in range(6)]
LAW = Law(80.0, -0.3, 3.0)


def points(noise: float = 0.002) -> list[Point]:
    return [Point(size, LAW.error(size) * (1 + noise * (-1) ** k)) for k, size in enumerate(SIZES)]


def table(folder: Path, rows: list[str]) -> Path:
    file = folder / "curve.tsv"
    file.write_text("\n".join(rows) + "\n", encoding="utf-8")
    return file


def test_a_smaller_fraction_is_a_subset_of_every_larger_one(corpus: Path) -> None:
    train = Corpus.open(corpus).train
    subsets = [Subset(train, 2.0**-power) for power in (3, 2, 1, 0)]
    chosen = [{document.index for document in subset} for subset in subsets]
    assert [len(subset) for subset in subsets] == [round(len(train) * 2.0**-power) for power in (3, 2, 1, 0)]
    for smaller, larger in pairwise(chosen):
        assert smaller < larger
    assert chosen[-1] == set(range(len(train)))
    for subset in subsets:
        assert subset.tokens == sum(len(document.ids) for document in subset)
        assert subset.sentences == sum(map(len, subset))
        assert subset.source(0) == train.source(subset[0].index)
    assert subsets[-1].tokens == train.tokens
    with pytest.raises(IndexError):
        subsets[0][len(subsets[0])]


def test_a_ladder_doubles_the_text_starting_with_the_smallest_fraction(tmp_path: Path) -> None:
    rungs = ladder(tmp_path, 5, [128, 64])
    assert [(rung.fraction, rung.width) for rung in rungs][:3] == [(1 / 16, 64), (1 / 16, 128), (1 / 8, 64)]
    assert rungs[-1].fraction == 1
    assert len({rung.folder for rung in rungs}) == 10
    assert "model.heads=2" in list(rungs[1].overrides())


@pytest.mark.parametrize(
    ("fractions", "width", "message"),
    [(4, 64, "leave 3 to fit a law of 3 numbers"), (6, 100, "100 is no multiple of 64"), (6, 0, "0 is no multiple")],
)
def test_an_invalid_ladder_raises_an_error(fractions: int, width: int, message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        ladder(tmp_path, fractions, [width])


def test_the_best_run_of_each_size_counts() -> None:
    found = best([Point(2, 5.0, width=64), Point(1, 6.0), Point(2, 4.0, width=128)])
    assert [(point.size, point.error) for point in found] == [(1, 6.0), (2, 4.0)]


def test_several_measurements_of_one_size_and_encoder_count_with_their_mean() -> None:
    seeds = [replace(point, error=point.error + change) for point in points() for change in (-0.05, 0.05)]
    found, single = curve(seeds), curve(points())
    assert [point.error for point in found.best] == pytest.approx([point.error for point in single.best])
    assert "6 runs repeated another of the same size and encoder; the mean of such runs counts" in verdict(found)
    assert not any("repeated" in line for line in verdict(single))


def test_an_error_that_less_text_reaches_than_was_measured_is_reported() -> None:
    found = curve(points())
    assert "less text than was measured" in " ".join(needed(found, 1.2 * found.best[0].error))
    assert "less text than was measured" not in " ".join(needed(found, 3.8))


def test_the_size_needed_for_an_error_has_an_interval() -> None:
    found = curve(points())
    size = found.whole.size(3.8)
    assert size.low < LAW.size(3.8) < size.high
    assert size.value == pytest.approx(LAW.size(3.8), rel=0.25)
    assert abs(found.missed) < 0.02
    assert next(needed(found, 3.8)).startswith("an error of 3.8 needs ")


def test_questions_that_the_runs_cannot_answer_are_reported() -> None:
    found = curve(points())
    assert "lies below what the law can reach" in " ".join(needed(found, 2.0))
    assert "do not support an answer" in " ".join(needed(found, 3.15))
    rough = curve(
        [Point(size, error) for size, error in zip(SIZES, (5.40, 5.39, 5.392, 5.38, 5.385, 5.38), strict=True)]
    )
    assert "may lie below what the law can reach" in " ".join(needed(rough, 5.3))
    assert "more text does not lead there" not in " ".join(needed(rough, 5.3))
    noisy = curve(points(noise=0.03))
    text = " ".join(needed(noisy, 3.5))
    assert "the interval has no upper end" in text or "the interval spans a factor of" in text


def test_the_best_model_grows_with_the_text() -> None:
    grown = [Point(size, LAW.error(size), weights=5 * size**0.6) for size in SIZES]
    models = curve(grown).models()
    assert models is not None
    assert models == (pytest.approx(5, rel=1e-3), pytest.approx(0.6))
    assert "million weights" in " ".join(needed(curve(grown), 3.8))


def width_runs(*widths: int, slower: float) -> list[Point]:
    """Runs on the largest size: doubling the width halves the steps; a step takes `width ratio ** slower` as long."""
    found = []
    for width in widths:
        ratio = width / 64
        course = tuple((10 * k, k * ratio**slower, 6.0 - 0.1 * min(k * ratio, 20)) for k in range(1, 11))
        found.append(Point(SIZES[-1], course[-1][2], 1e6, width, course))
    return found


def test_widths_are_compared_at_an_error_that_all_reached() -> None:
    found = race(curve([*points()[:-1], *width_runs(64, 128, slower=2)]))
    assert found is not None
    rows = found.rows()
    assert rows[0][2] == "steps to 5.000"
    assert [row[2] for row in rows[1:]] == ["100", "50"]
    assert [row[3] for row in rows[1:]] == ["0.100", "0.400"]
    assert next(found.verdict()) == "steps to 5.000 go from 100 to 50 with the width"
    assert race(curve([*points()[:-1], *width_runs(64, slower=2)])) is None


@pytest.mark.parametrize(
    ("slower", "message"),
    [
        (2.0, "the soonest there has a width of 64 and took 0.2 minutes: wider ones took longer"),
        (0.5, "the soonest there has a width of 256 and took 0.1 minutes: no wider one was run"),
    ],
)
def test_the_fastest_width_in_wall_clock_time_is_reported(slower: float, message: str) -> None:
    found = race(curve([*points()[:-1], *width_runs(64, 128, 256, slower=slower)]))
    assert found is not None
    steps, soonest = found.verdict()
    assert re.match(r"steps to 5.000 change by a power of -\d\.\d\d \(-\d\.\d\d to -\d\.\d\d\) with", steps)
    assert soonest.startswith(message)


def test_runs_of_one_width_count_with_their_mean() -> None:
    runs = [*width_runs(64, 128, slower=2), *width_runs(64, 128, slower=0.5)]
    found = race(curve([*points()[:-1], *runs]))
    assert found is not None
    assert [row[0] for row in found.rows()[1:]] == ["64", "128"]
    assert next(found.verdict()) == "steps to 5.000 go from 100 to 50 with the width"
    one = [race(curve([*points()[:-1], *width_runs(64, 128, slower=slower)])) for slower in (2, 0.5)]
    for place, arrival in enumerate(found.runs):
        assert arrival.seconds == pytest.approx(np.mean([other.runs[place].seconds for other in one if other]))
    assert race(curve([*points()[:-1], *width_runs(64, 64, slower=2)])) is None


@pytest.mark.parametrize(("widths", "steps"), [((64, 128, 192, 256), (400, 200, 600, 300)), ((64, 128), (400, 200))])
def test_widths_that_follow_no_power_law_are_still_reported(widths: tuple[int, ...], steps: tuple[int, ...]) -> None:
    runs = [
        Point(SIZES[-1], 5.0, 1e6, width, ((count // 2, 1.0, 6.0), (count, 2.0, 5.0)))
        for width, count in zip(widths, steps, strict=True)
    ]
    found = race(curve([*points()[:-1], *runs]))
    assert found is not None
    assert next(found.verdict()) == f"steps to 5.000 go from {steps[0]} to {steps[-1]} with the width"


def test_runs_that_have_not_read_all_their_text_are_reported() -> None:
    incomplete = [*points()[:-1], replace(points()[-1], passes=0.4)]
    text = " ".join(verdict(curve(incomplete)))
    assert "1 of 6 runs have not read all of their text (the least 40% of it)" in text
    assert "have not read" not in " ".join(verdict(curve(points())))


def test_errors_of_different_vocabularies_are_not_compared() -> None:
    with pytest.raises(UserError, match="the runs have several vocabularies"):
        curve([*points()[:-1], replace(points()[-1], tokenizer="another")])


def test_a_table_is_read_and_errors_name_its_lines(tmp_path: Path) -> None:
    assert read_table(table(tmp_path, ["size\terror\twidth", "10\t2.5\t64"])) == [Point(10.0, 2.5, width=64)]
    for header in ("size, error", "Size,ERROR", " size ,error"):
        assert read_table(table(tmp_path, [header, '"100,000", 2.5'])) == [Point(100_000.0, 2.5)]
    assert read_table(table(tmp_path, ["size\terror", "1,234,567\t2.5"])) == [Point(1_234_567.0, 2.5)]
    with pytest.raises(UserError, match=r":2: size: expected a number above 0, with .*, found '1,5'"):
        read_table(table(tmp_path, ["size\terror", "1,5\t2.5"]))
    with pytest.raises(UserError, match=r"curve.tsv:3: error: expected a number above 0, found 'much'"):
        read_table(table(tmp_path, ["size\terror", "10\t2.5", "20\tmuch"]))
    with pytest.raises(UserError, match=r"curve.tsv:1: the column 'error' is missing"):
        read_table(table(tmp_path, ["size\tloss", "10\t2.5"]))


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (
            ["size\terror", "100000\t3,512"],
            r":2: error: expected a number above 0, with a full stop before its decimals",
        ),
        (["size;error", "1000;3,5"], r":2: error: expected .*, with a full stop before its decimals"),
        (["size,error", "100,000,3.5"], r":2: has 3 cells, expected 2"),
        (["size,error", "1000,3,512"], r":2: has 3 cells, expected 2: .* a number with commas in quotes"),
        (["size,size,error", "10,20,3.5"], r":1: the column 'size' is there twice"),
    ],
)
def test_numbers_that_could_be_taken_for_others_are_errors(lines: list[str], message: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=message):
        read_table(table(tmp_path, lines))
    assert read_table(table(tmp_path, ["size;error", "100,000;2.5"])) == [Point(100_000.0, 2.5)]


def test_a_table_may_have_commas(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = "".join(f"{point.size},{point.error}\n" for point in points())
    (tmp_path / "curve.csv").write_text(f"size,error\n{rows}", encoding="utf-8")
    assert read_table(tmp_path / "curve.csv") == points()
    assert main(["scaling", str(tmp_path / "curve.csv")]) == 0
    assert "error = " in capsys.readouterr().out


def test_the_command_answers_from_a_table(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = ["size\terror", *(f"{point.size}\t{point.error}" for point in points())]
    args = ["scaling", str(table(tmp_path, rows)), "--error", "3.8", "--output", str(tmp_path / "out")]
    assert main(args) == 0
    text = capsys.readouterr().out
    assert re.search(r"predicted from the sizes below for 3,200,000 tokens: .* measured: .*% off", text)
    assert re.search(r"an error of 3.8 needs [\d.e+]+ \([\d.e+]+ to [\d.e+]+\) tokens", text)
    assert (tmp_path / "out" / "scaling.png").stat().st_size > 10_000
    for error in ("0", "-1", "nan", "inf"):
        assert main(["scaling", args[1], "--error", error]) == 2
        assert "--error: expected a number of nats above 0" in capsys.readouterr().err
    assert main(["scaling", args[1], "--error", "1e9"]) == 0
    capsys.readouterr()
    for option in (["--widths", "64"], ["--fractions", "0"], ["--set", "data.fraction=0.5"], ["--plan"]):
        assert main(["scaling", args[1], *option]) == 2
        assert f"{option[0]}: is for new runs" in capsys.readouterr().err
    assert main(["scaling", args[1], "--corpus", str(tmp_path)]) == 2
    assert "--corpus: is for folders of runs; that of a configuration is its key corpus" in capsys.readouterr().err
    assert main(["scaling", str(tmp_path / "none.tsv")]) == 2
    assert "none.tsv: cannot be read" in capsys.readouterr().err


def test_the_command_plans_the_runs(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["scaling", str(config), "--plan", "--output", str(tmp_path), "--fractions", "5", "--widths", "64"]
    assert main(args) == 0
    shown = capsys.readouterr()
    table = [[cell.strip() for cell in line.split("|")[1:-1]] for line in shown.out.splitlines()]
    assert [row[0] for row in table[2:]] == [*(f"1-of-{subset}-width-64" for subset in (16, 8, 4, 2, 1)), "all"]
    texts, costs = ([float(row[column].replace(",", "")) for row in table[2:7]] for column in (1, 5))
    assert texts == sorted(set(texts))
    assert float(table[7][5]) == pytest.approx(sum(costs), rel=0.01)
    assert list(tmp_path.iterdir()) == []
    partial = sum(float(row[4].replace(",", "")) < 1 for row in table[2:7])
    assert 0 < partial < 5
    assert f"note: {partial} of 5 runs would not read all of their text" in shown.err
    assert "have the text of another" not in shown.err
    assert main([*args, "--fractions", "12"]) == 0
    assert re.search(r"note: \d+ of 12 runs would have the text of another one", capsys.readouterr().err)
    assert main([*args, "--set", "data.fraction=0.5"]) == 0
    halved = [line.split("|")[2].strip() for line in capsys.readouterr().out.splitlines()[2:7]]
    assert halved[1:] == [f"{text:,.0f}" for text in texts[:-1]]
    passes = []
    for stage in ("{knowledge_masking: 5}", "{knowledge_masking: 5, capitalization: 50}"):
        assert main([*args, "--set", f"schedule={{steps_per_task: null, tasks: null, stages: [{stage}]}}"]) == 0
        passes.append([line.split("|")[5] for line in capsys.readouterr().out.splitlines()[2:7]])
    assert passes[0] == passes[1]  # those of other tasks say nothing about the text that the error is from
    assert main([*args, "--set", "schedule={steps_per_task: null, tasks: null, stages: [{capitalization: 5}]}"]) == 2
    assert "schedule: none of its tasks is measured by perplexity" in capsys.readouterr().err
    assert main(["scaling", str(config)]) == 2
    assert "Give --output DIR" in capsys.readouterr().err


@pytest.mark.slow
def test_a_ladder_runs_and_its_runs_are_read(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    args = ["scaling", str(config), "--output", str(tmp_path), "--fractions", "5", "--widths", "32", "64", "--quiet"]
    args += ["--set", "schedule.steps_per_task=4", "--set", "probe.every=3"]
    assert main(args) == 0
    text = capsys.readouterr().out
    runs = [read_run(run) for run in sorted(tmp_path.iterdir()) if run.is_dir()]
    assert len(runs) == 10
    assert {run.width for run in runs} == {32, 64}
    assert len({run.size for run in runs}) == 5
    assert all(len(run.course) >= 4 for run in runs)
    assert all(0 < run.error < 1.1 * math.log(1000) for run in runs)
    assert all(0 < run.passes < math.inf for run in runs)
    unfinished = shutil.copytree(next(tmp_path.iterdir()), tmp_path.parent / "unfinished")
    shutil.rmtree(unfinished / "model")
    with pytest.raises(UserError, match=r"unfinished: is not finished, it holds no model/; finish it"):
        read_run(unfinished)
    assert len({run.tokenizer for run in runs}) == 1
    assert "| width | least error | steps to " in text
    assert main(args) == 0  # nothing runs again
    assert capsys.readouterr().out == text
    assert main([*args, "--set", "train.clip=0.5"]) == 2
    error = capsys.readouterr().err
    assert "train.clip: was 1.0, is 0.5\nChoose another --output" in error
    assert "--allow-change" not in error  # an option of another command


@pytest.mark.parametrize("row", ["nan\t3", "1e5\tinf", "-1\t3", "1e5\t0", "\t3"])
def test_an_invalid_number_raises_an_error_with_its_line(tmp_path: Path, row: str) -> None:
    with pytest.raises(UserError, match=r"curve\.tsv:4: "):
        read_table(table(tmp_path, ["size\terror", "1e5\t4", "", row]))


def test_a_law_that_hardly_falls_needs_infinite_text() -> None:
    assert Law(5.0, -1e-4, 0.0).size(4.0) == math.inf


def test_invalid_arguments_are_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(table(tmp_path, ["size\terror", "1e5\t4"]))
    assert main(["scaling", file, file]) == 2
    assert "several folders of runs can be given" in capsys.readouterr().err
    assert main(["scaling", str(tmp_path / "nosuch"), "--output", str(tmp_path / "out")]) == 2
    assert "there is no such file" in capsys.readouterr().err
