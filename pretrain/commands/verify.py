"""Prove that a run consumed exactly the samples that its seed prescribes: nothing repeated, nothing missed.

The order of all samples is a pure function of the seed.  This command recomputes it without the model, and compares
it with the hashes that the run wrote at every step and checkpoint.  It also counts, per task, that no epoch
holds a sample twice and that finished epochs hold every document's.

  ernie verify runs/first
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ernie.arguments import add_plugin, add_quiet

SUMMARY = "prove that a run repeated and missed no sample"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--corpus", type=Path, metavar="DIR", help="where the run's corpus is now, if it was moved")
    add_plugin(parser)
    add_quiet(parser)


def main(arguments: argparse.Namespace) -> int:
    """Run the command: 0 if everything agrees, 1 if something differs."""
    from ernie.runtime import require_paddle

    require_paddle()

    from pretrain.verify import verify

    certificate = verify(arguments.run, arguments.quiet, arguments.corpus)
    print(certificate.text())
    return 0 if certificate.holds else 1
