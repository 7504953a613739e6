"""Actions of a bounded Box, scaled to [-1, 1]."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from torch import Tensor


class BoxScale:
    """Maps the actions of a Box to [-1, 1] in each dimension, and back.

    Args:
        space: a Box of floats with finite bounds.
        who: named in errors.

    Raises:
        TypeError: for another space.
        ValueError: if a bound is infinite, or a lower bound is not below its upper bound.

    Attributes:
        space: the Box.
        size: number of elements in an action.
    """

    def __init__(self, space: Any, who: str) -> None:
        if not isinstance(space, spaces.Box) or not np.issubdtype(space.dtype, np.floating):
            raise TypeError(
                f"{who}: expected actions of a Box of floats, got {space}; "
                "discrete actions need DQN or PPO"
            )
        low, high = space.low.astype(np.float64), space.high.astype(np.float64)
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low < high).all()):
            raise ValueError(
                f"{who}: expected a Box with finite bounds, low < high, got {space}; wrap the environment in "
                "gymnasium.wrappers.ClipAction or RescaleAction"
            )
        self.space = space
        self.size = low.size
        self._is_unit = bool((low == -1).all() and (high == 1).all())
        self._half = torch.as_tensor((high - low) / 2, dtype=torch.float32)
        self._middle = torch.as_tensor((high + low) / 2, dtype=torch.float32)

    def to_unit(self, action: Tensor) -> Tensor:
        """Return actions `[..., *shape]` scaled and flattened to [..., size], in [-1, 1]."""
        if not self._is_unit:
            action = (action - self._like(self._middle, action)) / self._like(self._half, action)
        shape: Any = self.space.shape
        return action if len(shape) == 1 else action.reshape(*self._leading(action, shape), -1)

    def from_unit(self, unit: Tensor) -> Tensor:
        """Return the actions `[..., *shape]` of the numbers [..., size] in [-1, 1]."""
        shape: Any = self.space.shape
        action = unit if len(shape) == 1 else unit.reshape((*unit.shape[:-1], *shape))
        if self._is_unit:
            return action
        return action * self._like(self._half, unit) + self._like(self._middle, unit)

    @staticmethod
    def _leading(action: Tensor, shape: tuple[int, ...]) -> tuple[int, ...]:
        return tuple(action.shape[: action.dim() - len(shape)])

    @staticmethod
    def _like(bound: Tensor, action: Tensor) -> Tensor:
        return bound.to(action.device, action.dtype)
