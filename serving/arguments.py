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
    files = [name for name in given if name.endswith((".yaml", ".yml"))]
    if files and len(given) > 1:
        raise UserError(f"{files[0]}: give one YAML file, which has all models, or else folders of models")
    for flag, key in (("precision", "precision"), ("plugin", "trust_plugins")):
        if files and getattr(arguments, flag):
            raise UserError(f"--{flag}: is for folders of models; each model in {files[0]} has a key {key}")
    options: dict[str, Any] = {
        name: value for name in ("host", "port", "api_key_file") if (value := getattr(arguments, name)) is not None
    }
    if not files:
        options["models"] = named_models(given, arguments.precision, arguments.plugin)
    return build(ServeConfig, read(files[0] if files else None, arguments.set, options))


def named_models(given: Sequence[str], precision: str | None, plugins: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Return models by name: NAME=FOLDER, or the folder's own name.  Raises UserError for a name that comes twice."""
    models: dict[str, dict[str, Any]] = {}
    for each in given:
        name, mark, path = each.partition("=")
        if not mark or "/" in name:
            path, name = each, Path(each).resolve().name
        if not name:
            raise UserError(f"{each}: expected a name before the =, such as films={path}")
        if name in models:
            raise UserError(f"two models are called '{name}': give one of them another name, NAME={path}")
        models[name] = {"path": path, "trust_plugins": list(plugins)}
        if precision is not None:
            models[name]["precision"] = precision
    return models
