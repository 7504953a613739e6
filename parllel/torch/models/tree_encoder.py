"""Encoders of observations that are not one array of numbers."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from parllel.buffers.paths import field_at
from parllel.types import Tree


class TreeEncoder(nn.Module):
    """Concatenate the features of all parts of an observation, [N, n_features].

    Args:
        encoders: by the names that the parts have in the tree (those of a Dict space; "_0", "_1", ... for a
            Tuple). Each maps its part to [N, encoder.n_features] and may be a TreeEncoder itself.

    Attributes:
        n_features: the sum of theirs.

    Raises:
        ValueError: if there are none; in `forward` if the observation lacks a part.
    """

    def __init__(self, encoders: Mapping[str, nn.Module]) -> None:
        super().__init__()
        if not encoders:
            raise ValueError("TreeEncoder: expected at least one encoder, got none")
        self.names = tuple(encoders)
        # A list: names of parts could clash with those of a module's methods.
        self.encoders = nn.ModuleList(encoders.values())
        sizes: list[Any] = [one.n_features for one in encoders.values()]
        self.n_features = int(sum(sizes))

    def forward(self, observation: Tree) -> Tensor:
        """Return the features of the parts, in the order of the names."""
        pairs = zip(self.names, self.encoders, strict=True)
        return torch.cat([encode(field_at(observation, name)) for name, encode in pairs], dim=-1)


class FlatEncoder(nn.Module):
    """Flatten numbers `[N, *shape]` to float32 [N, n_features]."""

    def __init__(self, shape: Sequence[int]) -> None:
        super().__init__()
        self.n_features = math.prod(shape)

    def forward(self, observation: Tensor) -> Tensor:
        """Return the same numbers."""
        return observation.reshape(len(observation), -1).to(torch.float32)


class OneHotEncoder(nn.Module):
    """Turn choices [N] or `[N, *shape]` into a 1 for what was chosen and 0 for the rest, [N, n_features].

    A value that is none of the choices, such as the zeros of an example, becomes zeros alone.

    Args:
        counts: number of options of each of the flattened choices.
        starts: the least value of each.
    """

    def __init__(self, counts: Sequence[int], starts: Sequence[int]) -> None:
        super().__init__()
        self.counts, self.starts = tuple(counts), tuple(starts)
        self.n_features = sum(self.counts)

    def forward(self, observation: Tensor) -> Tensor:
        """Return float32 [N, n_features]."""
        # Compared, and not by `functional.one_hot`, which raises for what is none of the choices.
        choices = observation.reshape(len(observation), -1, 1)
        parts = [
            choices[:, i] == torch.arange(start, start + n, device=choices.device)
            for i, (n, start) in enumerate(zip(self.counts, self.starts, strict=True))
        ]
        return torch.cat(parts, dim=-1).to(torch.float32)
