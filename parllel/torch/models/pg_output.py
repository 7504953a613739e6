"""What a model for policy gradients returns."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from parllel.types import Tree


class PgOutput(NamedTuple):
    """`params` as the distribution wants them, and `value` [N]."""

    params: Tree
    value: Tensor
