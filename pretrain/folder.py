"""The folder of a run: what is written beside the checkpoints, and whether a configuration may go on from them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import NoneType
from typing import Any

from ernie.beside import PARTIAL, put_text
from ernie.config import differences, dump, to_dict
from ernie.config import read as read_tree
from ernie.data.shards import Corpus
from ernie.errors import UserError, check_there, nearest
from ernie.registry import plugin_sources
from ernie.saved import read_json
from ernie.train.alone import LOCK, alone
from ernie.train.checkpoint import Checkpoints
from ernie.train.origin import origin
from pretrain.config import PretrainConfig, load
from pretrain.feeds import label_files, learnt
from pretrain.schedule import Schedule

CONFIG, ORIGIN, CHECKPOINTS, MODEL, CARD = "config.yaml", "origin.json", "checkpoints", "model", "README.md"
_ORIGIN_KEYS = {
    "corpus": (str,),
    "command": (list,),
    "commit": (str, NoneType),
    "versions": (dict,),
    "machine": (str,),
}
# Keys that change nothing of what is learnt, nor of how it is measured: a resumed run may have others.
_PLUGINS, _OURS = "plugins", "tasks"
_FREE = ("output", "tensorboard", "save", "probe.every", "data.workers", _PLUGINS, "parallel")


@contextmanager
def opened(
    config: PretrainConfig, corpus: Corpus, folder: Path, may_change: Sequence[str], layout: str
) -> Iterator[None]:
    """The run's folder, made ready for a fresh start or to go on, and kept from other processes meanwhile.

    `layout` says in words how the run is spread over processes.  Where nothing was saved yet, a run begins anew.
    Raises UserError when the folder holds something else, when another process is at work on it, or when it has saved
    something under another configuration or of another corpus; `may_change` names the keys (or key prefixes) that may
    differ.
    """
    if not (folder / ORIGIN).exists() and folder.exists() and any(map(_is_foreign, folder.iterdir())):
        raise UserError(f"{folder}: is not empty and holds no run; choose another --output")
    folder.mkdir(parents=True, exist_ok=True)
    with alone(folder):
        _prepare(config, corpus, folder, may_change, layout)
        yield


def _is_foreign(path: Path) -> bool:
    """Whether a run that was killed while it began would not have left this behind."""
    return path.name != LOCK and path.suffix != PARTIAL


def _prepare(config: PretrainConfig, corpus: Corpus, folder: Path, may_change: Sequence[str], layout: str) -> None:
    saved = Checkpoints(folder / CHECKPOINTS).latest() is not None
    known = set(_keys(to_dict(config))) | (set(_keys(to_dict(read_config(folder)))) if saved else set())
    for key in may_change:
        if key not in known:
            hint = nearest(key, (name for name in known if name.count(".") <= key.count(".")))
            raise UserError(f"--allow-change {key}: there is no such key in the configuration.{hint}")
    if saved:
        check_same(config, corpus, folder, may_change)
    elif (folder / MODEL).is_dir():
        raise UserError(
            f"{folder}: holds a model, but no checkpoint to go on from; choose another --output, or move the folder "
            "away to begin anew"
        )
    corpus.verify()
    if saved:
        return
    made = {
        "corpus": corpus.fingerprint,
        **_learns_from(config, corpus),
        "layout": layout,
    }
    # The origin first: by it the folder is known as that of a run, whenever this is killed.
    put_text(folder / ORIGIN, json.dumps({**made, **origin(), "resumed": []}, indent=2) + "\n")
    put_text(folder / CONFIG, dump(config))


def _keys(tree: Any, path: str = "") -> Iterator[str]:
    """The paths of all keys of a plain tree, those of mappings too."""
    for key, value in tree.items() if isinstance(tree, dict) else ():
        yield path + key
        yield from _keys(value, f"{path}{key}.")


def resumed(config: PretrainConfig, corpus: Corpus, folder: Path, layout: str) -> Path | None:
    """Write down that a run goes on, under which configuration, by what, and which keys are others now.

    `layout` says in words how it is spread over processes.  Of a run that was done, and whose schedule has become
    longer, encoder and card are not those of the run any more: they are put aside, into the folder that is returned.
    """
    before = read_config(folder)
    changed = sorted(_changed(config, folder, ()))
    made = read_origin(folder)
    if _other_plugins(config, made):
        changed.append(_PLUGINS)
    files = made.get("files", {})
    made |= _learns_from(config, corpus)
    made["files"] |= files  # also of tasks that were dropped
    put_text(folder / CONFIG, dump(config))
    made["resumed"] = [*made.get("resumed", []), {**origin(), "changed": changed, "layout": layout}]
    put_text(folder / ORIGIN, json.dumps(made, indent=2) + "\n")
    return _put_aside(folder, len(Schedule(before.schedule)))


def _put_aside(folder: Path, steps: int) -> Path | None:
    if not (folder / MODEL).is_dir():
        return None
    aside = folder / f"{MODEL}-step-{steps:08d}"
    shutil.rmtree(aside, ignore_errors=True)
    (folder / MODEL).rename(aside)
    if (folder / CARD).is_file():
        (folder / CARD).rename(aside / CARD)
    return aside


def drawn_otherwise(config: PretrainConfig, folder: Path, steps: int) -> int | None:
    """The first of the `steps` that a run has done, from 0, for which the schedule draws other tasks by now; None if
    there is none."""
    before, now = (Schedule(given.schedule, given.train.micro_batches) for given in (read_config(folder), config))
    if before.digest() == now.digest():
        return None
    both = range(min(steps, len(before), len(now)))
    return next((step for step in both if before[step].draws != now[step].draws), None)


def read(folder: Path) -> tuple[PretrainConfig, Corpus]:
    """The configuration and the corpus of an existing run.  Raises UserError when the folder is none."""
    config = read_config(folder)
    corpus = Corpus.open(config.corpus)
    _check_unchanged(config, corpus, folder)
    return config, corpus


def _check_unchanged(config: PretrainConfig, corpus: Corpus, folder: Path) -> None:
    """Raise UserError unless a run has learnt from this very corpus and these very files of labels."""
    made = read_origin(folder)
    if corpus.fingerprint != made["corpus"]:
        raise UserError(
            f"{config.corpus}: is not the corpus that the run in {folder} learnt from, it was rebuilt since; "
            "choose another --output"
        )
    found, known = label_files(config), made.get("files", {})
    for file, checksum in found.items():
        if known.get(file, checksum) != checksum:
            raise UserError(
                f"{file}: was changed since the run in {folder} began, which learns its rows in another order now; "
                "put it back, or choose another --output"
            )


def read_config(folder: Path) -> PretrainConfig:
    """The configuration of an existing run.  Raises UserError when the folder is none."""
    check_there(folder)
    if not (folder / CONFIG).is_file():
        raise UserError(f"{folder}: is not the folder of a run: it holds no {CONFIG}")
    config = load(folder / CONFIG)
    # A run is written with all keys; one from before there was this key mixed no more than it had to.
    written = read_tree(folder / CONFIG).get("data") or {}
    return config if "mixed" in written else replace(config, data=replace(config.data, mixed=0))


def read_origin(folder: Path) -> dict[str, Any]:
    """What the run was made with: the corpus's fingerprint, and what `ernie.train.origin` tells."""
    return read_json(folder / ORIGIN, _ORIGIN_KEYS, f"Is {folder} the folder of a run? Then it is damaged.")


def _learns_from(config: PretrainConfig, corpus: Corpus) -> dict[str, Any]:
    """What a run learns from, besides which corpus it is."""
    return {"files": label_files(config), "plugins": _code(config), "data": _counts(config, corpus)}


def _code(config: PretrainConfig) -> dict[str, str]:
    """The SHA-256 of the source of each plug-in: the modules that are listed, and those of tasks that came by an entry
    point."""
    brought = {type(task).__module__ for task in config.objectives.values()}
    listed = (*config.plugins, _OURS)
    more = [name for name in sorted(brought) if not any(f"{name}.".startswith(f"{package}.") for package in listed)]
    return plugin_sources([*config.plugins, *more])


def _counts(config: PretrainConfig, corpus: Corpus) -> dict[str, Any]:
    """How much of what the run learns from, for people; the fingerprint says which."""
    split = learnt(config, corpus)
    return {
        "language": corpus.language,
        "documents": len(split),
        "sentences": split.sentences,
        "tokens": split.tokens,
        "held_out": len(corpus.held_out),
        "sources": len(corpus.train.sources),
    }


def _changed(config: PretrainConfig, folder: Path, may_change: Sequence[str]) -> dict[str, tuple[Any, Any]]:
    """What is another than in the configuration of a run, by key: before and now."""
    return {
        key: values
        for key, values in differences(to_dict(read_config(folder)), to_dict(config)).items()
        if not any(key == free or key.startswith(f"{free}.") for free in (*_FREE, *may_change))
    }


def check_same(config: PretrainConfig, corpus: Corpus, folder: Path, may_change: Sequence[str] | None = ()) -> None:
    """Raise UserError unless a run has this configuration, but for the keys that `may_change`, and this corpus.

    None for `may_change` means that no key may, whatever is asked for: the message does not offer it.
    """
    offered = may_change is not None
    may_change = may_change or ()
    if changed := _changed(config, folder, may_change):
        lines = "\n".join(f"  {key}: was {old}, is {new}" for key, (old, new) in changed.items())
        flags = " ".join(f"--allow-change {key}" for key in changed)
        raise UserError(
            f"{folder}: holds a run of another configuration:\n{lines}\nChoose another --output"
            + (f", or name the keys that may differ: {flags}" if offered else "")
        )
    if _PLUGINS not in may_change and (others := _other_plugins(config, read_origin(folder))):
        raise UserError(
            f"plugins: the code of {', '.join(others)} was changed since the run in {folder} began, so that what it "
            "has learnt and what it would learn are not the same; put it back, or choose another --output"
            + (f", or go on with --allow-change {_PLUGINS}" if offered else "")
        )
    _check_unchanged(config, corpus, folder)


def _other_plugins(config: PretrainConfig, made: Mapping[str, Any]) -> list[str]:
    """The plug-ins whose code is another than when the run last began."""
    known = made.get("plugins", {})  # by name; a run from before they were written down has none
    return [name for name, digest in _code(config).items() if known.get(name, digest) != digest]
