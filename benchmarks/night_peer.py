"""The same night with transformers: what its BERT reaches in the hours of night.py, from the same text.

  python benchmarks/night_peer.py mini --peer PYTHON --text DIR... --data DATA --output runs/night [--hours 4]
  python benchmarks/night_peer.py mini --peer PYTHON --text DIR... --data DATA --output runs/night --loss [modernbert]

PYTHON is the interpreter of an environment with torch and transformers; the rest is as in night.py, whose tokenizer and
corpus are used, or made. BertForMaskedLM has the shape of the size, rows of 128 tokens, and as many tokens in a batch
as ours.  It is compiled, and whole words are masked.  First a step of ours and one of its in both precisions are timed
in turns, which needs the machine for itself; the faster precision is taken.  A step of the peer then counts as so many
of ours, in seconds of the trials of night.py: machines that others share are slower on some days.  Then each of RATES
is tried for a 24th of the hours, which is not counted; the one with the lowest loss at its end is taken.  Fine-tuning
is the same command as for ours.  Finished work is kept; the peer's training goes on after its last 24th.

`--loss` ends with the loss of the last 24th, without fine-tuning, also of another architecture: with `modernbert`, that
of ModernBertForMaskedLM, which has most of the changes of the cramming recipe (Geiping and Goldstein, 2023, arXiv
2212.14034): norms before the layers, gated units, rotated positions, no biases and no dropout.  All layers see all
tokens, and gated units are narrower, so that the layer has as many weights.  `ernie finetune` does not read it.  The
loss is of text that was not read before, as long as the corpus is not read to its end.  Set before the first run: after
20 minutes its loss is lower than BERT's.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
from collections.abc import Sequence
from functools import partial
from operator import mul
from pathlib import Path
from typing import Any, NamedTuple

import night
from cells import markdown
from record_files import cached_record, this_machine
from transformers_peer import Transformers, logged

from ernie.errors import UserError
from ernie.model.config import EncoderConfig
from pretrain.config import load

RATES = (2e-4, 5e-4, 1e-3, 2e-3)
PRECISIONS = ("fp32", "bf16")
LENGTH, PARTS = 128, 24
TRIED = 1 / 8  # of the hours, for each rate
TRIALS, TIMED, WARM = 3, 40, 15  # of each precision; their steps, and how many are not timed


def main() -> None:
    """Run what is missing and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("size", choices=night.NIGHTS)
    parser.add_argument("--peer", required=True, metavar="PYTHON")
    parser.add_argument("--hours", type=float, help="other than the size's")
    parser.add_argument("--loss", nargs="?", const="bert", choices=("bert", "modernbert"), metavar="ARCHITECTURE")
    night.add_common(parser, needs_data=True)
    night.add_one_point(parser)
    arguments = parser.parse_args()
    night.check_numbers(parser, arguments)
    size, wanted = arguments.size, night.NIGHTS[arguments.size]
    hours = arguments.hours or wanted.hours
    architecture = arguments.loss or "bert"
    prefix = "peer" if architecture == "bert" else f"peer-{architecture}"
    folder = arguments.output / f"{prefix}-{size}-{hours:g}-hours"
    try:
        night.check_data(arguments.data, wanted.suite.measures)
        corpus = night.built_corpus(arguments.text, arguments.output, wanted.suite.vocabulary)
    except UserError as error:
        print(f"night_peer.py: error: {error}", file=sys.stderr)
        sys.exit(2)
    machine, config = this_machine(), load(night.CONFIGS / wanted.config)
    batch, shape = config.data.micro_batch_tokens, config.model.shape(wanted.suite.vocabulary)
    sizes = shape_of(shape) if architecture == "bert" else modern_shape_of(shape)
    ids = arguments.output / "ids.npy"
    side = Transformers(arguments.peer, corpus, ids, sizes, batch // LENGTH, LENGTH, architecture)
    ours = Ours(size, corpus, night.paced(size, hours, corpus, arguments.output))
    chosen = cached_record(folder / "chosen.json", lambda: choice(side, ours, 3600 * hours, folder))
    options = {"seed": 0, "peak": chosen["peak"], "precision": chosen["precision"]}
    steps = steps_in(3600 * hours, chosen["seconds"])
    model = side.pretrain(folder / "encoder", steps=steps, parts=PARTS, **options)[-1]
    if arguments.loss:
        losses = logged(folder / "encoder", "loss")
        last = statistics.mean(losses[-max(1, len(losses) // PARTS) :])
        cached_record(
            night.records_of(arguments) / f"{folder.name}-loss.json", lambda: {**machine, **chosen, "loss": last}
        )
        print(f"{architecture}: a loss of {last:.3f} after {len(losses):,} steps at a rate of {chosen['peak']:g}")
        return
    about = {"size": size, "hours": hours, **machine, **chosen, "steps": steps, "tokens": steps * batch}
    record = night.judged(arguments, model, folder, lambda: about)
    print(markdown(night.table(size, record["dev"], None, "transformers")))


def shape_of(ours: EncoderConfig) -> dict[str, Any]:
    """Our shape and initial weights in the words of transformers, without dropout: no text is repeated often."""
    return {
        **{"hidden_size": ours.hidden_size, "num_hidden_layers": ours.layers, "num_attention_heads": ours.heads},
        **{"intermediate_size": ours.intermediate_size, "max_position_embeddings": LENGTH},
        **{"initializer_range": ours.initializer_range, "layer_norm_eps": ours.layer_norm_epsilon},
        **{"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0},
    }


def modern_shape_of(ours: EncoderConfig) -> dict[str, Any]:
    """The same for ModernBERT, whose gated units have three matrices in place of two: a multiple of 16 is fast."""
    near = {"rope_type": "default", "rope_theta": 10_000.0}  # by default that of full attention is for 8,192 tokens
    return {
        **{"hidden_size": ours.hidden_size, "num_hidden_layers": ours.layers, "num_attention_heads": ours.heads},
        **{"intermediate_size": 16 * round(ours.intermediate_size / 24), "max_position_embeddings": LENGTH},
        **{"initializer_range": ours.initializer_range, "norm_eps": ours.layer_norm_epsilon},
        **{"layer_types": ["full_attention"] * ours.layers, "local_attention": LENGTH},
        **{"rope_parameters": {"full_attention": near, "sliding_attention": near}},
        **{"bos_token_id": None, "eos_token_id": None},
    }


class Ours(NamedTuple):
    """Our side: its size and corpus, and the seconds of a step of each stage by the trials of night.py."""

    size: str
    corpus: Path
    pace: list[float]

    def mean(self, pace: Sequence[float]) -> float:
        """The seconds of a step in the mean over a night."""
        steps = [sum(stage.values()) for stage in load(night.CONFIGS / night.NIGHTS[self.size].config).schedule.table]
        return sum(map(mul, pace, steps)) / sum(steps)

    def timed(self, run: Path) -> float:
        """The same by one more trial."""
        found = self.mean(night.timed(self.size, night.ARMS[night.TAKEN], self.corpus, run)["seconds"])
        shutil.rmtree(run)
        return found


def choice(side: Transformers, ours: Ours, seconds: float, folder: Path) -> dict[str, Any]:
    """The faster precision with its seconds of a step, and the best rate with the losses that the rates end with."""

    def turn(number: int) -> dict[str, float]:
        """The seconds of a step of the peer as a multiple of ours, one after the other."""
        runs = {precision: folder / "timed" / f"{precision}-{number}" for precision in PRECISIONS}
        for run in runs.values():
            shutil.rmtree(run, ignore_errors=True)  # of a turn that was interrupted
        own = ours.timed(folder / "timed" / f"ours-{number}")
        found = {}
        for precision, run in runs.items():
            side.pretrain(run, seed=0, steps=TIMED, parts=1, peak=RATES[0], precision=precision)
            found[precision] = statistics.median(logged(run, "seconds")[WARM:]) / own
        return found

    turns = [cached_record(folder / "timed" / f"turn-{number}.json", partial(turn, number)) for number in range(TRIALS)]
    as_many, precision = min((statistics.median(turn[each] for turn in turns), each) for each in PRECISIONS)
    pace = as_many * ours.mean(ours.pace)
    losses: dict[float, float] = {}
    for peak in RATES:
        run, steps = folder / "rates" / f"{peak:g}", steps_in(TRIED * seconds, pace)
        try:
            side.pretrain(run, seed=0, steps=steps, parts=1, peak=peak, precision=precision)
        except subprocess.CalledProcessError as error:  # it has said why: most likely a loss that is not finite
            print(f"a rate of {peak:g} is left out: {error}", file=sys.stderr)
            continue
        losses[peak] = statistics.mean(logged(run, "loss")[-max(1, steps // 10) :])
    best = min(losses, key=losses.__getitem__)
    if best in (RATES[0], RATES[-1]):
        print(f"note: the best rate, {best:g}, is at the edge of {RATES}", file=sys.stderr)
    return {"precision": precision, "seconds": pace, "peak": best, "losses": losses, "steps of ours": turns}


def steps_in(seconds: float, pace: float) -> int:
    """The steps that take so long, a multiple of the parts that are saved."""
    return max(1, int(seconds / pace / PARTS)) * PARTS


if __name__ == "__main__":
    main()
