"""What an encoder begins with that has learnt nothing."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from paddle import nn

if TYPE_CHECKING:
    from ernie.model.config import EncoderConfig
    from ernie.model.ernie import ErnieModel

_NEIGHBOURS = (-1, 1, -2, 2)  # how far behind a token they lie, in the order of the heads
_PACE = 10_000.0  # the slowest wave's period, as a multiple of the quickest one's
_FINE = 0.1  # radians a token: slower waves hardly tell neighbours apart
_SLOW = 0.004  # radians a token: by such waves all places of a passage look alike
_DRAWN = 0.774  # the variance of what is drawn between two deviations, as a share of the deviation's square
_SURE = 9.0  # by how much the score of what a head looks for lies above the mean of all
_EPSILON = 1e-12  # where nothing is seen, of a very small width


def initialize(layer: nn.Layer, deviation: float) -> None:
    """Draw matrices from a normal distribution truncated at two deviations; biases 0, LayerNorm scales 1.

    As in the released BERT and ERNIE configurations, whose `initializer_range` is 0.02.
    """
    draw = nn.initializer.TruncatedNormal(0.0, deviation, -2 * deviation, 2 * deviation)
    for sublayer in layer.sublayers(include_self=True):
        if isinstance(sublayer, (nn.Linear, nn.Embedding)):
            draw(sublayer.weight)


def begin(ernie: ErnieModel) -> None:
    """Give a model its first weights: drawn by chance, but for what finds a token's neighbours and its like."""
    initialize(ernie, ernie.config.initializer_range)
    begin_positions(ernie)
    begin_neighbours(ernie)
    begin_likeness(ernie)


def begin_positions(ernie: ErnieModel) -> None:
    """Begin the position table as waves (Vaswani et al., 2017, arXiv 1706.03762, section 3.5).

    It is learnt on from there.  Drawn at random, near positions are no more alike than far ones, and attention
    finds a token's neighbours later (benchmarks/RESULTS.md, "Leaving the plateau").
    """
    table = ernie.embedding.position.weight
    positions, D = table.shape
    angles_PH = np.arange(positions)[:, None] * _paces(D)
    waves_PD = np.concatenate([np.sin(angles_PH), np.cos(angles_PH)], 1)[:, :D]
    table.set_value((math.sqrt(2) * ernie.config.initializer_range * waves_PD).astype(np.float32))


def begin_neighbours(ernie: ErnieModel) -> None:
    """Let heads of the first layer look at the tokens before and behind each one, on positions that are waves.

    A token's key is its place in some of the waves, its query the place of its neighbour, which is the same waves
    turned by an angle each; tokens, segments and tasks begin with nothing in these features, so that places are
    not mistaken for words.  What the heads make of the neighbours is drawn by chance, and all is learnt on from there.

    An encoder that has to find its neighbours first tells no more than how frequent tokens are for thousands of steps
    (benchmarks/RESULTS.md, "Leaving the plateau").  The idea to begin with weights as trained ones are is that of
    Trockman and Kolter, 2023 (arXiv 2305.09828), who make queries and keys of a layer alike.
    """
    config, layer = ernie.config, ernie.encoder.layers[0]
    D, width = config.hidden_size, config.hidden_size // config.heads
    waves = _chosen(config)
    sines, cosines = places = _features(D, waves)
    for table in _others(ernie):
        values = table.weight.numpy()
        values[:, np.concatenate(places)] = 0
        table.weight.set_value(values)
    score = len(waves) * (2 / _square(ernie)) / math.sqrt(width)  # of two places that are the same
    gain = math.sqrt(_SURE / score) if len(waves) else 0.0
    q_DD, k_DD = layer.q.weight.numpy(), layer.k.weight.numpy()
    for head, distance in enumerate(neighbours(config.heads)):
        of_head = slice(head * width, (head + 1) * width)
        q_DD[:, of_head] = k_DD[:, of_head] = 0
        first = head * width + np.arange(len(waves))
        second = first + len(waves)
        cos, sin = np.cos(_paces(D)[waves] * distance), np.sin(_paces(D)[waves] * distance)
        k_DD[sines, first] = k_DD[cosines, second] = gain
        q_DD[sines, first], q_DD[cosines, first] = gain * cos, gain * sin  # sin(a + b)
        q_DD[cosines, second], q_DD[sines, second] = gain * cos, -gain * sin  # cos(a + b)
    layer.q.weight.set_value(q_DD)
    layer.k.weight.set_value(k_DD)


def begin_likeness(ernie: ErnieModel) -> None:
    """Let the next head of the first layer, if there are two more, look wherever the same token stands.

    Its queries and keys are one projection, drawn by chance, that is blind to places, segments and tasks.  A token that
    the other segment has too takes something of that segment along, and so two texts can be compared word by word.
    An encoder that has to find this first does not find it in all of a small pretraining, and tells pairs of
    sentences apart by what each of them is about (benchmarks/RESULTS.md, "Comparing two texts").
    """
    config, embedding, layer = ernie.config, ernie.embedding, ernie.encoder.layers[0]
    D, width, head = config.hidden_size, config.hidden_size // config.heads, len(neighbours(config.heads))
    if head + 1 >= config.heads:  # one is left to look anywhere
        return
    of_head = slice(head * width, (head + 1) * width)
    slow = np.concatenate(_features(D, np.flatnonzero(_paces(D) < _SLOW)))
    drawn_SW = layer.q.weight.numpy()[slow, of_head]
    place_1D = embedding.position.weight.numpy().mean(0, keepdims=True)
    blind = [place_1D, *(table.weight.numpy() for table in _others(ernie)[1:])]
    directions_SB = np.linalg.qr(np.concatenate(blind)[:, slow].T)[0]
    seen_SW = drawn_SW - directions_SB @ (directions_SB.T @ drawn_SW)
    mean = np.square(embedding.token.weight.numpy()[:, slow] @ seen_SW).sum(1).mean()  # of a token and itself
    score = mean / (config.initializer_range**2 * _square(ernie) * math.sqrt(width))
    gain = math.sqrt(_SURE / max(score, _EPSILON))
    for weight in (layer.q.weight, layer.k.weight):
        values_DD = weight.numpy()
        values_DD[:, of_head] = 0
        values_DD[slow, of_head] = gain * seen_SW
        weight.set_value(values_DD)


def neighbours(heads: int) -> tuple[int, ...]:
    """How far from a token those lie that the first of so many heads begin with.

    Of several heads half do not: what is fine-tuned untrained may have to find a word wherever it stands.
    """
    return _NEIGHBOURS[: max(1, heads // 2)]


def _others(ernie: ErnieModel) -> list[nn.Embedding]:
    """The tables beside that of positions, that of tokens first."""
    tables = (ernie.embedding.token, ernie.embedding.segment, ernie.embedding.task)
    return [table for table in tables if table is not None]


def _square(ernie: ErnieModel) -> float:
    """The mean square of a token's features before they are normalized, as a multiple of that of its waves."""
    alone = 2 * len(_chosen(ernie.config)) / ernie.config.hidden_size
    return 1 + _DRAWN * len(_others(ernie)) * (1 - alone)


def _features(width: int, waves: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which features of a position are the sines and the cosines of these waves."""
    cosines = len(_paces(width)) + waves
    return waves, cosines[cosines < width]  # of an odd width the last wave has a sine alone


def _paces(width: int) -> np.ndarray:
    """Radians from a position to the next, for each wave."""
    return _PACE ** (-np.arange(0, width, 2) / width)


def _chosen(config: EncoderConfig) -> np.ndarray:
    """Which waves tell neighbours apart: as many as a head has features for both their sines and their cosines,
    evenly among the fine ones, and slower ones where these are few."""
    count = config.hidden_size // config.heads // 2
    whole = config.hidden_size // 2  # those that have a cosine
    among = min(whole, max(count, int((_paces(config.hidden_size) >= _FINE).sum())))
    return np.unique(np.linspace(0, among - 1, min(count, among)).round().astype(np.int64))
