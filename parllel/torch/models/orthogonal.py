"""Orthogonal weights that depend on nothing but the generator."""

from __future__ import annotations

import torch
from torch import Tensor, nn


def orthogonal_(weight: Tensor, gain: float = 1.0, *, generator: torch.Generator) -> Tensor:
    """Fill `weight` with `nn.init.orthogonal_`, the same for each number of threads; return it.

    The QR decomposition rounds differently with several threads, so a run repeated in a process that
    computes with another number of them would start from other weights.
    """
    # The number is the whole process's, so it is put back, also after an error.
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return nn.init.orthogonal_(weight, gain, generator=generator)
    finally:
        torch.set_num_threads(n_threads)
