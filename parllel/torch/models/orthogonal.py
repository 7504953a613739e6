"""Orthogonal weights that depend on nothing but the generator."""

from __future__ import annotations

from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal_layer(
    kind: type[Layer], *sizes: Any, gain: float, generator: torch.Generator
) -> Layer:
    """Return a layer of these sizes with orthogonal weights and a bias of zeros."""
    # It first draws weights from the global generator, which is to stay as it is. `nn.utils.skip_init` draws
    # none, but imports sympy for it: half a second for each process that has a policy.
    with torch.random.fork_rng(devices=()):
        layer = kind(*sizes)
    orthogonal_(layer.weight, gain, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


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
