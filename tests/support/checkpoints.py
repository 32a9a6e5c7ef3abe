"""Checkpoints in the published formats, with random weights, and their outputs, without any code of the library.

A checkpoint is a dictionary of weights under Hugging Face's names.  The writers rename and write
them as each framework does; `forward` is BERT in NumPy.
"""

from __future__ import annotations

import json
import math
import pickle
import re
import struct
import zipfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from safetensors.numpy import save_file

from ernie.text.wordpiece import SPECIAL_TOKENS

Weights = Mapping[str, np.ndarray]

SETTINGS: dict[str, Any] = {
    "model_type": "ernie",
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "attention_probs_dropout_prob": 0.1,
    "max_position_embeddings": 21,
    "type_vocab_size": 3,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-12,
    "use_task_id": True,
    "task_type_vocab_size": 5,
}
POOLER = ("ernie.pooler.dense.weight", "ernie.pooler.dense.bias")
TASK = "ernie.embeddings.task_type_embeddings.weight"


def weights(seed: int = 0, **changes: Any) -> dict[str, np.ndarray]:
    """Random weights of the shape of SETTINGS, named as in ErnieForMaskedLM; matrices are (out, in)."""
    s = {**SETTINGS, **changes}
    D, F, V = s["hidden_size"], s["intermediate_size"], s["vocab_size"]
    shapes: dict[str, tuple[int, ...]] = {
        "ernie.embeddings.word_embeddings.weight": (V, D),
        "ernie.embeddings.position_embeddings.weight": (s["max_position_embeddings"], D),
        "ernie.embeddings.token_type_embeddings.weight": (s["type_vocab_size"], D),
        TASK: (s["task_type_vocab_size"], D),
    }
    linear = {"ernie.pooler.dense": (D, D), "cls.predictions.transform.dense": (D, D)}
    norms = ["ernie.embeddings.LayerNorm", "cls.predictions.transform.LayerNorm"]
    for i in range(s["num_hidden_layers"]):
        layer = f"ernie.encoder.layer.{i}"
        linear |= {f"{layer}.attention.self.{name}": (D, D) for name in ("query", "key", "value")}
        linear |= {f"{layer}.attention.output.dense": (D, D)}
        linear |= {f"{layer}.intermediate.dense": (F, D), f"{layer}.output.dense": (D, F)}
        norms += [f"{layer}.attention.output.LayerNorm", f"{layer}.output.LayerNorm"]
    for name, shape in linear.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    for name in norms:
        shapes |= {f"{name}.weight": (D,), f"{name}.bias": (D,)}
    shapes["cls.predictions.bias"] = (V,)
    rng = np.random.default_rng(seed)
    made = {name: rng.normal(0, 0.3, shape).astype(np.float32) for name, shape in shapes.items()}
    return {name: 1 + value if name.endswith("LayerNorm.weight") else value for name, value in made.items()}


# ----------------------------------------------------------------------------------------------------- forward pass


def forward(w: Weights, s: Mapping[str, Any], batch: Mapping[str, np.ndarray], epsilon: float = 1e-12) -> list[Any]:
    """Embeddings, each layer (N, L, D), pooler (N, D) and masked tokens' logits (N, L, V): BERT as in its paper."""

    def linear(x: np.ndarray, name: str) -> np.ndarray:
        return x @ w[f"{name}.weight"].T + w[f"{name}.bias"]

    def norm(x: np.ndarray, name: str) -> np.ndarray:
        centered = x - x.mean(-1, keepdims=True)
        scaled = centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon)
        return scaled * w[f"{name}.weight"] + w[f"{name}.bias"]

    def activate(x: np.ndarray) -> np.ndarray:
        return np.maximum(x, 0) if s["hidden_act"] == "relu" else x * (1 + np.vectorize(math.erf)(x / 2**0.5)) / 2

    def split(x: np.ndarray) -> np.ndarray:
        return x.reshape(N, L, s["num_attention_heads"], -1).transpose(0, 2, 1, 3)

    N, L = batch["input_ids"].shape
    w = {name: value.astype(np.float64) for name, value in w.items()}
    at = "ernie.embeddings"
    x = w[f"{at}.word_embeddings.weight"][batch["input_ids"]] + w[f"{at}.position_embeddings.weight"][:L]
    x = x + w[f"{at}.token_type_embeddings.weight"][batch["token_type_ids"]]
    if s["use_task_id"]:
        x = x + w[f"{at}.task_type_embeddings.weight"][batch["task_type_ids"]]
    states = [x := norm(x, f"{at}.LayerNorm")]
    for i in range(s["num_hidden_layers"]):
        at = f"ernie.encoder.layer.{i}"
        q, k, v = (split(linear(x, f"{at}.attention.self.{name}")) for name in ("query", "key", "value"))
        scores = q @ k.swapaxes(-1, -2) / np.sqrt(q.shape[-1])
        scores = np.exp(scores - scores.max(-1, keepdims=True)) * batch["attention_mask"][:, None, None, :]
        mixed = (scores / scores.sum(-1, keepdims=True) @ v).transpose(0, 2, 1, 3).reshape(N, L, -1)
        x = norm(x + linear(mixed, f"{at}.attention.output.dense"), f"{at}.attention.output.LayerNorm")
        inner = activate(linear(x, f"{at}.intermediate.dense"))
        states.append(x := norm(x + linear(inner, f"{at}.output.dense"), f"{at}.output.LayerNorm"))
    pooled = np.tanh(linear(x[:, 0], "ernie.pooler.dense"))
    at = "cls.predictions"
    hidden = norm(activate(linear(x, f"{at}.transform.dense")), f"{at}.transform.LayerNorm")
    logits = hidden @ w["ernie.embeddings.word_embeddings.weight"].T + w[f"{at}.bias"]
    return [*states, pooled, logits]


def batch_of(seed: int = 0) -> dict[str, np.ndarray]:
    """Three padded sequences with random segments and tasks, the longest one over all positions."""
    rng = np.random.default_rng(seed)
    lengths = np.array([SETTINGS["max_position_embeddings"], 7, 1])
    mask = (np.arange(lengths[0]) < lengths[:, None]).astype(np.int64)
    names = {"input_ids": "vocab_size", "token_type_ids": "type_vocab_size", "task_type_ids": "task_type_vocab_size"}
    given = {name: rng.integers(SETTINGS[size], size=mask.shape) for name, size in names.items()}
    return {**given, "attention_mask": mask}


# ----------------------------------------------------------------------------------------------------- other names

_PADDLENLP = (
    (r"\.encoder\.layer\.", ".encoder.layers."),
    (r"attention\.self\.query", "self_attn.q_proj"),
    (r"attention\.self\.key", "self_attn.k_proj"),
    (r"attention\.self\.value", "self_attn.v_proj"),
    (r"attention\.output\.dense", "self_attn.out_proj"),
    (r"attention\.output\.LayerNorm", "norm1"),
    (r"intermediate\.dense", "linear1"),
    (r"(layers\.\d+)\.output\.dense", r"\1.linear2"),
    (r"(layers\.\d+)\.output\.LayerNorm", r"\1.norm2"),
    (r"cls\.predictions\.transform\.dense", "cls.predictions.transform"),
    (r"cls\.predictions\.transform\.LayerNorm", "cls.predictions.layer_norm"),
    (r"cls\.predictions\.bias", "cls.predictions.decoder_bias"),
    (r"LayerNorm", "layer_norm"),
)
_OFFICIAL = (
    (r"ernie\.embeddings\.word_embeddings\.weight", "word_embedding"),
    (r"ernie\.embeddings\.position_embeddings\.weight", "pos_embedding"),
    (r"ernie\.embeddings\.token_type_embeddings\.weight", "sent_embedding"),
    (r"ernie\.embeddings\.task_type_embeddings\.weight", "task_embedding"),
    (r"ernie\.embeddings\.LayerNorm", "pre_encoder_layer_norm"),
    (r"ernie\.encoder\.layer\.(\d+)\.", r"encoder_layer_\1_"),
    (r"attention\.self\.(query|key|value)\.", r"multi_head_att_\1_fc."),
    (r"attention\.output\.dense", "multi_head_att_output_fc"),
    (r"attention\.output\.LayerNorm", "post_att_layer_norm"),
    (r"intermediate\.dense", "ffn_fc_0"),
    (r"_output\.dense", "_ffn_fc_1"),
    (r"_output\.LayerNorm", "_post_ffn_layer_norm"),
    (r"ernie\.pooler\.dense", "pooled_fc"),
    (r"cls\.predictions\.transform\.dense", "mask_lm_trans_fc"),
    (r"cls\.predictions\.transform\.LayerNorm", "mask_lm_trans_layer_norm"),
    (r"cls\.predictions\.bias", "mask_lm_out_fc.b_0"),
    (r"layer_norm\.weight", "layer_norm_scale"),
    (r"layer_norm\.bias", "layer_norm_bias"),
    (r"\.weight$", ".w_0"),
    (r"\.bias$", ".b_0"),
)
_DYNAMIC = (
    (r"ernie\.embeddings\.word_embeddings", "word_emb"),
    (r"ernie\.embeddings\.position_embeddings", "pos_emb"),
    (r"ernie\.embeddings\.token_type_embeddings", "sent_emb"),
    (r"ernie\.embeddings\.task_type_embeddings", "task_emb"),
    (r"ernie\.embeddings\.LayerNorm", "ln"),
    (r"ernie\.encoder\.layer\.(\d+)\.", r"encoder_stack.block.\1."),
    (r"attention\.self\.([qkv])\w+", r"attn.\1"),
    (r"attention\.output\.dense", "attn.o"),
    (r"attention\.output\.LayerNorm", "ln1"),
    (r"intermediate\.dense", "ffn.i"),
    (r"(\d)\.output\.dense", r"\1.ffn.o"),
    (r"(\d)\.output\.LayerNorm", r"\1.ln2"),
    (r"ernie\.pooler\.dense", "pooler"),
    (r"cls\.predictions\.transform\.dense", "mlm"),
    (r"cls\.predictions\.transform\.LayerNorm", "mlm_ln"),
    (r"cls\.predictions\.bias", "mlm_bias"),
)
_TENSORFLOW = (
    (r"^ernie", "bert"),
    (r"embeddings\.weight", "embeddings"),
    (r"LayerNorm\.weight", "LayerNorm.gamma"),
    (r"LayerNorm\.bias", "LayerNorm.beta"),
    (r"\.weight$", ".kernel"),
    (r"encoder\.layer\.(\d+)", r"encoder.layer_\1"),
    (r"cls\.predictions\.bias", "cls.predictions.output_bias"),
    (r"\.", "/"),
)


def renamed(w: Weights, rules: tuple[tuple[str, str], ...]) -> dict[str, np.ndarray]:
    """The weights under other names, their matrices transposed to (in, out) as everywhere but in PyTorch."""
    out = {}
    for name, value in w.items():
        transposed = value.T if value.ndim == 2 and "embeddings" not in name else value
        for pattern, replacement in rules:
            name = re.sub(pattern, replacement, name)
        out[name] = np.ascontiguousarray(transposed)
    return out


# ---------------------------------------------------------------------------------------------------------- folders


def write_json(path: Path, data: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(data), encoding="utf-8")


def write_vocabulary(folder: Path, size: int = 40) -> None:
    tokens = [*SPECIAL_TOKENS, *(f"w{i}" for i in range(len(SPECIAL_TOKENS), size))]
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in tokens), encoding="utf-8")


def hugging_face(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    write_json(folder / "config.json", s)
    save_file(dict(w), folder / "model.safetensors", metadata={"format": "pt"})


def hugging_face_bert_without_head(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    """As sentence encoders are saved: without the prefix, with the buffer of positions."""
    bare = {name.removeprefix("ernie."): value for name, value in w.items() if not name.startswith("cls.")}
    hugging_face(folder, {**bare, "embeddings.position_ids": np.arange(21)[None]}, s)


def hugging_face_parts(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    """Two files and an index."""
    write_json(folder / "config.json", s)
    names = sorted(w)
    files = {name: f"model-0000{1 + i % 2}-of-00002.safetensors" for i, name in enumerate(names)}
    for file in set(files.values()):
        save_file({name: w[name] for name in names if files[name] == file}, folder / file)
    write_json(folder / "model.safetensors.index.json", {"metadata": {}, "weight_map": files})


def hugging_face_old(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    """A pytorch_model.bin from before PyTorch 1.6, with LayerNorm's parameters named as in TensorFlow."""
    write_json(folder / "config.json", s)
    greek = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    old = {re.sub(r"LayerNorm\.\w+$", lambda m: greek[m.group()], name): value for name, value in w.items()}
    (folder / "pytorch_model.bin").write_bytes(torch_legacy(old))


def hugging_face_bin(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    write_json(folder / "config.json", s)
    torch_archive(folder / "pytorch_model.bin", w)


def paddlenlp(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    write_json(folder / "config.json", s)
    pdparams(folder / "model_state.pdparams", renamed(w, _PADDLENLP))


def paddlenlp_old(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    """As before PaddleNLP 2.5: the encoder's settings nested in those of the class with the head."""
    inner = {**{key: value for key, value in s.items() if key != "model_type"}, "init_class": "ErnieModel"}
    write_json(folder / "model_config.json", {"init_args": [inner], "init_class": "ErnieForMaskedLM"})
    pdparams(folder / "model_state.pdparams", renamed(w, _PADDLENLP), named=True)


def official(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    """An official release for Paddle 1.x, whose configuration lacks epsilon and the inner width."""
    omitted = ("model_type", "intermediate_size", "layer_norm_eps", "type_vocab_size")
    settings = {key: value for key, value in s.items() if key not in omitted}
    write_json(folder / "ernie_config.json", {**settings, "sent_type_vocab_size": s["type_vocab_size"]})
    (folder / "params").mkdir()
    for name, values in renamed(w, _OFFICIAL).items():
        (folder / "params" / name).write_bytes(fluid_variable(values))


def official_dynamic(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    write_json(folder / "ernie_config.json", {key: s[key] for key in s if key not in ("model_type", "layer_norm_eps")})
    pdparams(folder / "saved_weights.pdparams", renamed(w, _DYNAMIC))


def tensorflow(folder: Path, w: Weights, s: Mapping[str, Any]) -> None:
    omitted = ("model_type", "layer_norm_eps", "use_task_id", "task_type_vocab_size")
    write_json(folder / "bert_config.json", {key: value for key, value in s.items() if key not in omitted})
    bundle(folder / "bert_model.ckpt", renamed(w, _TENSORFLOW))


FORMATS: dict[str, Callable[[Path, Weights, Mapping[str, Any]], None]] = {
    "hf": hugging_face,
    "hf without prefix and head": hugging_face_bert_without_head,
    "hf in parts": hugging_face_parts,
    "hf .bin": hugging_face_bin,
    "hf .bin of old": hugging_face_old,
    "paddlenlp": paddlenlp,
    "paddlenlp of old": paddlenlp_old,
    "official": official,
    "official dynamic": official_dynamic,
    "tensorflow": tensorflow,
}


# ----------------------------------------------------------------------------------------------------- file formats


def torch_archive(path: Path, w: Weights, under: tuple[str, ...] = ()) -> None:
    """Write a file as torch.save does since PyTorch 1.6; with the keys `under`, a training checkpoint."""
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", _torch_pickle(w, legacy=False, under=under))
        archive.writestr("archive/version", "3\n")
        archive.writestr("archive/byteorder", "little")
        for i, value in enumerate(w.values()):
            archive.writestr(f"archive/data/{i}", value.tobytes())


def torch_legacy(w: Weights) -> bytes:
    """The content of a file of an earlier torch.save: five pickles, then the storages."""
    head = [pickle.dumps(x, 2) for x in (0x1950A86A20F9469CFC6C, 1001, {"little_endian": True})]
    keys = pickle.dumps([str(i) for i in range(len(w))], 2)
    storages = [struct.pack("<q", value.size) + value.tobytes() for value in w.values()]
    return b"".join([*head, _torch_pickle(w, legacy=True), keys, *storages])


# The operations of a pickle, for those that cannot be written by pickling objects.


def number(n: int) -> bytes:
    return b"J" + struct.pack("<i", n)


def text(s: str) -> bytes:
    encoded = s.encode()
    return b"X" + struct.pack("<I", len(encoded)) + encoded


def row(*items: bytes) -> bytes:
    return b"(" + b"".join(items) + b"t"


def call(function: str, *arguments: bytes) -> bytes:
    """A call of `module name`."""
    return b"c" + function.replace(" ", "\n").encode() + b"\n" + row(*arguments) + b"R"


def torch_tensor(storage: bytes, offset: int, shape: Sequence[int], strides: Sequence[int]) -> bytes:
    """A tensor of a storage, which is a pickled persistent id."""
    sizes, steps = (row(*(number(n) for n in numbers)) for numbers in (shape, strides))
    hooks = call("collections OrderedDict")
    return call("torch._utils _rebuild_tensor_v2", storage, number(offset), sizes, steps, b"\x89", hooks)


def _torch_pickle(w: Weights, legacy: bool, under: tuple[str, ...] = ()) -> bytes:
    """The pickle, written operation by operation, since pickling needs the classes of PyTorch."""
    kinds = {
        "float32": b"FloatStorage",
        "float16": b"HalfStorage",
        "int64": b"LongStorage",
        "uint16": b"BFloat16Storage",
    }
    body = b""
    for i, (name, value) in enumerate(w.items()):
        kind = b"ctorch\n" + kinds[value.dtype.name] + b"\n"
        storage = [text("storage"), kind, text(str(i)), text("cpu"), number(value.size)] + [b"N"] * legacy
        strides = [n // value.itemsize for n in value.strides]
        body += text(name) + torch_tensor(row(*storage) + b"Q", 0, value.shape, strides)
    if under:
        body = text("epoch") + number(3) + b"".join(text(key) + b"}(" + body + b"u" for key in under)
    return b"\x80\x02}(" + body + b"u."


def pdparams(path: Path, w: Weights, named: bool = False) -> None:
    """Write a file as paddle.save does; with `named`, each array comes with its variable's name."""
    values = {name: (f"var_{i}", value) if named else value for i, (name, value) in enumerate(w.items())}
    names = {"StructuredToParameterName@@": {name: f"var_{i}" for i, name in enumerate(w)}}
    path.write_bytes(pickle.dumps({**values, **names}, protocol=2))


def fluid_variable(value: np.ndarray) -> bytes:
    """The content of a file with one variable, as Paddle 1.x saves it."""
    kind = {"float32": 5, "int64": 3, "float16": 4}[value.dtype.name]
    description = b"\x08" + _varint(kind) + b"".join(b"\x10" + _varint(n) for n in value.shape)
    head = struct.pack("<IQ", 0, 0) + struct.pack("<Ii", 0, len(description))
    return head + description + value.tobytes()


def bundle(prefix: Path, w: Weights, block_entries: int = 7) -> None:
    """Write a checkpoint as TensorFlow 1.x does: prefix-compressed sorted keys in several blocks."""
    data, entries = b"", [(b"", b"\x08\x01")]
    for name in sorted(w):
        value = w[name]
        kind = {"float32": 1, "int64": 9, "float16": 19}[value.dtype.name]
        position = b"\x20" + _varint(len(data)) + b"\x28" + _varint(value.nbytes)
        entries.append((name.encode(), b"\x08" + _varint(kind) + bundle_shape(*value.shape) + position))
        data += value.tobytes()
    bundle_of(prefix, entries, data, block_entries)


def bundle_shape(*sizes: int) -> bytes:
    """The shape of a tensor in its entry in the index."""
    return _field(2, b"".join(_field(2, b"\x08" + _varint(n)) for n in sizes))


def bundle_of(prefix: Path, entries: list[tuple[bytes, bytes]], data: bytes, block_entries: int = 7) -> None:
    """Write a checkpoint of TensorFlow with these entries in its index, by key, and these values."""
    index, handles = b"", []
    for start in range(0, len(entries), block_entries):
        part = entries[start : start + block_entries]
        handles.append((part[-1][0] + b"~", _append(part, len(index))))
        index += handles[-1][1][1]
    metaindex = _append([], len(index))
    index += metaindex[1]
    top = _append([(key, handle) for key, (handle, _) in handles], len(index))
    footer = (metaindex[0] + top[0]).ljust(40, b"\0") + struct.pack("<Q", 0xDB4775248B80FB57)
    prefix.with_name(f"{prefix.name}.index").write_bytes(index + top[1] + footer)
    prefix.with_name(f"{prefix.name}.data-00000-of-00001").write_bytes(data)


def _append(entries: list[tuple[bytes, bytes]], offset: int) -> tuple[bytes, bytes]:
    """A block at `offset`: (its handle, its bytes with type and checksum)."""
    body, previous = b"", b""
    for key, value in entries:
        shared = next(
            (i for i, (a, b) in enumerate(zip(key, previous, strict=False)) if a != b), min(len(key), len(previous))
        )
        body += _varint(shared) + _varint(len(key) - shared) + _varint(len(value)) + key[shared:] + value
        previous = key
    body += struct.pack("<II", 0, 1)
    return _varint(offset) + _varint(len(body)), body + b"\0" + b"\0\0\0\0"


def _varint(n: int) -> bytes:
    return bytes([n]) if n < 0x80 else bytes([n & 0x7F | 0x80]) + _varint(n >> 7)


def _field(number: int, content: bytes) -> bytes:
    return bytes([number << 3 | 2]) + _varint(len(content)) + content
