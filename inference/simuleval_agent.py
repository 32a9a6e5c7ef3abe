"""An agent for SimulEval (Ma et al., 2020, arXiv 2007.16193), for scoring a run's translator with that tool.

  simuleval --agent-class inference.simuleval_agent.TranslatorAgent --run runs/de-en --wait-k 3 \
    --source source.txt --target reference.txt --output scores

SimulEval is not among the library's requirements; the words it counts are those of `ernie translate`.
"""

from __future__ import annotations

import warnings
from argparse import ArgumentParser, Namespace
from contextlib import suppress

from simuleval.agents import TextToTextAgent
from simuleval.agents.actions import Action, ReadAction, WriteAction

from ernie.arguments import add_plugin, add_precision
from ernie.decode.stream import Stream
from ernie.errors import Remark, UserError
from inference.translator import TextTranslator


class TranslatorAgent(TextToTextAgent):
    """Reads word by word, and writes each word once it is committed.

    A sentence that is too long for the model is translated as far as it fits.
    """

    def __init__(self, arguments: Namespace):
        self._translator = TextTranslator.load(
            arguments.run,
            arguments.wait_k,
            arguments.beam,
            arguments.plugin,
            arguments.precision,
            confidence=arguments.confidence,
            agreement=arguments.agreement,
            max_wait_k=arguments.max_wait_k,
        )
        super().__init__(arguments)

    @staticmethod
    def add_args(parser: ArgumentParser) -> None:
        """Add the agent's own arguments to SimulEval's."""
        parser.add_argument("--run", required=True, help="the folder of a fine-tuning run of the kind translate")
        parser.add_argument("--wait-k", type=int, help="tokens to stay behind the source")
        parser.add_argument("--confidence", type=float, help="probability below which a token waits")
        parser.add_argument("--agreement", type=int, help="source tokens less with which a token is the same, or waits")
        parser.add_argument("--max-wait-k", type=int, help="tokens behind the source at which none waits any longer")
        parser.add_argument("--beam", type=int, help="hypotheses to follow once a source is over")
        add_precision(parser)
        add_plugin(parser)

    def reset(self) -> None:
        """Start a new sentence."""
        super().reset()
        self._stream, self._read = Stream(self._translator), 0

    def policy(self) -> Action:
        """Write the words that the newly read ones commit; if there are none, read on."""
        new, ended = "", self.states.source_finished
        try:
            for word in self.states.source[self._read :]:
                self._read += 1
                new += self._stream.push(word)
        except UserError as error:  # too long: one sentence is not to end the scoring of a whole set
            warnings.warn(f"a sentence is translated up to its word {self._read:,}: {error}", Remark, stacklevel=2)
            ended = True
        if ended:
            with suppress(UserError):  # what is held back may be too long by itself
                new += self._stream.finish()
            return WriteAction(new.strip(), finished=True)
        return WriteAction(new.strip(), finished=False) if new.strip() else ReadAction()
