"""Which kernels are chosen, and the messages if there are none."""

from __future__ import annotations

import os
import shutil
import warnings
from ctypes import byref, c_double
from pathlib import Path

import numpy as np
import pytest
from support.helpers import python

from ernie.errors import Remark, UserError
from ernie.kernels import build as builder
from ernie.kernels.build import CannotBuild, cached, processor_flags, runnable
from ernie.kernels.cpu import library as module
from ernie.kernels.cpu.library import Library, library, search

VARIANTS = runnable(processor_flags())
REFERENCE = """
import numpy as np, paddle
from ernie.kernels.linear import linear
x = [paddle.ones([2, 3]), paddle.ones([3, 4]), paddle.ones([4])]
print(float(linear(*x).sum()), float(linear(*x).sum()))
"""

needs_kernels = pytest.mark.skipif(library() is None, reason="needs the C++ kernels")


def search_again() -> Library:
    """Search for a library, ignoring the cached result."""
    result = search.__wrapped__()
    assert isinstance(result, Library), result
    return result


@pytest.fixture
def copying_compiler(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and a fast fake compiler that copies a library built before.

    Returns a file: the compiler refuses the flag named in it, like instructions that it does not know.
    """
    for variant in VARIANTS:
        monkeypatch.setenv("ERNIE_KERNELS", variant)
        shutil.copy(search_again().path, tmp_path / f"{variant}.so")
    monkeypatch.delenv("ERNIE_KERNELS")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(module, "SHIPPED", tmp_path / "nothing")
    refused = tmp_path / "refused"
    refused.write_text("none")
    (tmp_path / "version").write_text("copier 1")
    compiler = tmp_path / "c++"
    compiler.write_text(
        "#!/bin/sh\n"
        f'[ "$1" = --version ] && exec cat {tmp_path}/version\n'
        f"echo >> {tmp_path}/calls\n"
        f'case "$*" in *"$(cat {refused})"*) echo "error: what is that?" >&2; exit 1;; esac\n'
        'while [ "$1" != -o ]; do [ "$1" = -shared ] && shared=1; shift; done\n'
        f'case "$2" in *avx512_bf16*) v=avx512_bf16;; *avx512*) v=avx512;; *) v=avx2;; esac\n'
        f'if [ "$shared" ]; then cp {tmp_path}/$v.so "$2"; else : > "$2"; fi\n'
    )
    compiler.chmod(0o755)
    monkeypatch.setenv("CXX", str(compiler))
    return refused


@needs_kernels
@pytest.mark.parametrize("variant", VARIANTS)
def test_a_variant_can_be_requested(variant: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERNIE_KERNELS", variant)
    kernels, total, x = search_again(), c_double(), np.arange(1000, dtype=np.float32)
    kernels.call("squares", x.ctypes.data, x.size, byref(total))
    assert (kernels.variant, kernels.has_bf16) == (variant, variant == "avx512_bf16")
    assert total.value == pytest.approx(float(np.square(x, dtype=np.float64).sum()))


@needs_kernels
def test_the_best_variant_is_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ERNIE_KERNELS", raising=False)
    assert search_again().variant == VARIANTS[0]


def test_requesting_the_reference_prints_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERNIE_KERNELS", "reference")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert library.__wrapped__() is None


def test_an_unknown_variant_is_refused_with_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ERNIE_KERNELS", "avx1024")
    with pytest.raises(UserError, match="ERNIE_KERNELS: 'avx1024' is not one of reference, avx512_bf16, avx512, avx2"):
        library.__wrapped__()


def test_a_variant_that_the_processor_cannot_run_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "processor_flags", lambda: {"avx2", "fma"})
    monkeypatch.setenv("ERNIE_KERNELS", "avx512")
    with pytest.raises(UserError, match="ERNIE_KERNELS: this processor cannot run avx512, only avx2"):
        search.__wrapped__()


def test_a_processor_without_avx2_is_given_as_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "processor_flags", set)
    monkeypatch.delenv("ERNIE_KERNELS", raising=False)
    reason = search.__wrapped__()
    assert isinstance(reason, CannotBuild) and "a processor with AVX2" in str(reason)


@needs_kernels
def test_kernels_are_compiled_at_first_use_with_a_note_and_then_cached(copying_compiler: Path) -> None:
    with pytest.warns(Remark, match=r"compiling the C\+\+ kernels for this processor, once"):
        first = search_again()
    assert first.path == cached(VARIANTS[0])
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert search_again().path == first.path


@needs_kernels
@pytest.mark.parametrize("content", [b"", b"not a library"])
def test_an_invalid_library_is_rebuilt(content: bytes, copying_compiler: Path) -> None:
    path = cached(VARIANTS[0])
    path.parent.mkdir(parents=True)
    path.write_bytes(content)
    with pytest.warns(Remark, match="compiling"):
        assert search_again().path == path
    assert path.read_bytes() != content


@needs_kernels
@pytest.mark.parametrize("size", [1000, -1])
def test_a_truncated_library_is_rebuilt_without_loading_it(size: int, copying_compiler: Path) -> None:
    """Loading it would crash the process, so it is checked in another one."""
    with pytest.warns(Remark, match="compiling"):
        path = search_again().path
    whole = path.read_bytes()
    path.unlink()  # which this process has mapped
    path.write_bytes(whole[:size])
    done = python("-c", "from ernie.kernels.cpu.library import library; print(library().variant)")
    assert (done.returncode, done.stdout.split()) == (0, [VARIANTS[0]]), done.stderr
    assert path.read_bytes() == whole


@needs_kernels
@pytest.mark.parametrize("place", ["file", "folder", "cache"])
def test_a_library_that_others_may_have_written_is_not_loaded(place: str, copying_compiler: Path) -> None:
    with pytest.warns(Remark, match="compiling"):
        path = search_again().path
    open_to_all = {"file": path, "folder": path.parent, "cache": path.parent.parent}[place]
    open_to_all.chmod(0o777)
    before = path.stat().st_mtime_ns
    with pytest.warns(Remark, match="compiling"):
        found = search_again()
    if place == "file":  # replaced by our own
        assert found.path == path and path.stat().st_mtime_ns > before
    else:
        assert found.path.parent.name.startswith("ernie-kernels-") and not found.path.exists()


@needs_kernels
@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files away")
def test_a_library_of_another_user_is_not_loaded(copying_compiler: Path) -> None:
    with pytest.warns(Remark, match="compiling"):
        path = search_again().path
    os.chown(path, 12345, 12345)
    with pytest.warns(Remark, match="compiling"):
        assert search_again().path == path
    assert path.stat().st_uid == os.geteuid()


@needs_kernels
@pytest.mark.parametrize("home", ["/dev/null", "/proc/nothing"])
def test_without_a_cache_the_kernels_are_compiled_for_this_process(
    home: str, copying_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", home)
    with pytest.warns(Remark, match=f"compiled anew by each process, because {home}.* cannot be written"):
        assert not search_again().path.exists()


def test_a_relative_cache_is_ignored(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "cache")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert builder.cache() == tmp_path / ".cache" / "ernie-continual" / "kernels"


def test_what_is_private_is_ours_and_closed_to_others_with_all_folders_above(tmp_path: Path) -> None:
    file = tmp_path / "a" / "b" / "c.so"
    file.parent.mkdir(parents=True)
    file.touch()
    assert builder.is_private(file)
    for opened in (file, file.parent, file.parent.parent):
        mode = opened.stat().st_mode
        opened.chmod(mode | 0o002)
        assert not builder.is_private(file)
        opened.chmod(mode)
    (tmp_path / "open").mkdir()
    (tmp_path / "open").chmod(0o777)
    (tmp_path / "open" / "b").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "open" / "b")
    assert not builder.is_private(tmp_path / "link" / "c.so")
    assert not builder.is_private(Path("c.so"))


@needs_kernels
def test_a_truncated_library_of_the_wheel_is_not_loaded(
    copying_compiler: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "SHIPPED", tmp_path)
    whole = (tmp_path / f"{VARIANTS[0]}.so").read_bytes()
    (tmp_path / f"{VARIANTS[0]}.so").write_bytes(whole[: len(whole) // 2])
    monkeypatch.setattr(module, "_compiled", lambda variant: f"built {variant}")
    monkeypatch.setattr(module, "_tried", lambda found: found)
    assert search.__wrapped__() == f"built {VARIANTS[0]}"


@needs_kernels
def test_a_library_that_lacks_a_function_is_rebuilt(copying_compiler: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.warns(Remark, match="compiling"):
        search_again()
    monkeypatch.setitem(module._SIGNATURES, "of_tomorrow", ())
    with pytest.warns(Remark, match="compiling"):
        reason = search.__wrapped__()
    assert isinstance(reason, CannotBuild) and "cannot be loaded" in str(reason)


@needs_kernels
def test_a_failed_compilation_is_not_repeated_until_the_compiler_changes(
    copying_compiler: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "runnable", lambda flags: ["avx512_bf16", VARIANTS[-1]])
    copying_compiler.write_text("avx512bf16")
    calls = copying_compiler.with_name("calls")
    with pytest.warns(Remark, match=rf"using the {VARIANTS[-1]} kernels, because .*error: what is that"):
        assert search_again().variant == VARIANTS[-1]
    before = calls.read_text()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert search_again().variant == VARIANTS[-1]
    assert calls.read_text() == before
    copying_compiler.with_name("version").write_text("copier 2")
    with pytest.warns(Remark, match="compiling"):
        search_again()
    assert calls.read_text() > before


@needs_kernels
@pytest.mark.skipif(len(VARIANTS) < 2, reason="needs a processor that runs several variants")
def test_an_old_compiler_builds_the_next_best_variant(copying_compiler: Path) -> None:
    best, next_best = (builder.VARIANTS[variant] for variant in VARIANTS[:2])
    copying_compiler.write_text(next(flag for flag in best if flag not in next_best))
    with pytest.warns(Remark, match=rf"using the {VARIANTS[1]} kernels, because .*error: what is that"):
        assert search_again().variant == VARIANTS[1]


def test_without_a_compiler_the_reference_runs_with_one_note(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.delenv("ERNIE_KERNELS", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    done = python("-c", REFERENCE)
    assert (done.returncode, done.stdout) == (0, "32.0 32.0\n"), done.stderr
    assert done.stderr.count("running without the C++ kernels") == 1
    assert "there is no C++ compiler (g++ or clang++). `ernie doctor` says more." in done.stderr or not VARIANTS


@needs_kernels
@pytest.mark.parametrize(("low_in", "low_out"), [(1, 0), (0, 1), (1, 1)])
def test_a_product_in_bf16_is_refused_by_a_build_without_it(
    low_in: int, low_out: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ERNIE_KERNELS", VARIANTS[-1])
    kernels = search_again()
    if kernels.has_bf16:
        pytest.skip("this processor's only variant computes in bfloat16")
    a, y = np.zeros((4, 4), np.float32), np.full((4, 4), 7, np.float32)
    matrix = (a.ctypes.data, 4, 0)
    with pytest.raises(RuntimeError, match="this build computes in float only"):
        kernels.call("product", low_in, 4, 4, 4, *matrix, *matrix, None, y.ctypes.data, low_out, 4, 0, 0)
    assert (y == 7).all()


class WrongLibrary(Library):
    """Kernels whose products are wrong with more threads than `right`."""

    right = 1

    def call(self, name: str, *arguments: object) -> None:
        if name == "try_products" and self.handle.ernie_kernels_max_threads() > self.right:
            raise RuntimeError("kernel try_products: a product of fp32 is wrong by 98 %")
        super().call(name, *arguments)


@needs_kernels
def test_products_that_are_wrong_with_several_threads_are_computed_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, before = search_again(), module.threads()
    monkeypatch.setattr(module, "threads", lambda: 2)
    kernels.handle.ernie_kernels_threads(2)
    try:
        with pytest.warns(Remark, match=r"with 2 threads, .*wrong by 98 %: computing with one thread"):
            module._tried(WrongLibrary(kernels.variant, kernels.path, kernels.handle))
        assert kernels.handle.ernie_kernels_max_threads() == 1
    finally:
        kernels.handle.ernie_kernels_threads(before)


@needs_kernels
def test_kernels_that_are_wrong_with_one_thread_are_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    kernels, before = search_again(), module.threads()
    monkeypatch.setattr(WrongLibrary, "right", 0)
    try:
        with warnings.catch_warnings(), pytest.raises(CannotBuild, match=r"they compute wrongly here .*98 %"):
            warnings.simplefilter("ignore")
            module._tried(WrongLibrary(kernels.variant, kernels.path, kernels.handle))
    finally:
        kernels.handle.ernie_kernels_threads(before)
