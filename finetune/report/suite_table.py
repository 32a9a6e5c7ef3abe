"""The results of a suite as one table: our scores and the published ones, by split and metric.

Figures are times 100, as papers print them, except for errors, where lower is better.
"""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from ernie.metrics import LOWER_IS_BETTER
from ernie.report.markdown import cell, prose
from ernie.terminal import shown
from finetune.suite.run import Outcome

Figures = Mapping[str, Mapping[str, float]]  # split -> metric -> figure


def as_dict(suite: str, model: str, outcomes: Sequence[Outcome]) -> dict[str, Any]:
    """Return the results as plain data, for results.json."""
    return {
        "suite": suite,
        "model": model,
        "tasks": {
            o.name: {"seeds": o.config.seeds, "scores": _scaled(o), "published": o.config.published, "notes": o.notes}
            for o in outcomes
            if o.scores
        },
        "average": _averages(outcomes, model).get(model, {}),
        "missing": {o.name: o.reason for o in outcomes if not o.scores and not o.failed},
        "failed": {o.name: o.reason for o in outcomes if o.failed},
    }


def markdown(suite: str, model: str, outcomes: Sequence[Outcome]) -> str:
    """Return the results as a Markdown page."""
    models = list(dict.fromkeys(name for o in outcomes if o.scores for name in o.config.published))
    seeds = sorted({o.config.seeds for o in outcomes if o.scores})
    counts = " or ".join(map(str, seeds))
    medians = f"Median of {counts} seeds, lowest to highest in brackets. " if counts not in ("", "1") else ""
    head = ["task", "split", "metric", model, *models]
    lines = [f"# {prose(suite)}", "", f"{medians}Figures of other models are those they published.", ""]
    lines += [_table_line(head), f"|{'---|' * len(head)}"]
    for outcome in outcomes:
        if outcome.scores:
            lines += [_table_line(cells) for cells in _rows(outcome, models)]
    averages = _averages(outcomes, model)
    for split in ("dev", "test"):
        cells = [_number(averages.get(name, {}).get(split)) for name in (model, *models)]
        if any(cells):
            lines.append(_table_line([f"average of {len(outcomes)} tasks", split, "", *cells]))
    unscored = [o for o in outcomes if not o.scores]
    if unscored:
        lines += ["", f"{len(unscored)} of {len(outcomes)} tasks have no scores, so ours have no average:", ""]
        reasons: dict[str, list[str]] = {}
        for o in unscored:
            reasons.setdefault(f"{'failed: ' if o.failed else ''}{' '.join(o.reason.split())}", []).append(o.name)
        lines += [f"- {prose(', '.join(names))}: {prose(reason)}" for reason, names in reasons.items()]
    notes = [f"- {prose(o.name)}: left out {prose(note)}" for o in outcomes for note in o.notes]
    return shown("\n".join([*lines, *(["", *notes] if notes else [])]) + "\n")


def _rows(outcome: Outcome, models: Sequence[str]) -> list[list[str]]:
    """Return a row for each split and metric that has a score or a published figure."""
    ours, published = _scaled(outcome), outcome.config.published
    pairs = [(split, name) for split, metrics in ours.items() for name in metrics]
    pairs += [(split, name) for figures in published.values() for split in figures for name in figures[split]]
    rows = []
    for split, name in sorted(dict.fromkeys(pairs), key=lambda pair: _sort_key(outcome, *pair)):
        spread = ours.get(split, {}).get(name)
        figures = [_number(published.get(model, {}).get(split, {}).get(name)) for model in models]
        rows.append([outcome.name, split, name, _spread(spread), *figures])
    return rows


def _sort_key(outcome: Outcome, split: str, name: str) -> tuple[int, str, int]:
    """Return a row's sort key: dev before test, each with its variants, then others; the deciding metric first."""
    kinds = ("dev", "test")
    kind = next((i for i, prefix in enumerate(kinds) if split.startswith(prefix)), len(kinds))
    return kind, split, list(outcome.config.task.known_metrics).index(name)


def _scaled(outcome: Outcome) -> dict[str, dict[str, dict[str, float]]]:
    """Return the median, the lowest and the highest value of each score, scaled."""
    return {
        split: {
            name: {key: found[key] * _scale(name) for key in ("median", "lowest", "highest")}
            for name, found in metrics.items()
        }
        for split, metrics in (outcome.scores or {"scores": {}})["scores"].items()
    }


def _averages(outcomes: Sequence[Outcome], own_model: str) -> dict[str, dict[str, float]]:
    """Return {model: {dev or test: mean over the tasks}}, for models with all figures of all tasks."""
    models = dict.fromkeys(name for o in outcomes for name in o.config.published)
    found: dict[str, dict[str, float]] = {}
    for model in (own_model, *models):
        for split in ("dev", "test"):
            tasks = [_task_mean(o, _figures(o, None if model == own_model else model), split) for o in outcomes]
            if tasks and None not in tasks:
                found.setdefault(model, {})[split] = statistics.mean(mean for mean in tasks if mean is not None)
    return found


def _figures(outcome: Outcome, model: str | None) -> Figures:
    if model is not None:
        return outcome.config.published.get(model, {})
    return {split: {name: s["median"] for name, s in found.items()} for split, found in _scaled(outcome).items()}


def _task_mean(outcome: Outcome, figures: Figures, prefix: str) -> float | None:
    """Return a task's mean as in GLUE: over its metrics and the variants of a split (matched, mismatched)."""
    wanted = [name for name in outcome.config.task.scored_by if name not in LOWER_IS_BETTER]
    splits = [found for split, found in figures.items() if split == prefix or split.startswith(f"{prefix}_")]
    if not wanted or not splits or not all(name in found for found in splits for name in wanted):
        return None
    return statistics.mean(found[name] for found in splits for name in wanted)


def _scale(name: str) -> float:
    return 1.0 if name in LOWER_IS_BETTER else 100.0


def _spread(spread: Mapping[str, float] | None) -> str:
    if spread is None:
        return ""
    is_single = spread["lowest"] == spread["highest"]
    return _number(spread["median"]) + ("" if is_single else f" ({spread['lowest']:.1f} to {spread['highest']:.1f})")


def _number(figure: float | None) -> str:
    return "" if figure is None else f"{figure:.1f}"


def _table_line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(map(cell, cells))} |"
