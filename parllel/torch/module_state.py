"""Conversion of modules and optimisers to numpy arrays and JSON values, for checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.types import State


def module_state(module: nn.Module) -> dict[str, NDArray[Any]]:
    """Return copies of all parameters and buffers of `module`, keyed by name."""
    return {name: _to_numpy(tensor) for name, tensor in module.state_dict().items()}


def load_module_state(module: nn.Module, state: Mapping[str, NDArray[Any]]) -> None:
    """Copy arrays into the parameters and buffers of `module`, in place.

    Raises:
        ValueError: if names or shapes differ; nothing is copied in that case.
    """
    own = module.state_dict()
    if own.keys() != state.keys():
        raise ValueError(
            f"{type(module).__name__}: expected the parameters {sorted(own)}, got {sorted(state)}"
        )
    # Check all shapes before the first copy: `copy_` would broadcast, and a model must not be half loaded.
    for name, tensor in own.items():
        expected, got = tuple(tensor.shape), np.shape(state[name])
        if expected != got:
            raise ValueError(
                f"{type(module).__name__}: {name}: expected shape {expected}, got {got}"
            )
    # In place, because the optimiser and handlers hold these tensors.
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(_to_tensor(state[name]))


def optimizer_state(optimizer: torch.optim.Optimizer) -> State:
    """Return the options, and the moments and step counts as arrays, keyed by parameter position."""
    state = optimizer.state_dict()
    moments = {
        str(position): {
            key: _to_numpy(value) if isinstance(value, Tensor) else value
            for key, value in entry.items()
        }
        for position, entry in state["state"].items()
    }
    groups = [
        {key: list(value) if isinstance(value, tuple) else value for key, value in group.items()}
        for group in state["param_groups"]
    ]
    return {"state": moments, "param_groups": groups}


def load_optimizer_state(optimizer: torch.optim.Optimizer, state: State) -> None:
    """Restore a state returned by `optimizer_state`, including options such as the learning rate.

    Raises:
        ValueError: if the optimiser's parameter groups differ.
    """
    moments = {
        int(position): {
            key: _to_tensor(value) if isinstance(value, np.ndarray) else value
            for key, value in entry.items()
        }
        for position, entry in state["state"].items()
    }
    groups = [
        {
            # Only `params` was originally a list; others, such as Adam's betas, were tuples.
            key: tuple(value) if isinstance(value, list) and key != "params" else value
            for key, value in group.items()
        }
        for group in state["param_groups"]
    ]
    optimizer.load_state_dict({"state": moments, "param_groups": groups})


def _to_numpy(tensor: Tensor) -> NDArray[Any]:
    # A copy: on the CPU `numpy` shares the tensor's memory, which the next update overwrites.
    array: NDArray[Any] = tensor.detach().cpu().numpy().copy()
    return array


def _to_tensor(array: NDArray[Any]) -> Tensor:
    # A copy: an optimiser keeps the tensors that it loads, and would update the caller's arrays.
    return torch.from_numpy(np.array(array))
