"""How fast are the speech kernels compared to Paddle's own operators?

  python benchmarks/speech_kernels.py [--steps 200] [--rounds 7] [--only recurrent]

`recurrent`: a layer of gated units (GRU) with as many inputs as units, a single loop over time with its weights in the
cores' caches, over sequences of equal length, beside `paddle.nn.GRU`.  `gated`: a WaveNet (2 x 8 layers of gated
dilated convolutions of 64, two taps, 32 conditioner features) that evaluates given samples, beside the same in Paddle's
operators.  Forward, and forward and backward, in turns; the median of the rounds.  `sampling`: the loop that generates
samples from that WaveNet one by one, beside the same loop in NumPy.  `vocoders`: a second of sound by the WaveNet of a
voice, and by flows of different sizes; weights are random, for speed does not depend on them.

Set before the first run, after "Persistent RNNs" (Diamos et al., 2016): the recurrent layer is at least 1.5 times as
fast with 1 to 4 sequences where the weights fit the second cache, and less so the more sequences there are.  And a flow
is at least 20 times as fast as the WaveNet.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.audio.voice import VoiceConfig
from ernie.data.batch import Layout
from ernie.decode.synthesis import FlowVocoder, Vocoder, WaveNetVocoder
from ernie.kernels.dilated import reach, wavenet
from ernie.kernels.dilated import wavenet_reference as in_paddle
from ernie.kernels.gru import gated_recurrent
from ernie.kernels.linear import linear
from ernie.kernels.sampling import draw
from ernie.kernels.sampling import reference as in_numpy
from ernie.kernels.types import GatedLayer, SamplingWeights, WaveNetEnds
from ernie.model.wavenet import Flow, WaveNet

UNITS, SEQUENCES = (128, 256, 512, 1024), (1, 4, 16, 64)
SAMPLES = ((1, 4000), (8, 4000), (8, 16000))  # sequences, and output samples of each
GENERATED = 2000  # samples, one by one
FLOWS = ((4, 32), (4, 16), (3, 16), (2, 16))  # networks and their channels: the default, and smaller ones
RATE = 8000  # samples of a second
CHANNELS, FEATURES, TAPS, DILATIONS = 64, 32, 2, (1, 2, 4, 8, 16, 32, 64, 128) * 2

Sides = tuple[Callable[[], Tensor], Callable[[], Tensor]]


def main() -> None:
    """Measure and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--only", choices=("recurrent", "gated", "sampling", "vocoders"))
    arguments = parser.parse_args()
    if arguments.only in (None, "recurrent"):
        print("| units | weights | sequences | forward, ours | Paddle | times as fast | training, times as fast |")
        print(f"|{'---|' * 7}")
        for units in UNITS:
            for sequences in SEQUENCES:
                row = f"| {units} | {4 * 3 * units**2 / 1e6:.1f} MB | {sequences}"
                print(
                    f"{row} | {compared(recurrent(units, sequences, arguments.steps), arguments.rounds)} |", flush=True
                )
    if arguments.only in (None, "gated"):
        print("\n| sequences | samples | forward, ours | Paddle | times as fast | training, times as fast |")
        print(f"|{'---|' * 6}")
        for sequences, samples in SAMPLES:
            cells = compared(gated(sequences, samples), arguments.rounds)
            print(f"| {sequences} | {samples:,} | {cells} |", flush=True)
    if arguments.only in (None, "sampling"):
        ours, numpy = (1e6 * seconds / GENERATED for seconds in timed(sampling(), arguments.rounds))
        print("\n| a sample, ours | NumPy | times as fast |\n|---|---|---|")
        print(f"| {ours:.1f} us | {numpy:.1f} us | {numpy / ours:.2f} |", flush=True)
    if arguments.only in (None, "vocoders"):
        wavenet_seconds, *flows_seconds = timed(vocoders(), arguments.rounds)
        print("\n| vocoder | a second of sound takes | times as fast |\n|---|---|---|")
        print(f"| WaveNet | {1000 * wavenet_seconds:.1f} ms | 1 |")
        for (count, channels), seconds in zip(FLOWS, flows_seconds, strict=True):
            row = f"| {count} networks of {channels} | {1000 * seconds:.1f} ms"
            print(f"{row} | {wavenet_seconds / seconds:.1f} |", flush=True)


def compared(sides: Sides, rounds: int) -> str:
    """The cells of a row: the forward times, and the speed-up of ours, forward and in training."""
    forward, both = (timed([timing(side, training) for side in sides], rounds) for training in (False, True))
    times = [f"{1000 * second:.1f} ms" for second in forward]
    return " | ".join([*times, *(f"{seconds[1] / seconds[0]:.2f}" for seconds in (forward, both))])


def gated(sequences: int, samples: int) -> Sides:
    """The same network on both sides, with the same inputs."""
    rng = np.random.default_rng(0)

    def random(*shape: int) -> Tensor:
        tensor = paddle.to_tensor((0.1 * rng.standard_normal(shape)).astype(np.float32))
        tensor.stop_gradient = False
        return tensor

    C, H = CHANNELS, FEATURES
    layers = [
        GatedLayer(
            random(TAPS * C + H, 2 * C), random(2 * C), random(C, C), *((random(C, C), random(C)) if later else ())
        )
        for later in reversed(range(len(DILATIONS)))  # layers after this one
    ]
    length = samples + reach(TAPS, DILATIONS)
    samples_NS, conditioner = random(sequences, length), random(sequences, length, H)
    ends = WaveNetEnds(random(C), random(C), random(C, C), random(C), random(C, 2), random(2))

    def ours() -> Tensor:
        return wavenet(samples_NS, conditioner, ends, layers, DILATIONS)

    def theirs() -> Tensor:
        return in_paddle(samples_NS, conditioner, ends, layers, DILATIONS)

    return agreeing(ours, theirs)


def sampling() -> list[Callable[[], None]]:
    """The same loop on both sides, with the same weights and noise."""
    rng, C, L = np.random.default_rng(0), CHANNELS, len(DILATIONS)

    def random(*shape: int) -> np.ndarray:
        return (0.1 * rng.standard_normal(shape)).astype(np.float32)

    shapes = ((2, C), (L, TAPS * C, 2 * C), (L, C, 2 * C), (L, C), (C, C), (C,), (C, 2), (2,))
    network = SamplingWeights(DILATIONS, 0.1, *(random(*shape) for shape in shapes))
    rows = [random((TAPS - 1) * dilation + GENERATED, C) for dilation in DILATIONS]
    conditioner, noise, last = random(1, GENERATED, L, 2 * C), random(1, GENERATED), np.zeros(1, np.float32)
    samples, expected = np.empty((1, GENERATED), np.float32), np.empty((1, GENERATED), np.float32)
    sides: list[Callable[[], None]] = [
        partial(draw, network, [rows], conditioner, last, noise, samples),
        partial(in_numpy, network, [rows], conditioner, last, noise, expected),
    ]
    for side in sides:
        side()
    np.testing.assert_allclose(samples, expected, atol=1e-4)
    return sides


def vocoders() -> list[Callable[[], None]]:
    """A second of sound, by the WaveNet of the default voice and by flows that differ from its flow in their size."""
    voice = VoiceConfig()
    rng = np.random.default_rng(0)
    conditioner = rng.standard_normal((1, RATE, voice.conditioner)).astype(np.float32)
    noise = rng.standard_normal((1, RATE)).astype(np.float32)

    def generate(vocoder: Vocoder) -> None:
        vocoder.more([vocoder.begin()], conditioner, noise)

    paddle.seed(0)
    made: list[Vocoder] = [WaveNetVocoder(WaveNet(voice.wavenet, voice.conditioner, 0.1))]
    for count, channels in FLOWS:
        config = replace(voice.flow, channels=channels)
        made.append(FlowVocoder(Flow(config, voice.conditioner, count, 0.1)))
    return [partial(generate, vocoder) for vocoder in made]


def recurrent(units: int, sequences: int, steps: int) -> Sides:
    """The same layer on both sides, with the same inputs."""
    paddle.seed(0)
    layer = nn.GRU(units, units)
    cell = layer[0].cell
    weights = [weight.t().contiguous().detach() for weight in (cell.weight_ih, cell.weight_hh)]
    for weight in weights:
        weight.stop_gradient = False
    rng = np.random.default_rng(0)
    inputs = rng.standard_normal((sequences, steps, units)).astype(np.float32)
    padded, packed = paddle.to_tensor(inputs), paddle.to_tensor(inputs.reshape(-1, units))
    layout = Layout.of_lengths([steps] * sequences)

    def ours() -> Tensor:
        return gated_recurrent(linear(packed, weights[0], cell.bias_ih), layout, weights[1], cell.bias_hh)

    def theirs() -> Tensor:
        return layer(padded)[0].reshape([-1, units])

    return agreeing(ours, theirs)


def agreeing(ours: Callable[[], Tensor], theirs: Callable[[], Tensor]) -> Sides:
    """Check that both sides return the same, and return them."""
    with paddle.no_grad():
        actual, expected = ours().numpy(), theirs().numpy()
    np.testing.assert_allclose(actual, expected, atol=1e-4 * np.abs(expected).max())
    return ours, theirs


def timing(side: Callable[[], Tensor], training: bool) -> Callable[[], None]:
    """A function that runs a forward pass, and in training a backward pass."""

    def run() -> None:
        if training:
            side().sum().backward()
        else:
            with paddle.no_grad():
                side()

    return run


def timed(passes: list[Callable[[], None]], rounds: int) -> list[float]:
    """The seconds of each pass: the median of rounds in turns, without the first round."""
    times: list[list[float]] = [[] for _ in passes]
    for _ in range(rounds + 1):
        for run, seconds in zip(passes, times, strict=True):
            start = time.perf_counter()
            run()
            seconds.append(time.perf_counter() - start)
    return [statistics.median(seconds[1:]) for seconds in times]


if __name__ == "__main__":
    main()
