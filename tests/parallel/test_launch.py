"""What is refused before processes are started on the GPUs of a machine."""

from __future__ import annotations

from pathlib import Path

import paddle
import pytest

from ernie.errors import UserError
from ernie.parallel.launch import launch


def test_more_processes_than_gpus_are_refused_before_any_is_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(paddle, "is_compiled_with_cuda", lambda: True)
    monkeypatch.setattr(paddle.device.cuda, "device_count", lambda: 2)
    with pytest.raises(UserError, match="--processes 3: there are 2 GPUs to use, and each process needs one"):
        launch(["pretrain"], 3, tmp_path)
    assert not list(tmp_path.iterdir())
