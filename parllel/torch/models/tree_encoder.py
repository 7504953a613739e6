"""Encoders of structured and discrete observations."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parllel.buffers.paths import field_at
from parllel.types import Tree


class TreeEncoder(nn.Module):
    """Concatenates the features of all parts of an observation, [N, n_features].

    Args:
        encoders: by the part's name in the tree (the key in a Dict space; "_0", "_1", ... in a Tuple). Each
            maps its part to [N, encoder.n_features], and may be a TreeEncoder itself.

    Attributes:
        n_features: total number of features of the encoders.

    Raises:
        ValueError: if there are no encoders; in `forward`, if the observation lacks a part.
    """

    def __init__(self, encoders: Mapping[str, nn.Module]) -> None:
        super().__init__()
        if not encoders:
            raise ValueError("TreeEncoder: expected at least one encoder, got none")
        self.names = tuple(encoders)
        # Not a ModuleDict: part names could clash with methods of the module.
        self.encoders = nn.ModuleList(encoders.values())
        sizes: list[Any] = [one.n_features for one in encoders.values()]
        self.n_features = int(sum(sizes))

    def forward(self, observation: Tree) -> Tensor:
        """Return the features of the parts, in the order of the names."""
        pairs = zip(self.names, self.encoders, strict=True)
        return torch.cat([encode(field_at(observation, name)) for name, encode in pairs], dim=-1)


class FlatEncoder(nn.Module):
    """Flattens numbers `[N, *shape]` to float32 [N, n_features]."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.n_features = math.prod(shape)

    def forward(self, observation: Tensor) -> Tensor:
        """Return the same numbers."""
        # Not `len`, here and below: an export would record it as a constant.
        return observation.reshape(observation.shape[0], -1).to(torch.float32)


class OneHotEncoder(nn.Module):
    """One-hot encodes choices [N] or `[N, *shape]` as [N, n_features].

    A value that is not one of the options, such as a zero in an example observation, is encoded as
    all zeros.

    Args:
        counts: number of options of each of the flattened choices.
        starts: the lowest value of each choice.
    """

    def __init__(self, counts: Sequence[int], starts: Sequence[int]) -> None:
        super().__init__()
        self.counts, self.starts = tuple(counts), tuple(starts)
        self.n_features = sum(self.counts)

    def forward(self, observation: Tensor) -> Tensor:
        """Return float32 [N, n_features]."""
        # By comparison: `functional.one_hot` raises for values that are not one of the options.
        choices = observation.reshape(observation.shape[0], -1, 1)
        parts = [
            choices[:, i] == torch.arange(start, start + n, device=choices.device)
            for i, (n, start) in enumerate(zip(self.counts, self.starts, strict=True))
        ]
        return torch.cat(parts, dim=-1).to(torch.float32)
