"""The readers of other frameworks' files: what they read, and that they never execute code from a file."""

from __future__ import annotations

import json
import pickle
import shutil
import struct
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.checkpoints import (
    bundle,
    bundle_of,
    bundle_shape,
    call,
    fluid_variable,
    number,
    pdparams,
    row,
    text,
    torch_archive,
    torch_legacy,
    torch_tensor,
)

from ernie.errors import UserError
from ernie.model.ernie import ErnieModel
from ernie.model.published.fluid import read_fluid
from ernie.model.published.formats import detect_format, read_weights
from ernie.model.published.load import read
from ernie.model.published.pdparams import read_pdparams
from ernie.model.published.tensor_bundle import read_tensor_bundle
from ernie.model.published.torch_file import read_torch
from ernie.protobuf import varint

ARRAYS = {
    "table/a": np.arange(12, dtype=np.float32).reshape(3, 4),
    "table/b": np.arange(5, dtype=np.float32),
    "steps": np.array(300, np.int64),
    "half": np.array([[1.5], [-2]], np.float16),
    "none": np.zeros((0, 3), np.float32),
}


def write_torch(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    torch_archive(folder / "pytorch_model.bin", arrays)
    return folder / "pytorch_model.bin"


def write_torch_legacy(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    (folder / "pytorch_model.bin").write_bytes(torch_legacy(arrays))
    return folder / "pytorch_model.bin"


def write_pdparams(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    pdparams(folder / "model_state.pdparams", arrays)
    return folder / "model_state.pdparams"


def write_bundle(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    bundle(folder / "bert_model.ckpt", arrays)
    return folder / "bert_model.ckpt.index"


def write_fluid(folder: Path, arrays: dict[str, np.ndarray]) -> Path:
    (folder / "params").mkdir()
    for name, value in arrays.items():
        (folder / "params" / name.replace("/", "_")).write_bytes(fluid_variable(value))
    return folder / "params"


READERS: dict[str, tuple[Callable, Callable]] = {
    "torch": (write_torch, read_torch),
    "torch of old": (write_torch_legacy, read_torch),
    "pdparams": (write_pdparams, read_pdparams),
    "tensorflow": (write_bundle, read_tensor_bundle),
    "fluid": (write_fluid, read_fluid),
}


@pytest.mark.parametrize("name", list(READERS))
def test_every_array_is_read_with_its_type_and_shape(name: str, tmp_path: Path) -> None:
    write, read_back = READERS[name]
    found = read_back(write(tmp_path, ARRAYS))
    expected = {key.replace("/", "_") if name == "fluid" else key: value for key, value in ARRAYS.items()}
    assert set(found) == set(expected)
    for key, value in expected.items():
        assert (found[key].dtype, found[key].shape) == (value.dtype, value.shape)
        assert np.array_equal(found[key], value)


@pytest.mark.parametrize("key", ["model", "state_dict", "module"])
def test_the_weights_inside_a_training_checkpoint_are_found(key: str, tmp_path: Path) -> None:
    torch_archive(tmp_path / "last.bin", ARRAYS, under=(key,))
    found = read_torch(tmp_path / "last.bin")
    assert found.keys() == ARRAYS.keys()
    assert all(np.array_equal(found[name], values) for name, values in ARRAYS.items())


def test_a_checkpoint_with_several_sets_of_weights_is_refused(tmp_path: Path) -> None:
    torch_archive(tmp_path / "last.bin", ARRAYS, under=("model", "average"))
    with pytest.raises(UserError, match="expected weights by name, found epoch, model, average; save the weights"):
        read_torch(tmp_path / "last.bin")


@pytest.mark.parametrize("name", list(READERS))
def test_a_truncated_file_raises_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    write, read_back = READERS[name]
    path = write(tmp_path, ARRAYS)
    file = path / "table_a" if path.is_dir() else path
    file.write_bytes(file.read_bytes()[:-9])
    with pytest.raises(UserError, match=file.name):
        read_back(path)


@pytest.mark.parametrize("name", list(READERS))
def test_a_file_of_another_kind_raises_an_error_that_names_it(name: str, tmp_path: Path) -> None:
    write, read_back = READERS[name]
    path = write(tmp_path, ARRAYS)
    file = path / "table_a" if path.is_dir() else path
    file.write_bytes(b"<html>404 Not Found</html>" * 4)
    with pytest.raises(UserError, match=file.name):
        read_back(path)


@pytest.mark.parametrize("name", list(READERS))
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_damaged_file_is_read_or_raises_a_user_error(name: str, data: st.DataObject, tmp_path: Path) -> None:
    write, read_back = READERS[name]
    shutil.rmtree(tmp_path / "made", ignore_errors=True)
    (tmp_path / "made").mkdir()
    path = write(tmp_path / "made", ARRAYS)
    file = path / "table_a" if path.is_dir() else path
    content = bytearray(file.read_bytes())
    start = data.draw(st.integers(0, len(content) - 1))
    content[start : start + data.draw(st.integers(0, 20))] = data.draw(st.binary(max_size=20))
    file.write_bytes(content)
    with suppress(UserError):
        read_back(path)


@pytest.mark.parametrize("place", ["the directory", "a file's header"])
def test_a_damaged_pytorch_archive_raises_a_user_error(tmp_path: Path, place: str) -> None:
    path = write_torch(tmp_path, ARRAYS)
    content = path.read_bytes()
    mark = b"PK\1\2" if place == "the directory" else b"PK\3\4"
    path.write_bytes(content.replace(mark, b"KP" + mark[2:], 1))
    with pytest.raises(UserError, match=r"pytorch_model.bin: is damaged .*; fetch it again"):
        read_torch(path)


def test_huge_numbers_in_a_damaged_file_cost_neither_memory_nor_time(tmp_path: Path) -> None:
    path = write_torch_legacy(tmp_path, ARRAYS)
    first = ARRAYS["table/a"]
    stored = struct.pack("<q", first.size) + first.tobytes()
    path.write_bytes(path.read_bytes().replace(stored, struct.pack("<q", 1 << 60) + first.tobytes()))
    with pytest.raises(UserError, match=r"pytorch_model.bin: is "):
        read_torch(path)
    folder = write_fluid(tmp_path, {"a": first})
    (folder / "a").write_bytes(bytes(4) + b"\xff" * 8 + (folder / "a").read_bytes()[12:])
    with pytest.raises(UserError, match=r"a: is no variable of Paddle 1.x, or it is cut off"):
        read_fluid(folder)
    with pytest.raises(ValueError, match="more than 64 bits"):
        varint(b"\xff" * 1_000_000, 0)


@pytest.mark.parametrize("put", [b"r" + struct.pack("<I", 1 << 24), b"p%d\n" % (1 << 24)])
def test_a_damaged_pickle_allocates_no_memory_for_objects_it_does_not_hold(put: bytes, tmp_path: Path) -> None:
    path = tmp_path / "model.pdparams"
    path.write_bytes(b"\x80\x02}" + put + b".")
    with pytest.raises(UserError, match=r"model\.pdparams: is damaged.*\(its object 16777216 lies past its end"):
        read_pdparams(path)


names = st.text("abc/_", min_size=1, max_size=12)


@settings(max_examples=40, deadline=None)
@given(keys=st.sets(names, min_size=1, max_size=40), entries=st.integers(1, 9))
def test_a_tensorflow_index_gives_all_keys_whatever_prefixes_they_share(
    keys: set[str], entries: int, tmp_path_factory: pytest.TempPathFactory
) -> None:
    folder = tmp_path_factory.mktemp("bundle")
    arrays = {key: np.full(i % 3, i, np.float32) for i, key in enumerate(sorted(keys))}
    bundle(folder / "model.ckpt", arrays, block_entries=entries)
    found = read_tensor_bundle(folder / "model.ckpt.index")
    assert {key: value.tolist() for key, value in found.items()} == {k: v.tolist() for k, v in arrays.items()}


def test_a_tensorflow_index_without_its_data_raises_a_user_error(tmp_path: Path) -> None:
    index = write_bundle(tmp_path, ARRAYS)
    (tmp_path / "bert_model.ckpt.data-00000-of-00001").unlink()
    with pytest.raises(UserError, match=r"its data file bert_model\.ckpt\.data-00000-of-00001 is missing"):
        read_tensor_bundle(index)


# ------------------------------------------------------------------------------------------------------- bfloat16

BITS = np.array([0x3F80, 0xC000, 0x0000, 0x4049], np.uint16)  # 1, -2, 0 and the value nearest to pi
VALUES = np.array([1, -2, 0, 3.140625], np.float32)


def test_bfloat16_of_pytorch_is_widened(tmp_path: Path) -> None:
    torch_archive(tmp_path / "pytorch_model.bin", {"x": BITS})
    found = read_torch(tmp_path / "pytorch_model.bin")["x"]
    assert found.dtype == np.float32
    assert found.tolist() == VALUES.tolist()


def test_bfloat16_of_safetensors_is_widened(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors"
    header = json.dumps({"x": {"dtype": "BF16", "shape": [2, 2], "data_offsets": [0, 8]}}).encode()
    path.write_bytes(len(header).to_bytes(8, "little") + header + BITS.tobytes())
    _, found = read_weights(tmp_path)
    assert found["x"].tolist() == VALUES.reshape(2, 2).tolist()


# -------------------------------------------------------------------------------------------------- untrusted files


class Evil:
    """Pickles to a call that creates a file."""

    def __init__(self, path: Path):
        self.path = path

    def __reduce__(self) -> tuple:
        return Path.touch, (self.path,)


@pytest.mark.parametrize(
    ("file", "reader"), [("model_state.pdparams", read_pdparams), ("pytorch_model.bin", read_torch)]
)
def test_a_pickle_that_calls_a_function_is_refused_and_not_run(file: str, reader: Callable, tmp_path: Path) -> None:
    made = tmp_path / "made"
    (tmp_path / file).write_bytes(pickle.dumps({"weight": Evil(made)}, protocol=4))
    with pytest.raises(UserError, match="which is no part of a file of weights; it was not run"):
        reader(tmp_path / file)
    assert not made.exists()


def pickled_array(code: str, order: str, flags: int, shape: bytes, content: bytes, fortran: bytes = b"\x89") -> bytes:
    """A pickled array of NumPy's whose type and content are as given."""
    kind = call("numpy dtype", text(code), b"\x89", b"\x88")
    kind += row(number(3), text(order), b"NNN", number(-1), number(-1), number(flags)) + b"b"
    array = call("numpy.core.multiarray _reconstruct", b"cnumpy\nndarray\n", row(number(0)), text("b"))
    return array + row(number(1), shape, kind, fortran, content) + b"b"


def as_pdparams(value: bytes, folder: Path) -> Path:
    path = folder / "model_state.pdparams"
    path.write_bytes(b"\x80\x03}" + text("w") + value + b"s.")
    return path


EIGHT_BYTES = b"B" + struct.pack("<I", 8) + b"A" * 8


def test_a_pickle_cannot_give_numpy_addresses_as_objects(tmp_path: Path) -> None:
    for value in (
        *(pickled_array("O8", "|", flags, row(number(1)), EIGHT_BYTES) for flags in (0, 1, 63)),
        call("numpy ndarray", row(number(1)), text("O"), EIGHT_BYTES),
    ):
        assert read_pdparams(as_pdparams(value, tmp_path)) == {}


def test_the_bytes_of_an_array_have_to_be_as_many_as_its_shape_needs(tmp_path: Path) -> None:
    for shape, message in (
        (row(number(3)), r"'w' of shape \[3\] has 8 bytes"),
        (row(number(-2)), "'w' is no array"),
        (number(2), "'w' is no array"),
        (row(number(1 << 30), number(1 << 30), number(1 << 30)), "has 8 bytes"),
    ):
        path = as_pdparams(pickled_array("f4", "<", 0, shape, EIGHT_BYTES), tmp_path)
        with pytest.raises(UserError, match=message):
            read_pdparams(path)
    huge = row(number(0), number(1 << 30), number(1 << 30), number(1 << 30))
    path = as_pdparams(pickled_array("f4", "<", 0, huge, b"B" + bytes(4)), tmp_path)
    with pytest.raises(UserError, match="is damaged: an array of 0 values cannot be"):
        read_pdparams(path)


def test_text_in_place_of_an_arrays_bytes_is_refused(tmp_path: Path) -> None:
    path = as_pdparams(pickled_array("f4", "<", 0, row(number(1)), text("\u4f60\u597d")), tmp_path)
    with pytest.raises(UserError, match="'w' is no array"):
        read_pdparams(path)
    path = as_pdparams(pickled_array("f4", "<", 0, row(number(1)), text("\0\0\u0080?")), tmp_path)  # as by Python 2
    assert read_pdparams(path)["w"].tolist() == [1.0]


def test_arrays_in_fortrans_order_and_of_the_other_byte_order_are_read(tmp_path: Path) -> None:
    values = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = tmp_path / "model_state.pdparams"
    path.write_bytes(pickle.dumps({"fortran": np.asfortranarray(values), "big": values.astype(">f4")}, protocol=2))
    found = read_pdparams(path)
    assert np.array_equal(found["fortran"], values)
    assert np.array_equal(found["big"], values)


def test_a_pickle_cannot_change_the_functions_that_it_may_call(tmp_path: Path) -> None:
    named = b"ctorch._utils\n_rebuild_parameter\n"
    state = b"N}" + text("__defaults__") + b"Ns\x86"  # sets attributes
    path = tmp_path / "pytorch_model.bin"
    path.write_bytes(b"\x80\x02" + named + state + b"b.")
    with pytest.raises(UserError, match="AttributeError: __defaults__"):
        read_torch(path)


STORAGE = row(text("storage"), b"ctorch\nFloatStorage\n", text("0"), text("cpu"), number(2)) + b"Q"
UNKNOWN = row(text("storage"), text("Storage"), text("0"), text("cpu"), number(2)) + b"Q"


@pytest.mark.parametrize(
    ("storage", "offset", "shape", "strides", "message"),
    [
        (STORAGE, 0, (-1, 2), (1, 1), "a tensor without a storage, a shape and strides"),
        (STORAGE, 0, (2,), (1, 1), "a tensor without a storage, a shape and strides"),
        (STORAGE, 0, (2,), (-1,), "a tensor without a storage, a shape and strides"),
        (STORAGE, -1, (2,), (1,), "a tensor without a storage, a shape and strides"),
        (text("a"), 0, (2,), (1,), "a tensor without a storage, a shape and strides"),
        (UNKNOWN, 0, (2,), (1,), "a storage of unknown type"),
        (STORAGE, 0, (3,), (1,), r"shape \[3\] extends past its storage"),
        (STORAGE, 1 << 20, (2,), (1,), r"shape \[2\] extends past its storage"),
        (STORAGE, 0, (1 << 20, 1 << 20), (0, 0), "is larger than its storage; save a copy of it"),
        (STORAGE, 0, (0, 1 << 30, 1 << 30, 1 << 30), (1, 1, 1, 1), "an array of 0 values cannot be"),
    ],
)
def test_a_tensor_that_its_storage_cannot_hold_is_refused(
    storage: bytes, offset: int, shape: tuple[int, ...], strides: tuple[int, ...], message: str, tmp_path: Path
) -> None:
    path = tmp_path / "pytorch_model.bin"
    with zipfile.ZipFile(path, "w") as archive:
        tensor = torch_tensor(storage, offset, shape, strides)
        archive.writestr("archive/data.pkl", b"\x80\x02}" + text("w") + tensor + b"s.")
        archive.writestr("archive/data/0", bytes(8))
    with pytest.raises(UserError, match=rf"pytorch_model.bin: .*{message}"):
        read_torch(path)


@pytest.mark.parametrize(
    ("header", "entry", "message"),
    [
        (b"\x08\x01\x10\x01", b"", "was written on a big-endian machine"),
        (b"\x08" + b"\x80" * 8 + b"\x10", b"", r"its data file bert_model\.ckpt\.data-00000-of-\d+ is missing"),
        (b"\x08\x01", b"\x18\x07", r"is damaged: 'w' is in data file 7 of 1"),
        (b"\x08\x01", bundle_shape(1 << 32, 1 << 32), r"is cut off: a tensor of shape \[4294967296, 4294967296\]"),
        (b"\x08\x01", bundle_shape(0, 1 << 62, 1 << 62), "an array of 0 values cannot be"),
    ],
)
def test_a_tensorflow_index_with_wrong_numbers_is_refused(
    header: bytes, entry: bytes, message: str, tmp_path: Path
) -> None:
    bundle_of(tmp_path / "bert_model.ckpt", [(b"", header), (b"w", b"\x08\x01" + entry)], b"")
    with pytest.raises(UserError, match=message):
        read_tensor_bundle(tmp_path / "bert_model.ckpt.index")


def test_an_index_that_points_outside_its_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "outside.safetensors").write_bytes(b"")
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "config.json").write_text('{"num_hidden_layers": 1}')
    (folder / "model.safetensors.index.json").write_text('{"weight_map": {"a": "../outside.safetensors"}}')
    assert detect_format(folder) == "hf"
    with pytest.raises(UserError, match=r"names the file '\.\./outside\.safetensors', which is not beside"):
        read(folder, ErnieModel)


@pytest.mark.parametrize("parts", [None, [1], {"a": 1}, {"a": None}, "a"])
def test_an_index_without_a_valid_weight_map_raises_a_user_error(parts: object, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text('{"num_hidden_layers": 1}')
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": parts}))
    with pytest.raises(UserError, match=r"index.json: expected a weight_map: which weight is in which file"):
        read(tmp_path, ErnieModel)


def test_bfloat16_in_paddles_files_is_widened(tmp_path: Path) -> None:
    values = np.array([-0.0068, 0.0196, 1.5], np.float32)
    pdparams(tmp_path / "model_state.pdparams", {"w": (values.view(np.uint32) >> 16).astype(np.uint16)})
    np.testing.assert_allclose(read_pdparams(tmp_path / "model_state.pdparams")["w"], values, rtol=0.01)
