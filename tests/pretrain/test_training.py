"""A pretraining run: its steps, its files, and what must not change its numbers."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import paddle
import pytest
import yaml
from support.pretraining import outcome, pretrain, start_process
from support.running import CONFIG, build_corpus, made_up_text

from ernie import ErnieModel
from ernie.data.shards import Corpus
from ernie.kernels.cpu.library import library
from ernie.train.checkpoint import Checkpoints, read_manifest
from ernie.train.log import read_records
from pretrain import folder
from pretrain.feeds import sources
from pretrain.scaling.points import read_run
from pretrain.schedule import ScheduleConfig
from tasks.pretraining.discourse_relation import DiscourseRelation

GOLDEN = Path(__file__).with_name("golden_losses.json")


def test_a_run_trains_every_task_for_its_scheduled_steps(finished: tuple[Path, Path]) -> None:
    records = read_records(finished[1], "step")
    counts: dict[str, int] = {}
    for record in records:
        for name in record["loss"]:
            counts[name] = counts.get(name, 0) + 1
    assert counts == {"knowledge_masking": 8, "capitalization": 8, "sentence_reordering": 8}
    assert [record["step"] for record in records] == list(range(24))


def test_every_earlier_task_is_measured_again_after_each_stage(finished: tuple[Path, Path]) -> None:
    probes = read_records(finished[1], "probe")
    tasks = ["knowledge_masking", "capitalization", "sentence_reordering"]
    assert [(probe["stage"], probe["task"]) for probe in probes] == [(s, t) for s in range(3) for t in tasks[: s + 1]]


def test_a_checkpoint_has_a_score_only_if_its_state_was_measured(finished: tuple[Path, Path]) -> None:
    checkpoints = Checkpoints(finished[1] / "checkpoints")
    scores = {step: read_manifest(checkpoints.path(step))["score"] for step in checkpoints.steps()}
    assert scores[20] is None  # saved because of `every`
    assert 0 < scores[24] < 1  # the end of a stage


@pytest.mark.skipif(library() is None, reason="there are no kernels in C++ here")
def test_the_number_of_threads_changes_nothing(
    finished: tuple[Path, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config, uninterrupted = finished
    for threads in ("1", "3"):
        monkeypatch.setenv("MKL_NUM_THREADS", threads)
        assert start_process(config, tmp_path / threads, fresh=True).wait() == 0
        assert outcome(tmp_path / threads) == outcome(uninterrupted)


def test_worker_processes_change_nothing(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, uninterrupted = finished
    process = start_process(config, tmp_path / "run", "--set", "data.workers=2")
    assert process.wait() == 0
    assert outcome(tmp_path / "run") == outcome(uninterrupted)


def test_the_first_losses_match_the_golden_file(tmp_path: Path) -> None:
    """Explain a change to the golden file in its commit; ERNIE_WRITE_GOLDEN=1 rewrites it."""
    config = tmp_path / "run.yaml"
    corpus = build_corpus(made_up_text(tmp_path / "text.txt"), tmp_path / "corpus")
    config.write_text(CONFIG.format(corpus=corpus), encoding="utf-8")
    # Without dropout and in fp32 the losses do not depend on the kernel implementation.
    options = ("--set", "model.dropout=0.0", "--set", "model.attention_dropout=0.0", "--set", "train.precision=fp32")
    assert pretrain(config, tmp_path / "run", *options) == 0
    found = [next(iter(record["loss"].values())) for record in read_records(tmp_path / "run", "step")[:20]]
    if os.environ.get("ERNIE_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps([round(loss, 6) for loss in found], indent=0) + "\n", encoding="utf-8")
    # The tolerance is far above rounding differences between CPUs and far below any change of data or weights.
    np.testing.assert_allclose(found, json.loads(GOLDEN.read_text(encoding="utf-8")), rtol=1e-4)


def test_the_encoder_loads_in_python(finished: tuple[Path, Path]) -> None:

    from ernie import ErnieModel

    model = ErnieModel.from_pretrained(finished[1])
    assert model.tokenizer is not None
    ids = model.tokenizer.encode("The with statement is used to wrap the execution of a block.").ids
    output = model(paddle.to_tensor(ids[None]))
    assert list(output.last_hidden_state.shape) == [1, len(ids), 32]
    assert np.isfinite(output.last_hidden_state.numpy()).all()


def test_only_the_steps_of_the_measured_task_count_as_reading_the_text(finished: tuple[Path, Path]) -> None:
    run = finished[1]
    tokens = sum(record["tokens"] for record in read_records(run, "step") if "knowledge_masking" in record["loss"])
    point = read_run(run)
    assert point.passes == pytest.approx(tokens / point.size)


def test_a_run_can_start_from_another_models_weights(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, run = finished
    text = re.sub(r"model: .*\n", f"model: {{start_from: {run}}}\n", config.read_text(encoding="utf-8"))
    file = tmp_path / "on.yaml"
    file.write_text(text, encoding="utf-8")
    assert pretrain(file, tmp_path / "run", "--set", "train.lr.peak=1e-9") == 0
    before, after = (
        read_records(folder, "probe")[-3]["scores"]["perplexity"]["value"] for folder in (run, tmp_path / "run")
    )
    assert after == pytest.approx(before, rel=1e-4)


def test_the_share_applies_to_training_data_not_to_held_out_data(finished: tuple[Path, Path]) -> None:
    config, corpus = folder.read(finished[1])
    config = replace(config, data=replace(config.data, fraction=0.25))
    (train, *_), (evaluation, *_) = (sources(config, corpus, held_out=held_out) for held_out in (False, True))
    assert (len(train.items), len(evaluation.items)) == (round(len(corpus.train) / 4), len(corpus.held_out))


def test_training_and_held_out_rows_of_a_file_are_disjoint(finished: tuple[Path, Path], tmp_path: Path) -> None:
    config, corpus = folder.read(finished[1])
    (tmp_path / "pairs.tsv").write_text("first\tsecond\tlabel\n" + "".join(f"a {n}\tb\t{n % 2}\n" for n in range(99)))
    task = DiscourseRelation(pairs=tmp_path / "pairs.tsv")
    config = replace(config, schedule=ScheduleConfig(stages=[{"pairs": 1}]), tasks={"pairs": task})
    (train,), (evaluation,) = (sources(config, corpus, held_out=held_out) for held_out in (False, True))
    rows = [{row["first"] for row in side.items} for side in (train, evaluation)]
    assert rows[1] and not rows[0] & rows[1]
    assert len(rows[0] | rows[1]) == 99


def test_a_run_saves_a_model_that_fills_masks(finished: tuple[Path, Path]) -> None:
    _, run = finished
    model = ErnieModel.from_pretrained(run)
    (candidates,) = model.fill_mask("Anna sees the [MASK] near Berlin.", top=3)
    assert all(re.fullmatch(r"Anna sees the ?\S+ near Berlin\.", candidate.text) for candidate in candidates)
    assert 1 > candidates[0].probability >= candidates[2].probability > 0


def test_tensorboard_files_are_written_on_request(config: Path, tmp_path: Path) -> None:
    pytest.importorskip("tensorboardX")
    assert pretrain(config, tmp_path / "run", "--set", "tensorboard=true") == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_the_model_card_has_the_command_also_when_a_program_ran_it(finished: tuple[Path, Path]) -> None:
    """These tests call `ernie.cli.main`, as examples/quickstart.py does, and so are no command themselves."""
    config, run = finished
    assert f"```console\nernie pretrain {config} --output {run}" in (run / "README.md").read_text()


def test_a_finished_run_has_a_model_card_that_describes_it(finished: tuple[Path, Path]) -> None:
    _, run = finished
    card = (run / "README.md").read_text()
    corpus = Corpus.open(yaml.safe_load((run / "config.yaml").read_text())["corpus"])
    assert f"{len(corpus.train):,} documents" in card
    assert f"{corpus.tokenizer.vocab_size:,} tokens" in card
    assert "24 steps in 3 stages" in card
    for task in ("knowledge_masking", "capitalization", "sentence_reordering"):
        assert re.search(rf"\| {task} +\|", card)
