"""A text encoder as a model of the package `mteb`, the benchmark of text embeddings.

Muennighoff et al., 2023, "MTEB: Massive Text Embedding Benchmark" (arXiv 2210.07316).  `mteb` brings PyTorch along.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import numpy as np

from ernie.errors import UserError
from ernie.model.sentence import SentenceConfig, normalized
from inference.encoder import TextEncoder

_OTHER_NAMES = {"document": ("passage", "corpus")}  # of prompts for one type of text


class MtebEncoder:
    """What `mteb.evaluate` takes as a model: `mteb.evaluate(MtebEncoder(inference.load(path), "org/name"), tasks)`.

    Prompts of the model are chosen by task and type of text, as for models of sentence-transformers.  `name` has the
    form ORGANIZATION/MODEL, under which results are kept.
    """

    def __init__(self, encoder: TextEncoder, name: str = "ernie/encoder", revision: str = "local"):
        if not isinstance(encoder, TextEncoder):
            raise UserError(f"expected an encoder, as inference.load returns it, found a {type(encoder).__name__}")
        if name.count("/") != 1 or not all(name.split("/")):
            raise UserError(f"name: expected ORGANIZATION/MODEL, found '{name}'")
        self.encoder, self._name, self._revision = encoder, name, revision

    @cached_property
    def mteb_model_meta(self) -> Any:
        """What mteb notes of the model beside its scores."""
        from mteb.models.model_meta import ModelMeta

        config, facts = self._config, self.encoder.facts
        width = self.encoder.encode(["a"]).shape[1]
        return ModelMeta.create_empty(
            {
                "name": self._name,
                "revision": self._revision,
                "n_parameters": facts.weights,
                "max_tokens": config.max_len or self.encoder.model.ernie.config.max_positions,
                "embed_dim": width,
                "similarity_fn_name": "dot" if self._is_product else "cosine",
                "use_instructions": bool(config.prompts),
            }
        )

    @property
    def _config(self) -> SentenceConfig:
        return self.encoder.model.ernie.sentence_config or SentenceConfig()

    @property
    def _is_product(self) -> bool:
        return self._config.similarity in ("dot", "dot_product")

    @property
    def _prompts(self) -> Mapping[str, str]:
        found = dict(self._config.prompts)
        for name, others in _OTHER_NAMES.items():
            for other in others:
                if other in found:
                    found.setdefault(name, found[other])
        return found

    def encode(
        self,
        inputs: Iterable[Mapping[str, Any]],
        *,
        task_metadata: Any,
        hf_split: str,
        hf_subset: str,
        prompt_type: Any = None,
        **_: Any,
    ) -> np.ndarray:
        """Return the vector of each text (N, D); `inputs` are batches whose texts have the key "text"."""
        from mteb.models.abs_encoder import get_prompt_name

        texts = [text for batch in inputs for text in batch["text"]]
        prompts = self._prompts
        name = get_prompt_name(dict(prompts), task_metadata, prompt_type)
        return self.encoder.encode(texts, prompt=None if name is None else prompts[name])

    def similarity(self, one: Any, other: Any) -> Any:
        """Return the similarity of each of some vectors with each of others, a tensor of PyTorch (N, M)."""
        import torch

        one, other = (self._unit(np.atleast_2d(np.asarray(vectors))) for vectors in (one, other))
        return torch.from_numpy(one @ other.T)

    def similarity_pairwise(self, one: Any, other: Any) -> Any:
        """Return the similarity of each of some vectors with the one of the same number, a tensor of PyTorch (N,)."""
        import torch

        one, other = (self._unit(np.atleast_2d(np.asarray(vectors))) for vectors in (one, other))
        return torch.from_numpy((one * other).sum(1))

    def _unit(self, vectors_ND: np.ndarray) -> np.ndarray:
        return vectors_ND if self._is_product else normalized(vectors_ND)
