"""The model card of a run: what it is, how good, made how, and how to use it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from pathlib import Path

from ernie import __version__
from finetune.config import FinetuneConfig
from finetune.prepare import Prepared, describe
from finetune.trial import Result

CARD_FILE = "README.md"


def write_card(folder: Path, config: FinetuneConfig, result: Result, splits: Sequence[Prepared]) -> None:
    """Write README.md into a run's folder."""
    example = _row(config, splits[0])
    lines = [
        f"# {folder.name}",
        "",
        f"A model of the kind `{config.task.variant_name}`, fine-tuned from `{config.model}` with ernie {__version__}.",
        "",
        "## Scores",
        "",
        *score_table(result),
        "",
        f"{result.explained()} The model in `model/` is that of seed {result.best.seed}.",
        "",
        "## Data",
        "",
        *(f"- {describe(split)}; from {_sources(config, split.name)}" for split in splits),
        *(f"- {remark}" for split in splits for remark in split.remarks),
        "",
        "## Use",
        "",
        "```console",
        f"ernie predict {folder} --input FILE",
        "```",
        "",
        f"FILE has the columns {', '.join(f'`{column}`' for column in example)}; with `--like dev` it is read as the "
        "dev split was.",
        "",
        "```python",
        "from finetune.model import FinetunedModel",
        "",
        f'model = FinetunedModel.load("{folder}")',
        f"print(list(model.predict([{example}])))",
        "```",
        "",
        "Everything that was set is in `config.yaml`, versions and the command in `origin.json`.",
    ]
    (folder / CARD_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def score_table(result: Result) -> list[str]:
    """The scores of every split as lines of Markdown."""
    head, *rows = (f"| {' | '.join(cells)} |" for cells in result.score_rows())
    return [head, f"|{'---|' * len(result.score_rows()[0])}", *rows]


def _sources(config: FinetuneConfig, split: str) -> str:
    return ", ".join(f"`{source}`" for source in config.data.splits()[split])


def _row(config: FinetuneConfig, split: Prepared) -> dict[str, object]:
    """A row with the columns of the data that the task's fields name, but what is right."""
    task = config.task
    named = {field.name: getattr(task, field.name) for field in fields(task)}
    columns = {name for given in named.values() for name in ((given,) if isinstance(given, str) else _names(given))}
    columns.discard(named[task.answer_field])
    cells = {column: cell for column, cell in split.rows[0].items() if column in columns}
    return {column: ["...", "..."] if isinstance(cell, list) else "..." for column, cell in cells.items()}


def _names(given: object) -> tuple[str, ...]:
    return tuple(name for name in given if isinstance(name, str)) if isinstance(given, tuple) else ()
