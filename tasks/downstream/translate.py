"""Translation, of whole sentences or simultaneously, by an encoder and a decoder.

Ma et al., 2019, "STACL" (arXiv 1810.08398): prefix-to-prefix training, with the policy used in inference.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np

from ernie.config import MOST_LAYERS, check_least, check_most
from ernie.data.batch import Packed
from ernie.data.document import Sample
from ernie.data.labeled.row import Row, as_list, is_empty
from ernie.errors import UserError, check_count
from ernie.formatting import plural
from ernie.renames import formerly
from ernie.text.blank import is_blank
from ernie.text.frame import frame
from ernie.text.tokenizer import Tokenizer
from tasks.base import single
from tasks.downstream.base import (
    MOST_COUNTED,
    Answer,
    Example,
    FinetuneTask,
    Metric,
    answer_columns,
    encode_start,
    finetune_task,
)
from tasks.downstream.bleu import BleuTokenizer, bleu, chrf, require_tokenizer, signature
from tasks.downstream.changes import with_decoding
from tasks.downstream.hooks import DecodingConditions, MetricSettings, OwnBatches, SizedHead, SplitRemarks
from tasks.downstream.loss_settings import check_smoothing

if TYPE_CHECKING:
    from paddle import Tensor, nn

    from ernie.decode.translator import TokenTranslator
    from ernie.decode.wait_k import WaitK
    from ernie.kernels.mask import Mask
    from ernie.model.ernie import ErnieModel
    from ernie.model.losses import Loss
    from ernie.model.prefix_source import SourceView


@finetune_task("translate")
@dataclass(frozen=True, kw_only=True)
class Translate(FinetuneTask, SplitRemarks, OwnBatches, SizedHead, DecodingConditions, MetricSettings):
    """The text of the column `text`, translated into the language of the column `label`.

    Without `wait_k` whole sentences are read.  With a number, the translation stays that many tokens behind the source.
    Of several numbers, one is drawn for each row in training (multi-path), and inference uses the first.  `catch_up`
    keeps the distance where the two languages differ in length (1 - 1/r, a target being r times as long).  `encoder`
    says how it avoids seeing the future: `causal`, each token is encoded once and sees only earlier ones, or
    `prefixes`, each prefix is re-encoded, which takes more time.  `layers` is the number of the decoder's layers, by
    default the encoder's.  `label_smoothing` is the mass of each target that is spread over the vocabulary.  `beam` is
    the number of hypotheses once a source is over.

    With a `confidence` the translation is adaptive: a token that is less probable waits for more of the source, and the
    next ones catch up.  The probability that is needed falls evenly from `confidence`, at `wait_k` tokens behind, to 0,
    at `max_wait_k`; without this it stays the same.  With an `agreement` a token waits, too, unless it would have been
    the next one with so many source tokens less (local agreement); from `max_wait_k` on none waits.  Training does not
    depend on them.

    Training learns the translation in the column `label`, or the first where a cell lists several.  Scores compare with
    all of them, and with those in the columns `references`.  `bleu_tokenizer` is one of sacreBLEU's; `auto` chooses by
    the script of the references: zh for Chinese, char for others without spaces such as Japanese and Thai, else 13a.
    """

    text: str = "source"
    label: str = "target"
    wait_k: int | tuple[int, ...] | None = None
    catch_up: float = 0.0
    confidence: float = 0.0
    agreement: int = 0
    max_wait_k: int | None = None
    encoder: Literal["causal", "prefixes"] = "causal"
    layers: int | None = None
    label_smoothing: float = field(default=0.1, metadata=formerly("smoothing"))
    beam: int = 1
    references: tuple[str, ...] = ()
    bleu_tokenizer: BleuTokenizer = "auto"

    face: ClassVar = "translate"
    known_metrics: ClassVar = {"bleu": bleu, "chrf": chrf}
    default_metrics: ClassVar = 2
    answer_fields: ClassVar = ("label", "references")
    head_fields: ClassVar = ("layers",)
    decoding_fields: ClassVar = (
        "wait_k",
        "catch_up",
        "confidence",
        "agreement",
        "max_wait_k",
        "beam",
        "bleu_tokenizer",
    )
    column_fields: ClassVar = ("text", "label", "references")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.wait_k == ():
            raise UserError("wait_k: the list is empty; leave it out for whole sentences")
        for k in self.paths:
            self.policy(k)
        if self.paths == (None,):
            for name in ("catch_up", "confidence", "agreement", "max_wait_k", "encoder"):
                if getattr(self, name) != getattr(Translate, name):
                    raise UserError(f"{name}: is for translations that stay behind the source; set wait_k, too")
        elif self.max_wait_k is not None:
            if not (self.confidence or self.agreement):
                raise UserError("max_wait_k: is where no token waits any longer; set confidence or agreement, too")
            if self.max_wait_k <= (self.paths[0] or 0):
                raise UserError(f"max_wait_k: expected more than wait_k, {self.paths[0]}; found {self.max_wait_k}")
        check_least(self, beam=1)
        if self.layers is not None:
            check_least(self, layers=1)
            check_most(self, layers=MOST_LAYERS)
        check_smoothing(self.label_smoothing)

    def decoding_with(self, given: Mapping[str, Any], tokenizer: Tokenizer) -> Translate:
        task = self
        if given.get("wait_k", 1) is None and self.paths != (None,):
            raise UserError(f"wait_k: expected a number; with {self.max_len} or more whole sentences are read")
        if given.get("wait_k") is not None and self.paths == (None,):
            task = replace(self, wait_k=given["wait_k"], encoder="prefixes")  # as it was trained: in both directions
        adaptive = [given.get(name, getattr(self, name)) for name in ("confidence", "agreement")]
        if not any(adaptive) and "max_wait_k" not in given:
            given = {**given, "max_wait_k": None}  # which says where they end
        require_tokenizer(given.get("bleu_tokenizer", "auto"))
        return with_decoding(task, given, tokenizer)

    @property
    def paths(self) -> tuple[int | None, ...]:
        """The wait-k distances in training, the one for inference first; None is the whole sentence."""
        return (self.wait_k or (None,)) if isinstance(self.wait_k, tuple) else (self.wait_k,)

    def policy(self, k: int | None) -> WaitK:
        """Return the read/write policy."""
        from ernie.decode.wait_k import WaitK

        return WaitK(k, self.catch_up, self.confidence, self.max_wait_k, self.agreement)

    def example(self, row: Row, tokenizer: Tokenizer) -> Example:
        text = row.text(self.text)
        ids = encode_start(tokenizer, "" if is_blank(text) else text, self.max_len)
        return Example(
            (single(tokenizer, ids[: self.max_len - 2]),),
            cut=_excess(ids, self.max_len),
            empty=not len(ids),
            warnings=("a text that the vocabulary lacks characters of",) if (ids == tokenizer.unk_id).any() else (),
        )

    def training_example(self, row: Row, tokenizer: Tokenizer) -> Example:
        given = self.example(row, tokenizer)
        text = self.reference(row)
        ids = encode_start(tokenizer, text, self.max_len)
        written, _ = frame(tokenizer, ids[: self.max_len - 2])
        warnings = []
        if (ids == tokenizer.unk_id).any():
            warnings.append("a translation that the vocabulary lacks characters of")
        elif len(text) <= MOST_COUNTED and tokenizer.decode(ids.tolist()).lower().split() != text.lower().split():
            warnings.append("a translation that this vocabulary writes with other spaces or accents, which BLEU counts")
        if tokenizer.lowercase and text != text.lower():
            warnings.append("capitals in a translation, which BLEU counts and this vocabulary never writes")
        return replace(
            given,
            samples=(replace(given.samples[0], decoder_ids=written),),
            cut=given.cut + _excess(ids, self.max_len),
            warnings=(*given.warnings, *warnings),
        )

    def check_examples(self, examples: Sequence[Example], tokenizer: Tokenizer) -> None:
        require_tokenizer(self.bleu_tokenizer)
        samples = [sample for example in examples for sample in example.samples]
        columns = {
            self.text: [sample.ids for sample in samples],
            self.label: [sample.decoder_ids for sample in samples if sample.decoder_ids is not None],
        }
        # A mark of a word's beginning may be a token of its own, also before an unknown word.
        written_V = np.array([bool(text) for text in tokenizer.surface(tokenizer.tokens)])
        for column, rows in columns.items():
            tokens = sum(int(written_V[ids].sum()) - 2 for ids in rows)  # all but the special ones
            unknown = sum(int((ids == tokenizer.unk_id).sum()) for ids in rows)
            if 2 * unknown > tokens:
                raise UserError(
                    f"of the {plural(tokens, 'token')} of the column '{column}' the vocabulary does not know "
                    f"{unknown:,}: it was made for another language; train a tokenizer, and an encoder, on text of both"
                )

    def target(self, row: Row) -> str | tuple[str, ...]:
        """Return the reference translation of a row, or all of them if it has several."""
        texts = [text for column in answer_columns(self) for text in _texts(row, column)]
        if not texts:
            raise UserError(f"column '{self.label}': the translation is empty")
        return tuple(texts) if len(texts) > 1 else texts[0]

    def reference(self, row: Row) -> str:
        """Return the translation that training learns: the first of a row."""
        if not (texts := _texts(row, self.label)):
            raise UserError(f"column '{self.label}': the translation to learn is empty")
        return texts[0]

    def metric(self, name: str) -> Metric:
        return partial(bleu, tokenizer=self.bleu_tokenizer) if name == "bleu" else self.known_metrics[name]

    def signatures(self, rows: Sequence[Row]) -> dict[str, str]:
        targets = [self.target(row) for row in rows]
        return {name: signature(name, targets, self.bleu_tokenizer) for name in self.scored_by}

    def prediction(self, answer: Answer) -> str:
        return answer["translation"]

    def least_weights(self, width: int) -> int:
        return 8 * width**2 * (self.layers or 1)  # each layer has two attentions

    def head(self, model: ErnieModel) -> nn.Layer:
        from ernie.model.translation import TranslationHead

        return TranslationHead(model, self.layers)

    def computed_tokens(self, example: Example) -> int:
        """With `prefixes`, every encoded prefix of a source counts.  Of several distances the costliest one counts."""
        if self.encoder != "prefixes":
            return example.tokens
        return sum(self._prefixes(sample) for sample in example.samples)

    def _prefixes(self, sample: Sample) -> int:
        if sample.decoder_ids is None:
            return sample.size
        steps, whole = np.arange(len(sample.decoder_ids) - 1), len(sample) - 1
        read = (np.unique(self.policy(k).reads(steps, np.full(len(steps), whole))) + 1 for k in self.paths)
        return len(steps) + max(int(lengths.sum()) for lengths in read)

    def encoder_input(self, batch: Packed) -> tuple[Packed, Mask | None]:
        view = self._source_view(batch)
        return view.sources, view.mask

    def encode(self, ernie: ErnieModel, head: Any, batch: Packed, task_id: int) -> Tensor:
        sources, mask = self.encoder_input(batch)
        return ernie.encode_packed(sources, task_id, mask=mask)

    def head_loss(self, head: Any, hidden_TD: Tensor, batch: Packed) -> Loss:
        written = batch.decoder_tokens
        assert written is not None
        source = self._source_view(batch).source(head.decoder, hidden_TD)
        return head.loss(head(written.ids, written.layout, source), written.next, self.label_smoothing)

    def answer_all(self, ernie: ErnieModel, head: Any, examples: Sequence[Example], task_id: int) -> list[Answer]:
        from ernie.model.inference import tokenizer_of

        translator = self.translator(ernie, head, task_id)
        results = translator.translate([example.samples[0].ids[1:-1] for example in examples])
        decode = tokenizer_of(ernie).decode
        return [
            {
                "translation": decode(result.written),
                "delays": list(result.source_delays),
                "source_tokens": result.source,
            }
            for result in results
        ]

    def translator(
        self, ernie: ErnieModel, head: Any, task_id: int, policy: WaitK | None = None, beam: int | None = None
    ) -> TokenTranslator:
        """Return a translator of token streams, with another policy or beam than the task's own if given."""
        from ernie.decode.translator import TokenTranslator

        beam = self.beam if beam is None else beam
        check_count("beam", beam, 1)
        policy = policy or self.policy(self.paths[0])
        causal = self.encoder == "causal" and self.paths != (None,)
        return TokenTranslator(ernie, head, policy, causal=causal, beam=beam, task_id=task_id, max_len=self.max_len)

    def _source_view(self, batch: Packed) -> SourceView:
        """Return what encoder and decoder see of a batch.

        The distance of each row is sampled by the seed and its name, so it does not depend on the batch or the process.
        """
        from ernie.model.prefix_source import SourceView, source_lengths

        assert batch.decoder_tokens is not None
        layout, paths = batch.decoder_tokens.layout, self.paths
        if paths == (None,):
            return SourceView.whole(batch, layout)
        lengths_U = np.repeat(source_lengths(batch.layout), layout.lengths)
        # For each path P and token U: np.choose takes 64 paths at most.
        reads_PU = np.stack([self.policy(k).reads(layout.positions, lengths_U) for k in paths])
        path_U = np.repeat(self._sampled_paths(batch), layout.lengths)
        reads_U = reads_PU[path_U, np.arange(len(path_U))]
        return (SourceView.causal if self.encoder == "causal" else SourceView.prefixes)(batch, layout, reads_U)

    def _sampled_paths(self, batch: Packed) -> list[int]:
        """Return the index of the path that each sample is trained on."""
        if len(self.paths) == 1:
            return [0] * batch.layout.sequences
        return [int(rng.integers(len(self.paths))) for rng in batch.generators("wait_k")]


def _texts(row: Row, column: str) -> list[str]:
    """Return the translations in a cell without empty ones: of a text, or of a list of texts, perhaps spelled as text.

    A text such as [1, 2] is a translation.
    """
    cell = row.cell(column)
    items = as_list(cell)
    if isinstance(cell, str) and items is not None and not all(isinstance(item, str) for item in items):
        items = None
    texts = row.texts(column, "translations") if items is not None else [] if is_empty(cell) else [row.text(column)]
    return [text for text in texts if not is_blank(text)]


def _excess(ids: np.ndarray, max_len: int) -> int:
    return max(0, len(ids) + 2 - max_len)
