"""The training batches of a speech synthesis, and their loss.

Legend: N sounds, T tokens, M feature frames, F features of a decoder step, D width, S samples, R rows of the vocoder.
"""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from ernie.audio.features import features
from ernie.audio.pitch import pulses
from ernie.data.batch import Frames, Layout, Packed
from tasks.downstream.synthesis.settings import SynthesizeSettings

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.model.losses import Loss
    from ernie.model.voice import FramePrediction, Text, VoiceHead


def augmented(task: SynthesizeSettings, batch: Packed) -> Packed:
    """Return a batch with sounds padded to whole decoder steps, and with their features."""
    if not batch.sounds:
        return batch
    sounds = [np.pad(sound, (0, task.padded_length(len(sound)) - len(sound))) for sound in batch.sounds]
    # A frame is centered on the samples generated from it.
    margin = task.features.window_samples - task.features.hop_samples
    sides = (margin // 2, margin - margin // 2)
    features_FM = [features(task.features, np.pad(sound, sides), task.statistics) for sound in sounds]
    frames = Frames(np.concatenate(features_FM), Layout.of_lengths([len(own_FM) for own_FM in features_FM]))
    return replace(batch, sounds=tuple(sounds), frames=frames)


def head_loss(task: SynthesizeSettings, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
    """Return the loss of a batch: that of the vocoder, if one is learned, and, unless it is a flow, of the frames."""
    import paddle

    from ernie.model.inference import evaluating
    from ernie.model.losses import Loss
    from ernie.model.voice_loss import frame_loss

    with inference_mode(task, head.decoder):
        predictions, text, frames_NFM, steps = teacher_forced(task, head, hidden_TD, batch)
    count, labels = batch.layout.sequences, batch.labels["steps"].values
    if task.vocoder == "griffin_lim":
        return Loss(frame_loss(predictions, text, frames_NFM, steps), count, None, labels)
    states_NFD = predictions.states
    if not task.end_to_end and task.vocoder == "wavenet":  # it learns from states as in synthesis, without dropout
        with paddle.no_grad(), evaluating(head.decoder):
            states_NFD = teacher_forced(task, head, hidden_TD, batch)[0].states
    total = sound_loss(task, head, states_NFD, steps, batch)
    if task.vocoder == "wavenet":
        total = total + frame_loss(predictions, text, frames_NFM, steps)
    return Loss(total, count, None, labels)


def teacher_forced(
    task: SynthesizeSettings, head: VoiceHead, hidden_TD: Tensor, batch: Packed
) -> tuple[FramePrediction, Text, np.ndarray, np.ndarray]:
    """Run the decoder on the true preceding frames.

    Returns its predictions, the encoded text, the target features (N, F, M), zero after the last step, and the
    number of steps of each sound, (N,).
    """
    text = head.decoder.read(hidden_TD, batch.ids, batch.layout)
    frames_NFM, steps = _in_steps(task, batch)
    before_NFM = np.pad(frames_NFM, ((0, 0), (1, 0), (0, 0)))[:, :-1]
    return head.decoder(_tensor(before_NFM), text), text, frames_NFM, steps


def inference_mode(task: SynthesizeSettings, layer: nn.Layer) -> AbstractContextManager[None]:
    """Disable dropout in a teacher's layer while a flow is trained: the flow must see its inference outputs."""
    from ernie.model.inference import evaluating

    return evaluating(layer) if task.vocoder == "flow" else nullcontext()


def sound_loss(
    task: SynthesizeSettings, head: VoiceHead, states_NFD: Tensor, steps: np.ndarray, batch: Packed
) -> Tensor:
    """Return the vocoder's loss on a random segment of each sound, drawn by the seed and the sound's name."""
    from ernie.model import voice_loss

    context = head.wavenet.config.context
    if task.vocoder == "flow":
        assert head.flow is not None
        context += head.flow.context
    generators = batch.generators("stretch")
    start_counts = np.maximum(1, steps - task.crop_steps + 1)
    first = np.array([rng.integers(count) for rng, count in zip(generators, start_counts, strict=True)])
    segment = voice_loss.Segment(first, task.crop_steps)
    conditioner_NSH = voice_loss.conditioners(head, states_NFD, steps, segment, context)
    samples_NS, *masks = voice_loss.segment_samples(batch, segment, task.step_samples, context)
    inside_NR, begun_NS = map(_tensor, masks)
    noise_NS = np.stack([rng.standard_normal(samples_NS.shape[1]) for rng in generators])
    if task.vocoder == "wavenet":
        input_noise_NS = _tensor(task.input_noise_std * task.loudness * noise_NS) if task.input_noise_std else None
        return voice_loss.likelihood_loss(
            head, conditioner_NSH, _tensor(samples_NS), inside_NR, begun_NS, input_noise_NS
        )
    windows = [
        voice_loss.Windows.of(task.features),
        *(voice_loss.Windows.lasting(seconds, task.features) for seconds in task.spectral_windows),
    ]
    recorded = (_tensor(samples_NS[:, context:]), inside_NR, begun_NS)
    weights = (task.log_std_penalty, task.spectral)
    distilled = partial(voice_loss.flow_loss, head, conditioner_NSH, *recorded, _tensor(noise_NS), windows, *weights)
    if head.pitch is None:
        return distilled()
    f0_NF = voice_loss.segment_pitch(batch, segment, task.features, task.step_samples, context, head.wavenet.loudness)
    f0_NS = np.repeat(f0_NF, task.features.hop_samples, axis=1)[:, -samples_NS.shape[1] :]
    phases = [int(rng.integers(1 << 32)) for rng in generators]
    rate = task.features.sample_rate
    made = [pulses(f0_S, rate, phase)[0] for f0_S, phase in zip(f0_NS, phases, strict=True)]
    windows_NFD = voice_loss.state_windows(head, states_NFD, steps, segment, context)
    return distilled(_tensor(np.stack(made))) + voice_loss.pitch_loss(head, windows_NFD, f0_NF)


def _in_steps(task: SynthesizeSettings, batch: Packed) -> tuple[np.ndarray, np.ndarray]:
    assert batch.frames is not None
    layout = batch.frames.layout
    steps = layout.lengths // task.voice.reduction
    frames_NFM = np.zeros((layout.sequences, steps.max(), task.voice.reduction * task.features.features), np.float32)
    sounds = np.split(batch.frames.features, layout.offsets[1:-1])
    for row, own, count in zip(frames_NFM, sounds, steps, strict=True):
        row[:count] = own.reshape(count, -1)
    return frames_NFM, steps


def _tensor(values: np.ndarray) -> Tensor:
    import paddle

    return paddle.to_tensor(values.astype(np.float32))
