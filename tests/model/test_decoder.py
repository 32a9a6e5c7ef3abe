"""The decoder: as Paddle's own, the same word by word, and blind to what was not read."""

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


def test_it_computes_what_paddles_own_decoder_does(decoder: Decoder) -> None:
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
        wanted = theirs(x, memory, tgt_mask=causal)[0].numpy()
        np.testing.assert_allclose(found[at : at + length], wanted, atol=2e-5)
        at, source_at = at + length, source_at + source_length


def copy(into: nn.Layer, of: nn.Layer) -> None:
    into.weight.set_value(of.weight)
    into.bias.set_value(of.bias)


@settings(max_examples=20)
@given(st.lists(st.tuples(st.integers(1, 6), st.integers(1, 6)), min_size=1, max_size=4), st.integers(0, 99))
def test_word_by_word_it_says_what_it_says_at_once(lengths: list[tuple[int, int]], seed: int) -> None:
    paddle.seed(seed)
    decoder = Decoder(CONFIG)
    decoder.eval()
    written, read = zip(*lengths, strict=True)
    layout = Layout.of_lengths(list(written))
    x_TD = vectors(layout.tokens, seed)
    whole = decoder(x_TD, layout, sources(decoder, list(read), layout)).numpy()
    memory, source = KeyValueCache.empty(len(lengths)), sources(decoder, list(read), layout).cache
    going = list(range(len(lengths)))
    for step in range(layout.longest):
        staying = [place for place, n in enumerate(going) if written[n] > step]  # others are done
        going = [going[place] for place in staying]
        rows = [int(layout.starts[n]) + step for n in going]
        one = Layout.of_lengths([1] * len(going))
        x_ND = paddle.gather(x_TD, paddle.to_tensor(rows))
        hidden, memory = decoder.forward_cached(x_ND, one, Source(source.chosen(going), one), memory.chosen(staying))
        np.testing.assert_allclose(hidden.numpy(), whole[rows], atol=2e-5)


def test_what_was_not_read_changes_no_bit(decoder: Decoder) -> None:
    layout, lengths = Layout.of_lengths([4, 7]), [6, 5]
    for k in (1, 3):
        mask = Mask.wait(layout, k)
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


def test_a_source_read_in_prefixes_is_one_sequence_for_each_of_them(decoder: Decoder) -> None:
    # Two tokens look at the first prefix, three at the second: as if each had been written with that source alone.
    layout, x_TD, source_SD = Layout.of_lengths([5]), vectors(5), vectors(3, 9)
    prefixes = paddle.concat([source_SD[:2], source_SD])
    both = Source(KeyValueCache(Layout.of_lengths([2, 3]), decoder.read(prefixes)), Layout.of_lengths([2, 3]))
    found = decoder(x_TD, layout, both).numpy()
    mask = Mask.until(np.array([2, 2, 3, 3, 3]))
    one = Source(KeyValueCache(Layout.of_lengths([3]), decoder.read(source_SD)), layout, mask)
    np.testing.assert_allclose(found, decoder(x_TD, layout, one).numpy(), atol=2e-5)


def test_memories_are_joined_and_split_again(decoder: Decoder) -> None:
    first, second = (
        KeyValueCache(Layout.of_lengths(lengths), decoder.read(vectors(sum(lengths), seed)))
        for seed, lengths in enumerate(([2, 3], [4]))
    )
    joined = KeyValueCache.joined([first, second])
    assert joined.layout.lengths.tolist() == [2, 3, 4]
    back = joined.chosen([2, 0, 0])
    assert back.layout.lengths.tolist() == [4, 2, 2]
    for (keys, _), (one, _), (two, _) in zip(back.layers, first.layers, second.layers, strict=True):
        assert (keys.numpy() == np.concatenate([two.numpy(), one.numpy()[:2], one.numpy()[:2]])).all()


def test_every_weight_learns(decoder: Decoder) -> None:
    decoder.train()
    layout = Layout.of_lengths([3, 2])
    decoder(vectors(5), layout, sources(decoder, [4, 1], layout)).square().sum().backward()
    for name, parameter in decoder.named_parameters():
        assert parameter.grad is not None, name
        if not name.endswith("k.bias"):  # the softmax does not see it
            assert float(parameter.grad.abs().sum()) > 0, name


@pytest.mark.parametrize("window", [1, 3, 8])
def test_with_a_window_what_is_older_may_be_forgotten(decoder: Decoder, window: int) -> None:
    layout = Layout.of_lengths([7])
    x_TD, source = vectors(7), sources(decoder, [4], layout)
    whole, _ = decoder.forward_cached(x_TD, layout, source, KeyValueCache.empty(1), window)
    one, written = Layout.of_lengths([1]), KeyValueCache.empty(1)
    for t in range(7):
        step, written = decoder.forward_cached(x_TD[t : t + 1], one, source._replace(queries=one), written, window)
        written = written.last(window - 1)
        np.testing.assert_allclose(step.numpy(), whole[t : t + 1].numpy(), atol=1e-5)
    seen = decoder(x_TD, layout, source).numpy()
    assert (np.abs(seen - whole.numpy()).max() > 1e-3) == (window < 7)
