"""The model card of a run: what the model is, its scores and data, and how to use it."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from dataclasses import fields
from pathlib import Path

from ernie import __version__
from ernie.atomic import put_text
from ernie.config import differences, to_dict
from ernie.formatting import plural
from ernie.registry import plugins_needed
from ernie.report.markdown import cell, code, fenced, prose
from ernie.terminal import shown
from ernie.yaml_tree import dump_plain
from finetune.config import FinetuneConfig, nested
from finetune.prepare import Prepared, describe, loss_notes
from finetune.search_space import SearchRecord, phrase
from finetune.train.trial import Result
from tasks.downstream.base import FinetuneTask, answer_columns

CARD_FILE = "README.md"
# Keys of the configuration that say how a model is trained, besides its task and data.
_TRAINING = ("layers", "teacher", "train", "grid", "seeds", "folds", "fold_by", "keep", "calibrate")
_COMMANDS = {  # of kinds with a command of their own, besides `ernie predict`
    "translate": "ernie translate {run} < TEXT",
    "transcribe": "ernie transcribe {run} SOUND...",
    "synthesize": 'ernie speak {run} "TEXT" --output SOUND',
}


def write_card(
    folder: Path,
    config: FinetuneConfig,
    result: Result,
    splits: Sequence[Prepared],
    search: SearchRecord | None = None,
) -> None:
    """Write README.md to a run's folder; a `search` is what found the settings."""
    example = _example_row(config, splits[0])
    read_as = "dev" if "dev" in config.data.splits() else "train"
    kind = config.task.variant_name
    lines = [
        f"# {prose(folder.name)}",
        "",
        f"A model of the kind {code(str(kind))}, fine-tuned from {code(config.model)}"
        f"{' and its head' if config.head == 'keep' else ''} with ernie {__version__}.",
        "",
        "## Scores",
        "",
        *score_table(result),
        "",
        f"{result.explained()} {_kept(result)}",
        *([] if search is None else ["", _searched(search)]),
        "",
        *_intervals(result),
        *_calibration(result),
        "## Data",
        "",
        *(f"- {prose(describe(split))}; from {_sources(config, split.name)}" for split in splits),
        *(f"- {prose(remark)}" for split in splits for remark in split.remarks),
        "",
        *_training_section(config),
        *_loss_section(config, result.task, splits[0]),
        "## Use",
        "",
        *(f"{line}\n" for line in plugins_needed(config.plugins)),
        fenced("console", "\n".join(_commands(folder, config))),
        "",
        f"FILE has the columns {', '.join(map(code, example))}; with `--like {read_as}` it is read as the {read_as} "
        "split was.",
        "",
        fenced("python", _python(folder, config, example)),
        "",
        "All settings are in `config.yaml`, versions and the command in `origin.json`.",
    ]
    put_text(folder / CARD_FILE, shown("\n".join(lines) + "\n"))


def _kept(result: Result) -> str:
    """Say what the model is."""
    best = result.best
    setting = f" at the best point of the grid, {code(best.point)}" if best.point else ""
    if result.kept is not None and result.kept.members:
        count, folds = len(result.kept.members), f" and {result.folds} folds" if result.folds > 1 else ""
        return (
            f"In `model/` are the models of {plural(result.seeds, 'seed')}{folds}{setting}, which answer together: "
            f"{count} times the size and the computing of one."
        )
    of_fold = "" if best.fold is None else f", trained without fold {best.fold}"
    return f"The model in `model/` is that of seed {best.seed}{of_fold}{setting}."


def _searched(search: SearchRecord) -> str:
    return (
        f"The settings are the best of {plural(len(search.trials), 'trial')} of `ernie tune` by {search.metric} on "
        f"{search.judged_on}, which is slightly too good by it: {prose(phrase(search.best.settings))}."
    )


def _training_section(config: FinetuneConfig) -> list[str]:
    """Say how the model was trained: the settings that are not the defaults."""
    default, own = (
        {key: to_dict(getattr(each, key)) for key in _TRAINING} for each in (FinetuneConfig(config.task), config)
    )
    changed = {key: value for key, (_, value) in differences(default, own).items()}
    if not changed:
        return ["## Training", "", "All settings of training are the defaults.", ""]
    settings = fenced("yaml", dump_plain(nested(changed)).strip())
    return ["## Training", "", "The settings of training that are not the defaults:", "", settings, ""]


def _loss_section(config: FinetuneConfig, task: FinetuneTask, train: Prepared) -> list[str]:
    lines = [f"- {prose(note)}" for note in loss_notes(task, train, config.teacher)]
    return ["## Loss", "", *lines, ""] if lines else []


def _intervals(result: Result) -> list[str]:
    rows = result.interval_rows()
    return ["## How sure the scores are", "", *_table(rows), "", prose(result.intervals_explained), ""] if rows else []


def _calibration(result: Result) -> list[str]:
    found = None if result.kept is None else result.kept.calibration
    return ["## Calibration", "", *_table(found.score_rows()), "", prose(found.note), ""] if found else []


def score_table(result: Result) -> list[str]:
    """Return the scores of every split as the lines of a Markdown table."""
    return _table(result.score_rows())


def _table(rows: Sequence[Sequence[str]]) -> list[str]:
    head, *lines = (f"| {' | '.join(map(cell, cells))} |" for cells in rows)
    return [head, f"|{'---|' * len(rows[0])}", *lines]


def _commands(folder: Path, config: FinetuneConfig) -> Iterator[str]:
    run, kind = shlex.quote(str(folder)), config.task.variant_name
    if kind in _COMMANDS:
        yield _COMMANDS[kind].format(run=run)
    yield f"ernie predict {run} --input FILE{''.join(f' --plugin {shlex.quote(name)}' for name in config.plugins)}"


def _python(folder: Path, config: FinetuneConfig, example: dict[str, object]) -> str:
    trust = f", trust_plugins={list(config.plugins)}" if config.plugins else ""
    return "\n".join(
        [
            "from inference.task_model import TaskModel",
            "",
            f"model = TaskModel.load({str(folder)!r}{trust})",
            f"print(list(model.predict([{example}])))",
        ]
    )


def _sources(config: FinetuneConfig, split: str) -> str:
    return ", ".join(code(source) for source in config.data.splits()[split])


def _example_row(config: FinetuneConfig, split: Prepared) -> dict[str, object]:
    """Return a placeholder row with the data columns that the task's fields name, except the label column."""
    task = config.task
    values = {field.name: getattr(task, field.name) for field in fields(task)}
    columns = {name for value in values.values() for name in ((value,) if isinstance(value, str) else _names(value))}
    columns.difference_update(answer_columns(task), {getattr(task, "row_weight", "")})
    cells = {column: cell for column, cell in split.rows[0].items() if column in columns}
    return {column: ["...", "..."] if isinstance(cell, list) else "..." for column, cell in cells.items()}


def _names(value: object) -> tuple[str, ...]:
    return tuple(name for name in value if isinstance(name, str)) if isinstance(value, tuple) else ()
