"""Compiles the kernels into a wheel; everything else about the distribution stands in setup.cfg.

Without a C++ compiler the wheel is built all the same: the kernels are then compiled at first use, as they are in an
editable install.
"""

from __future__ import annotations

import importlib.util
import os
import shutil
from pathlib import Path

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

ROOT = Path(__file__).resolve().parent

# By its path: importing the package would import Paddle, which is not there while a wheel is built.
spec = importlib.util.spec_from_file_location("build", ROOT / "ernie" / "kernels" / "build.py")
assert spec is not None and spec.loader is not None
kernels = importlib.util.module_from_spec(spec)
spec.loader.exec_module(kernels)


class WithKernels(Distribution):
    """A distribution for one platform wherever it can hold compiled code."""

    def has_ext_modules(self) -> bool:
        try:
            return kernels.compiler() is not None
        except kernels.CannotBuild:  # of CXX, which is told as the kernels are built
            return False


class BuildWithKernels(build_py):
    """Copies the packages, and compiles the kernels beside their sources."""

    def run(self) -> None:
        super().run()
        if self.editable_mode:
            return
        # Absolute, since only then can it be seen who may write to the folders above it.
        folder = Path(self.build_lib).absolute() / kernels.SHIPPED.relative_to(ROOT)
        shutil.rmtree(folder, ignore_errors=True)
        reasons = {}
        # The best one last: a program that starts now compiles it first.
        for variant in reversed(kernels.VARIANTS):
            try:
                self.take(variant, folder / f"{variant}.so")
            except kernels.CannotBuild as error:
                reasons[variant] = str(error)
        if reasons:
            reason = next(iter(reasons.values()))
            self.warn(f"no {' nor '.join(reasons)} kernels: {reason}. They will be compiled where they are first used.")

    def take(self, variant: str, path: Path) -> None:
        """Copy a library that was compiled here of the same sources with the same flags, or else compile it.

        A compiler that is named by CXX compiles always.
        """
        cached = kernels.cached(variant)
        known = kernels.compiler() is not None and "CXX" not in os.environ
        if known and kernels.is_private(cached) and kernels.is_whole(cached):
            self.mkpath(str(path.parent))
            shutil.copyfile(cached, path)
        else:
            kernels.build(variant, path)


class AnyPython(bdist_wheel):
    """The kernels are called through ctypes: compiled for a platform, but for no version of Python."""

    def get_tag(self) -> tuple[str, str, str]:
        python, abi, platform = super().get_tag()
        return (python, abi, platform) if self.root_is_pure else (self.python_tag, "none", platform)


setup(distclass=WithKernels, cmdclass={"build_py": BuildWithKernels, "bdist_wheel": AnyPython})
