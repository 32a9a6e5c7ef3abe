"""Write the tables and outcomes of the README and the pages of benchmarks/ from the records, without training.

  python benchmarks/tables.py [--check]

A table of page_tables.py stands between `<!-- table: NAME -->` and `<!-- end of table -->`.  An outcome of outcomes.py
stands within a line, between `<!-- outcome: NAME -->` and `<!-- end -->`.  With --check nothing is written: the command
fails if a page differs from the records, or if no page uses a record.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TypeVar

from cells import markdown
from outcomes import OUTCOMES
from page_tables import TABLES
from record_files import MissingRecord, Records

HERE = Path(__file__).parent
TABLE = re.compile(r"(<!-- table: (\S+) -->\n)(?:.*?)(<!-- end of table -->)", re.DOTALL)
OUTCOME = re.compile(r"(<!-- outcome: (\S+) -->)(?:.*?)(<!-- end -->)")
MARK = re.compile(r"<!-- *(?:table|outcome|end)\b")

Made = TypeVar("Made")


def main() -> None:
    """Write or check the pages."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args().check
    records = Records(HERE / "records")
    try:
        stale = [page for page in pages() if update(page, records, write=not check)]
    except MissingRecord as error:
        raise SystemExit(str(error)) from None
    left = unused(records)
    for page in stale:
        print(f"{page}: {'differs from the records, run benchmarks/tables.py' if check else 'is written'}")
    for file in left:
        print(f"{file}: no page uses this record")
    if left or (check and stale):
        raise SystemExit(2)


def pages() -> list[Path]:
    """The pages that may hold tables."""
    return [HERE.parent / "README.md", *sorted(HERE.glob("*.md")), *sorted((HERE / "results").glob("*.md"))]


def update(page: Path, records: Records, write: bool) -> bool:
    """Bring a page up to date, if `write`; return whether it differs from the records."""
    text = page.read_text(encoding="utf-8")
    if lone := MARK.search(OUTCOME.sub("", TABLE.sub("", text))):
        raise SystemExit(f"{page}: found '{lone[0]}' by itself, expected a mark in one line and its end")
    new = TABLE.sub(partial(with_table, page, records), text)
    new = OUTCOME.sub(partial(with_outcome, page, records), new)
    if new != text and write:
        page.write_text(new, encoding="utf-8")
    return new != text


def with_table(page: Path, records: Records, found: re.Match[str]) -> str:
    """A table with its marks."""
    folder, made = named(TABLES, found[2], page)
    return f"{found[1]}\n{markdown(made(records / folder))}\n{found[3]}"


def with_outcome(page: Path, records: Records, found: re.Match[str]) -> str:
    """An outcome with its marks: two cells in a line of a table, words elsewhere."""
    folder, made = named(OUTCOMES, found[2], page)
    line = found.string[found.string.rfind("\n", 0, found.start()) + 1 :]
    return found[1] + (" | " if line.startswith("|") else ": ").join(made(records / folder)) + found[3]


def named(functions: Mapping[str, Made], name: str, page: Path) -> Made:
    """What has a name.  Stops the program if there is none."""
    if name not in functions:
        raise SystemExit(f"{page}: found a mark of '{name}', expected one of {', '.join(functions)}")
    return functions[name]


def unused(records: Records) -> list[Path]:
    """The records that nothing was made from; pictures beside them are none."""
    files = (file for file in sorted(records.folder.rglob("*")) if file.suffix in (".json", ".tsv", ".md"))
    return [file for file in files if file not in records.read]


if __name__ == "__main__":
    main()
