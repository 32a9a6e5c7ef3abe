"""The decoder: equal to Paddle's own, the same token by token, and independent of source tokens not yet read."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import paddle
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from paddle import Tensor, nn

from ernie.data.batch import Layout
from ernie.kernels.mask import Mask
from ernie.model.cache import KeyValueCache
from ernie.model.config import EncoderConfig
from ernie.model.decoder import Decoder, Source

CONFIG = replace(EncoderConfig.preset("tiny"), hidden_size=32, heads=4, intermediate_size=48, vocab_size=10)
D = CONFIG.hidden_size


@pytest.fixture
def decoder() -> Decoder:
    paddle.seed(3)
    decoder = Decoder(CONFIG)
    decoder.eval()
    return decoder


def vectors(rows: int, seed: int = 0) -> Tensor:
    return paddle.to_tensor(np.random.default_rng(seed).normal(size=(rows, D)).astype("float32"))


def sources(decoder: Decoder, lengths: list[int], written: Layout, mask: Mask | None = None, seed: int = 9) -> Source:
    read = decoder.read(vectors(sum(lengths), seed))
    return Source(KeyValueCache(Layout.of_lengths(lengths), read), written, mask)


def test_the_decoder_equals_paddles_own(decoder: Decoder) -> None:
    theirs = nn.TransformerDecoder(nn.TransformerDecoderLayer(D, 4, 48, 0.0, "gelu"), CONFIG.layers)
    theirs.eval()
    for ours, layer in zip(decoder.layers, theirs.layers, strict=True):
        for attention, prefix in ((layer.self_attn, ""), (layer.cross_attn, "source_")):
            for name in "qkv":
                copy(getattr(attention, f"{name}_proj"), getattr(ours, f"{prefix}{name}"))
        copy(layer.self_attn.out_proj, ours.attention_out)
        copy(layer.cross_attn.out_proj, ours.source_out)
        pairs = ((layer.linear1, ours.inner), (layer.linear2, ours.outer), (layer.norm1, ours.attention_norm))
        for into, of in (*pairs, (layer.norm2, ours.source_norm), (layer.norm3, ours.output_norm)):
            copy(into, of)
    lengths, source_lengths = [3, 6], [5, 2]
    layout = Layout.of_lengths(lengths)
    x_TD, source_SD = vectors(9), vectors(7, 9)
    found = decoder(x_TD, layout, sources(decoder, source_lengths, layout)).numpy()
    at, source_at = 0, 0
    for length, source_length in zip(lengths, source_lengths, strict=True):
        x = x_TD[at : at + length].unsqueeze(0)
        memory = source_SD[source_at : source_at + source_length].unsqueeze(0)
        causal = paddle.triu(paddle.full([length, length], -1e9), 1)
        expected = theirs(x, memory, tgt_mask=causal)[0].numpy()
        np.testing.assert_allclose(found[at : at + length], expected, atol=2e-5)
        at, source_at = at + length, source_at + source_length


def copy(into: nn.Layer, of: nn.Layer) -> None:
    into.weight.set_value(of.weight)
    into.bias.set_value(of.bias)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4), st.integers(0, 99))
def test_decoding_token_by_token_equals_decoding_at_once(lengths: list[tuple[int, int]], seed: int) -> None:
    paddle.seed(seed)
    decoder = Decoder(CONFIG)
    decoder.eval()
    written, read = zip(*lengths, strict=True)
    layout = Layout.of_lengths(list(written))
    x_TD = vectors(layout.tokens, seed)
    whole = decoder(x_TD, layout, sources(decoder, list(read), layout)).numpy()
    memory, source = KeyValueCache.empty(len(lengths)), sources(decoder, list(read), layout).cache
    active = list(range(len(lengths)))
    for step in range(layout.longest):
        still = [place for place, n in enumerate(active) if written[n] > step]  # others are done
        active = [active[place] for place in still]
        rows = [int(layout.starts[n]) + step for n in active]
        single = Layout.of_lengths([1] * len(active))
        x_ND = paddle.gather(x_TD, paddle.to_tensor(rows))
        hidden, memory = decoder.forward_cached(
            x_ND, single, Source(source.select(active), single), memory.select(still)
        )
        np.testing.assert_allclose(hidden.numpy(), whole[rows], atol=2e-5)


def test_unread_source_tokens_change_no_bit(decoder: Decoder) -> None:
    layout, lengths = Layout.of_lengths([4, 7]), [6, 5]
    for k in (1, 3):
        mask = Mask.until(layout.positions + k)
        x_TD = vectors(11)
        read = decoder.read(vectors(11, 9))
        memory = KeyValueCache(Layout.of_lengths(lengths), read)
        found = decoder(x_TD, layout, Source(memory, layout, mask)).numpy()
        for row, (step, sentence) in enumerate([(t, n) for n in (0, 1) for t in range((4, 7)[n])]):
            other = vectors(11, 9).numpy()
            start, stop = memory.layout.offsets[sentence : sentence + 2]
            other[min(stop, start + k + step) : stop] = 7.0
            changed = KeyValueCache(memory.layout, decoder.read(paddle.to_tensor(other)))
            again = decoder(x_TD, layout, Source(changed, layout, mask)).numpy()
            assert (again[row] == found[row]).all()


def test_each_source_prefix_is_a_sequence_of_its_own(decoder: Decoder) -> None:
    # Two tokens attend to the first prefix, three to the second: as if each had been written with that source alone.
    layout, x_TD, source_SD = Layout.of_lengths([5]), vectors(5), vectors(3, 9)
    prefixes = paddle.concat([source_SD[:2], source_SD])
    both = Source(KeyValueCache(Layout.of_lengths([2, 3]), decoder.read(prefixes)), Layout.of_lengths([2, 3]))
    found = decoder(x_TD, layout, both).numpy()
    mask = Mask.until(np.array([2, 2, 3, 3, 3]))
    one = Source(KeyValueCache(Layout.of_lengths([3]), decoder.read(source_SD)), layout, mask)
    np.testing.assert_allclose(found, decoder(x_TD, layout, one).numpy(), atol=2e-5)


def test_key_value_caches_can_be_joined_and_split(decoder: Decoder) -> None:
    first, second = (
        KeyValueCache(Layout.of_lengths(lengths), decoder.read(vectors(sum(lengths), seed)))
        for seed, lengths in enumerate(([2, 3], [4]))
    )
    joined = KeyValueCache.joined([first, second])
    assert joined.layout.lengths.tolist() == [2, 3, 4]
    chosen = joined.select([2, 0, 0])
    assert chosen.layout.lengths.tolist() == [4, 2, 2]
    for (keys, _), (a, _), (b, _) in zip(chosen.layers, first.layers, second.layers, strict=True):
        assert (keys.numpy() == np.concatenate([b.numpy(), a.numpy()[:2], a.numpy()[:2]])).all()


def test_every_weight_gets_a_gradient(decoder: Decoder) -> None:
    decoder.train()
    layout = Layout.of_lengths([3, 2])
    decoder(vectors(5), layout, sources(decoder, [4, 1], layout)).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("k.bias"):  # cancels out in the softmax
            assert float(parameter.grad.abs().sum()) > 0, name


@pytest.mark.parametrize("window", [1, 3, 8])
def test_with_a_window_older_tokens_can_be_dropped_from_the_cache(decoder: Decoder, window: int) -> None:
    layout = Layout.of_lengths([7])
    x_TD, source = vectors(7), sources(decoder, [4], layout)
    whole, _ = decoder.forward_cached(x_TD, layout, source, KeyValueCache.empty(1), window)
    single, cache = Layout.of_lengths([1]), KeyValueCache.empty(1)
    for t in range(7):
        step, cache = decoder.forward_cached(x_TD[t : t + 1], single, source._replace(queries=single), cache, window)
        cache = cache.last(window - 1)
        np.testing.assert_allclose(step.numpy(), whole[t : t + 1].numpy(), atol=1e-5)
    unlimited = decoder(x_TD, layout, source).numpy()
    assert (np.abs(unlimited - whole.numpy()).max() > 1e-3) == (window < 7)
