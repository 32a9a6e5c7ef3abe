"""Compiling the kernels: at first use, once, also by concurrent processes, and the errors if that fails."""

from __future__ import annotations

import ctypes
import os
import re
import shlex
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from support.helpers import ROOT

from ernie.kernels import build as builder
from ernie.kernels.build import CannotBuild, build, cache, cached, compiler, runnable
from ernie.kernels.cpu.library import library

SOURCE = 'extern "C" __attribute__((visibility("default"))) int answer() { return 42; }\n'
PARALLEL = """
extern "C" __attribute__((visibility("default"))) void fill(int* x, int n) {
#pragma omp parallel for
    for (int i = 0; i < n; i++) x[i] = i;
}
"""
AVX2 = {"avx2", "fma"}
AVX512 = AVX2 | {"avx512f", "avx512bw", "avx512vl", "avx512dq"}

needs_compiler = pytest.mark.skipif(compiler() is None, reason="needs a C++ compiler")


@pytest.fixture
def one_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with one short source instead of the kernels, and an empty cache."""
    folder = tmp_path / "src"
    folder.mkdir()
    (folder / "answer.cpp").write_text(SOURCE)
    monkeypatch.setattr(builder, "SOURCES", folder)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return folder


def program(path: Path, script: str) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("flags", "variants"),
    [
        (set(), []),
        ({"avx2"}, []),
        (AVX2, ["avx2"]),
        (AVX512 - {"avx512vl"}, ["avx2"]),
        (AVX512, ["avx512", "avx2"]),
        (AVX512 | {"avx512_bf16"}, ["avx512", "avx2"]),
        (AVX512 | {"avx512_bf16", "avx512_vnni"}, ["avx512_bf16", "avx512", "avx2"]),
        ({"avx512_bf16"}, []),
    ],
)
def test_a_processor_runs_the_variants_whose_instructions_it_has(flags: set[str], variants: list[str]) -> None:
    assert runnable(flags) == variants


@needs_compiler
def test_a_built_library_runs_and_is_cached_by_its_sources(one_source: Path) -> None:
    path = build("avx2", cached("avx2"))
    assert ctypes.CDLL(str(path)).answer() == 42
    assert path == cached("avx2") and path.is_relative_to(cache())
    assert [entry.name for entry in path.parent.iterdir()] == ["avx2.so"]  # no temporary files are left
    (one_source / "answer.cpp").write_text(SOURCE.replace("42", "43"))
    assert cached("avx2") != path  # different sources, different library


def test_the_variants_have_different_cache_names(one_source: Path) -> None:
    assert len({cached(variant) for variant in builder.VARIANTS}) == len(builder.VARIANTS)


@needs_compiler
def test_of_several_processes_that_build_at_once_one_compiles(
    one_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = (
        "import ctypes, sys, tempfile; from pathlib import Path; from ernie.kernels import build as b; "
        "b.SOURCES = Path(sys.argv[1]); tempfile.mkdtemp(dir=sys.argv[2]); "
        "print(ctypes.CDLL(str(b.build('avx2', b.cached('avx2')))).answer())"
    )
    (started := tmp_path / "started").mkdir()
    all_started = f"while [ $(ls {started} | wc -l) -lt 4 ]; do sleep 0.1; done; sleep 0.5"
    counting = f'echo >> {tmp_path}/calls; {all_started}; exec {shlex.join(compiler() or [])} "$@"'
    monkeypatch.setenv("CXX", str(program(tmp_path / "bin" / "counting", counting)))
    command = [sys.executable, "-c", script, str(one_source), str(started)]
    running = [subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    assert [process.communicate(timeout=60)[0].strip() for process in running] == ["42"] * 4
    assert [entry.name for entry in cached("avx2").parent.iterdir()] == ["avx2.so"]
    assert (tmp_path / "calls").read_text() == "\n\n"  # for the one source, and to link


@needs_compiler
def test_a_killed_build_leaves_no_library(one_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", str(program(tmp_path / "bin" / "killed", "kill -9 $$")))
    with pytest.raises(CannotBuild, match=r"killed could not compile answer.cpp for avx2"):
        build("avx2", cached("avx2"))
    assert not cached("avx2").exists()


def test_a_compile_error_names_the_source_and_the_first_error(
    one_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    script = 'echo "in file" >&2; echo "answer.cpp:1: error: no such thing" >&2; echo "error: more" >&2; exit 1'
    monkeypatch.setenv("CXX", str(program(tmp_path / "bin" / "broken", script)))
    with pytest.raises(CannotBuild, match=r"answer.cpp for avx2: answer.cpp:1: error: no such thing$") as raised:
        build("avx2", cached("avx2"))
    assert "error: more" in raised.value.details and "-mavx2" in raised.value.details


def test_a_missing_compiler_is_named(one_source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "/nowhere/c++")
    with pytest.raises(CannotBuild, match=r"compiler /nowhere/c\+\+ cannot be started"):
        build("avx2", cached("avx2"))


def test_without_a_compiler_the_error_says_so(
    one_source: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(CannotBuild, match=r"there is no C\+\+ compiler"):
        build("avx2", cached("avx2"))


def test_the_compiler_can_be_a_command_of_several_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "ccache g++ -B'/a folder'")
    assert compiler() == ["ccache", "g++", "-B/a folder"]


def test_an_unwritable_cache_is_named_with_a_remedy(
    one_source: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("not a folder")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "file"))
    with pytest.raises(CannotBuild, match=r"file/ernie-continual.* cannot be written .*XDG_CACHE_HOME"):
        build("avx2", cached("avx2"))


@needs_compiler
def test_the_library_does_not_link_its_own_openmp_runtime(one_source: Path) -> None:
    (one_source / "parallel.cpp").write_text(PARALLEL)
    content = build("avx2", cached("avx2")).read_bytes()
    assert b"GOMP_parallel" in content or b"__kmpc_fork_call" in content  # it uses the loaded one
    assert b"libgomp" not in content and b"libomp" not in content


def test_all_that_the_kernels_ask_of_openmp_is_in_the_runtime_of_paddle() -> None:
    """What it lacks would come from another runtime, where each thread is alone and computes all items of a loop."""
    found = library()
    if found is None:
        pytest.skip("there are no kernels here")
    runtime, content = ctypes.CDLL("libiomp5.so"), Path(found.handle._name).read_bytes()
    asked = {name.decode() for name in re.findall(rb"\0(GOMP_\w+)\0", content.replace(b"\0", b"\0\0"))}
    assert "GOMP_parallel" in asked
    assert [name for name in sorted(asked) if not hasattr(runtime, name)] == []


def built_wheel(tmp_path: Path) -> tuple[Path, str]:
    """The wheel of this library, built with the compilers in `bin` and the kernels in `cache`, and what was said."""
    source = tmp_path / "source"
    for name in ("ernie", "tasks", "pretrain", "inference", "finetune", "serving", "configs"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("setup.py", "setup.cfg", "pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source)
    environment = {key: value for key, value in os.environ.items() if key not in ("CXX", "PYTHONPATH")}
    done = subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)],
        cwd=source,
        env={**environment, "PATH": str(tmp_path / "bin"), "XDG_CACHE_HOME": str(tmp_path / "cache")},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (wheel,) = tmp_path.glob("*.whl")
    return wheel, done.stdout + done.stderr


@pytest.mark.parametrize("compilers", ["none", "broken"])
def test_a_wheel_built_without_a_compiler_contains_the_sources(compilers: str, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    if compilers == "broken":
        program(tmp_path / "bin" / "g++", "exit 1")
    wheel, said = built_wheel(tmp_path)
    assert said.count("will be compiled where they are first used") == 1
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith(".so")]
    shipped = {Path(name).name for name in names if name.startswith("ernie/kernels/cpu/src/")}
    assert shipped == {path.name for path in builder.SOURCES.iterdir()}
    assert wheel.name.endswith("-py3-none-any.whl") == (compilers == "none")


@needs_compiler
def test_a_wheel_has_the_kernels_that_were_compiled_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, one_source: Path
) -> None:
    made = build("avx2", tmp_path / "avx2.so").read_bytes()
    monkeypatch.undo()
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    cached("avx2").parent.mkdir(parents=True, mode=0o700)
    cached("avx2").write_bytes(made)
    program(tmp_path / "bin" / "g++", "exit 1")
    wheel, said = built_wheel(tmp_path)
    with zipfile.ZipFile(wheel) as archive:
        assert archive.read("ernie/kernels/cpu/lib/avx2.so") == made
    assert re.search("no avx512 nor avx512_bf16 kernels: .*g.. could not compile", said)
