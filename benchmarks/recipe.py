"""From text to an encoder with a model card: the best small recipe for English and for Chinese, by one command each.

  python benchmarks/recipe.py en --data DATA --output runs/models/en [--untrained also|alone]
  python benchmarks/recipe.py zh --data DATA --output runs/models/zh [--untrained also|alone]

Trains a tokenizer, builds a corpus, pretrains by benchmarks/pretrain/LANGUAGE.yaml, fine-tunes on each task below over
three seeds, writes model card and report, and prints the card.  DATA holds the texts named below and the files of
benchmarks/finetune/.  Finished work is kept, so that an interrupted command resumes where it stopped.  With
`--untrained also` an untrained encoder of the same shape is fine-tuned as well, and its scores are printed; with
`--untrained alone` only this, for which the pretrained one is not needed.
"""

from __future__ import annotations

import argparse
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from evidence import RECIPE
from fine_tuned import untrained

from ernie.text.load import load_tokenizer
from pretrain.config import load
from pretrain.ledger import markdown
from pretrain.report.downstream import downstream_rows, read_downstream

HERE = Path(__file__).parent
FINE_TUNING = (
    f"train.epochs={RECIPE['epochs']}",
    f"train.batch={RECIPE['batch']}",
    f"train.lr.peak={RECIPE['peak']}",
    f"train.dropout={RECIPE['dropout']}",
)


@dataclass(frozen=True)
class Recipe:
    """Texts under DATA, size of the vocabulary, and the tasks, each with overrides of its configuration."""

    texts: tuple[str, ...]
    vocabulary: int
    tasks: dict[str, tuple[str, ...]]


RECIPES = {
    "en": Recipe(
        ("pretrain_en_wikipedia",),
        16000,
        {"sst2": ("local.train=glue/SST-2/train.tsv[:8000]",), "cola": (), "rte": (), "mrpc": (), "stsb": ()},
    ),
    "zh": Recipe(
        ("pretrain_zh_peoples_daily_199801", "pretrain_zh_sogou_news/sogou_c_mini.jsonl"),
        8000,
        {
            "chnsenticorp": (),
            "msra_ner": ("local.train=zh_ner_msra/dh_msra.txt[:12000]",),
            "ocnli": (),
            "tnews": (),
        },
    ),
}


def main() -> None:
    """Run what is missing and print the card."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("language", choices=sorted(RECIPES))
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--output", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--tasks", nargs="+", metavar="TASK", help="fine-tune on these only")
    parser.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="changes of the pretraining")
    parser.add_argument("--untrained", choices=("also", "alone"), help="fine-tune the encoder untrained")
    arguments = parser.parse_args()
    recipe, output = RECIPES[arguments.language], arguments.output
    tokenizer, corpus, run = (str(output / name) for name in ("tokenizer", "corpus", "encoder"))
    texts = [str(arguments.data / text) for text in recipe.texts]
    if not Path(tokenizer).is_dir():
        ernie("tokenizer", "train", "--input", *texts, "--vocab-size", str(recipe.vocabulary), "--output", tokenizer)
    if not Path(corpus).is_dir():
        ernie("data", "build", "--input", *texts, "--tokenizer", tokenizer, "--output", corpus)
    config = HERE / "pretrain" / f"{arguments.language}.yaml"
    changes = [f"corpus={corpus}", *arguments.set]
    if arguments.untrained != "alone":
        if not (Path(run) / "model").is_dir():
            ernie("pretrain", str(config), "--output", run, *set_options(changes))
        fine_tune(arguments, recipe, run, output / "finetuned")
        ernie("report", run, "--downstream", str(output / "finetuned"))
        print((Path(run) / "README.md").read_text(encoding="utf-8"))
    if arguments.untrained:
        words = load_tokenizer(Path(tokenizer))
        shape = load(config, changes).model.shape(words.vocab_size)
        initial = untrained(output / "untrained", words, shape)
        fine_tune(arguments, recipe, str(initial), output / "finetuned-untrained")
        scores = downstream_rows(read_downstream(initial, [output / "finetuned-untrained"]))
        print(f"## Untrained\n\n{markdown(scores)}")


def fine_tune(arguments: argparse.Namespace, recipe: Recipe, model: str, output: Path) -> None:
    """Fine-tune a model on each task for which that is not done."""
    for task in arguments.tasks or recipe.tasks:
        changes, run = recipe.tasks[task], output / task
        if not (run / "README.md").is_file():
            words = [str(HERE / "finetune" / f"{task}.yaml"), "--data", str(arguments.data), "--model", model]
            words += ["--seeds", str(arguments.seeds), "--output", str(run), *set_options([*FINE_TUNING, *changes])]
            ernie("finetune", *words)


def set_options(changes: list[str]) -> list[str]:
    """The `--set` options for these changes of a configuration."""
    return [word for change in changes for word in ("--set", change)]


def ernie(*words: str) -> None:
    """Print an `ernie` command and run it; end as it does if it fails, for it has said why."""
    print(f"$ ernie {shlex.join(words)}", file=sys.stderr, flush=True)
    with subprocess.Popen([sys.executable, "-m", "ernie.cli", *words], stdout=sys.stderr) as process:
        while process.returncode is None:
            with suppress(KeyboardInterrupt):  # Ctrl-C reaches the command, too, which saves before it ends
                process.wait()
    if status := process.returncode:
        sys.exit(status if status > 0 else 128 - status)


if __name__ == "__main__":
    main()
