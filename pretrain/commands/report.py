"""Draw a run: losses and held-out metrics of every task, the forgetting ledger, the schedule, the speed.

Writes report.html, one file that needs nothing else, and its figures and the ledger as data under report/ in the
run's folder.  Prints the ledger as a table, and last the path of the page.  It works during a run.
For a finished run it also writes the model card, README.md; with --downstream the card has fine-tuning scores, which
stay until others are given or the run is resumed.
With --output it writes that page alone, and nothing into the run's folder.
For a fine-tuning run, which writes its own report at the end, it only prints the path.

  ernie report runs/first
  ernie report runs/first --output first.html
  ernie report runs/first --downstream runs/sst2 runs/glue
"""

from __future__ import annotations

import argparse
from pathlib import Path

from ernie.arguments import output_path
from ernie.atomic import disk_guard, make_folder, put_text
from ernie.errors import UserError

SUMMARY = "draw a run: losses, metrics, the forgetting ledger"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument("run", type=Path, metavar="RUN", help="the folder of a run")
    parser.add_argument("--output", type=output_path, metavar="FILE.html", help="the page (default: RUN/report.html)")
    parser.add_argument(
        "--downstream",
        type=Path,
        nargs="+",
        action="extend",
        default=[],
        metavar="DIR",
        help="fine-tuning runs of this encoder, or folders of them, to add to page and card",
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.output is not None and arguments.output.suffix.lower() not in (".html", ".htm"):
        raise UserError(f"--output: a report is a web page; give a name that ends in .html, not {arguments.output}")
    if (arguments.run / "trials").is_dir():
        print(_finetuning_report(arguments.run, arguments.output, arguments.downstream))
        return 0

    from pretrain.ledger import markdown
    from pretrain.report.card import write_card
    from pretrain.report.downstream import read_downstream, save_downstream, saved_downstream
    from pretrain.report.evidence import read_evidence
    from pretrain.report.summary import sentences, state, verdict
    from pretrain.report.write import write_report

    evidence = read_evidence(arguments.run)
    downstream = read_downstream(arguments.run, arguments.downstream) or saved_downstream(evidence)
    page = write_report(evidence, arguments.output, downstream)
    if arguments.output is None:
        write_card(evidence, downstream)
        save_downstream(evidence, downstream)
    print(f"{state(evidence.history, evidence.schedule)}: {sentences(evidence.history)}")
    print(verdict(evidence.history, evidence.ledger, evidence.schedule), end="\n\n")
    if evidence.ledger.stages:
        print(markdown(evidence.ledger.rows()), end="\n\n")
    print(page)
    return 0


def _finetuning_report(run: Path, output: Path | None, downstream: list[Path]) -> Path:
    """Return the page that a fine-tuning run wrote at its end, copied to `output` if that is given."""
    if downstream:
        raise UserError(f"--downstream: is for the run that pretrained an encoder, and {run} is a fine-tuning run")
    page = run / "report.html"
    if not page.is_file():
        raise UserError(f"{run}: is a fine-tuning run that is not done; give its command 'ernie finetune' again")
    if output is None or output.resolve() == page.resolve():
        return page
    make_folder(output.parent)
    with disk_guard(output, "the report was not copied"):
        put_text(output, page.read_text(encoding="utf-8"))
    return output
