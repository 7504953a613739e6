"""Initial weights that depend only on the generator."""

from __future__ import annotations

import math
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

Layer = TypeVar("Layer", nn.Linear, nn.Conv2d)


def orthogonal_layer(
    kind: type[Layer], *sizes: Any, gain: float, generator: torch.Generator
) -> Layer:
    """Return a linear layer with orthogonal weights and zero bias."""
    layer = _layer(kind, *sizes)
    orthogonal_(layer.weight, gain, generator=generator)
    assert layer.bias is not None
    nn.init.zeros_(layer.bias)
    return layer


def uniform_layer(n_inputs: int, n_outputs: int, generator: torch.Generator) -> nn.Linear:
    """Return a linear layer with PyTorch's defaults: weights and biases uniform within 1 / sqrt(n_inputs)."""
    layer = _layer(nn.Linear, n_inputs, n_outputs)
    bound = 1 / math.sqrt(n_inputs)
    for parameter in (layer.weight, layer.bias):
        nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return layer


def _layer(kind: type[Layer], *sizes: Any) -> Layer:
    # nn.Linear first draws weights from the global generator, which must not change. `nn.utils.skip_init`
    # avoids that, but imports sympy: half a second for each process with a policy.
    with torch.random.fork_rng(devices=()):
        return kind(*sizes)


def orthogonal_(weight: Tensor, gain: float = 1.0, *, generator: torch.Generator) -> Tensor:
    """Fill `weight` by `nn.init.orthogonal_`, independently of the number of threads, and return it.

    The QR decomposition rounds differently with several threads, so a run repeated with another number of
    threads would start from different weights.
    """
    # The setting is per process, so it is restored, also after an error.
    n_threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        return nn.init.orthogonal_(weight, gain, generator=generator)
    finally:
        torch.set_num_threads(n_threads)
