"""Shipped configurations are found by name, wherever the library is installed."""

from __future__ import annotations

from pathlib import Path

import pytest
from support.helpers import ROOT

from ernie.builtin_configs import find_config, names
from ernie.errors import UserError
from finetune.config import load as load_finetune
from pretrain.config import load as load_pretrain


def test_a_shipped_configuration_is_found_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert find_config("glue/sst2", "finetune") == ROOT / "configs" / "finetune" / "glue" / "sst2.yaml"
    assert load_finetune(Path("glue/sst2")).submission.files == {"test": "SST-2.tsv"}
    assert load_pretrain("ernie2-en").data.max_len == 512


def test_a_file_on_disk_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "squad2").write_text("task: {kind: regress}\n", encoding="utf-8")
    assert load_finetune(Path("squad2")).task.variant_name == "regress"


def test_an_unknown_name_suggests_the_nearest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UserError, match="Did you mean 'glue/sst2'"):
        find_config("glue/sst-2", "finetune")
    with pytest.raises(UserError, match="there is no such file"):
        load_finetune(Path("reviews.yaml"))


def test_a_file_may_include_a_shipped_configuration_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "own.yaml").write_text("include: glue/sst2\ntrain: {epochs: 7}\n", encoding="utf-8")
    assert load_finetune(Path("own.yaml")).train.epochs == 7
    assert load_finetune(Path("own.yaml")).task == load_finetune(Path("glue/sst2")).task
    (tmp_path / "own.yaml").write_text("include: ernie2-em\nseed: 1\n", encoding="utf-8")
    with pytest.raises(UserError, match=r"own.yaml:1: include: there is no file ernie2-em. Did you mean 'ernie2-en'"):
        load_pretrain("own.yaml")


def test_an_included_file_on_disk_takes_precedence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "squad2").write_text("task: {kind: regress}\n", encoding="utf-8")
    (tmp_path / "own.yaml").write_text("include: squad2\n", encoding="utf-8")
    assert load_finetune(Path("own.yaml")).task.variant_name == "regress"


def test_all_names_are_listed() -> None:
    assert {"glue/cola", "zh/xnli", "clue/c3", "conll2003", "squad2"} <= set(names("finetune"))
