"""Low-rank adaptation: in training, matrices of an encoder follow from few weights (Hu et al., 2021, arXiv 2106.09685).

A matrix W (in, out) is kept at W0 + scale * A B, where W0 is the pretrained one, A (in, rank) and B (rank, out) are
learned, and scale is alpha / rank (section 4.1, whose matrices are the transposes of ours).  The kernels take W like
any other weight, and so does everything that scores or saves the encoder.  In training they are given the factors, too,
which get gradients in its place.

Legend: r rank, D and E widths.
"""

from __future__ import annotations

import json
import math
from pathlib import Path

import numpy as np
import paddle
from paddle import Tensor, nn

from ernie.atomic import make_folder
from ernie.data import seeded_rng
from ernie.errors import UserError
from ernie.kernels.low_rank import set_from_factors
from ernie.kernels.types import Factors
from ernie.model.adapted import ADAPTER_SETTINGS, ADAPTER_WEIGHTS, MATRICES, PEFT_PREFIX, POOLER, base_fingerprint
from ernie.model.base_encoder import BaseEncoder
from ernie.model.published.names import HUGGING_FACE
from ernie.model.weights import arrays, save_arrays
from ernie.train.adapter_config import TARGETS, AdapterConfig


class LowRankUpdate(nn.Layer):
    """The factors `a` (D, r) and `b` (r, E) of what is added to a weight (D, E).

    `b` is 0 at first, so that training starts from the pretrained weight, and `a` is uniform as in the authors' code.
    """

    def __init__(self, weight: Tensor, rank: int, scale: float, generator: np.random.Generator):
        super().__init__()
        D, E = weight.shape
        if rank > min(D, E):
            raise UserError(
                f"train.adapt.rank: expected at most {min(D, E)}, as the encoder's matrices are {D} x {E}, found {rank}"
            )
        zero = nn.initializer.Constant(0.0)
        self.a = self.create_parameter([D, rank], dtype=weight.dtype, default_initializer=zero)
        self.b = self.create_parameter([rank, E], dtype=weight.dtype, default_initializer=zero)
        bound = 1 / math.sqrt(D)
        self.a.set_value(paddle.to_tensor(generator.uniform(-bound, bound, (D, rank)), dtype=weight.dtype))
        self._scale = scale
        self._weights = weight, weight.detach().clone()  # in a tuple: the encoder's own, not to be registered again

    @property
    def weight(self) -> Tensor:
        """The encoder's weight."""
        return self._weights[0]

    @property
    def factors(self) -> Factors:
        """What the weight is trained by."""
        return Factors(self.a, self.b, self._scale)

    @paddle.no_grad()
    def merge(self) -> None:
        """Set the weight from the pretrained one and the factors."""
        set_from_factors(*self._weights, self.factors)


class Adapter(nn.Layer):
    """The low-rank updates of an encoder's layers.  All other weights of the encoder are frozen, but for the pooler's.

    The encoder has its pretrained weights when the adapter is made.  `updates` are keyed by the encoder's names for the
    layers that they change, such as `encoder.layers.0.q`.  Raises UserError for a rank above the encoder's width.
    """

    def __init__(self, ernie: BaseEncoder, config: AdapterConfig, seed: int):
        super().__init__()
        self.config = config
        self.fingerprint = base_fingerprint(ernie)
        for name, parameter in ernie.named_parameters():
            if not name.startswith(POOLER):
                parameter.stop_gradient = True
        scale = config.alpha / config.rank
        self.updates: dict[str, LowRankUpdate] = {}
        self.layers = nn.LayerList()
        for number, layer in enumerate(ernie.encoder.layers):
            updates = {}
            for name in map(TARGETS.__getitem__, config.targets):
                generator = seeded_rng.generator(seed, "adapter", number, name)
                updates[name] = LowRankUpdate(getattr(layer, name).weight, config.rank, scale, generator)
                self.updates[f"encoder.layers.{number}.{name}"] = updates[name]
            layer.factors = {MATRICES[name]: update.factors for name, update in updates.items()}
            self.layers.append(nn.LayerDict(updates))

    def merge(self) -> None:
        """Set the encoder's weights from the factors."""
        for update in self.updates.values():
            update.merge()

    def write(self, folder: Path, pooler: nn.Layer, base: str) -> None:
        """Write all that is learned of the encoder to a folder, in the files and with the names of the library PEFT.

        `base` is the name of the pretrained encoder.
        """
        make_folder(folder)
        theirs = HUGGING_FACE.of_encoder(len(self.layers), "")
        modules = {name: theirs[f"{name}.weight"].removesuffix(".weight") for name in self.updates}
        values: dict[str, np.ndarray] = {}
        for name, update in self.updates.items():
            for part, factor in (("lora_A", update.a), ("lora_B", update.b)):
                values[f"{PEFT_PREFIX}{modules[name]}.{part}.weight"] = np.ascontiguousarray(factor.numpy().T)
        for name, array in arrays(pooler).items():
            own = f"{POOLER}{name}"
            turned = array.T if HUGGING_FACE.is_transposed(own) else array
            values[f"{PEFT_PREFIX}{theirs[own]}"] = np.ascontiguousarray(turned)
        save_arrays(values, folder / ADAPTER_WEIGHTS, {"format": "pt"})
        settings = {
            "peft_type": "LORA",
            "task_type": "FEATURE_EXTRACTION",
            "base_model_name_or_path": base,
            "base_fingerprint": self.fingerprint,
            "r": self.config.rank,
            "lora_alpha": self.config.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "target_modules": list(modules.values()),
            "modules_to_save": [POOLER.removesuffix(".")],
            "inference_mode": True,
        }
        (folder / ADAPTER_SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
