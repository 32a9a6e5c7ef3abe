"""A suite of benchmarks: a folder of configurations, each task of it run where its data is on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ernie.config import dump, read
from ernie.data.labelled.read import is_there, read_rows
from ernie.errors import UserError, nearest
from ernie.kernels.precision import computing
from ernie.saved import read_json
from ernie.shipped import configs
from finetune.config import DataConfig, FinetuneConfig, load
from finetune.folder import CONFIG_FILE, encoder_fingerprint, inputs_of, read_inputs
from finetune.prepare import NEEDED, read_splits
from finetune.run import read_encoder, run
from finetune.trial import SCORES_FILE

_NOT_ASKED_FOR = "not asked for"


@dataclass(frozen=True)
class Outcome:
    """What came of one task: its scores as in scores.json, or why there are none.

    `failed` says that it was begun; otherwise a task without scores has no data here, or was not asked for.  `notes`
    are splits that were left out.
    """

    name: str
    config: FinetuneConfig
    scores: dict[str, Any] | None = None
    reason: str = ""
    failed: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """The tasks of a folder by name, in the order of their names; `chosen` are those to be run."""

    name: str
    configs: dict[str, FinetuneConfig] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, chosen: Sequence[str] = (), overrides: Sequence[str] = ()) -> Suite:
        """Read the suite in a folder, or the one of that name that comes with the library.

        A file without `task` is what others include.  Raises UserError for a suite that is not there, a task that it
        has not, and all mistakes of its files.
        """
        folder = _folder(name)
        files = {file.stem: file for file in sorted(folder.glob("*.yaml")) if read(file).get("task")}
        for task in chosen:
            if task not in files:
                raise UserError(f"--tasks: {name} has no task '{task}'.{nearest(task, files)}")
        return cls(folder.name, {task: load(file, overrides) for task, file in files.items()}, tuple(chosen or files))


def _folder(name: str) -> Path:
    """A folder with configurations: one on the disk before one that comes with the library."""
    shipped = configs()
    places = [Path(name), *([shipped / "finetune" / name] if shipped else [])]
    for place in places:
        if place.is_dir() and any(place.glob("*.yaml")):
            return place
    known = [place.name for place in sorted((shipped / "finetune").iterdir()) if place.is_dir()] if shipped else []
    raise UserError(f"{name}: there is no folder of configurations, and no suite, of that name.{nearest(name, known)}")


def run_suite(
    suite: Suite,
    model: str,
    output: Path,
    data: Path | None,
    seeds: int | None,
    say: Callable[[str], None],
    quiet: bool = False,
) -> Iterator[Outcome]:
    """Run the chosen tasks one after the other, each in a folder of its name; a finished one is not run again.

    Those that are not chosen have an outcome too: their scores, where they were finished before.

    A task that fails says so in its outcome and the others go on.  Raises UserError when there is no such model.
    """
    encoder = encoder_fingerprint(read_encoder(model))
    for name, given in suite.configs.items():
        config = replace(given, model=model, seeds=seeds or given.seeds, output=output / name)
        tell = say if name in suite.chosen else _say_nothing
        tell(f"--- {name}")
        try:
            found, notes = present(config, data)
        except UserError as error:
            tell(f"is not here: {error}")
            yield Outcome(name, config, reason=str(error) if name in suite.chosen else _NOT_ASKED_FOR)
            continue
        config = replace(config, data=found)
        scores = _finished(config, encoder, output / name)
        if scores is not None:
            tell("was done before")
            yield Outcome(name, config, scores, notes=notes)
            continue
        if name not in suite.chosen:
            yield Outcome(name, config, reason=_NOT_ASKED_FOR)
            continue
        try:
            with computing(config.train.precision, config.train.amp_level):
                result = run(config, output / name, say, quiet)
            yield Outcome(name, config, result.as_dict(), notes=notes)
        except UserError as error:
            say(f"failed: {error}")
            yield Outcome(name, config, reason=str(error), failed=True)


def _say_nothing(_: str) -> None:
    pass


def present(config: FinetuneConfig, data: Path | None) -> tuple[DataConfig, tuple[str, ...]]:
    """Where the task's rows are: in the files under `data`, or else where the key `data` says.

    Returns it with a sentence for each further split that is not there and is left out.  Raises UserError when there
    is nothing to learn from, or nothing to judge by.
    """
    places = [] if data is None else [(config.local or config.data).under(data)]
    if data is None or config.local is not None:
        places.append(config.data)
    reasons: list[str] = []
    for place in places:
        splits = place.splits()
        if not all(name in splits for name in NEEDED):
            continue
        lacking = next((reason for name in NEEDED if (reason := _missing(place, name))), "")
        if lacking:
            reasons.append(lacking)
            continue
        missing = {name: reason for name in splits if (reason := _missing(place, name))}
        kept = {name: sources for name, sources in splits.items() if name not in missing}
        return place.with_splits(kept), tuple(f"{name}: {reason}" for name, reason in missing.items())
    if not config.data.splits() and data is None:
        reasons.append("its data is not on the hub; give the folder with its files as --data")
    raise UserError("; ".join(reasons) or "its configuration names no data for train and dev")


def _missing(data: DataConfig, split: str) -> str:
    """Why a split cannot be read, or nothing."""
    for source in data.splits()[split]:
        if not source.startswith("hf:"):
            if not is_there(source):
                return f"there is no {source}"
            continue
        try:
            next(iter(read_rows(source, data.options(split))), None)
        except UserError as error:
            return str(error).splitlines()[0].partition(". Check")[0]
    return ""


def _finished(config: FinetuneConfig, encoder: str, folder: Path) -> dict[str, Any] | None:
    """The scores of a complete run of this very encoder, on these very rows, under this very configuration, or None."""
    written, file = folder / CONFIG_FILE, folder / SCORES_FILE
    if not file.is_file() or not written.is_file() or written.read_text(encoding="utf-8") != dump(config):
        return None
    try:
        scores = read_json(file, {"trials": (list,)}, "")
        if read_inputs(folder) != inputs_of(encoder, read_splits(config.data), config):
            return None
    except UserError:  # written by something else, or not to its end
        return None
    return scores if len(scores["trials"]) == len(list(config.trials())) * config.seeds else None
