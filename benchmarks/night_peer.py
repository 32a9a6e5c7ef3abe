"""The same night with transformers: what its BERT reaches in the hours of night.py, from the same text.

  python benchmarks/night_peer.py mini --peer PYTHON --text DIR... --data DATA --output runs/night [--hours 4]

PYTHON is the interpreter of an environment with torch and transformers; the rest is as in night.py, whose tokenizer and
corpus are used, or made. BertForMaskedLM has the shape of the size, rows of 128 tokens, and as many tokens in a batch
as ours.  It is compiled, and whole words are masked.  First the seconds of a step are measured in both precisions, in
turns, which needs the machine for itself; the faster one is taken.  Then each of RATES is tried for a 24th of the
hours, which is not counted; the one with the lowest loss at its end is taken.  Fine-tuning is the same command as for
ours.  Finished work is kept; the peer's training goes on after its last 24th.
"""

from __future__ import annotations

import argparse
import math
import statistics
import sys
from pathlib import Path
from typing import Any

import night
from cells import markdown
from record_files import cached_record
from transformers_peer import Transformers, logged

from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from pretrain.config import load

RATES = (2e-4, 5e-4, 1e-3, 2e-3)
PRECISIONS = ("fp32", "bf16")
LENGTH, PARTS = 128, 24
TRIALS, TIMED, WARM = 3, 40, 15  # of each precision; their steps, and how many are not timed


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=night.NIGHTS)
    parser.add_argument("--peer", required=True, metavar="PYTHON")
    parser.add_argument("--hours", type=float, help="other than the size's")
    night.add_common(parser, needs_data=True)
    arguments = parser.parse_args()
    night.check_numbers(parser, arguments)
    size, wanted = arguments.size, night.NIGHTS[arguments.size]
    hours = arguments.hours or wanted.hours
    folder = arguments.output / f"peer-{size}-{hours:g}-hours"
    try:
        night.check_data(arguments.data, wanted.suite.measures)
        corpus = night.built_corpus(arguments.text, arguments.output, wanted.suite.vocabulary)
    except UserError as error:
        print(f"night_peer.py: error: {error}", file=sys.stderr)
        sys.exit(2)
    config = load(night.CONFIGS / wanted.config)
    batch, shape = config.data.micro_batch_tokens, config.model.shape(wanted.suite.vocabulary)
    side = Transformers(arguments.peer, corpus, arguments.output / "ids.npy", shape_of(shape), batch // LENGTH, LENGTH)
    chosen = cached_record(folder / "chosen.json", lambda: choice(side, 3600 * hours, folder))
    options = {"seed": 0, "peak": chosen["peak"], "precision": chosen["precision"]}
    model = side.pretrain(folder / "encoder", steps=steps_in(3600 * hours, chosen["seconds"]), parts=PARTS, **options)[
        -1
    ]
    scores = night.dev_scores(arguments, model, folder)
    record = cached_record(
        night.records_of(arguments) / f"{folder.name}.json",
        lambda: {"size": size, "hours": hours, **chosen, "dev": scores},
    )
    print(markdown(night.table(size, record["dev"], hours)))


def shape_of(ours: EncoderConfig) -> dict[str, Any]:
    """Our shape in the words of transformers, without dropout as ours: no text is repeated often."""
    return {
        **{"hidden_size": ours.hidden_size, "num_hidden_layers": ours.layers, "num_attention_heads": ours.heads},
        **{"intermediate_size": ours.intermediate_size, "max_position_embeddings": LENGTH},
        **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    }


def choice(side: Transformers, seconds: float, folder: Path) -> dict[str, Any]:
    """The faster precision with its seconds of a step, and the best rate with the losses that the rates end with."""
    times: dict[str, list[float]] = {precision: [] for precision in PRECISIONS}
    for turn in range(TRIALS):
        for precision, found in times.items():
            run = folder / "timed" / f"{precision}-{turn}"
            side.pretrain(run, seed=0, steps=TIMED, parts=1, peak=RATES[0], precision=precision)
            found.append(statistics.median(logged(run, "seconds")[WARM:]))
    pace, precision = min((statistics.median(found), precision) for precision, found in times.items())
    losses: dict[float, float] = {}
    for peak in RATES:
        run, steps = folder / "rates" / f"{peak:g}", steps_in(seconds / PARTS, pace)
        side.pretrain(run, seed=0, steps=steps, parts=1, peak=peak, precision=precision)
        loss = statistics.mean(logged(run, "loss")[-max(1, steps // 10) :])
        if math.isfinite(loss):
            losses[peak] = loss
    best = min(losses, key=losses.__getitem__)
    return {"precision": precision, "seconds": pace, "peak": best, "losses": losses}


def steps_in(seconds: float, pace: float) -> int:
    """The steps that take so long, a multiple of the parts that are saved."""
    return max(1, int(seconds / pace / PARTS)) * PARTS


if __name__ == "__main__":
    main()
