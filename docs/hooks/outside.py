"""MkDocs hook: what lies outside docs/ and belongs to the site, such as results and examples, and links to it.

Pages link to files as they lie in the repository, so that links also work where the repository is browsed.
"""

from __future__ import annotations

import re
from pathlib import Path
from posixpath import dirname, join, normpath, relpath
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT = Path(__file__).resolve().parents[2]
PATTERNS = (
    *("CHANGELOG.md", "CONTRIBUTING.md", "examples/*.py", "benchmarks/*.md", "benchmarks/results/*.md"),
    *("benchmarks/figures/*.png", "benchmarks/records/**/*.png"),
)
_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the files outside docs/ under their paths in the repository."""
    for pattern in PATTERNS:
        for path in sorted(ROOT.glob(pattern)):
            name = path.relative_to(ROOT).as_posix()
            files.append(File(name, str(ROOT), config.site_dir, config.use_directory_urls))
    return files


def on_page_markdown(markdown: str, page: Page, files: Files, **_: Any) -> str:
    """Turn links to files of the repository into links within the site, and into plain text where it lacks them."""
    source = page.file.src_uri
    home = dirname(source if page.file.src_dir == str(ROOT) else f"docs/{source}")

    def within_site(match: re.Match[str]) -> str:
        mark, text, link = match.groups()
        path, hash_sign, heading = link.partition("#")
        if not path or "://" in link:
            return match[0]
        target = normpath(join(home, path)).removeprefix("docs/")
        if files.get_file_from_path(target) is None and (ROOT / target).exists():
            return text
        return f"{mark}[{text}]({relpath(target, dirname(source) or '.')}{hash_sign}{heading})"

    return _LINK.sub(within_site, markdown)
