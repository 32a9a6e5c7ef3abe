"""Weight names of each format: one table per format, for both reading and writing."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass, field

from ernie.errors import UserError

# Prefixes of all names in a file: of models within others, and of those that torch has wrapped.
WRAPPERS = r"(?:module|model|_orig_mod|auto_model|encoder|backbone|\d+)\."
HEAD = "masked_head."  # prefix of the masked-token head's parameters in mappings shared with the encoder's


@dataclass(frozen=True)
class Names:
    """The weight names of one format.

    `encoder` and `head` map our module names to theirs, where `{i}` is the number of a layer.  Parameters are named by
    suffixes that depend on the kind of module: `linear` and `norm` (weight, bias), `embedding` (weight).  `bias` is the
    head's bias over the vocabulary.  `prefixes` are possible prefixes of all encoder names.  `transposed` formats store
    linear weights as (out, in); ours, like Paddle's, are (in, out).  `copies` maps redundant parameters, such as a
    head's tied embedding matrix and its bias, to ours; those in `written` are required by the framework.  `spellings`
    maps older suffixes to current ones.
    """

    encoder: Mapping[str, str]
    head: Mapping[str, str]
    bias: str
    linear: tuple[str, str] = (".weight", ".bias")
    norm: tuple[str, str] = (".weight", ".bias")
    embedding: str = ".weight"
    prefixes: tuple[str, ...] = ("",)
    transposed: bool = False
    copies: Mapping[str, str] = field(default_factory=dict)
    written: tuple[str, ...] = ()
    spellings: Mapping[str, str] = field(default_factory=dict)

    def of_encoder(self, layers: int, prefix: str) -> dict[str, str]:
        """Map our names to theirs, for all parameters of the encoder, including optional ones."""
        table: dict[str, str] = {}
        for ours, theirs in self.encoder.items():
            for i in range(layers) if "{i}" in ours else (0,):
                table.update(self._parameters(ours.replace("{i}", str(i)), prefix + theirs.replace("{i}", str(i))))
        return table

    def of_head(self) -> dict[str, str]:
        """Map our names to theirs, for the masked-token head."""
        table = {f"{HEAD}bias": self.bias}
        for ours, theirs in self.head.items():
            table.update(self._parameters(f"{HEAD}{ours}", theirs))
        return table

    def prefix(self, weights: Container[str]) -> str | None:
        """Return the prefix of the encoder's names among `weights`; None if they are not in this format."""
        # The token embeddings may be stored once, under the name of a tied copy.
        marks = [self.encoder[name] + self.embedding for name in ("embedding.token", "embedding.position")]
        found = (prefix for mark in marks for prefix in self.prefixes if prefix + mark in weights)
        return next(found, None)

    def without_wrapper(self, names: Iterable[str]) -> dict[str, str]:
        """Map names without the prefix of a wrapper around the whole model, such as `module.`, to those of the file.

        Raises UserError if two parts of a file hold an encoder.
        """
        token = self.encoder["embedding.token"] + self.embedding
        known = re.compile(rf"((?:{WRAPPERS})*)(?:{'|'.join(map(re.escape, self.prefixes))}){re.escape(token)}")
        given = list(names)
        wrappers = {match[1] for name in given if (match := known.fullmatch(name))}
        if len(wrappers) > 1:
            raise UserError(f"holds {len(wrappers)} encoders, under {' and '.join(map(repr, sorted(wrappers)))}")
        wrapper = next(iter(wrappers), "")
        return {name.removeprefix(wrapper): name for name in given}

    def normalize_spelling(self, names: Iterable[str]) -> dict[str, str]:
        """Map their names in current spelling to the names as spelled in the file."""
        current = {}
        for name in names:
            suffix = next((old for old in self.spellings if name.endswith(old)), None)
            current[name if suffix is None else name.removesuffix(suffix) + self.spellings[suffix]] = name
        return current

    def is_transposed(self, ours: str) -> bool:
        """Whether the weight that we call `ours` is transposed in this format."""
        return self.transposed and ours.endswith(".weight") and _kind(ours.rpartition(".")[0]) == "linear"

    def _parameters(self, ours: str, theirs: str) -> dict[str, str]:
        kind = _kind(ours)
        if kind == "embedding":
            return {f"{ours}.weight": theirs + self.embedding}
        weight, bias = self.norm if kind == "norm" else self.linear
        return {f"{ours}.weight": theirs + weight, f"{ours}.bias": theirs + bias}


def _kind(module: str) -> str:
    """Return the kind of our module: "embedding", "norm" or "linear"."""
    if module.endswith("norm"):
        return "norm"
    return "embedding" if module.startswith("embedding.") else "linear"


HUGGING_FACE = Names(
    encoder={
        "embedding.token": "embeddings.word_embeddings",
        "embedding.position": "embeddings.position_embeddings",
        "embedding.segment": "embeddings.token_type_embeddings",
        "embedding.task": "embeddings.task_type_embeddings",
        "embedding.norm": "embeddings.LayerNorm",
        "encoder.layers.{i}.q": "encoder.layer.{i}.attention.self.query",
        "encoder.layers.{i}.k": "encoder.layer.{i}.attention.self.key",
        "encoder.layers.{i}.v": "encoder.layer.{i}.attention.self.value",
        "encoder.layers.{i}.attention_out": "encoder.layer.{i}.attention.output.dense",
        "encoder.layers.{i}.attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
        "encoder.layers.{i}.inner": "encoder.layer.{i}.intermediate.dense",
        "encoder.layers.{i}.outer": "encoder.layer.{i}.output.dense",
        "encoder.layers.{i}.output_norm": "encoder.layer.{i}.output.LayerNorm",
        "pooler.dense": "pooler.dense",
    },
    head={"transform": "cls.predictions.transform.dense", "norm": "cls.predictions.transform.LayerNorm"},
    bias="cls.predictions.bias",
    prefixes=("", "bert.", "ernie."),
    transposed=True,
    copies={
        "cls.predictions.decoder.weight": "embedding.token.weight",
        "cls.predictions.decoder.bias": f"{HEAD}bias",
    },
    spellings={"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"},
)

PADDLENLP = Names(
    encoder={
        "embedding.token": "embeddings.word_embeddings",
        "embedding.position": "embeddings.position_embeddings",
        "embedding.segment": "embeddings.token_type_embeddings",
        "embedding.task": "embeddings.task_type_embeddings",
        "embedding.norm": "embeddings.layer_norm",
        "encoder.layers.{i}.q": "encoder.layers.{i}.self_attn.q_proj",
        "encoder.layers.{i}.k": "encoder.layers.{i}.self_attn.k_proj",
        "encoder.layers.{i}.v": "encoder.layers.{i}.self_attn.v_proj",
        "encoder.layers.{i}.attention_out": "encoder.layers.{i}.self_attn.out_proj",
        "encoder.layers.{i}.attention_norm": "encoder.layers.{i}.norm1",
        "encoder.layers.{i}.inner": "encoder.layers.{i}.linear1",
        "encoder.layers.{i}.outer": "encoder.layers.{i}.linear2",
        "encoder.layers.{i}.output_norm": "encoder.layers.{i}.norm2",
        "pooler.dense": "pooler.dense",
    },
    head={"transform": "cls.predictions.transform", "norm": "cls.predictions.layer_norm"},
    bias="cls.predictions.decoder_bias",
    prefixes=("", "ernie.", "bert."),
    copies={
        "cls.predictions.decoder_weight": "embedding.token.weight",
        "cls.predictions.decoder.weight": "embedding.token.weight",
        "cls.predictions.decoder.bias": f"{HEAD}bias",
    },
    written=("cls.predictions.decoder.weight", "cls.predictions.decoder.bias"),
)

# The releases for Paddle 1.x: one file per variable.
OFFICIAL = Names(
    encoder={
        "embedding.token": "word_embedding",
        "embedding.position": "pos_embedding",
        "embedding.segment": "sent_embedding",
        "embedding.task": "task_embedding",
        "embedding.norm": "pre_encoder_layer_norm",
        "encoder.layers.{i}.q": "encoder_layer_{i}_multi_head_att_query_fc",
        "encoder.layers.{i}.k": "encoder_layer_{i}_multi_head_att_key_fc",
        "encoder.layers.{i}.v": "encoder_layer_{i}_multi_head_att_value_fc",
        "encoder.layers.{i}.attention_out": "encoder_layer_{i}_multi_head_att_output_fc",
        "encoder.layers.{i}.attention_norm": "encoder_layer_{i}_post_att_layer_norm",
        "encoder.layers.{i}.inner": "encoder_layer_{i}_ffn_fc_0",
        "encoder.layers.{i}.outer": "encoder_layer_{i}_ffn_fc_1",
        "encoder.layers.{i}.output_norm": "encoder_layer_{i}_post_ffn_layer_norm",
        "pooler.dense": "pooled_fc",
    },
    head={"transform": "mask_lm_trans_fc", "norm": "mask_lm_trans_layer_norm"},
    bias="mask_lm_out_fc.b_0",
    linear=(".w_0", ".b_0"),
    norm=("_scale", "_bias"),
    embedding="",
)

# The releases for dynamic graphs: saved_weights.pdparams.
OFFICIAL_DYNAMIC = Names(
    encoder={
        "embedding.token": "word_emb",
        "embedding.position": "pos_emb",
        "embedding.segment": "sent_emb",
        "embedding.task": "task_emb",
        "embedding.norm": "ln",
        "encoder.layers.{i}.q": "encoder_stack.block.{i}.attn.q",
        "encoder.layers.{i}.k": "encoder_stack.block.{i}.attn.k",
        "encoder.layers.{i}.v": "encoder_stack.block.{i}.attn.v",
        "encoder.layers.{i}.attention_out": "encoder_stack.block.{i}.attn.o",
        "encoder.layers.{i}.attention_norm": "encoder_stack.block.{i}.ln1",
        "encoder.layers.{i}.inner": "encoder_stack.block.{i}.ffn.i",
        "encoder.layers.{i}.outer": "encoder_stack.block.{i}.ffn.o",
        "encoder.layers.{i}.output_norm": "encoder_stack.block.{i}.ln2",
        "pooler.dense": "pooler",
    },
    head={"transform": "mlm", "norm": "mlm_ln"},
    bias="mlm_bias",
)

# Devlin et al.'s own TensorFlow checkpoints.
TENSORFLOW = Names(
    encoder={
        "embedding.token": "bert/embeddings/word_embeddings",
        "embedding.position": "bert/embeddings/position_embeddings",
        "embedding.segment": "bert/embeddings/token_type_embeddings",
        "embedding.norm": "bert/embeddings/LayerNorm",
        "encoder.layers.{i}.q": "bert/encoder/layer_{i}/attention/self/query",
        "encoder.layers.{i}.k": "bert/encoder/layer_{i}/attention/self/key",
        "encoder.layers.{i}.v": "bert/encoder/layer_{i}/attention/self/value",
        "encoder.layers.{i}.attention_out": "bert/encoder/layer_{i}/attention/output/dense",
        "encoder.layers.{i}.attention_norm": "bert/encoder/layer_{i}/attention/output/LayerNorm",
        "encoder.layers.{i}.inner": "bert/encoder/layer_{i}/intermediate/dense",
        "encoder.layers.{i}.outer": "bert/encoder/layer_{i}/output/dense",
        "encoder.layers.{i}.output_norm": "bert/encoder/layer_{i}/output/LayerNorm",
        "pooler.dense": "bert/pooler/dense",
    },
    head={"transform": "cls/predictions/transform/dense", "norm": "cls/predictions/transform/LayerNorm"},
    bias="cls/predictions/output_bias",
    linear=("/kernel", "/bias"),
    norm=("/gamma", "/beta"),
    embedding="",
)
