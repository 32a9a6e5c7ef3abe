"""Every code block in the README and the docs runs (console, python) or builds (yaml).

A command that ends with & runs until the end of its page, and a server listens on a free port instead of 8000.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from configparser import ConfigParser
from contextlib import suppress
from dataclasses import fields
from importlib import import_module
from pathlib import Path

import pytest
import yaml
from support import forked
from support.running import CONFIG, build_corpus, made_up_text
from support.trained import trained

import finetune.config
from ernie import cli
from ernie.config import build, from_dict
from ernie.kernels.build import cache as kernels
from ernie.parallel.layout import ParallelConfig
from pretrain.config import PretrainConfig, load

ROOT = Path(__file__).resolve().parent.parent
PAGES = [*ROOT.glob("*.md"), *(page for folder in ("docs", "benchmarks") for page in (ROOT / folder).rglob("*.md"))]
PAGES = sorted(page for page in PAGES if "records" not in page.parts)
HOWTO = ROOT / "docs" / "howto"
# Pages that a reader goes through one after another, in one folder.
TUTORIALS = [ROOT / "docs" / "tutorial" / f"{name}.md" for name in ("first-model", "pretraining-task")]
FINETUNING = [
    HOWTO / "finetuning" / f"{name}.md"
    for name in ("task", "data", "training", "recipes", "embed", "answers", "suites")
]
FINETUNING.append(HOWTO / "inference.md")
# What the tutorials do on little data here, in place of what they tell their readers.
SMALLER = {
    "raw python numpy scipy sklearn matplotlib huggingface_hub": "raw joblib PIL",
    "stages: [{knowledge_masking: 1500}]": "stages: [{knowledge_masking: 6}]",
    "probe: {every: 500, batches: 12}": "probe: {every: 3, batches: 2}",
    "  epochs: 4\n": "  epochs: 1\n",
    "steps_per_task: 600": "steps_per_task: 8",
    "probe: {batches: 12}": "probe: {batches: 2}",
}
_BLOCK = re.compile(r"^```(\w*)\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_LINK = re.compile(r"\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_NAMED = re.compile(r"# (\S+\.(?:yaml|py))\n")  # a block that begins with a file name is written to that file
_BEHIND = re.compile(r" &$", re.MULTILINE)  # a command in the background
_NOT_RUN = ("text", "ini", "make")  # files of other programs, and make targets that run this very test


def page_name(page: Path) -> str:
    return str(page.relative_to(ROOT))


def blocks(page: Path) -> list[tuple[str, str]]:
    return _BLOCK.findall(page.read_text(encoding="utf-8"))


@pytest.fixture(scope="module")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the pages assume: texts, rows, the examples, tiny configurations under the names of ours, and a run."""
    folder = tmp_path_factory.mktemp("docs")
    (folder / "texts").mkdir()
    made_up_text(folder / "texts" / "stories.txt")
    (folder / "films").mkdir()
    for name in ("train", "dev", "new"):
        (folder / "films" / f"{name}.tsv").write_text("review\tverdict\ngood film\tpraise\ndull film\tblame\n")
    shutil.copytree(ROOT / "examples", folder / "examples")
    built = build_corpus(folder / "texts" / "stories.txt", folder / "made")
    # A file takes precedence over the configuration of that name which comes with the library.
    for name in ("ernie2-en", "quickstart"):
        (folder / name).write_text(CONFIG.format(corpus=built), encoding="utf-8")
    run("ernie pretrain ernie2-en --output runs/quickstart/pretrain --quiet", folder)
    return folder


def run(command: str, folder: Path, installed: bool = False) -> None:
    """Run lines of a shell with the `installed` commands, or with the same in forks, which start at once."""
    bin_folder = Path(sys.executable).parent if installed else quick(folder)
    # A separate cache, so that measurements of the machine are not shared; only the compiled kernels are reused.
    cache = folder / ".cache" / "ernie-continual"
    if not cache.is_dir():
        cache.mkdir(parents=True)
        (cache / "kernels").symlink_to(kernels())
    path = os.pathsep.join([str(bin_folder), str(Path(sys.executable).parent), os.environ["PATH"]])
    forks = {"FORKED_PYTHON": forked.interpreter()}
    environment = {**os.environ, **forks, "PATH": path, "XDG_CACHE_HOME": str(cache.parent)}
    environment.pop("HF_HUB_OFFLINE", None)  # which reading a data set of the hub sets in a process without a network
    done = subprocess.run(["bash", "-e", "-c", command], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"


def quick(folder: Path) -> Path:
    """Return a folder of commands that run `ernie` and programs of Python in forks."""
    made = folder / ".quick"
    if not made.is_dir():
        made.mkdir()
        start, python = shlex.join(forked.python()), shlex.quote(sys.executable)
        (made / "ernie").write_text(f'#!/bin/sh\nexec {start} -m ernie.cli "$@"\n')
        other = f'case "$1" in *.py|-m) exec {start} "$@" ;; *) exec {python} "$@" ;; esac'
        (made / "python").write_text(f"#!/bin/sh\n{other}\n")
        for command in made.iterdir():
            command.chmod(0o755)
    return made


def commands(block: str) -> str:
    """The lines after `$ `; all lines of a block with a here-document."""
    lines = [line.removeprefix("$ ") for line in block.splitlines() if line.startswith("$ ") or "END" in block]
    return "\n".join(lines)


def follow(page: Path, folder: Path, smaller: dict[str, str]) -> None:
    """Do in a folder what a page says, with some texts of its blocks replaced."""
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    smaller = {**smaller, "localhost:8000": f"localhost:{port}", "http.server 8000": f"http.server {port}"}
    smaller |= {"--port 8000": f"--port {port}"}
    try:
        follow_blocks(page, folder, smaller)
    finally:
        behind = folder / "behind.txt"
        for pid in behind.read_text().split() if behind.exists() else ():
            with suppress(ProcessLookupError):
                os.kill(int(pid), signal.SIGKILL)


def follow_blocks(page: Path, folder: Path, smaller: dict[str, str]) -> None:
    for language, block in blocks(page):
        assert language in ("console", "python", "yaml", *_NOT_RUN), f"{page}: what is a '{language}' block?\n{block}"
        for shown, done in smaller.items():
            block = block.replace(shown, done)
        if language == "console":
            block = _BEHIND.sub(" > behind.log 2>&1 & echo $! >> behind.txt", block)
            run(commands(block), folder, installed=page == ROOT / "README.md")
        elif language in ("yaml", "python") and (named := _NAMED.match(block)):
            (folder / named[1]).write_text(block, encoding="utf-8")
        elif language == "python":
            (folder / "block.py").write_text(block, encoding="utf-8")
            run("python block.py", folder)


@pytest.mark.parametrize(
    "page",
    [
        # Measuring the machine for a plan takes a minute or two.
        pytest.param(page, marks=pytest.mark.slow) if page.name in ("parallel.md", "machines.md") else page
        for page in PAGES
        if page not in (*TUTORIALS, *FINETUNING)
    ],
    ids=page_name,
)
def test_blocks_of_a_page_run_in_order(
    page: Path, prepared: Path, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    text = page.read_text(encoding="utf-8")
    if "=runs/films" in text:  # a finished run to serve
        shutil.copytree(request.getfixturevalue("_finished_run") / "done", folder / "runs" / "films")
    for name, kind in (("words", "streaming"), ("numbers", "translate"), ("voice", "synthesize")):
        if f"=runs/{name} " in text and f"--output runs/{name}" not in text:
            trained(kind).model.save(folder / "runs" / name)
    follow(page, folder, {})


def test_blocks_of_the_pages_on_fine_tuning_run_one_after_another(prepared: Path, tmp_path: Path) -> None:
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    for page in FINETUNING:
        follow(page, folder, {})


def test_the_tutorials_lead_from_raw_files_to_models(tmp_path: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in TUTORIALS)
    assert [shown for shown in SMALLER if shown not in text] == []
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    folder = tmp_path / "experiments" / "first-model"
    folder.mkdir(parents=True)
    for page in TUTORIALS:
        follow(page, folder, SMALLER)


def lines_shown(page: Path) -> list[str]:
    """The lines for a shell in the blocks of a page that are not run."""
    found = [line for language, block in blocks(page) if language == "text" for line in block.splitlines()]
    return [line.removeprefix("$ ") for line in found if line.startswith("$ ")]


@pytest.mark.parametrize(
    "page", [page for page in PAGES if any(line.startswith("ernie ") for line in lines_shown(page))], ids=page_name
)
def test_commands_that_are_shown_and_not_run_take_their_arguments(page: Path) -> None:
    known = cli.commands()
    for line in lines_shown(page):
        program, *words = shlex.split(line)
        if program == "ernie":
            length = 2 if " ".join(words[:2]) in known else 1
            name = " ".join(words[:length])
            cli.command_parser(name, import_module(known[name].value)).parse_args(words[length:])


def test_the_commands_of_the_page_on_clusters_run_on_a_cluster_of_this_machine(prepared: Path, tmp_path: Path) -> None:
    pytest.importorskip("ray", reason="ray is not installed: pip install 'ernie-continual[ray]'")
    folder = tmp_path / "reader"
    shutil.copytree(prepared, folder)
    (folder / "corpus.yaml").write_text("{input: [texts], tokenizer: made/tokenizer, held_out: 0.1}", encoding="utf-8")
    lines = "\n".join(lines_shown(HOWTO / "cluster.md"))
    for there, here in {"RAY_ADDRESS=head:6379": "RAY_ADDRESS=local", "s3://bucket/corpus": "corpus"}.items():
        assert there in lines
        lines = lines.replace(there, here)
    run(lines, folder)
    assert (folder / "corpus" / "corpus.json").exists()
    assert list((folder / "runs" / "first" / "checkpoints").iterdir())


def test_the_site_is_built_without_a_warning_and_fetches_nothing(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--quiet", "--site-dir", str(tmp_path)]
    environment = {**os.environ, "NO_MKDOCS_2_WARNING": "1"}
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    pages = {page.relative_to(tmp_path): page.read_text(encoding="utf-8") for page in tmp_path.rglob("*.html")}
    assert len(pages) > len(PAGES) - 2  # the README of the repository is no page of it
    fetched = re.compile(r"<(?:script|img|link)\b[^>]*(?:src|href)=\"?https?:[^>]*>")
    assert [found for text in pages.values() for found in fetched.findall(text)] == []
    assert [page for page, text in pages.items() if re.search(r"<!-- (commands|schema|registered|routes)", text)] == []
    for name in ("pretrain", "predict", "transcribe"):
        assert f'id="ernie-{name}"' in pages[Path("reference/commands.html")]
    assert ">train.lr<" in pages[Path("reference/finetune.html")]
    assert ">knowledge_masking<" in pages[Path("reference/pretraining-tasks.html")]


@pytest.mark.parametrize("page", PAGES, ids=page_name)
def test_links_of_a_page_lead_to_existing_files_and_headings(page: Path) -> None:
    text = re.sub(r"^```.*?^```$", "", page.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    for link in _LINK.findall(text):
        if link.startswith(("https://", "http://")):
            continue
        file, _, heading = link.partition("#")
        target = page.parent / file if file else page
        assert target.exists(), f"{page.name} links to {link}"
        if heading:
            assert heading in map(anchor, _HEADING.findall(target.read_text(encoding="utf-8"))), link


@pytest.mark.parametrize("page", [page for page in PAGES if page.name != "LOG.md"], ids=page_name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    folders = "benchmarks|configs|docs|ernie|examples|finetune|inference|pretrain|serving|tasks|tests"
    named = re.findall(rf"`((?:{folders})/[\w./-]+\.\w+)`", page.read_text(encoding="utf-8"))
    assert [file for file in named if "NAME" not in file and not (ROOT / file).exists()] == []


def anchor(heading: str) -> str:
    """The anchor of a heading: lower case, hyphens for spaces, no punctuation."""
    return re.sub(r"[^\w\- ]", "", heading.strip().lower()).replace(" ", "-")


@pytest.mark.parametrize(
    "page",
    [
        *(HOWTO / f"{name}.md" for name in ("pretraining-tasks", "pretraining", "parallel", "machines")),
        *FINETUNING[:4],
    ],
    ids=page_name,
)
def test_yaml_of_a_page_builds(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    found = [block for language, block in blocks(page) if language == "yaml"]
    assert found
    for block in found:
        if re.search(r"^task:", block, re.MULTILINE):
            (tmp_path / "task.yaml").write_text(block, encoding="utf-8")
            finetune.config.load(tmp_path / "task.yaml")
            continue
        data = {"corpus": "corpus", "schedule": {"stages": [{"knowledge_masking": 1}]}, **yaml.safe_load(block)}
        data.pop("include", None)  # of a file in the folder where the page's commands run
        file = tmp_path / "block.yaml"
        file.write_text(yaml.safe_dump(data), encoding="utf-8")
        load(file)


def test_the_documented_defaults_are_correct() -> None:
    (block,) = [b for language, b in blocks(HOWTO / "pretraining.md") if language == "yaml" and "tensorboard" in b]
    shown = yaml.safe_load(block)
    schedule = shown.pop("schedule")
    # PyYAML reads 5e-5 as text, the library's own reader as a number: build from the library's.
    documented = build(PretrainConfig, from_dict({"corpus": "corpus", "schedule": schedule}))
    for section in ("model", "data", "train", "save", "probe"):
        keys = shown[section]
        default = getattr(documented, section)
        for key, value in keys.items():
            actual = getattr(default, key)
            if isinstance(value, dict):
                for name, inner in value.items():
                    assert (
                        getattr(actual, name) == pytest.approx(float(inner))
                        if _is_number(inner)
                        else getattr(actual, name) == inner
                    )
            else:
                assert actual == value, f"{section}.{key}"


def test_the_documented_layout_is_the_default() -> None:
    (block,) = [b for language, b in blocks(HOWTO / "parallel.md") if language == "yaml" and "timeout" in b]
    shown = yaml.safe_load(block)["parallel"]
    assert list(shown) == [item.name for item in fields(ParallelConfig)]
    assert build(ParallelConfig, from_dict(shown)) == ParallelConfig()


def test_every_extra_is_documented() -> None:
    setup = ConfigParser()
    setup.read(ROOT / "setup.cfg", encoding="utf-8")
    page = (HOWTO / "install.md").read_text(encoding="utf-8")
    for extra in setup["options.extras_require"]:
        if extra not in ("cpu", "gpu", "dev"):
            assert f"`{extra}`" in page


def _is_number(value: object) -> bool:
    try:
        float(value)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return False
    return not isinstance(value, bool)
