"""Masks of forbidden actions, which are parts of observations."""

from __future__ import annotations

from torch import Tensor

from parllel.buffers.paths import field_at
from parllel.types import Tree


def allowed_actions(observation: Tree, path: str, n_actions: int, who: str) -> Tensor:
    """Return which actions the mask at `path` of observations [N, ...] allows, bool [N, n_actions].

    A mask that forbids everything is ignored. `who` is named in errors.

    Raises:
        ValueError: if observations have no mask, or one of another size.
    """
    mask: Tensor = field_at(observation, path)
    if mask.shape[1:].numel() != n_actions:
        raise ValueError(
            f"{who}: action_mask {path!r}: expected {n_actions} numbers for each observation, got shape "
            f"{tuple(mask.shape[1:])}"
        )
    # Not `len`, which an export would record as a constant.
    allowed = mask.reshape(mask.shape[0], -1) != 0
    # Nobody acts on such observations: the last of an episode, and zeros of agents that have left. With
    # outputs of only -inf their NaN would reach the gradients of all steps.
    return allowed | ~allowed.any(dim=1, keepdim=True)
