"""A benchmark suite: a folder of configurations, whose tasks run if their data is on this machine."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ernie.builtin_configs import configs
from ernie.config import dump, read
from ernie.data.labeled.read import is_there, read_rows
from ernie.errors import UserError, nearest
from ernie.json_file import read_json
from ernie.kernels.precision import precision
from ernie.train.run_folder import CONFIG
from finetune.config import DataConfig, FinetuneConfig, load
from finetune.prepare import NEEDED, read_splits
from finetune.train.run import run
from finetune.train.run_contents import encoder_fingerprint, inputs_of, read_inputs
from finetune.train.trial import SCORES_FILE
from finetune.train.warm_start import read_encoder

_SPREAD = {"median": float, "lowest": float, "highest": float}
_NOT_ASKED_FOR = "not asked for"


@dataclass(frozen=True)
class Outcome:
    """The outcome of one task: its scores as in scores.json, or the `reason` why there are none.

    `failed` means that it was started; any other task without scores has no data here, or was not asked for.  `notes`
    lists the splits that were left out.
    """

    name: str
    config: FinetuneConfig
    scores: dict[str, Any] | None = None
    reason: str = ""
    failed: bool = False
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Suite:
    """The tasks of a folder by name, sorted; `chosen` are those to run."""

    name: str
    configs: dict[str, FinetuneConfig] = field(default_factory=dict)
    chosen: tuple[str, ...] = ()

    @classmethod
    def read(cls, name: str, chosen: Sequence[str] = (), overrides: Sequence[str] = ()) -> Suite:
        """Read the suite in a folder, or the one of that name that ships with the library.

        A file without `task` is one that others include.  Raises UserError for a missing suite, a task that it lacks,
        and all mistakes in its files.
        """
        folder = _find_suite(name)
        files = {file.stem: file for file in sorted(folder.glob("*.yaml")) if read(file, part="finetune").get("task")}
        for task in chosen:
            if task not in files:
                raise UserError(f"--tasks: {name} has no task '{task}'.{nearest(task, files)}")
        loaded = {task: load(file, overrides) for task, file in files.items()}
        return cls(folder.resolve().name, loaded, tuple(chosen or files))


def _find_suite(name: str) -> Path:
    """Return the folder of a suite: a folder on disk takes precedence over a suite that ships with the library."""
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
    jobs: int = 1,
) -> Iterator[Outcome]:
    """Run the chosen tasks one after the other, each in a folder of its name, and yield the outcome of every task.

    So many `jobs` trials of a task are trained at once.  A finished task is not run again.  Tasks that are not chosen
    have an outcome too: their scores, if they finished before.  A task that fails says so in its outcome, and the
    others still run.  Raises UserError when there is no such model.
    """
    encoder = encoder_fingerprint(read_encoder(model))
    for name, base in suite.configs.items():
        config = replace(base, model=model, seeds=seeds or base.seeds, output=output / name)
        tell_chosen = say if name in suite.chosen else _say_nothing
        tell_chosen(f"--- {name}")
        try:
            available, notes = available_data(config, data)
        except UserError as error:
            tell_chosen(f"not available: {error}")
            yield Outcome(name, config, reason=str(error) if name in suite.chosen else _NOT_ASKED_FOR)
            continue
        config = replace(config, data=available)
        scores = _finished_scores(config, encoder, output / name)
        if scores is not None:
            tell_chosen("was done before")
            yield Outcome(name, config, scores, notes=notes)
            continue
        if name not in suite.chosen:
            yield Outcome(name, config, reason=_NOT_ASKED_FOR)
            continue
        try:
            with precision(config.train.precision, config.train.amp_level):
                result = run(config, output / name, say, quiet, jobs=jobs)
            yield Outcome(name, config, result.as_dict(), notes=notes)
        except UserError as error:
            say(f"failed: {error}")
            yield Outcome(name, config, reason=str(error), failed=True)


def _say_nothing(_: str) -> None:
    pass


def available_data(config: FinetuneConfig, data: Path | None) -> tuple[DataConfig, tuple[str, ...]]:
    """Return where the task's rows are: in the files under `data`, or else where the key `data` says.

    Also returns a remark for each further split that is missing and left out.  Raises UserError when the train or the
    dev split is missing.
    """
    places = [] if data is None else [(config.local or config.data).under(data)]
    if data is None or config.local is not None:
        places.append(config.data)
    reasons: list[str] = []
    for place in places:
        splits = place.splits()
        if not all(name in splits for name in NEEDED):
            continue
        problem = next((reason for name in NEEDED if (reason := _why_missing(place, name))), "")
        if problem:
            reasons.append(problem)
            continue
        missing = {name: reason for name in splits if (reason := _why_missing(place, name))}
        kept = {name: sources for name, sources in splits.items() if name not in missing}
        return place.with_splits(kept), tuple(f"{name}: {reason}" for name, reason in missing.items())
    if not config.data.splits() and data is None:
        reasons.append("its data is not on the hub; give the folder with its files as --data")
    raise UserError("; ".join(reasons) or "its configuration names no data for train and dev")


def _why_missing(data: DataConfig, split: str) -> str:
    """Return why a split cannot be read, or an empty string."""
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


def _finished_scores(config: FinetuneConfig, encoder: str, folder: Path) -> dict[str, Any] | None:
    """Return the scores of a complete run with exactly this encoder, these rows and this configuration, or None."""
    config_file, file = folder / CONFIG, folder / SCORES_FILE
    if not file.is_file() or not config_file.is_file():
        return None
    try:
        if dump(load(config_file, saved=True)) != dump(config):
            return None
        scores = read_json(file, {"trials": list, "scores": {str: {str: _SPREAD}}}, "")
        if read_inputs(folder) != inputs_of(encoder, read_splits(config.data), config):
            return None
        if any(measures.keys() - set(config.task.known_metrics) for measures in scores["scores"].values()):
            return None
    except UserError:  # another program's file, or incomplete
        return None
    return scores if len(scores["trials"]) == len(list(config.trials())) * config.seeds * config.folds else None
