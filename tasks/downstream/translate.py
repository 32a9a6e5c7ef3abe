"""Translation, of whole sentences or simultaneously: a decoder writes what an encoder reads in another language.

Ma et al., 2019, "STACL" (arXiv 1810.08398): learnt from prefix to prefix, with the policy that is used afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ernie.data import order
from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.data.labelled.row import Row
from ernie.errors import UserError
from ernie.report.words import plural
from ernie.text.blank import is_blank
from ernie.text.frame import frame
from ernie.text.tokenizer import Tokenizer
from tasks.base import single
from tasks.downstream.base import Answer, Example, FinetuneTask, finetune_task
from tasks.downstream.measures import bleu, chrf

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.decode.translator import TokenTranslator
    from ernie.decode.wait_k import WaitK
    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.model.reading import Reading


@finetune_task("translate")
@dataclass(frozen=True, kw_only=True)
class Translate(FinetuneTask):
    """The text of the column `text`, written in the language of the column `label`.

    Without `wait_k` whole sentences are read; a number stays that many tokens behind the source; of several one is
    drawn per row (multi-path), and inference uses the first.  `catch_up` keeps the distance where the two
    languages differ in length (1 - 1/r, a target being r times as long).  `encoder` says how it avoids seeing the
    future: `causal`, each token is encoded once and sees only earlier ones, or `prefixes`, each prefix is
    re-encoded, which takes more time.  `layers` are those of the decoder (as many as the encoder has), `smoothing`
    the share of label smoothing, `beam` the hypotheses that are followed once a source is over.
    """

    text: str = "source"
    label: str = "target"
    wait_k: int | tuple[int, ...] | None = None
    catch_up: float = 0.0
    encoder: Literal["causal", "prefixes"] = "causal"
    layers: int | None = None
    smoothing: float = 0.1
    beam: int = 1

    measures: ClassVar = {"bleu": bleu, "chrf": chrf}
    usual: ClassVar = 2

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wait_k == ():
            raise UserError("wait_k: the list is empty; leave it out for whole sentences")
        for k in self.paths:
            self.policy(k)
        if self.paths == (None,):
            for name in ("catch_up", "encoder"):
                if getattr(self, name) != getattr(Translate, name):
                    raise UserError(f"{name}: is for translations that stay behind the source; set wait_k, too")
        if self.beam < 1:
            raise UserError(f"beam: expected at least 1, found {self.beam}")
        if not 0 <= self.smoothing < 1:
            raise UserError(f"smoothing: expected a share below 1, found {self.smoothing:g}")

    @property
    def paths(self) -> tuple[int | None, ...]:
        """The distances that are learnt, the one that answers first; None is the whole sentence."""
        return (self.wait_k or (None,)) if isinstance(self.wait_k, tuple) else (self.wait_k,)

    def policy(self, k: int | None) -> WaitK:
        """When to read and when to write."""
        from ernie.decode.wait_k import WaitK

        return WaitK(k, self.catch_up)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        text = row.text(self.text)
        ids = tokenizer.encode("" if is_blank(text) else text).ids
        return Example((single(tokenizer, ids[: self.max_len - 2]),), cut=_over(ids, self.max_len), empty=not len(ids))

    def labelled(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.example(row, tokenizer)
        text = self.truth(row)
        ids = tokenizer.encode(text).ids
        written, _ = frame(tokenizer, ids[: self.max_len - 2])
        odd = []
        if (ids == tokenizer.unk_id).any():
            odd.append("a translation that the vocabulary lacks characters of")
        if tokenizer.lowercase and text != text.lower():
            odd.append("capitals in a translation, which BLEU counts and this vocabulary never writes")
        return replace(
            given,
            samples=(replace(given.samples[0], written=written),),
            cut=given.cut + _over(ids, self.max_len),
            odd=tuple(odd),
        )

    def check_examples(self, examples: Sequence[Example], tokenizer: Tokenizer) -> None:
        written = [
            sample.written[1:-1] for example in examples for sample in example.samples if sample.written is not None
        ]
        tokens = sum(map(len, written))
        unknown = sum(int((ids == tokenizer.unk_id).sum()) for ids in written)
        if 2 * unknown > tokens:
            raise UserError(
                f"of the {plural(tokens, 'token')} of the column '{self.label}' the vocabulary does not know "
                f"{unknown:,}: it was made for another language; train a tokenizer, and an encoder, on text of both"
            )

    def truth(self, row: Row) -> str:
        text = row.text(self.label)
        if is_blank(text):
            raise UserError(f"column '{self.label}': the translation is empty")
        return text

    def answered(self, answer: Answer) -> str:
        return answer["translation"]

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.translation import TranslationHead

        return TranslationHead(model, self.layers)

    def computed(self, example: Example) -> int:
        """With `prefixes` those of each beginning of a source that is encoded; of several distances the costliest."""
        if self.encoder != "prefixes":
            return example.tokens
        return sum(self._prefixes(sample) for sample in example.samples)

    def _prefixes(self, sample: Sample) -> int:
        if sample.written is None:
            return sample.size
        steps, whole = np.arange(len(sample.written) - 1), len(sample) - 1
        read = (np.unique(self.policy(k).reads(steps, np.full(len(steps), whole))) + 1 for k in self.paths)
        return len(steps) + max(int(lengths.sum()) for lengths in read)

    def sees(self, batch: Packed) -> tuple[Packed, Mask | None]:
        reading = self._reading(batch)
        return reading.sources, reading.mask

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        sources, mask = self.sees(batch)
        return ernie.encode_packed(sources, task_id, mask=mask)

    def judge(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        written = batch.written
        assert written is not None
        source = self._reading(batch).source(head.decoder, hidden_TD)
        return head.loss(head(written.ids, written.layout, source), written.next, self.smoothing)

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        from ernie.model.inference import tokenizer_of

        translator = self.translator(ernie, head, task_id)
        found = translator.translate([example.samples[0].ids[1:-1] for example in examples])
        decode = tokenizer_of(ernie).decode
        return [{"translation": decode(one.written), "delays": list(one.delays)} for one in found]

    def translator(
        self, ernie: ErnieModel, head: Any, task_id: int, policy: WaitK | None = None, beam: int | None = None
    ) -> TokenTranslator:
        """What translates streams of tokens, under another policy than the task's own if one is given."""
        from ernie.decode.translator import TokenTranslator

        beam = self.beam if beam is None else beam
        if beam < 1:
            raise UserError(f"beam: expected at least 1, found {beam}")
        policy = policy or self.policy(self.paths[0])
        causal = self.encoder == "causal" and self.paths != (None,)
        return TokenTranslator(ernie, head, policy, causal=causal, beam=beam, task_id=task_id, max_len=self.max_len)

    def _reading(self, batch: Packed) -> Reading:
        """What encoder and decoder see of a batch.

        The distance of each row is drawn by its name: which rows share a batch, or a process, does not matter.
        """
        from ernie.model.reading import Reading, source_lengths

        assert batch.written is not None
        layout, paths = batch.written.layout, self.paths
        if paths == (None,):
            return Reading.whole(batch, layout)
        lengths_U = np.repeat(source_lengths(batch.layout), layout.lengths)
        # For each path P and token U: np.choose takes 64 paths at most.
        reads_PU = np.stack([self.policy(k).reads(layout.positions, lengths_U) for k in paths])
        drawn_U = np.repeat([self._drawn(name) for name in batch.samples], layout.lengths)
        reads_U = reads_PU[drawn_U, np.arange(len(drawn_U))]
        return (Reading.causal if self.encoder == "causal" else Reading.prefixes)(batch, layout, reads_U)

    def _drawn(self, name: np.ndarray) -> int:
        """Which of the paths the sample of a name learns."""
        if len(self.paths) == 1:
            return 0
        return int(order.generator(0, "wait_k", *name.tolist()).integers(len(self.paths)))


def _over(ids: np.ndarray, max_len: int) -> int:
    return max(0, len(ids) + 2 - max_len)
