"""Finished runs and checkpoints of a stranger: code, links, forged and damaged files."""

from __future__ import annotations

from typing import Any

import pytest
from support.hostile.case import (
    CODE,
    Case,
    Make,
    Trier,
    edited,
    flipped,
    in_every_command,
    json_edited,
    link,
    removed,
    text,
    together,
)

READERS = (
    "evaluate done",
    "predict done --input test.tsv",
    "translate done",
    "transcribe done test.wav",
    "speak done hello --output hello.wav",
    "export done --to onnx --output onnx",
)
CONTINUE = "finetune task.yaml --output done --quiet"
EVIL = text("evil.py", CODE)


def asks_for(module: str) -> Make:
    """Let the finished run ask for a module as that of its task's kind, and as a plug-in."""
    return together(
        EVIL,
        json_edited("done/model/task.json", module=module),
        removed("done/model/sha256.json"),
        edited("done/config.yaml", "plugins: []", f"plugins: [{module}]"),
    )


def strange(id: str, module: str, words: str = "predict done --input test.tsv", says: str = "", **more: Any) -> Case:
    """A run that asks for a module, and the command that must not import it."""
    says = says or rf"asks for code from outside the library: {module}\. .*--plugin {module}"
    return Case(f"code-{id}", asks_for(module), words, says, base="run", **more)


CODES = [
    strange("evaluated", "evil", "evaluate done"),
    strange("predicted", "evil", commands=READERS),
    strange("program-of-python", "unittest.__main__", commands=READERS),
    strange("module-of-python", "antigravity"),
    strange("program-of-numpy", "numpy.f2py.__main__"),
    strange("virtual-environment", "venv.__main__", "evaluate done"),
    strange("pickles", "pickle.__main__", says="--plugin"),
    strange(
        "program-that-is-trusted",
        "unittest.__main__",
        "predict done --input test.tsv --plugin unittest.__main__",
        "--plugin: the module 'unittest.__main__' is a program, not a plug-in",
    ),
    strange(
        "module-of-python-that-is-trusted",
        "antigravity",
        "predict done --input test.tsv --plugin antigravity",
        "--plugin: the module 'antigravity' is part of Python, not a plug-in",
    ),
    strange("nothing", "''", says="asks for code from outside the library"),
    strange("relative", ".evil", says="asks for code from outside the library"),
    Case(
        "code-of-a-run-to-continue",
        together(asks_for("evil"), edited("task.yaml", "model: encoder", "model: done\nhead: keep")),
        "finetune task.yaml --output again",
        r"asks for code from outside the library: evil\. .*plugins: \[evil\]",
        base="run",
    ),
    Case(
        "code-of-a-pretraining-run",
        together(EVIL, edited("run/config.yaml", "plugins: []", "plugins: [evil]")),
        "verify run",
        "asks for code from outside the library: evil",
        base="pretrained",
        commands=("scaling run",),
    ),
    Case(
        "report-needs-no-code",
        together(
            EVIL,
            edited("run/config.yaml", "plugins: []", "plugins: [evil]"),
            edited("run/config.yaml", "task: capitalization", "task: strange"),
        ),
        "report run",
        "report.html",
        status=0,
        base="pretrained",
    ),
]

VICTIM, OUT = "../../outside/victim", "../../outside"
LINKS = [
    *(
        Case(f"link-{name}", link(f"run/{name}", VICTIM), "report run", "report.html", status=0, base="finished")
        for name in ("report.html", "report.html.partial", "README.md", "README.md.partial", "report/losses.png")
    ),
    Case("link-report", link("run/report", OUT), "report run", "run/report: is a link that leads out", base="finished"),
    Case("link-lock", link("done/.lock", VICTIM), CONTINUE, r"\.lock: is a link", base="run"),
    *(
        Case(f"link-{name}", link(f"done/{name}", OUT), CONTINUE, f"done/{name}: is a link that leads out", base="run")
        for name in ("model", "trials")
    ),
]

DAMAGED = [
    *(
        Case(
            f"changed-{file}",
            change,
            "predict done --input test.tsv",
            rf"{file}: does not match its checksum: the model is damaged; copy it again\. .* delete done/model/sha256",
            base="run",
            commands=READERS,
        )
        for file, change in (
            ("model.safetensors", flipped("done/model/model.safetensors", 0.9)),
            ("head.safetensors", flipped("done/model/head.safetensors", 0.95)),
            ("config.json", edited("done/model/config.json", '"dropout": 0.0', '"dropout": 0.5')),
            ("task.json", edited("done/model/task.json", "praise", "priase")),
            ("tokenizer/vocab.txt", edited("done/model/tokenizer/vocab.txt", "film", "fjlm")),
        )
    ),
    Case("flipped-encoder", flipped("encoder/model.safetensors"), "check task.yaml", "does not match", base="run"),
    Case("model-before-checksums", removed("done/model/sha256.json"), "evaluate done", '"rows": 50', 0, base="run"),
    Case(
        "missing-weights", removed("done/model/model.safetensors"), "evaluate done", "there is no such file", base="run"
    ),
    *(
        Case(f"checksums-{id}", text("done/model/sha256.json", content), "evaluate done", says, base="run")
        for id, content, says in (
            ("not-json", "{", r"sha256\.json: is not JSON\. Copy the model's sha256\.json again"),
            ("missing", "{}", "sha256: this key is missing"),
            ("empty", '{"sha256": {}}', "sha256: is empty"),
            ("outside", '{"sha256": {"../../../outside/victim": "0"}}', "names '../../../outside/victim', which is no"),
            ("absolute", '{"sha256": {"/etc/passwd": "0"}}', "names '/etc/passwd', which is no file in done/model"),
            ("no-digest", '{"sha256": {"config.json": ""}}', r"sha256\.config\.json: is no SHA-256"),
            ("number", '{"sha256": {"config.json": 5}}', r"sha256\.config\.json: is no SHA-256"),
        )
    ),
]

FORGED = [
    Case(
        f"origin-{number}",
        json_edited("run/origin.json", **{key: value}),
        "report run",
        rf"run/origin\.json: {key}.*(: expected|: is missing or holds something else)",
        base="finished",
    )
    for number, (key, value) in enumerate(
        [
            ("machine", 5),
            ("versions", 5),
            ("versions", {"python": [1]}),
            ("command", "rm"),
            ("command", [["rm"]]),
            ("resumed", 5),
            ("resumed", [{"changed": 5}]),
            ("resumed", [{"changed": [5], "command": []}]),
            ("resumed", [{"changed": ["seed"]}]),
            ("data", 5),
            ("data", {"language": "en", "documents": "x"}),
        ]
    )
] + [
    Case(
        f"downstream-{number}",
        text("run/report/downstream.json", f'{{"step": 3, "runs": {runs}}}'),
        "report run",
        r"downstream\.json: holds something else than the scores of fine-tuning",
        base="finished",
    )
    for number, runs in enumerate(("[5]", '[["a", 5]]', '[["a", {}]]', '[["a", {"dev": {"f1": {"values": 5}}}]]'))
]

CASES = [
    *CODES,
    *FORGED,
    *DAMAGED,
    *LINKS,
    Case(
        "config-not-yaml", text("done/config.yaml", "task: ["), "evaluate done", r"config\.yaml:1: .*YAML", base="run"
    ),
]


@pytest.mark.parametrize("case", in_every_command(CASES), ids=str)
def test_a_strangers_run_ends_in_a_sentence(case: Case, trier: Trier) -> None:
    trier.check(case)
