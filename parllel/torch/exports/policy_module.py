"""A trained policy as one module: normalise, compute, choose."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np
import torch
from gymnasium import Space, spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.agents.handler import Handler
from parllel.buffers.paths import Path, dotted, leaf_paths, part_at
from parllel.buffers.tree import buffer_map
from parllel.torch.agents.actor_critic_agent import ActorCriticAgent
from parllel.torch.agents.ensemble_agent import EnsembleAgent
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.agents.q_agent import QAgent
from parllel.torch.agents.sac_agent import SacAgent
from parllel.torch.distributions.squashed_gaussian import SquashedGaussian
from parllel.transforms.normalize_observations import NormalizeObservations
from parllel.types import State, Tree, class_path

_ACTIONS = (spaces.Box, spaces.Discrete, spaces.MultiDiscrete, spaces.MultiBinary)


class TrainedPolicy(Protocol):
    """What exports need of a `RunPolicy`, the result of `load_policy`."""

    handler: Handler
    as_seen: Any
    example: Tree
    observation_space: Space[Any] | None
    action_space: Space[Any] | None
    elapsed_steps: int

    def act(self, observation: Tree, env_indices: Sequence[int] | NDArray[np.intp]) -> Tree:
        """Return actions [N, ...]."""

    def reset(
        self,
        env_indices: Sequence[int] | NDArray[np.intp] | None = None,
        seeds: Sequence[int | None] | None = None,
    ) -> None:
        """Clear the memory of episodes."""

    def state(self) -> State:
        """Return the memory of episodes."""

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`."""


class PolicyModule(nn.Module):
    """Maps observations of environments to the actions that a trained policy takes without exploring.

    It normalises observations with the statistics of the policy's checkpoint, computes the model, takes the
    mode of the distribution (the median for SAC, the greedy action for DQN) and clips it to a Box. Weights
    and statistics are copies on the CPU.

    `forward` takes tensors in the order of `inputs`, positionally, and returns the tensors of `outputs`: one
    tensor, or a tuple of several. Their first dimension, N, is the number of environments.

    * An observation is `observation`; the parts of a Dict are `observation.position`, for example.
    * The action is `action`, in the dtype of the action space.
    * With `params`, the parameters of the distribution follow: `params`, `params.mean` and
      `params.log_std`, or `action_values`.
    * Recurrent policies have inputs such as `rnn_state.hidden` and `prev_action`. Their last outputs are the
      inputs of the next step: `next_rnn_state.hidden`. An episode starts with `initial_state(N)`.

    Args:
        policy: the result of `load_policy`. Its memory of episodes is not used.
        params: whether to return the parameters of the distribution.

    Attributes:
        inputs, outputs: names of the tensors, in order.
        recurrent: whether there are inputs for the state.

    Raises:
        TypeError: for an agent, handler, step transform or action space that cannot be part of such a
            module. The message names it.
        ValueError: for `params` of TD3, whose policy is deterministic.
    """

    def __init__(self, policy: TrainedPolicy, *, params: bool = False) -> None:
        super().__init__()
        if not isinstance(getattr(policy, "handler", None), Handler):
            raise TypeError(
                f"PolicyModule: policy: expected a result of load_policy, got a {class_path(policy)}"
            )
        agent: Any = policy.handler.agent
        _check_agent(agent, policy.handler)
        # The module that `torch.compile` wraps is in its attribute.
        self.model: nn.Module = copy.deepcopy(getattr(agent.model, "_orig_mod", agent.model))
        self.model.cpu().eval().requires_grad_(False)
        self._choose, self._params_of = _choice_of(agent, params)
        self._example = policy.example
        self.normalizers = nn.ModuleList(_normalizers(policy.as_seen))
        self.action = _BoundedAction(policy.action_space)
        self.recurrent = bool(agent.recurrent)
        # The memory of one environment at the start of an episode.
        self._memory: Tree = None
        if self.recurrent:
            self._memory = buffer_map(lambda leaf: leaf.clone().cpu(), agent.initial_memory(1))
        self._state_paths: list[Path] = [path for path, _ in leaf_paths(self._memory)]
        states = [dotted(path) for path in self._state_paths]
        self.inputs = (
            *(dotted(path, "observation") for path, _ in leaf_paths(self._example)),
            *states,
        )
        with torch.inference_mode():
            _, named, _ = self._decide(self.example_inputs(2))
        self.outputs = ("action", *named, *(f"next_{name}" for name in states))

    def example_inputs(self, N: int) -> list[Tensor]:
        """Return inputs for N environments: observations of zeros, and the state of a first step."""
        leaves = [
            torch.zeros((N, *leaf.shape[1:]), dtype=torch.from_numpy(leaf).dtype)
            for _, leaf in leaf_paths(self._example)
        ]
        return [*leaves, *self.initial_state(N)]

    def initial_state(self, N: int) -> list[Tensor]:
        """Return the state inputs at the start of N episodes; [] for a policy that is not recurrent."""
        return [leaf.expand(N, *leaf.shape[1:]).clone() for _, leaf in leaf_paths(self._memory)]

    def tensors_of(self, observation: Tree) -> list[Tensor]:
        """Return the inputs of observations in the format of the space, [N, ...], cast to their dtypes.

        Raises:
            KeyError: if a part of the observation is missing.
            ValueError: for parts of other shapes, and for a single observation without the dimension N.
        """
        tensors: list[Tensor] = []
        # The inputs of a recurrent policy's state come after those of the observation.
        for name, (path, leaf) in zip(self.inputs, leaf_paths(self._example), strict=False):
            tensor = torch.from_numpy(np.array(part_at(observation, path), leaf.dtype))
            tensors.append(tensor)
            if tensor.shape != (*tensors[0].shape[:1], *leaf.shape[1:]) or not tensor.ndim:
                each = "".join(f", {n}" for n in leaf.shape[1:])
                raise ValueError(
                    f"PolicyModule: {name}: expected shape [N{each}], N the same for all parts, got "
                    f"{list(tensor.shape)}"
                )
        return tensors

    def forward(self, *tensors: Tensor) -> Any:
        """Return the action [N, ...], then the other outputs.

        Raises:
            ValueError: for another number of tensors than `inputs`.
        """
        if len(tensors) != len(self.inputs):
            raise ValueError(
                f"PolicyModule: expected {len(self.inputs)} tensors ({', '.join(self.inputs)}), "
                f"got {len(tensors)}"
            )
        action, named, state = self._decide(tensors)
        found = (action, *named.values(), *state)
        return found[0] if len(found) == 1 else found

    def _decide(self, tensors: Sequence[Tensor]) -> tuple[Tensor, dict[str, Tensor], list[Tensor]]:
        """Return the action, parameters by name, and the state for the next step."""
        leaves = iter(tensors)
        observation = buffer_map(lambda _: next(leaves), self._example)
        for normalizer in self.normalizers:
            observation = normalizer(observation)
        if not self.recurrent:
            output = self.model(observation)
            return self.action(self._choose(output)), self._params_of(output), []
        before = buffer_map(lambda _: next(leaves), self._memory)
        # One row of a sequence [T, N, ...].
        rows, inputs = buffer_map(
            lambda leaf: leaf.unsqueeze(0),
            (
                observation,
                {name: before._get(name) for name in before._fields if name != "rnn_state"},
            ),
        )
        output, rnn_state = self.model(rows, before.rnn_state, **inputs)
        action = self._choose(output)[0]
        # Like the agent, remember the action before it is clipped.
        after = {"rnn_state": rnn_state, "prev_action": action}
        state = [
            part_at(after, path).to(leaf.dtype)
            for path, (_, leaf) in zip(self._state_paths, leaf_paths(self._memory), strict=True)
        ]
        named = {name: leaf[0] for name, leaf in self._params_of(output).items()}
        return self.action(action), named, state


class _Normalizer(nn.Module):
    """NormalizeObservations in torch, with the same operations in the same order and precision."""

    def __init__(self, transform: NormalizeObservations) -> None:
        super().__init__()
        self._transform = transform
        self._clips: dict[str, tuple[int, float]] = {}
        for i, (path, leaf) in enumerate(transform.leaves.items()):
            shape = leaf.statistics.shape
            self.register_buffer(f"shift_{i}", torch.from_numpy(leaf.shift.reshape(shape).copy()))
            self.register_buffer(f"scale_{i}", torch.from_numpy(leaf.scale.reshape(shape).copy()))
            self._clips[path] = (i, float(leaf.clip))

    def forward(self, observation: Tree) -> Tree:
        return self._transform.with_leaves(observation, self._normalize)

    def _normalize(self, path: str, leaf: Tensor) -> Tensor:
        i, clip = self._clips[path]
        shift, scale = self.get_buffer(f"shift_{i}"), self.get_buffer(f"scale_{i}")
        return ((leaf.to(torch.float32) + shift) * scale).clamp(-clip, clip)


class _BoundedAction(nn.Module):
    """Clips actions to the bounds of a Box and casts them to the space's dtype, as cages do."""

    def __init__(self, space: Space[Any] | None) -> None:
        super().__init__()
        if not isinstance(space, _ACTIONS):
            names = ", ".join(kind.__name__ for kind in _ACTIONS)
            raise TypeError(f"export: action space: expected one of {names}, got {space}")
        self._dtype = torch.from_numpy(np.zeros(1, space.dtype)).dtype
        self._bounded = isinstance(space, spaces.Box)
        if isinstance(space, spaces.Box):
            self.register_buffer("low", torch.from_numpy(space.low.copy()))
            self.register_buffer("high", torch.from_numpy(space.high.copy()))

    def forward(self, action: Tensor) -> Tensor:
        if self._bounded:
            low, high = self.get_buffer("low"), self.get_buffer("high")
            # Clipped before the cast, in which integers would wrap around.
            action = torch.maximum(torch.minimum(action, high), low)
        return action.to(self._dtype)


def _check_agent(agent: Any, handler: Handler) -> None:
    if type(handler).agent_inputs is not Handler.agent_inputs:
        raise TypeError(
            f"export: {type(handler).__name__} gives the agent inputs besides the observation, which an "
            "exported policy cannot compute"
        )
    # An EnsembleAgent is a PgAgent, with one distribution for each of its agents.
    if not isinstance(agent, (PgAgent, QAgent, ActorCriticAgent)) or isinstance(
        agent, EnsembleAgent
    ):
        raise TypeError(
            "export: expected one agent of parllel.torch, such as a PgAgent, QAgent, SacAgent, TD3Agent or a "
            f"recurrent one, got a {class_path(agent)}"
        )


def _normalizers(as_seen: Any) -> list[_Normalizer]:
    for transform in as_seen.transforms:
        if type(transform) is not NormalizeObservations:
            raise TypeError(
                f"export: {type(transform).__name__}: NormalizeObservations is the only step transform of "
                "observations that can be exported; do the same in a wrapper of the environment"
            )
    return [_Normalizer(transform) for transform in as_seen.transforms]


# Choose actions from the output of the model, and name the parameters in it.
_Choose = Callable[[Any], Tensor]
_Name = Callable[[Any], dict[str, Tensor]]


def _choice_of(agent: Any, params: bool) -> tuple[_Choose, _Name]:
    """Return what the agent does with the model's output in eval mode, and what names the parameters."""
    choose: _Choose
    name: _Name
    if isinstance(agent, QAgent):
        start = agent.start
        choose, name = lambda values: values.argmax(-1) + start, _action_values
    elif isinstance(agent, PgAgent):
        distribution = agent.distribution
        choose, name = lambda output: distribution.mode(output[0]), _distribution_params
    else:
        choose, name = agent.mode, _squashed_params
        if params and not isinstance(agent, SacAgent):
            raise ValueError(
                f"params: {type(agent).__name__} has a deterministic policy, without parameters"
            )
    return choose, name if params else _no_params


def _no_params(output: Any) -> dict[str, Tensor]:
    return {}


def _action_values(output: Tensor) -> dict[str, Tensor]:
    return {"action_values": output}


def _squashed_params(output: Tensor) -> dict[str, Tensor]:
    mean, log_std = SquashedGaussian.split(output)
    return {"params.mean": mean, "params.log_std": log_std}


def _distribution_params(output: Any) -> dict[str, Tensor]:
    params = output[0]
    if isinstance(params, Tensor):
        return {"params": params}
    # By the names of a typing.NamedTuple, such as GaussianParams, not by position.
    parts = params._asdict() if hasattr(params, "_asdict") else params
    found = {dotted(path, "params"): leaf for path, leaf in leaf_paths(parts)}
    shape = next(iter(found.values())).shape
    # A log_std that is the same for all states has no leading dimension.
    return {name: leaf.expand(shape) for name, leaf in found.items()}
