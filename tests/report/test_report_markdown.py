"""Names of others in Markdown show as they are, and are neither markup nor code."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from support.made_up_run import SEVEN, made_up_run
from support.toys import tiny_encoder

from ernie.report.markdown import code, fenced, prose
from pretrain.report.card import write_card
from pretrain.report.evidence import read_evidence


def test_prose_has_no_markup_html_or_line_ends() -> None:
    assert prose("<script>a&b</script>\n# x | [y](z) `c` *d*") == (
        "&lt;script&gt;a&amp;b&lt;/script&gt; # x \\| \\[y\\](z) \\`c\\` \\*d\\*"
    )


@pytest.mark.parametrize(
    ("text", "expected"), [("a", "`a`"), ("a`b", "``a`b``"), ("`", "`` ` ``"), ("a\n```\nb", "````a ``` b````")]
)
def test_code_is_between_more_backticks_than_it_has(text: str, expected: str) -> None:
    assert code(text) == expected
    assert fenced("console", text) == ("````" if "```" in text else "```") + f"console\n{text}\n" + (
        "````" if "```" in text else "```"
    )


NAME = "run'; touch x #\"]) ```\n<script>x书\U0001f600"


def test_a_card_of_forged_names_has_only_its_own_code(tmp_path: Path) -> None:
    run = made_up_run(tmp_path / NAME, SEVEN[:1], steps_per_task=3)
    tiny_encoder().save_pretrained(run / "model")
    evidence = read_evidence(run)
    forged = {"machine": "<img src=x>\n```console\nrm -rf /\n```", "command": ["ernie", "x\n```\n# y", "\x1b[2J; rm"]}
    evidence.origin.update(forged)
    path = write_card(evidence)
    assert path is not None
    card = path.read_text(encoding="utf-8")
    assert "\x1b" not in card
    outside = re.sub(r"^(````*)\w+\n.*?\n\1$", "", card, flags=re.DOTALL | re.MULTILINE)
    assert "<script" not in outside
    assert "<img" not in outside
    assert "\nrm" not in outside
    assert card.startswith("# run'; touch x #")
    blocks = [match[2] for match in re.finditer(r"^(````*)\w+\n(.*?)\n\1$", card, flags=re.DOTALL | re.MULTILINE)]
    assert shlex.split(blocks[1]) == ["ernie", "finetune", "CONFIG", "--model", str(run), "--output", "RUN"]
    scope: dict[str, str] = {}
    exec(blocks[2].splitlines()[-1].replace("model = ErnieModel.from_pretrained", "path = str"), scope)
    assert scope["path"] == str(run)
