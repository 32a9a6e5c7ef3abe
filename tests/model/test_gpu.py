"""The encoder on a GPU."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from ernie.data.batch import pack
from ernie.data.document import Sample
from ernie.model.config import EncoderConfig
from ernie.model.ernie import ErnieModel


@pytest.mark.gpu
def test_a_gpu_encodes_as_the_cpu_does() -> None:
    rng = np.random.default_rng(0)
    samples = [Sample(rng.integers(5, 100, n), np.zeros(n, np.int64)) for n in (7, 1, 30)]
    shape = EncoderConfig(vocab_size=100, hidden_size=64, layers=2, heads=4, intermediate_size=128, max_positions=32)
    hidden = {}
    weights = None
    for device in ("cpu", "gpu"):
        paddle.set_device(device)
        model = ErnieModel(shape)
        model.eval()
        weights = weights or {name: value.numpy() for name, value in model.state_dict().items()}
        model.set_state_dict(weights)
        hidden[device] = model.encode_packed(pack(samples)).numpy()
    np.testing.assert_allclose(hidden["gpu"], hidden["cpu"], rtol=1e-3, atol=1e-4)
