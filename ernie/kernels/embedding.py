"""Sum of embeddings, normalized.  Legend: T packed tokens, D width."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import paddle
import paddle.nn.functional as F
from paddle import Tensor

from ernie.errors import UserError
from ernie.kernels import cpu
from ernie.kernels.argument_checks import check_dropout, row_indices, sizes
from ernie.kernels.choose import choose
from ernie.kernels.layer_norm import layer_norm
from ernie.kernels.upload import on_device


def embed(
    ids: Sequence[np.ndarray],
    tables: Sequence[Tensor],
    gain_D: Tensor,
    offset_D: Tensor,
    epsilon: float,
    dropout: float = 0.0,
    names: Sequence[str] = (),
) -> Tensor:
    """dropout(LayerNorm(sum of table[ids])): an array of ids (T,) for each table (rows, D), to (T, D).

    Ids stay on the host, where they are made and checked; `names` are what error messages call the ids of each table.
    Raises UserError if an id is out of range or the shapes do not fit.

    Devlin et al. (2019, arXiv 1810.04805), section 3.2.
    """
    check_dropout(dropout)
    for table in tables:
        sizes(gain_D=gain_D, offset_D=offset_D, table_VD=table)
    impl = choose((*tables, gain_D, offset_D), reference, cpu.embedding.embed)
    names = names or ["id"] * len(tables)
    checked = [row_indices(ids_T, len(table), name) for ids_T, table, name in zip(ids, tables, names, strict=True)]
    lengths = [len(ids_T) for ids_T in checked]
    if len(set(lengths)) > 1:
        raise UserError(f"{lengths[0]} token ids, but {', '.join(map(str, lengths[1:]))} ids for the other tables")
    return impl(checked, tables, gain_D, offset_D, epsilon, dropout)


def reference(
    ids: Sequence[np.ndarray],
    tables: Sequence[Tensor],
    gain_D: Tensor,
    offset_D: Tensor,
    epsilon: float,
    dropout: float,
) -> Tensor:
    """Reference implementation in plain Paddle."""
    rows = [F.embedding(on_device(ids_T), table) for ids_T, table in zip(ids, tables, strict=True)]
    total_TD = paddle.add_n(rows)
    return F.dropout(layer_norm(total_TD, gain_D, offset_D, epsilon), dropout)
