"""WaveNet and flow: what each sample depends on, and that a flow can be inverted."""

from __future__ import annotations

import numpy as np
import paddle
import pytest

from ernie.audio.voice import VoiceConfig, WaveNetConfig
from ernie.errors import UserError
from ernie.model.wavenet import Flow, WaveNet

H = 3
CONFIG = WaveNetConfig(channels=6, stacks=2, depth=3, taps=2)


@pytest.fixture(autouse=True)
def seeded() -> None:
    paddle.seed(3)


def normal(*shape: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("taps", [2, 3])
def test_the_receptive_field_of_a_network_equals_its_context(taps: int) -> None:
    config = WaveNetConfig(channels=6, stacks=2, depth=3, taps=taps)
    network, count = WaveNet(config, H), config.context + 4
    before, conditioner = (paddle.to_tensor(normal(1, count, *more)) for more in ((), (H,)))
    before.stop_gradient = False
    found = network(before, conditioner)
    assert found.mean.shape == found.log_scale.shape == [1, 5]
    found.mean[0, -1].backward()
    inputs = np.flatnonzero(before.grad.numpy()[0])
    assert (inputs[0], inputs[-1]) == (count - config.context, count - 1)


def test_a_sample_of_a_flow_depends_on_no_later_noise() -> None:
    """The Jacobian is triangular, with the scales of the noise on its diagonal."""
    flow = Flow(CONFIG, H, flows=2)
    R = 6
    noise = paddle.to_tensor(normal(1, flow.context + R))
    noise.stop_gradient = False
    rows = []
    for n in range(R):
        noise.clear_gradient(False)
        samples, gaussian = flow(noise, paddle.to_tensor(normal(1, flow.context + R, H, seed=1)))
        samples[0, n].backward()
        rows.append(noise.grad.numpy()[0, flow.context :].copy())
    jacobian = np.stack(rows)
    assert np.abs(np.triu(jacobian, 1)).max() == 0
    assert np.abs(np.tril(jacobian, -1)).max() > 0
    np.testing.assert_allclose(np.diag(jacobian), np.exp(gaussian.log_scale.numpy()[0]), rtol=1e-4)


def test_a_flow_returns_the_gaussians_that_its_samples_come_from() -> None:
    """Noise applied to the Gaussians that a flow returns gives its samples."""
    flow = Flow(CONFIG, H, flows=3)
    noise = paddle.to_tensor(normal(2, flow.context + 9))
    samples, gaussian = flow(noise, paddle.to_tensor(normal(2, flow.context + 9, H, seed=1)))
    np.testing.assert_allclose(gaussian.from_noise(noise[:, -9:]).numpy(), samples.numpy(), atol=1e-5)


@paddle.no_grad()
def test_the_noise_can_be_recovered_from_the_samples() -> None:
    """Invert the networks from the last to the first, sample by sample."""
    flow, R = Flow(CONFIG, H, flows=2), 12
    noise = normal(1, flow.context + R)
    conditioner = paddle.to_tensor(normal(1, flow.context + R, H, seed=1))
    between = [paddle.to_tensor(noise)]
    for network in flow.networks:
        gaussian = network(between[-1][:, :-1], conditioner[:, -between[-1].shape[1] + 1 :])
        between.append(gaussian.from_noise(between[-1][:, -gaussian.mean.shape[1] :]))
    found = between[-1]
    for network, inputs in zip(list(flow.networks)[::-1], between[-2::-1], strict=True):
        context = network.config.context
        recovered = inputs[:, :context]
        for s in range(found.shape[1]):
            end = conditioner.shape[1] - found.shape[1] + s + 1
            gaussian = network(recovered[:, -context:], conditioner[:, end - context : end])
            recovered = paddle.concat(
                [recovered, (found[:, s : s + 1] - gaussian.mean) * paddle.exp(-gaussian.log_scale)], axis=1
            )
        found = recovered  # including the known context before the first sample of this network
    np.testing.assert_allclose(found.numpy(), noise, atol=1e-4)


@pytest.mark.parametrize("key", ["channels", "stacks", "depth", "taps"])
def test_sizes_below_one_are_refused(key: str) -> None:
    with pytest.raises(UserError, match=f"{key}: expected at least"):
        WaveNetConfig(**{key: 0})
    with pytest.raises(UserError, match="reduction: expected at least 1"):
        VoiceConfig(reduction=0)
