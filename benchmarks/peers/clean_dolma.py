"""The filters of benchmarks/corpus_tools.py in the Dolma toolkit: JSON lines to JSON lines.

It tags documents, and drops them by their tags at the end.  Lines are taken out for their last mark and their number of
words; a page with the word JavaScript is dropped, and sentences are not counted.  A Bloom filter finds exact copies of
the text as it was read; there is no search for near duplicates.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

GOPHER, C4 = "rules__gopher_v2__", "rules__c4_v2__"
MOST = {  # shares; the words of a document are looked at apart
    **{f"fraction_of_characters_in_most_common_{n}grams": top for n, top in ((2, 0.20), (3, 0.18), (4, 0.16))},
    **{f"fraction_of_characters_in_duplicate_{n}grams": (20 - n) / 100 for n in range(5, 11)},
    "fraction_of_duplicate_lines": 0.30,
    "fraction_of_characters_in_duplicate_lines": 0.20,
    "symbol_to_word_ratio": 0.1,
    "fraction_of_lines_starting_with_bullet_point": 0.9,
    "fraction_of_lines_ending_with_ellipsis": 0.3,
    "word_count": 100_000,
    "median_word_length": 10,
}
LEAST = {
    "word_count": 50,
    "median_word_length": 3,
    "fraction_of_words_with_alpha_character": 0.8,
    "required_word_count": 2,
}
LINES = ("lines_with_no_ending_punctuation", "lines_with_too_few_words")
PAGES = ("has_curly_brace", "has_lorem_ipsum", "has_javascript")


def main() -> None:
    """Read, filter and write."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--input", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--case", choices=("rules", "exact"), required=True)
    parser.add_argument("--work", type=Path, required=True)
    parser.add_argument("--processes", type=int, default=2)
    arguments = parser.parse_args()
    documents = arguments.work / "documents"  # attributes are put beside a folder of this name
    arguments.work.mkdir(parents=True)
    documents.symlink_to(arguments.input.resolve())
    files, processes = [str(documents / "*.jsonl")], arguments.processes
    exclude = [f"({tag(name)} > {most})" for name, most in MOST.items()]
    exclude += [f"({tag(name)} < {least})" for name, least in LEAST.items()]
    exclude += [f"((.attributes.{C4}{name} // []) | length > 0)" for name in PAGES]
    attributes = ["rules"]
    tags = {"documents": files, "experiment": "rules", "taggers": ["gopher_v2", "c4_v2"], "processes": processes}
    dolma("tag", tags, arguments.work)
    if arguments.case == "exact":
        count = sum(line.count(b"\n") for file in arguments.input.glob("*.jsonl") for line in file.open("rb"))
        key = {"attribute_name": "repeated", "key": "$.text"}
        bloom = {"file": str(arguments.work / "bloom.bin"), "read_only": False}
        bloom |= {"estimated_doc_count": count, "desired_false_positive_rate": 1e-6}
        dedupe = {"name": "exact", "documents": key, "skip_empty": True}
        settings = {"documents": files, "dedupe": dedupe, "bloom_filter": bloom, "processes": processes}
        dolma("dedupe", settings, arguments.work)
        attributes.append("exact")
        exclude.append("((.attributes.repeated // []) | length > 0)")
    spans = [{"span": f"$.attributes.{C4}{name}", "min_score": 0.5, "replacement": ""} for name in LINES]
    stream = {
        "name": "left",
        "documents": files,
        "attributes": attributes,
        "output": {"path": str(arguments.output), "max_size_in_bytes": 1 << 30},
        "filter": {"include": [], "exclude": [" or ".join(exclude)], "syntax": "jq"},
        "span_replacement": spans,
        "compression": {"input": "", "output": ""},
    }
    dolma("mix", {"streams": [stream], "processes": processes, "shuffle": False}, arguments.work)


def tag(name: str) -> str:
    """What a tag of Gopher's rules says of a document, 0 where it is missing: a short one has no long n-grams."""
    return f"(.attributes.{GOPHER}{name} // [[0, 0, 0]])[0][2]"


def dolma(command: str, settings: dict, work: Path) -> None:
    """Run a command of the toolkit."""
    file = work / f"{command}.json"
    file.write_text(json.dumps(settings), encoding="utf-8")
    program = str(Path(sys.executable).with_name("dolma"))
    subprocess.run([program, "-c", str(file), command], check=True)


if __name__ == "__main__":
    main()
