"""Initialization of a new encoder: random weights, sinusoidal positions and structured first-layer attention heads."""

from __future__ import annotations

import math

import numpy as np
from paddle import nn

from ernie.model.base_encoder import BaseEncoder
from ernie.model.config import EncoderConfig

_NEIGHBOR_OFFSETS = (-1, 1, -2, 2)  # relative positions, in the order of the heads
_FREQUENCY_RANGE = 10_000.0  # ratio of the highest to the lowest wave frequency
_MIN_NEIGHBOR_FREQUENCY = 0.1  # radians per token: slower waves hardly distinguish neighbors
_MAX_MATCHING_FREQUENCY = 0.004  # radians per token: in slower waves all positions of a passage look alike
_TRUNCATED_VARIANCE = 0.774  # variance of a standard normal distribution truncated at two deviations
_TARGET_SCORE = 9.0  # attention score of a head's target above the mean score
_EPSILON = 1e-12  # avoids division by zero where, in a very small width, the projection vanishes


def initialize(layer: nn.Layer, deviation: float) -> None:
    """Initialize matrices from a normal distribution truncated at two deviations.

    Biases stay at 0 and LayerNorm scales at 1, as in the released BERT and ERNIE configurations, whose
    `initializer_range` is 0.02.
    """
    draw = nn.initializer.TruncatedNormal(0.0, deviation, -2 * deviation, 2 * deviation)
    for sublayer in layer.sublayers(include_self=True):
        if isinstance(sublayer, (nn.Linear, nn.Embedding)):
            draw(sublayer.weight)


def initialize_encoder(ernie: BaseEncoder) -> None:
    """Initialize a model randomly, except for the heads that find a token's neighbors and its other occurrences."""
    initialize(ernie, ernie.config.initializer_range)
    initialize_positions(ernie)
    initialize_neighbor_heads(ernie)
    initialize_matching_head(ernie)


def initialize_positions(ernie: BaseEncoder) -> None:
    """Initialize position embeddings as sinusoids (Vaswani et al., 2017, arXiv 1706.03762, section 3.5).

    They remain trainable.  In a random initialization near positions are no more alike than far ones, and attention
    takes longer to find a token's neighbors (benchmarks/results/pretraining.md, "Leaving the plateau").
    """
    embedding = ernie.embedding.position.weight
    positions, D = embedding.shape
    angles_PH = np.arange(positions)[:, None] * _frequencies(D)
    waves_PD = np.concatenate([np.sin(angles_PH), np.cos(angles_PH)], 1)[:, :D]
    embedding.set_value((math.sqrt(2) * ernie.config.initializer_range * waves_PD).astype(np.float32))


def initialize_neighbor_heads(ernie: BaseEncoder) -> None:
    """Initialize first-layer heads to attend to the tokens before and after each one; expects sinusoidal positions.

    The key of a token is its position in some of the waves, and its query the position of its neighbor: the same waves,
    each rotated by an angle.  Token, segment and task embeddings are zeroed in these features, so that positions are
    not mistaken for words.  Value and output projections stay random, and everything remains trainable.

    An encoder that must first discover its neighbors predicts mere token frequencies for thousands of steps
    (benchmarks/results/pretraining.md, "Leaving the plateau").  Initializing weights to resemble trained ones follows
    Trockman and Kolter, 2023 (arXiv 2305.09828), who make the queries and keys of a layer similar.
    """
    config, layer = ernie.config, ernie.encoder.layers[0]
    D, width = config.hidden_size, config.hidden_size // config.heads
    waves = _neighbor_waves(config)
    sines, cosines = wave_columns = _wave_features(D, waves)
    for embedding in _other_embeddings(ernie):
        values = embedding.weight.numpy()
        values[:, np.concatenate(wave_columns)] = 0
        embedding.weight.set_value(values)
    score = len(waves) * (2 / _mean_square(ernie)) / math.sqrt(width)  # of two equal positions
    gain = math.sqrt(_TARGET_SCORE / score) if len(waves) else 0.0
    q_DD, k_DD = layer.q.weight.numpy(), layer.k.weight.numpy()
    for head, offset in enumerate(neighbor_offsets(config.heads)):
        head_columns = slice(head * width, (head + 1) * width)
        q_DD[:, head_columns] = k_DD[:, head_columns] = 0
        first = head * width + np.arange(len(waves))
        second = first + len(waves)
        cos, sin = np.cos(_frequencies(D)[waves] * offset), np.sin(_frequencies(D)[waves] * offset)
        k_DD[sines, first] = k_DD[cosines, second] = gain
        q_DD[sines, first], q_DD[cosines, first] = gain * cos, gain * sin  # sin(a + b)
        q_DD[cosines, second], q_DD[sines, second] = gain * cos, -gain * sin  # cos(a + b)
    layer.q.weight.set_value(q_DD)
    layer.k.weight.set_value(k_DD)


def initialize_matching_head(ernie: BaseEncoder) -> None:
    """Initialize the next head of the first layer, if two more are left, to attend to occurrences of the same token.

    Its queries and keys share one random projection that ignores positions, segments and tasks.  A token that also
    occurs in the other segment then receives information from there, so that two texts can be compared word by word.
    An encoder that must discover this itself fails to within a small pretraining run, and distinguishes sentence pairs
    by their topics (benchmarks/results/pretraining.md, "Comparing two texts").
    """
    config, embedding, layer = ernie.config, ernie.embedding, ernie.encoder.layers[0]
    D, width, head = config.hidden_size, config.hidden_size // config.heads, len(neighbor_offsets(config.heads))
    if head + 1 >= config.heads:  # at least one head must stay unstructured
        return
    head_columns = slice(head * width, (head + 1) * width)
    slow_columns = np.concatenate(_wave_features(D, np.flatnonzero(_frequencies(D) < _MAX_MATCHING_FREQUENCY)))
    random_SW = layer.q.weight.numpy()[slow_columns, head_columns]
    position_1D = embedding.position.weight.numpy().mean(0, keepdims=True)
    ignored_vectors = [position_1D, *(other.weight.numpy() for other in _other_embeddings(ernie)[1:])]
    directions_SB = np.linalg.qr(np.concatenate(ignored_vectors)[:, slow_columns].T)[0]
    projection_SW = random_SW - directions_SB @ (directions_SB.T @ random_SW)
    # The mean product of a token's query and its own key.
    mean = np.square(embedding.token.weight.numpy()[:, slow_columns] @ projection_SW).sum(1).mean()
    score = mean / (config.initializer_range**2 * _mean_square(ernie) * math.sqrt(width))
    gain = math.sqrt(_TARGET_SCORE / max(score, _EPSILON))
    for weight in (layer.q.weight, layer.k.weight):
        values_DD = weight.numpy()
        values_DD[:, head_columns] = 0
        values_DD[slow_columns, head_columns] = gain * projection_SW
        weight.set_value(values_DD)


def neighbor_offsets(heads: int) -> tuple[int, ...]:
    """Return the relative positions that the first of a layer's `heads` are initialized to attend to.

    With several heads, half are left out: an encoder fine-tuned without pretraining may have to find a word at any
    distance.
    """
    return _NEIGHBOR_OFFSETS[: max(1, heads // 2)]


def _other_embeddings(ernie: BaseEncoder) -> list[nn.Embedding]:
    """Return the embeddings other than that of positions, the token embedding first."""
    embeddings = (ernie.embedding.token, ernie.embedding.segment, ernie.embedding.task)
    return [embedding for embedding in embeddings if embedding is not None]


def _mean_square(ernie: BaseEncoder) -> float:
    """Return the mean square of a token's features before LayerNorm, as a multiple of that of its waves."""
    wave_share = 2 * len(_neighbor_waves(ernie.config)) / ernie.config.hidden_size
    return 1 + _TRUNCATED_VARIANCE * len(_other_embeddings(ernie)) * (1 - wave_share)


def _wave_features(width: int, waves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the features of a position that hold the sines and the cosines of these waves."""
    cosines = len(_frequencies(width)) + waves
    return waves, cosines[cosines < width]  # in an odd width the last wave has only a sine


def _frequencies(width: int) -> np.ndarray:
    """Return the frequency of each wave, in radians per position."""
    return _FREQUENCY_RANGE ** (-np.arange(0, width, 2) / width)


def _neighbor_waves(config: EncoderConfig) -> np.ndarray:
    """Return the waves by which the neighbor heads distinguish positions.

    There are as many as a head has features for, with sine and cosine.  They are evenly spaced among the fast waves;
    slower ones are added where there are too few fast ones.
    """
    count = config.hidden_size // config.heads // 2
    pairs = config.hidden_size // 2  # waves that have a cosine
    candidates = min(pairs, max(count, int((_frequencies(config.hidden_size) >= _MIN_NEIGHBOR_FREQUENCY).sum())))
    return np.unique(np.linspace(0, candidates - 1, min(count, candidates)).round().astype(np.int64))
