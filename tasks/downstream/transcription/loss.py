"""The training batches of a transcription, and their loss.

Legend: T vectors of all sounds, D width, M feature frames, F features.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from ernie.audio.augment import mask_spectrum, varied, vocal_tract_warp
from ernie.audio.features import features
from ernie.audio.lengths import min_vectors, vector_count
from ernie.data.batch import Frames, Layout, Packed
from tasks.downstream.transcription.settings import TranscribeSettings

if TYPE_CHECKING:
    from paddle import Tensor

    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss


def augmented(task: TranscribeSettings, batch: Packed, training: bool) -> Packed:
    """Return a batch with the features of its sounds in their place.

    In training each sound is augmented, by random numbers that the seed, its name and the epoch determine.
    """
    features_FM = []
    sounds = list(batch.sounds)
    generators = batch.generators("sound")
    if training:
        triples = zip(sounds, _labels(batch), generators, strict=True)
        sounds = [_perturbed(task, sound, labels, rng) for sound, labels, rng in triples]
    for sound, rng in zip(sounds, generators, strict=True):
        warp = vocal_tract_warp(task.augment, rng) if training else 1.0
        sound_FM = features(task.features, sound, task.statistics, warp)
        if training:
            mean = sound_FM.mean(0) if task.features.normalize == "none" else 0.0
            sound_FM = mask_spectrum(sound_FM, task.augment, rng, mean)
        features_FM.append(sound_FM)
    frames = Frames(np.concatenate(features_FM), Layout.of_lengths([len(own_FM) for own_FM in features_FM]))
    layout = Layout.of_lengths([vector_count(len(own_FM)) for own_FM in features_FM])
    return replace(batch, sounds=(), frames=frames, layout=layout)


def _perturbed(task: TranscribeSettings, sound: np.ndarray, labels: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Change a sound in all ways, but its speed only if it stays long enough for its labels and is not too long."""

    def fits(changed: np.ndarray) -> bool:
        return min_vectors(labels) <= vector_count(task.features.frames(len(changed))) <= task.max_len

    return varied(sound, task.features.sample_rate, task.augment, rng, fits)


def encode(task: TranscribeSettings, ernie: ErnieModel, head: Any, batch: Packed) -> Tensor:
    """Return the encoder's vectors (T, D) for a batch from `augmented`."""
    period = head.frontend.period if head.training else None
    x_TD, layout = head.frontend(batch.frames, _shifts(batch, period) if period else 0)
    encoded_TD: Tensor = head.encoder(ernie)(x_TD, layout, mask=_mask(task, layout))
    return encoded_TD


def head_loss(task: TranscribeSettings, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
    """Return the loss of a batch: that of CTC, and beside a decoder the weighted sum of both."""
    from ernie.model.speech import ctc_loss

    labels = _labels(batch)
    label_layout = Layout.of_lengths([len(own) for own in labels])
    ctc = ctc_loss(head(hidden_TD), batch.layout, np.concatenate(labels), label_layout, head.blank)
    ctc = replace(ctc, count=batch.targets)  # which count the end of each sound, too
    if task.decoder == "ctc":
        return ctc
    from ernie.decode.global_attention import global_attention_loss
    from ernie.decode.truncated_attention import attention_loss

    assert batch.decoder_tokens is not None
    if task.decoder == "global":
        attention = global_attention_loss(head.writer, hidden_TD, batch.layout, batch.decoder_tokens)
        return _weighted(task, ctc, attention)
    begin, end = batch.decoder_tokens.ids[0], batch.decoder_tokens.next[batch.decoder_tokens.layout.offsets[1] - 1]
    shifts = _shifts(batch, 2 * task.history)
    attention = attention_loss(head, hidden_TD, batch.layout, labels, task.segmentation, int(begin), int(end), shifts)
    return _weighted(task, ctc, attention)


def _weighted(task: TranscribeSettings, ctc: Loss, attention: Loss) -> Loss:
    return replace(ctc, total=task.ctc_weight * ctc.total + (1 - task.ctc_weight) * attention.total)


def _mask(task: TranscribeSettings, layout: Layout) -> Mask | None:
    """Return the attention mask of the encoder."""
    from ernie.kernels.mask import Mask

    return Mask.chunk(layout, task.chunk_size, task.left_chunks) if task.encoder == "chunks" else None


def _labels(batch: Packed) -> list[np.ndarray]:
    """Return the labels of each sound: the decoder's tokens without the one it begins with."""
    assert batch.decoder_tokens is not None
    return [ids[1:] for ids in np.split(batch.decoder_tokens.ids, batch.decoder_tokens.layout.offsets[1:-1])]


def _shifts(batch: Packed, period: int) -> np.ndarray:
    """Return the first position of each sound, (N,), random by its name, so that positions do not reveal lengths."""
    return np.array([rng.integers(period) for rng in batch.generators("shift")])
