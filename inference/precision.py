"""The precision in which a run's model predicts, in commands and in Python."""

from __future__ import annotations

from pathlib import Path

from ernie.config import read
from ernie.kernels.precision import InferencePrecisionChoice, precision

CONFIG_FILE = "config.yaml"  # in the folder of a run: its configuration


def precision_of(folder: Path, requested: InferencePrecisionChoice | None) -> InferencePrecisionChoice:
    """Return the precision for predictions of a run's model: the requested one, else fp32 if it was trained in it.

    Otherwise "auto": the machine may not support another precision that the run was trained in.
    """
    if requested is not None or not (folder / CONFIG_FILE).is_file():
        return requested or "auto"
    return "fp32" if (read(folder / CONFIG_FILE).get("train") or {}).get("precision") == "fp32" else "auto"


def check_precision(choice: InferencePrecisionChoice) -> None:
    """Raise UserError for a precision that this machine does not have."""
    with precision(choice):
        pass
