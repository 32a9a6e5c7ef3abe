"""Rename keys in configurations that were written for an older version.

Rewrites the files in place.  Only former names of keys change: comments, order and layout stay as they are.  Files that
CONFIG includes are rewritten only if they are named, too; the model, data and saved runs need no migration.

  ernie migrate reviews.yaml
  ernie migrate --check configs/
"""

from __future__ import annotations

import argparse
import shutil
import sys
from pathlib import Path

SUMMARY = "rename keys of configurations that were written for an older version"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments."""
    parser.add_argument(
        "configs", nargs="+", type=Path, metavar="CONFIG", help="a YAML file, or a folder with YAML files"
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing; the exit status is 1 if something would change"
    )


def main(arguments: argparse.Namespace) -> int:
    """Rewrite the files and print what changed; return the exit status."""
    from ernie.atomic import replacing
    from ernie.migration import configurations, migrations

    files = configurations(arguments.configs)
    found, others = migrations(files)
    for migration in found:
        if migration.lines and not arguments.check:
            file = migration.file.resolve()
            with replacing(file) as partial:
                shutil.copymode(file, partial)
                partial.write_bytes(migration.text.encode())
        for line in migration.lines:
            print(line)
    changed = any(migration.lines for migration in found)
    if not changed:
        print("no key has a former name", file=sys.stderr)
    for other in others:
        print(f"note: {other} is included and has former names, too: ernie migrate {other}", file=sys.stderr)
    return 1 if changed and arguments.check else 0
