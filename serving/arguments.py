"""The configuration that the arguments of `ernie serve` ask for.  Imports no Paddle."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ernie.config import build
from ernie.errors import UserError
from ernie.yaml_tree import read
from serving.config import ServeConfig


def read_config(arguments: argparse.Namespace) -> ServeConfig:
    """Return the configuration that the arguments of `ernie serve` ask for.  Raises UserError."""
    given: Sequence[str] = arguments.models
    is_file = len(given) == 1 and given[0].endswith((".yaml", ".yml"))
    options: dict[str, Any] = {
        name: value for name in ("host", "port", "api_key_file") if (value := getattr(arguments, name)) is not None
    }
    if not is_file:
        options["models"] = named_models(given, arguments.precision, arguments.plugin)
    return build(ServeConfig, read(given[0] if is_file else None, arguments.set, options))


def named_models(given: Sequence[str], precision: str | None, plugins: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return models by name: NAME=FOLDER, or the folder's own name.  Raises UserError for a name that comes twice."""
    models: dict[str, dict[str, Any]] = {}
    for each in given:
        name, mark, path = each.partition("=")
        if not mark or "/" in name:
            path, name = each, Path(each).resolve().name
        if name in models:
            raise UserError(f"two models are called '{name}': give one of them another name, NAME={path}")
        models[name] = {"path": path, "trust_plugins": list(plugins)}
        if precision is not None:
            models[name]["precision"] = precision
    return models
