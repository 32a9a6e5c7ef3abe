"""The model card of a run: what it is, how good, made how, and how to use it."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ernie import __version__
from ernie.report.words import plural
from finetune.config import FinetuneConfig
from finetune.prepare import Prepared, describe

CARD_FILE = "README.md"


def write_card(folder: Path, config: FinetuneConfig, result: dict[str, Any], splits: Sequence[Prepared]) -> None:
    """Write README.md into a run's folder; `result` is what scores.json holds."""
    lines = [
        f"# {folder.name}",
        "",
        f"A model of the kind `{config.task.variant_name}`, fine-tuned from `{config.model}` with ernie {__version__}.",
        "",
        "## Scores",
        "",
        *score_table(result),
        "",
        f"Median over {plural(len(result['scores']['dev'][result['metric']]['values']), 'seed')}, lowest to highest in "
        f"brackets. The model in `model/` is that of seed {result['best']['seed']}, the best on dev by "
        f"{result['metric']}; scores on dev are of the checkpoint that was chosen there.",
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
        "```python",
        "from finetune.model import FinetunedModel",
        "",
        f'model = FinetunedModel.load("{folder}")',
        f"print(list(model.predict([{_row(config, splits[0])}])))",
        "```",
        "",
        "Everything that was set is in `config.yaml`, versions and the command in `origin.json`.",
    ]
    (folder / CARD_FILE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def score_table(result: dict[str, Any]) -> list[str]:
    """The scores of every split as lines of Markdown."""
    names = list(result["scores"]["dev"])
    lines = [f"| split | {' | '.join(names)} |", f"|---|{'---|' * len(names)}"]
    for split, measures in result["scores"].items():
        cells = [f"{s['median']:.4f} ({s['lowest']:.4f} to {s['highest']:.4f})" for s in measures.values()]
        lines.append(f"| {split} | {' | '.join(cells)} |")
    return lines


def _sources(config: FinetuneConfig, split: str) -> str:
    return ", ".join(f"`{source}`" for source in config.data.splits()[split])


def _row(config: FinetuneConfig, split: Prepared) -> str:
    """A row as Python, with the columns that the data has but what is right."""
    answer = getattr(config.task, config.task.answer_field)
    return repr({column: "..." for column in split.rows[0] if column != answer})
