"""What a flow inherits from its teacher voice, and which mismatches are refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import paddle
import pytest
from support.toys import TOKENIZER, TOYS, tiny_encoder

from ernie.data.labeled.row import Row
from ernie.errors import UserError
from ernie.text.wordpiece import WordPiece
from finetune.config import FinetuneConfig, TrainConfig
from finetune.train.run_contents import inputs_of
from finetune.train.warm_start import load_encoder
from inference.task_model import TaskModel
from tasks.downstream.synthesize import Synthesize


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A voice; its output does not matter here, so it is untrained."""
    folder = tmp_path_factory.mktemp("voice")
    TaskModel(tiny_encoder(), TOYS["synthesize"].task).save(folder / "model")
    return folder


def flow_of(teacher: Path, **changes: Any) -> Synthesize:
    """A flow that names a run as its teacher, before it adapts to that run."""
    unadapted = {"mean": (), "deviation": (), "pace": 0.0, "loudness": 0.0}
    task = replace(TOYS["synthesize"].task, vocoder="flow", teacher=teacher, **{**unadapted, **changes})
    assert isinstance(task, Synthesize)
    return task


def test_a_flow_uses_its_teachers_dictionary_and_no_other(tmp_path: Path) -> None:
    for name, entries in {"own": "AZURE  blue\n", "same": ";;; x\nAZURE  blue\n", "other": "AZURE  red\n"}.items():
        (tmp_path / f"{name}.dict").write_text(entries, encoding="utf-8")
    voice = TaskModel(tiny_encoder(), replace(TOYS["synthesize"].task, dictionary=tmp_path / "own.dict"))
    voice.save(tmp_path / "voice" / "model")
    for given in (None, tmp_path / "same.dict"):
        task = flow_of(tmp_path / "voice", dictionary=given).adapted_to([])
        assert isinstance(task, Synthesize)
        assert task.dictionary == tmp_path / "voice" / "model" / "own.dict"
        (sample,) = task.example(Row({"text": "azure"}), TOKENIZER).samples
        assert sample.ids.tolist() == [TOKENIZER.cls_id, *TOKENIZER.encode("blue").ids, TOKENIZER.sep_id]
    with pytest.raises(UserError, match=r"other\.dict differs from what the teacher, .* has learned with, .*own\.dict"):
        flow_of(tmp_path / "voice", dictionary=tmp_path / "other.dict").adapted_to([])
    TaskModel(tiny_encoder(), TOYS["synthesize"].task).save(tmp_path / "letters" / "model")
    with pytest.raises(UserError, match="has learned with, which is no dictionary; leave the key out"):
        flow_of(tmp_path / "letters", dictionary=tmp_path / "other.dict").adapted_to([])


def test_a_flow_needs_an_encoder_that_matches_its_teachers(run: Path, tmp_path: Path) -> None:
    def config(encoder: str, task_id: int = 0) -> FinetuneConfig:
        return FinetuneConfig(task=flow_of(run), model=str(tmp_path / encoder), train=TrainConfig(task_id=task_id))

    same, other, shaped = tiny_encoder(), tiny_encoder(), tiny_encoder()
    first, second, *rest = TOKENIZER.tokens[5:]  # the same size, with two tokens swapped
    other.tokenizer = WordPiece([*TOKENIZER.tokens[:5], second, first, *rest], lowercase=TOKENIZER.lowercase)
    shaped.config = replace(shaped.config, activation="relu")
    for name, encoder in {"same": same, "other": other, "shaped": shaped}.items():
        encoder.save_pretrained(tmp_path / name)
    load_encoder(config("same"))
    load_encoder(replace(config("same"), model=str(run / "model")))
    with pytest.raises(UserError, match=r"other has another vocabulary than the teacher, .* give --model .*model"):
        load_encoder(config("other"))
    with pytest.raises(UserError, match=r"shaped has activation relu, the teacher, .*, has gelu"):
        load_encoder(config("shaped"))
    with pytest.raises(UserError, match=r"train\.task_id: is 1, and the teacher, .*, has learned with 0"):
        load_encoder(config("same", task_id=1))


def test_a_flows_max_len_is_at_most_its_teachers(run: Path) -> None:
    with pytest.raises(UserError, match=r"max_len: is 12, and the teacher, .*, has learned texts of 9 tokens at most"):
        flow_of(run, max_len=12).adapted_to([])


def test_a_retrained_teacher_changes_the_inputs_of_a_flows_run(tmp_path: Path) -> None:
    voice = TaskModel(tiny_encoder(), TOYS["synthesize"].task)
    voice.save(tmp_path / "voice" / "model")
    config = FinetuneConfig(task=flow_of(tmp_path / "voice"))
    before = inputs_of("encoder", {}, config)
    paddle.assign(voice.head.decoder.last.bias + 1, voice.head.decoder.last.bias)
    voice.save(tmp_path / "voice" / "model")
    after = inputs_of("encoder", {}, config)
    assert [name for name, value in after.items() if before[name] != value] == ["task.teacher"]
