"""What an exported file says about itself: tensors, spaces and where the policy comes from."""

from __future__ import annotations

from typing import Any

import numpy as np
from gymnasium import Space, spaces
from torch import Tensor

from parllel.torch.exports.policy_module import PolicyModule, TrainedPolicy
from parllel.version import __version__


def describe(policy: TrainedPolicy, module: PolicyModule) -> dict[str, Any]:
    """Return the description as JSON values.

    `inputs` and `outputs` are lists of `name`, `dtype` and `shape`, whose first entry is "N"; state inputs
    also have `first`, the value at the start of an episode, and `next`, the output that is their value in the
    next step. Infinite bounds of spaces are the strings "inf" and "-inf".
    """
    example = module.example_inputs(1)
    outputs = module(*example)
    inputs = [_tensor(name, x) for name, x in zip(module.inputs, example, strict=True)]
    first = module.initial_state(1)
    for described, leaf in zip(inputs[len(inputs) - len(first) :], first, strict=True):
        described["first"] = leaf[0].tolist()
        described["next"] = f"next_{described['name']}"
    found = outputs if isinstance(outputs, tuple) else (outputs,)
    return {
        "producer": f"parllel {__version__}",
        "agent": type(policy.handler.agent).__name__,
        "elapsed_steps": policy.elapsed_steps,
        "recurrent": module.recurrent,
        "inputs": inputs,
        "outputs": [_tensor(name, x) for name, x in zip(module.outputs, found, strict=True)],
        "observation_space": describe_space(policy.observation_space),
        "action_space": describe_space(policy.action_space),
    }


def _tensor(name: str, tensor: Tensor) -> dict[str, Any]:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return {"name": name, "dtype": dtype, "shape": ["N", *tensor.shape[1:]]}


def describe_space(space: Space[Any] | None) -> Any:
    """Return a space as JSON values: its class, shape, dtype and bounds or sizes, and the spaces inside."""
    if isinstance(space, spaces.Dict):
        return {
            "type": "Dict",
            "spaces": {name: describe_space(inner) for name, inner in space.spaces.items()},
        }
    if isinstance(space, spaces.Tuple):
        return {"type": "Tuple", "spaces": [describe_space(inner) for inner in space.spaces]}
    if space is None:
        return None
    described: dict[str, Any] = {"type": type(space).__name__, "shape": list(space.shape or ())}
    if space.dtype is not None:
        described["dtype"] = str(space.dtype)
    for name in ("low", "high", "n", "nvec", "start"):
        value = getattr(space, name, None)
        if value is not None:
            described[name] = _numbers(np.asarray(value))
    return described


def _numbers(array: np.ndarray[Any, Any]) -> Any:
    """Return nested lists, or one number if all are equal."""
    if array.size and (array == array.flat[0]).all():
        number = array.flat[0].item()
        return number if np.isfinite(number) else str(number)
    return [_numbers(part) for part in array]
