"""Build the wheel, install it into a separate environment outside the checkout, and use it there.

Not a pytest test: run by `make test`.  The dependencies come from the current environment, so that Paddle's 200 MB are
not downloaded again; the library itself comes from the wheel.
"""

from __future__ import annotations

import json
import os
import pydoc_data.topics
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import venv
import zipfile
from pathlib import Path

from ernie.kernels.build import SHIPPED, VARIANTS, cached, is_private

ROOT = Path(__file__).resolve().parent.parent
CONFIG = """
corpus: corpus
schedule:
  stages: [{knowledge_masking: 2}, {knowledge_masking: 1, sentence_distance: 2}]
model: {preset: tiny, hidden_size: 32, intermediate_size: 64, layers: 1}
data: {max_len: 32, micro_batch_tokens: 256}
probe: {batches: 1}
"""
PYTHON = """
import sys
import ernie, tasks, pretrain, inference, finetune, serving
from ernie import ErnieModel
packages = ernie, tasks, pretrain, inference, finetune, serving
assert all('site-packages' in module.__file__ for module in packages), ernie.__file__
print(ErnieModel.from_pretrained('run').config)

import finetune.config, pretrain.config
from ernie.builtin_configs import configs
assert not configs().is_relative_to(sys.argv[1]), configs()
print(finetune.config.load('glue/sst2').train, pretrain.config.load('ernie2-en').train)
"""
KERNELS = """
from ernie.kernels.build import SHIPPED, VARIANTS
from ernie.kernels.cpu.library import library
assert 'site-packages' in str(SHIPPED) and library().path.parent == SHIPPED, library()
assert sorted(path.stem for path in SHIPPED.iterdir()) == sorted(VARIANTS), list(SHIPPED.iterdir())
"""


def main() -> None:
    """Exit with a message when anything fails."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        wheel = build(folder)
        keep_kernels(wheel)
        python = install(wheel, folder)
        use(python, folder)
    print("the built wheel was installed in a folder of its own, and trains")


def build(folder: Path) -> Path:
    """Build the wheel from a copy of the files that git tracks or does not ignore."""
    listed = run(["git", "ls-files", "-co", "--exclude-standard"], ROOT) if (ROOT / ".git").exists() else None
    names = listed.splitlines() if listed else [str(path.relative_to(ROOT)) for path in ROOT.rglob("*")]
    for name in names:
        if (ROOT / name).is_file():
            target = folder / "source" / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target)
    run([sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(folder)], folder / "source")
    (wheel,) = folder.glob("*.whl")
    return wheel


def keep_kernels(wheel: Path) -> None:
    """Leave the compiled kernels where the tests look for them, which would compile the same sources once more."""
    with zipfile.ZipFile(wheel) as archive:
        for variant in VARIANTS:
            name, target = f"{SHIPPED.relative_to(ROOT)}/{variant}.so", cached(variant)
            if name in archive.namelist() and not target.exists() and is_private(target.parent):
                target.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
                partial = target.with_suffix(f".{os.getpid()}")
                partial.write_bytes(archive.read(name))
                partial.replace(target)


def install(wheel: Path, folder: Path) -> Path:
    """Create a Python that has the wheel and falls back to this environment's packages."""
    venv.create(folder / "venv")
    python = folder / "venv" / "bin" / "python"
    pip = [sys.executable, "-m", "pip", "--python", str(python)]
    run([*pip, "install", "--quiet", "--no-deps", "--disable-pip-version-check", str(wheel)], folder)
    site_packages = run([str(python), "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"], folder).strip()
    # A plain line adds the folder without reading its .pth files, such as that of the checkout's editable install.
    (Path(site_packages) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    return python


def use(python: Path, folder: Path) -> None:
    """Go from text to an encoder in Python, in an empty folder."""
    work = folder / "work"
    work.mkdir()
    with (work / "topics.jsonl").open("w", encoding="utf-8") as file:
        for name, topic in sorted(pydoc_data.topics.topics.items()):
            file.write(json.dumps({"title": name, "text": topic}) + "\n")
    (work / "run.yaml").write_text(CONFIG, encoding="utf-8")
    ernie = [str(python.with_name("ernie"))]
    for command in (
        ["--help"],
        ["--version"],
        ["tasks"],
        ["tokenizer", "train", "--input", "topics.jsonl", "--output", "tokenizer", "--vocab-size", "800"],
        [
            "data",
            "build",
            "--input",
            "topics.jsonl",
            "--tokenizer",
            "tokenizer",
            "--output",
            "corpus",
            "--set",
            "held_out=0.1",
        ],
        ["pretrain", "run.yaml", "--output", "run"],
        ["verify", "run"],
        ["report", "run"],
    ):
        run(ernie + command, work)
    run([str(python), "-c", PYTHON + (KERNELS if shutil.which("g++") else ""), str(ROOT)], work)
    run([*ernie, "doctor"], work)


def run(command: list[str], folder: Path) -> str:
    """Return the command's standard output; exit with its whole output when it fails."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "PYTHONHOME")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}: exit status {done.returncode}\n{done.stdout}\n{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    main()
