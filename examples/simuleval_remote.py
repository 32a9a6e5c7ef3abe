"""Evaluate a model of a server by SimulEval, which sends it segments of sources as if they were being said.

  ernie serve german=runs/numbers --port 8000
  python simuleval_remote.py --remote-port 8000/simuleval/german --source source.txt --target target.txt \\
    --dataloader text-to-text --source-type text --target-type text --output scores

This is the command `simuleval --remote-eval` of the package simuleval, which has to be installed.  Two things are
mended that keep its published versions, 1.1.1 to 1.1.4, from evaluating a remote agent.
"""

import json
import sys

from simuleval.cli import main
from simuleval.data.segments import Segment
from simuleval.evaluator import SentenceLevelEvaluator


def as_json(segment: Segment) -> str:
    """Return a segment as JSON; without a target language its field is a type, which JSON cannot express."""
    language = segment.tgt_lang if isinstance(segment.tgt_lang, str) else None
    return json.dumps({**vars(segment), "tgt_lang": language})


Segment.json = as_json
SentenceLevelEvaluator.instance_iterator = property(lambda self: self.iterator)  # its name in the remote evaluator
sys.argv.insert(1, "--remote-eval")
main()
