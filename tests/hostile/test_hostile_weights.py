"""Weights and vocabularies of strangers that would become far larger than their files, or that are damaged."""

from __future__ import annotations

import json
import pickle
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest
from support.checkpoints import (
    SETTINGS,
    TASK,
    bundle_of,
    bundle_shape,
    hugging_face,
    torch_archive,
    weights,
    write_vocabulary,
)
from support.hostile.case import Case, Make, Trier, in_every_command, json_edited, removed, text, together

CONVERT = "convert m out --to ernie"
EVERY = ("convert m out --to hf", "predict m --input m/vocab.txt", "export m --to onnx --output out")
CLASSIFIER = {**SETTINGS, "model_type": "bert", "architectures": ["BertForSequenceClassification"]}
DAMAGED = r"is damaged, or no file of weights"
GROWS = r"bytes of it would become more than 8 times as much"


def unicode(value: str) -> bytes:
    return b"X" + struct.pack("<I", len(value)) + value.encode()


def call(name: str, *arguments: bytes) -> bytes:
    return b"c" + name.replace(" ", "\n").encode() + b"\n(" + b"".join(arguments) + b"tR"


def number(value: int) -> bytes:
    return b"J" + struct.pack("<i", value)


def doubled(start: bytes, times: int, together: bytes = b"\x86") -> bytes:
    """An object that holds two of itself, so many times over."""
    return start + b"".join(b"q" + bytes([i]) + b"h" + bytes([i]) + together for i in range(times))


def repeated(first: bytes, use: bytes, times: int) -> bytes:
    """A dictionary whose first entry is remembered, and used again in each of the others."""
    entries = (unicode(f"w{i}") + use + b"s" for i in range(times))
    return b"}" + unicode("first") + first + b"q\x00s" + b"".join(entries)


PICKLES = {
    "bytes-of-a-number": (b"}" + unicode("w") + call("builtins bytes", number(2_000_000_000)) + b"s", DAMAGED),
    "bytes-made-anew": (
        b"}" + unicode("w") + b"cbuiltins\nbytes\n" + number(2_000_000_000) + b"\x85\x81s",
        DAMAGED,
    ),
    "one-text-many-times": (
        repeated(unicode("x" * 100_000), call("_codecs encode", b"h\x00", unicode("latin1")), 3_000),
        GROWS,
    ),
    "one-list-many-times": (repeated(b"](" + b"N" * 30_000 + b"e", call("builtins tuple", b"h\x00"), 2_000), GROWS),
    "dictionaries-of-one-list": (
        repeated(b"](" + b"N" * 30_000 + b"e", call("collections OrderedDict", b"h\x00"), 2_000),
        GROWS,
    ),
    "quadratic-codec": (
        b"}" + unicode("w") + call("_codecs encode", unicode("\u4f60" * 200_000), unicode("punycode")) + b"s",
        DAMAGED,
    ),
    "nested-key": (b"}" + doubled(b"N", 40) + b"Ns", r"has a key that is no text|would become more than 8 times"),
    "deep-key": (b"}" + b"N" + b"\x85" * 20_000 + b"Ns", r"has a key that is no text"),
    "nested-value": (b"}" + unicode("w") + doubled(b"N", 60) + b"s", GROWS),
    "far-memo": (b"}r\xff\xff\xff\x7f", r"its object 2147483647 lies past its end"),
    "unknown-operation": (b"}\xff", DAMAGED),
    "long-number": (b"}" + unicode("w") + b"\x8b\xff\xff\xff\x7f", DAMAGED),
    "long-bytes": (b"}" + unicode("w") + b"\x8e" + struct.pack("<Q", 1 << 40), DAMAGED),
}


def paddle_file(content: bytes) -> Make:
    def make(work: Path) -> None:
        (work / "m").mkdir()
        (work / "m" / "config.json").write_text(json.dumps(CLASSIFIER))
        (work / "m" / "model_state.pdparams").write_bytes(b"\x80\x02" + content + b".")

    return make


def torch_file(content: bytes, **members: bytes) -> Make:
    """A file of PyTorch's with this pickle and these other parts, compressed."""

    def make(work: Path) -> None:
        (work / "m").mkdir()
        (work / "m" / "config.json").write_text(json.dumps(CLASSIFIER))
        with zipfile.ZipFile(work / "m" / "pytorch_model.bin", "w", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr("archive/data.pkl", b"\x80\x02" + content + b".")
            for name, value in members.items():
                archive.writestr(f"archive/{name}", value)

    return make


def published(work: Path) -> None:
    (work / "m").mkdir()
    kept = {name.replace("ernie.", "bert."): value for name, value in weights().items() if name != TASK}
    hugging_face(work / "m", kept, {**CLASSIFIER, "use_task_id": False})
    write_vocabulary(work / "m")


def repeated_views(work: Path) -> None:
    """A hundred thousand tensors that all lie in one storage."""
    published(work)
    (work / "m" / "model.safetensors").unlink()
    one = np.zeros(100_000, np.float32)
    torch_archive(work / "m" / "pytorch_model.bin", {"w": one})
    with zipfile.ZipFile(work / "m" / "pytorch_model.bin") as archive:
        content, data = archive.read("archive/data.pkl"), archive.read("archive/data/0")
    value = content[content.index(unicode("w")) + len(unicode("w")) :]
    value = value[: value.rindex(b"R") + 1]
    entries = b"".join(unicode(f"w{i}") + value + b"s" for i in range(500))
    with zipfile.ZipFile(work / "m" / "pytorch_model.bin", "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}" + entries + b".")
        archive.writestr("archive/data/0", data)


def tensorflow(entries: list[tuple[bytes, bytes]], data: bytes = b"") -> Make:
    def make(work: Path) -> None:
        (work / "m").mkdir()
        (work / "m" / "bert_config.json").write_text(json.dumps(SETTINGS))
        bundle_of(work / "m" / "bert_model.ckpt", [(b"", b"\x08\x01"), *entries], data)

    return make


def zeros(name: str, megabytes: int) -> Make:
    """A file of zeros that takes no space on the disk."""

    def make(work: Path) -> None:
        with (work / name).open("wb") as file:
            file.truncate(megabytes << 20)

    return make


ALIASES = [(b"w%06d" % i, b"\x08\x01" + bundle_shape(65_536) + b"\x20\x00\x28\x80\x80\x10") for i in range(2_000)]
LONG_NAMES = [(b"x" * 2_000 + b"%06d" % i, b"\x08\x01") for i in range(20)]

CASES = [
    *(
        Case(f"paddle-{id}", paddle_file(content), CONVERT, rf"model_state\.pdparams: .*({says})", commands=EVERY)
        for id, (content, says) in PICKLES.items()
    ),
    *(
        Case(
            f"torch-{id}",
            torch_file(content),
            CONVERT,
            rf"pytorch_model\.bin: (asks for|.*({says}|{DAMAGED}|is longer than the file))",
        )
        for id, (content, says) in PICKLES.items()
        if id in ("bytes-of-a-number", "nested-key", "nested-value", "far-memo")  # the reader of pickles is the same
    ),
    Case(
        "torch-byte-order",
        torch_file(b"}", byteorder=bytes(1 << 26)),
        CONVERT,
        "its part byteorder is longer than the file",
    ),
    Case("torch-bomb", torch_file(b"}", **{"data/0": bytes(1 << 26)}), CONVERT, "its part 0 is longer than the file"),
    Case(
        "torch-many-bombs",
        torch_file(b"}", **{f"data/{i}": bytes(1 << 16) for i in range(3_000)}),
        CONVERT,
        "and its tensors would have .* more than 4 times as many",
    ),
    Case("torch-pickle-bomb", torch_file(b"}" + b"N0" * (1 << 24)), CONVERT, "its part data.pkl is longer than the"),
    Case("torch-repeated-views", repeated_views, CONVERT, "and its tensors would have .* more than 4 times as many"),
    Case(
        "tensorflow-aliases",
        tensorflow(ALIASES, bytes(4 * 65_536)),
        CONVERT,
        "and its tensors would have .* more than 4 times as many",
    ),
    Case("tensorflow-long-names", tensorflow(LONG_NAMES), CONVERT, "is damaged .a name is too long"),
    *(
        Case(
            f"layers-{count}",
            together(published, json_edited("m/config.json", num_hidden_layers=count)),
            CONVERT,
            r"config\.json: has [\d,]+ layers, and there are only 4\d weights",
            commands=EVERY,
        )
        for count in (10**3, 10**7, 2**62)
    ),
    *(
        Case(
            f"own-{key}",
            together(
                json_edited("encoder/config.json", **{key: value}),
                removed("encoder/sha256.json"),
            ),
            "convert encoder out --to hf",
            rf"config\.json: ({says})",
            base="run",
        )
        for key, value, says in (
            ("layers", 10**7, "has 10,000,000 layers, and there are only"),
            ("vocab_size", 2**31 - 1, "is for a model of [0-9,]+ weights, and there are only"),
            ("intermediate_size", 2**31 - 1, "is for a model of [0-9,]+ weights"),
        )
    ),
    Case("vocabulary-of-1-gb", together(published, zeros("m/vocab.txt", 1024)), CONVERT, "has 1,073,741,824 bytes"),
    Case("tokenizer-of-1-gb", together(published, zeros("m/tokenizer.json", 1024)), CONVERT, "has 1,073,741,824 bytes"),
    Case(
        "safetensors-header",
        together(published, text("m/model.safetensors", struct.pack("<Q", 1 << 62) + b"{}")),
        CONVERT,
        r"model\.safetensors: is damaged",
        commands=EVERY,
    ),
    Case(
        "deep-settings",
        together(published, text("m/config.json", '{"a":' * 100_000)),
        CONVERT,
        r"config\.json: is not JSON",
        commands=EVERY,
    ),
]


@pytest.mark.parametrize("case", in_every_command(CASES), ids=str)
def test_weights_of_strangers_end_in_a_sentence(case: Case, trier: Trier) -> None:
    trier.check(case)


@pytest.mark.parametrize("protocol", [0, 1, 2, 3, 4, 5])
def test_ordinary_pickles_of_every_protocol_are_read(protocol: int, tmp_path: Path) -> None:
    from ernie.model.published.pdparams import read_pdparams

    values = {f"w{i}": np.arange(i + 1, dtype=np.float32) for i in range(300)}
    path = tmp_path / "model_state.pdparams"
    path.write_bytes(pickle.dumps({name: (name, value) for name, value in values.items()}, protocol=protocol))
    found = read_pdparams(path)
    assert found.keys() == values.keys()
    assert all(np.array_equal(found[name], values[name]) for name in values)
