"""The folder of a run: the files beside its checkpoints, and whether a configuration may resume from these."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from ernie.atomic import PARTIAL
from ernie.config import read as read_tree
from ernie.config import to_dict
from ernie.data.remote import address_of
from ernie.data.shards import Corpus
from ernie.errors import UserError, check_exists, nearest
from ernie.json_file import read_json
from ernie.parallel.launch import LOGS_FOLDER
from ernie.registry import plugin_sources
from ernie.renames import key_path, renamed
from ernie.train.checkpoint import Checkpoints
from ernie.train.origin import origin
from ernie.train.run_folder import (
    CARD,
    CHECKPOINTS,
    CONFIG,
    LOCK,
    MODEL,
    ORIGIN,
    another_configuration,
    changed_keys,
    locked_folder,
    write_config,
    write_origin,
)
from ernie.train.trackers import TRACKERS
from pretrain.config import PretrainConfig, load_saved
from pretrain.feeds import label_files, training_split
from pretrain.schedule import Schedule

_ORIGIN_KEYS = {
    "corpus": (str,),
    "command": (list,),
    "commit": (str, NoneType),
    "versions": (dict,),
    "machine": (str,),
}
# Keys that affect neither training nor measurement, so that a resumed run may change them.  A corpus is known by its
# fingerprint, wherever it lies.
_PLUGINS, _OWN_PACKAGE = "plugins", "tasks"
_NEVER = ("data.data_shards",)  # a key that no run may change, see Run
_FREE = ("corpus", "output", *TRACKERS, "save", "probe.every", "data.workers", "data.cache_mb", _PLUGINS, "parallel")


@contextmanager
def open_run(
    config: PretrainConfig, corpus: Corpus, folder: Path, may_change: Sequence[str], layout: str
) -> Iterator[None]:
    """Prepare the run's folder for a fresh start or a resume, and lock it against other processes meanwhile.

    `layout` says in words how the run is spread over processes.  If nothing was saved yet, the run starts from scratch.
    `may_change` names the keys (or key prefixes) that may differ.  Raises UserError if the folder holds something else,
    if another process uses it, or if its checkpoints are from another configuration or corpus.
    """
    if not (folder / ORIGIN).exists() and folder.exists() and any(map(_is_foreign, folder.iterdir())):
        damaged = (folder / CONFIG).exists() and (folder / CHECKPOINTS).is_dir()
        what = (
            f"is the folder of a run, but damaged: it has no {ORIGIN}" if damaged else "is not empty and holds no run"
        )
        raise UserError(f"{folder}: {what}; choose another --output")
    with locked_folder(folder, (CHECKPOINTS, MODEL)):
        _prepare(config, corpus, folder, may_change, layout)
        yield


def _is_foreign(path: Path) -> bool:
    """Whether this cannot have been left behind by a run that was killed during its start."""
    return path.name not in (LOCK, LOGS_FOLDER) and path.suffix != PARTIAL


def _prepare(config: PretrainConfig, corpus: Corpus, folder: Path, may_change: Sequence[str], layout: str) -> None:
    saved = Checkpoints(folder / CHECKPOINTS).latest() is not None
    known = set(_keys(to_dict(config))) | (set(_keys(to_dict(read_config(folder)))) if saved else set())
    for key in may_change:
        if key not in known:
            tree = read_tree(None, [f"{key}=null"])
            for rename in renamed(PretrainConfig, tree)[1]:
                raise UserError(f"--allow-change {key}: {key_path(rename.path)} was renamed to {key_path(rename.new)}")
            hint = nearest(key, (name for name in known if name.count(".") <= key.count(".")))
            raise UserError(f"--allow-change {key}: there is no such key in the configuration.{hint}")
    if saved:
        check_same(config, corpus, folder, may_change)
    elif (folder / MODEL).is_dir():
        raise UserError(
            f"{folder}: holds a model, but no checkpoint to resume from; choose another --output, or move the folder "
            "away to start from scratch"
        )
    corpus.verify()
    if saved:
        return
    record = {
        "corpus": corpus.fingerprint,
        **_training_data(config, corpus),
        "layout": layout,
    }
    # The origin first: it marks the folder as that of a run, whenever this process is killed.
    write_origin(folder, {**record, **origin(), "resumed": []})
    write_config(folder, config)


def _keys(tree: Any, path: str = "") -> Iterator[str]:
    """Yield the paths of all keys of a nested dict, including those of inner dicts."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield path + key
        yield from _keys(value, f"{path}{key}.")


def record_resume(config: PretrainConfig, corpus: Corpus, folder: Path, layout: str, step: int) -> Path | None:
    """Record that a run is resumed: its configuration, the origin of the resume, and the keys that changed.

    `step` is the number of steps that were done before.  `layout` says in words how the run is spread over processes.
    If the run was finished and its schedule has been extended, its encoder and card are outdated: they are moved aside,
    into the folder that is returned.
    """
    before = read_config(folder)
    aside = _move_model_aside(folder, len(Schedule(before.schedule)))  # before its schedule is overwritten
    changed = sorted(_changed_keys(config, folder, ()))
    record = read_origin(folder)
    if _changed_plugins(config, record):
        changed.append(_PLUGINS)
    files = record.get("files", {})
    record |= _training_data(config, corpus)
    record["files"] |= files  # including those of tasks that were dropped
    write_config(folder, config)
    record["resumed"] = [*record.get("resumed", []), {**origin(), "changed": changed, "layout": layout, "step": step}]
    write_origin(folder, record)
    return aside


def _move_model_aside(folder: Path, steps: int) -> Path | None:
    if not (folder / MODEL).is_dir():
        return None
    aside = folder / f"{MODEL}-step-{steps:08d}"
    shutil.rmtree(aside, ignore_errors=True)
    (folder / MODEL).rename(aside)
    if (folder / CARD).is_file():
        (folder / CARD).rename(aside / CARD)
    return aside


def first_changed_step(config: PretrainConfig, folder: Path, steps: int) -> int | None:
    """Return the first of a run's `steps` completed steps, from 0, for which the schedule now draws other tasks, if
    any."""
    before, now = (Schedule(each.schedule, each.train.micro_batches) for each in (read_config(folder), config))
    if before.digest() == now.digest():
        return None
    common = range(min(steps, len(before), len(now)))
    return next((step for step in common if before[step].draws != now[step].draws), None)


def read(folder: Path, corpus_folder: Path | None = None) -> tuple[PretrainConfig, Corpus]:
    """Return the configuration and the corpus of an existing run.

    `corpus_folder` is where the corpus lies now, if it was moved; it is recognized by its fingerprint.  Raises
    UserError if the folder is not a run's, or the corpus is not that of the run.
    """
    config = read_config(folder)
    if corpus_folder is not None:
        config = replace(config, corpus=corpus_folder)
    elif address_of(config.corpus) is None and not config.corpus.exists():
        relative = " Relative paths of a run begin in the folder where it was started: give the command there." * (
            not config.corpus.is_absolute()
        )
        raise UserError(
            f"{config.corpus}: the corpus of the run in {folder} is not there.{relative} If it was moved, put a link "
            "to it there; `ernie verify`, `ernie replay` and `ernie scaling` can be told where it is: --corpus DIR"
        )
    corpus = Corpus.open(config.corpus, config.data.cache_mb)
    _check_unchanged(config, corpus, folder)
    return config, corpus


def _check_unchanged(config: PretrainConfig, corpus: Corpus, folder: Path) -> None:
    """Raise UserError unless a run was trained on this very corpus and these very files of labels."""
    record = read_origin(folder)
    if not corpus.is_known_as(record["corpus"]):
        raise UserError(
            f"{config.corpus}: is not the corpus that the run in {folder} was trained on: another one, or rebuilt "
            "since; choose another --output"
        )
    found, known = label_files(config), record.get("files", {})
    for file, checksum in found.items():
        if known.get(file, checksum) != checksum:
            raise UserError(
                f"{file}: was changed since the run in {folder} began, and its rows would now come in another order; "
                "restore it, or choose another --output"
            )


def read_config(folder: Path, code: bool = True) -> PretrainConfig:
    """Return the configuration of an existing run; see `load_saved`.  Raises UserError if the folder is not a run's."""
    check_exists(folder)
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: is not the folder of a run: it holds no {CONFIG}")
    config = load_saved(folder / CONFIG, code)
    # A run is saved with all keys; one from before `data.shuffle_buffer_tokens` existed mixed no more than it had to.
    written = renamed(PretrainConfig, read_tree(folder / CONFIG))[0].get("data") or {}
    return (
        config
        if "shuffle_buffer_tokens" in written
        else replace(config, data=replace(config.data, shuffle_buffer_tokens=0))
    )


def read_origin(folder: Path) -> dict[str, Any]:
    """Return the origin of a run: the corpus's fingerprint, and what `ernie.train.origin` records."""
    remedy = f"Is {folder} the folder of a run? Then it is damaged."
    record = read_json(folder / ORIGIN, _ORIGIN_KEYS, remedy)
    resumed = record.get("resumed", [])
    if not isinstance(resumed, list) or not all(isinstance(start, dict) and "changed" in start for start in resumed):
        raise UserError(f"{folder / ORIGIN}: resumed: expected a list of objects with the key changed. {remedy}")
    for place, part in [("", record), *((f"resumed[{number}].", start) for number, start in enumerate(resumed))]:
        if wrong := _wrong_key(part):
            raise UserError(f"{folder / ORIGIN}: {place}{wrong}: is missing or holds something else. {remedy}")
    return record


def _wrong_key(record: Mapping[str, Any]) -> str:
    """Return the first key of an origin, or of a resume, with values that no run writes; "" if there is none."""
    for key, kind in (("versions", str), ("files", str), ("plugins", str)):
        found = record.get(key, {})
        if not isinstance(found, dict) or not all(isinstance(value, kind) for value in found.values()):
            return key
    for key in ("command", "changed"):
        if not isinstance(found := record.get(key, []), list) or not all(isinstance(word, str) for word in found):
            return key
    if type(record.get("step", 0)) is not int:
        return "step"
    if not isinstance(record.get("layout", ""), str):
        return "layout"
    if record.get("command") is None and record.get("changed", True):  # that of a resume is shown if keys changed
        return "command"
    data = record.get("data")
    if data is None:
        return ""
    counts = ("documents", "sentences", "tokens", "held_out", "sources")
    known = isinstance(data, dict) and isinstance(data.get("language"), str)
    return "" if known and all(type(data.get(key)) is int for key in counts) else "data"


def _training_data(config: PretrainConfig, corpus: Corpus) -> dict[str, Any]:
    """Describe what a run trains on, besides the corpus's fingerprint."""
    return {"files": label_files(config), "plugins": _plugin_digests(config), "data": _counts(config, corpus)}


def _plugin_digests(config: PretrainConfig) -> dict[str, str]:
    """Return the SHA-256 of the source of each plug-in: the listed modules, and those of tasks from entry points."""
    used = {type(task).__module__ for task in config.tasks.values()}
    listed = (*config.plugins, _OWN_PACKAGE)
    more = [name for name in sorted(used) if not any(f"{name}.".startswith(f"{package}.") for package in listed)]
    return plugin_sources([*config.plugins, *more])


def _counts(config: PretrainConfig, corpus: Corpus) -> dict[str, Any]:
    """Return the amounts of training data, for people; the fingerprint identifies the data."""
    split = training_split(config, corpus)
    return {
        "language": corpus.language,
        "documents": len(split),
        "sentences": split.sentences,
        "tokens": split.tokens,
        "held_out": len(corpus.held_out),
        "sources": len(corpus.train.sources),
    }


def _changed_keys(config: PretrainConfig, folder: Path, may_change: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """Return the keys that differ from the configuration of a run, each with its old and new value."""
    return changed_keys(read_config(folder), config, (*_FREE, *may_change))


def check_same(config: PretrainConfig, corpus: Corpus, folder: Path, may_change: Sequence[str] | None = ()) -> None:
    """Raise UserError unless a run has this configuration, except for the keys that `may_change`, and this corpus.

    With None for `may_change` no key may differ, and the message does not offer to allow it.
    """
    _check_unchanged(config, corpus, folder)
    offered = may_change is not None
    may_change = may_change or ()
    if changed := _changed_keys(config, folder, may_change):
        flags = " ".join(f"--allow-change {key}" for key in changed if key not in _NEVER)
        raise UserError(
            f"{another_configuration(folder, changed)}Choose another --output"
            + (f", or name the keys that may differ: {flags}" if offered and flags else "")
        )
    if _PLUGINS not in may_change and (others := _changed_plugins(config, read_origin(folder))):
        raise UserError(
            f"plugins: the code of {', '.join(others)} was changed since the run in {folder} began, so that it "
            "would go on training with other code; restore it, or choose another --output"
            + (f", or resume with --allow-change {_PLUGINS}" if offered else "")
        )


def _changed_plugins(config: PretrainConfig, record: Mapping[str, Any]) -> list[str]:
    """Return the plug-ins whose code has changed since the run was last started."""
    known = record.get("plugins", {})  # by name; a run from before they were recorded has none
    return [name for name, digest in _plugin_digests(config).items() if known.get(name, digest) != digest]
