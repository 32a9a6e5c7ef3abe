"""Draw a run: losses and held-out metrics of every task, the forgetting ledger, the schedule, the speed.

Writes report.html, one file that needs nothing else, and its figures and the ledger as data under report/ in the
run's folder.  Prints the ledger as a table, and last the path of the page.  A run may be looked at while it goes on.

  ernie report runs/first
  ernie report runs/first --output first.html
"""

from __future__ import annotations

import argparse
from pathlib import Path

SUMMARY = "draw a run: losses, metrics, the forgetting ledger"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """The command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--output", type=Path, metavar="FILE.html", help="the page (default: RUN/report.html)")


def main(arguments: argparse.Namespace) -> int:
    """Run it."""
    from pretrain.ledger import markdown
    from pretrain.report.evidence import read_evidence
    from pretrain.report.summary import sentences, state, verdict
    from pretrain.report.write import write_report

    evidence = read_evidence(arguments.run)
    page = write_report(evidence, arguments.output)
    print(f"{state(evidence.history, evidence.schedule)}: {sentences(evidence.history, evidence.schedule)}")
    print(verdict(evidence.history, evidence.ledger, evidence.schedule), end="\n\n")
    if evidence.ledger.stages:
        print(markdown(evidence.ledger.rows()), end="\n\n")
    print(page)
    return 0
