"""A trained policy as a file that acts without parllel."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium import Space, spaces
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from parllel.buffers.paths import leaf_paths
from parllel.logging.files import replaced_file
from parllel.torch.exports.description import describe
from parllel.torch.exports.file_formats import Run, format_of
from parllel.torch.exports.policy_module import PolicyModule, TrainedPolicy
from parllel.types import Tree

# Numbers of environments at once; in all, the policy acts on 1,000 observations.
CHECKED = (1, 3, 996)
_STEPS = 4  # of a recurrent policy, each with these numbers
# Products of matrices round differently in every library.
_RTOL, _ATOL = 1e-4, 1e-5


def export_policy(
    policy: TrainedPolicy, path: str | os.PathLike[str], *, params: bool = False
) -> dict[str, Any]:
    """Write a trained policy to a file, after checking that it takes the policy's actions.

    The file computes what `PolicyModule` computes, for any number of environments. Its actions on 1,000
    random observations, in four steps each for a recurrent policy, are compared with `policy.act` before it
    is written. Discrete actions must be equal, unless the policy values both the same to five digits. Actions
    of a Box must agree to four digits. The file is written whole or not at all.

    Args:
        policy: the result of `load_policy`.
        path: ends in `.onnx`, for ONNX Runtime, or in `.pt`, for torch.jit.load (TorchScript).
        params: whether the file also returns the parameters of the distribution.

    Returns:
        The description that the file has in its metadata, as JSON values: `inputs` and `outputs` with name,
        dtype and shape, `observation_space`, `action_space`, `agent`, `elapsed_steps`. It is the metadata
        property `parllel` of an ONNX model, and the extra file `parllel.json` of a TorchScript archive.

    Raises:
        ValueError: for another suffix, or if the file's actions are not the policy's.
        TypeError: for a policy that cannot be exported. The message names the layer, agent or transform.
        ImportError: if a library is missing. The message names the extra.
        OSError: if the file cannot be written. An old file is kept.
    """
    path = Path(path)
    file_format = format_of(path)
    module = PolicyModule(policy, params=params)
    description = describe(policy, module)
    content = file_format.content(module, description)
    check_actions(file_format.load(content, module), module, policy, str(path))
    with replaced_file(path) as file:
        file.write(content)
    return description


def check_actions(run: Run, module: PolicyModule, policy: TrainedPolicy, who: str) -> None:
    """Compare what a file computes with the actions of the policy, whose memory is kept.

    Raises:
        ValueError: if they differ; begins with `who`.
    """
    before = policy.state()
    try:
        for N in CHECKED:
            _check_batch(run, module, policy, N, who)
    finally:
        policy.load_state(before)


def _check_batch(run: Run, module: PolicyModule, policy: TrainedPolicy, N: int, who: str) -> None:
    assert policy.observation_space is not None
    many = batch_space(policy.observation_space, N)
    many.seed(0)
    policy.reset()
    state = [leaf.numpy() for leaf in module.initial_state(N)]
    # A recurrent policy goes its own way after another choice among equals.
    compared = np.ones(N, np.bool_)
    for _ in range(_STEPS if module.recurrent else 1):
        observation = many.sample()
        inputs = [*(leaf.numpy() for leaf in module.tensors_of(observation)), *state]
        outputs = run(inputs)
        expected = policy.act(observation, range(N))
        differs = compared & ~_alike(outputs[0], expected, who)
        if differs.any():
            compared &= ~differs
            differs &= ~_choices_are_equal(policy, inputs, outputs[0], expected)
        if differs.any():
            i = int(np.flatnonzero(differs)[0])
            raise ValueError(
                f"{who}: expected the actions of the run, got others for {differs.sum()} of {N} random "
                f"observations, such as {outputs[0][i]} for {expected[i]}; nothing was written"
            )
        state = outputs[len(outputs) - len(state) :]


def _alike(actions: NDArray[Any], expected: Tree, who: str) -> NDArray[np.bool_]:
    """Return which actions agree, bool [N]."""
    ((_, leaf),) = leaf_paths(expected)
    if (actions.dtype, actions.shape) != (leaf.dtype, leaf.shape):
        raise ValueError(
            f"{who}: expected actions {leaf.dtype} {leaf.shape}, got {actions.dtype} {actions.shape}"
        )
    same = actions == leaf
    if np.issubdtype(leaf.dtype, np.floating):
        finite = np.abs(leaf[np.isfinite(leaf)])
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        same = np.isclose(actions, leaf, rtol=_RTOL, atol=_ATOL * scale, equal_nan=True)
    alike: NDArray[np.bool_] = same.reshape(len(leaf), -1).all(axis=1)
    return alike


def _choices_are_equal(
    policy: TrainedPolicy, inputs: Sequence[NDArray[Any]], actions: NDArray[Any], expected: Any
) -> NDArray[np.bool_]:
    """Return where two discrete actions have the same logit or value up to rounding, bool [N]."""
    nowhere = np.zeros(len(actions), np.bool_)
    sizes, start = _choices_of(policy.action_space)
    if not sizes:
        return nowhere
    module = PolicyModule(policy, params=True)
    with torch.inference_mode():
        params = module(*(torch.from_numpy(x) for x in inputs))[1].numpy()
    if module.outputs[1] not in ("params", "action_values") or params.shape[1:] != (sum(sizes),):
        return nowhere
    offsets = np.cumsum([0, *sizes[:-1]]) - start
    one, other = (
        np.take_along_axis(params, x.reshape(len(x), -1) + offsets, axis=1)
        for x in (actions, expected)
    )
    equal: NDArray[np.bool_] = np.isclose(one, other, rtol=_ATOL, atol=_ATOL).all(axis=1)
    return equal


def _choices_of(space: Space[Any] | None) -> tuple[list[int], Any]:
    """Return how many actions each choice has, and the first of each; no choices for a Box."""
    if isinstance(space, spaces.Discrete):
        return [int(space.n)], int(space.start)
    if isinstance(space, spaces.MultiDiscrete):
        return space.nvec.ravel().tolist(), space.start.ravel()
    if isinstance(space, spaces.MultiBinary):
        return [2] * int(np.prod(space.shape)), 0
    return [], 0
