"""What the agents of SAC and TD3 share: a policy that acts, critics that only learn, random actions."""

from __future__ import annotations

import copy
from abc import abstractmethod
from typing import Any, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.algos.arguments import check_not_seeds
from parllel.buffers.tree import buffer_map
from parllel.torch.agents.pg_agent import usable_device
from parllel.torch.box_scale import BoxScale
from parllel.torch.module_state import load_module_state, module_state
from parllel.types import State, Tree

AgentT = TypeVar("AgentT", bound="ActorCriticAgent")


class ActorCriticAgent(Agent):
    """Agent with a policy over a bounded Box, and critics of its actions. It starts in sample mode.

    Stored actions are those of the environment, in the units of the Box. Policies and critics work with
    *unit actions*, scaled to [-1, 1] in each dimension, so learning does not depend on the bounds. An
    algorithm converts stored actions by `scale.to_unit`.

    Attributes:
        policy, critics: the modules. `models` has only the policy, since critics are not needed to act.
        scale: converts actions of the Box to unit actions and back.
        trained: on a copy that only samples, the agent whose parameters it mirrors; None otherwise.
    """

    def __init__(
        self,
        policy: nn.Module,
        critics: nn.Module,
        scale: BoxScale,
        *,
        seed: int,
        device: torch.device | str,
    ) -> None:
        who = type(self).__name__
        for name, module in (("policy", policy), ("critics", critics)):
            if not isinstance(module, nn.Module):
                hint = "; call it" if isinstance(module, type) else ""
                raise TypeError(f"{who}: {name}: expected a Module, got {module!r}{hint}")
        check_not_seeds(who, seed)
        self.device = usable_device(device, who)
        self.policy = policy.to(self.device)
        self.critics = critics.to(self.device)
        self.scale = scale
        self.action_space = scale.space
        self.trained: Any = None
        self._on_cpu = self.device.type == "cpu"
        self._generator = torch.Generator().manual_seed(seed)
        # An array, so that copies of the agent in this process share it and others get it as a weight.
        self._random: NDArray[np.bool_] = np.zeros(1, np.bool_)
        self.sample_mode()

    @property
    def model(self) -> nn.Module:
        """The module that acts: the policy."""
        return self.policy

    @property
    def random_actions(self) -> bool:
        """Whether sampled actions are uniform in the Box, whatever the policy is."""
        return bool(self._random[0])

    @random_actions.setter
    def random_actions(self, value: bool) -> None:
        """Set it for the batches that begin afterwards."""
        self._random[0] = value

    @torch.inference_mode()
    def step(
        self,
        observation: Tree,
        *,
        env_indices: EnvIndices = ALL_ENVS,
        noise: Tensor | None = None,
        **inputs: Tree,
    ) -> tuple[Tensor, Tree]:
        """Return `(action, None)`: the action is `[N, *shape]` in the units of the Box."""
        if not self._evaluating and self.random_actions and noise is not None:
            # Uniform noise was drawn for this batch.
            return self.scale.from_unit(noise), None
        outputs = self.outputs(observation, **inputs)
        if self._evaluating:
            return self.mode(outputs), None
        if noise is None:
            noise = self._draw(1, len(outputs), None)[0]
            if self.random_actions:
                return self.scale.from_unit(noise), None
        elif not self._on_cpu:
            noise = noise.to(self.device)
        return self.explore(outputs, noise), None

    def outputs(self, observation: Tree, **inputs: Tree) -> Tensor:
        """Return the outputs of the policy, with gradients for an update."""
        if not self._on_cpu:
            observation, inputs = buffer_map(self._to_device, (observation, inputs))
        outputs: Tensor = self.policy(observation, **inputs)
        return outputs

    @abstractmethod
    def mode(self, outputs: Tensor) -> Tensor:
        """Return the actions of an evaluation."""

    @abstractmethod
    def explore(self, outputs: Tensor, noise: Tensor) -> Tensor:
        """Return the actions of a sampler, from standard normal noise [N, size]."""

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tensor | None:
        """Draw the noise of a batch, [T, B, size] on the CPU. Returns None in eval mode.

        It is standard normal, or uniform in [-1, 1] for random actions.
        """
        # Nothing is drawn, so an evaluation does not change the noise of later batches.
        return None if self._evaluating else self._draw(T, B, seed)

    def sample_mode(self) -> None:
        """Act with noise, with modules such as dropout off."""
        self._evaluating = False
        self._train(False)

    def train_mode(self) -> None:
        """Act with noise, with modules such as dropout on."""
        self._evaluating = False
        self._train(True)

    def eval_mode(self) -> None:
        """Act without noise. The generator is not used."""
        self._evaluating = True
        self._train(False)

    also_learned = ("critics",)

    def models(self) -> dict[str, Any]:
        """Return the policy, and whether actions are random."""
        return {"policy": self.policy, "random_actions": self._random}

    def copy_to_device(self: AgentT, device: torch.device | str) -> AgentT:
        """Return an agent with a copy of the policy on another device. Everything else is shared.

        Parameters are separate; see `trained`.
        """
        # Shallow: both agents draw from one generator, so the noise continues whichever of them draws.
        twin = copy.copy(self)
        twin.device = usable_device(device, type(self).__name__)
        twin.policy = copy.deepcopy(self.policy).to(twin.device)
        twin._on_cpu = twin.device.type == "cpu"
        return twin

    def state(self) -> State:
        """Return the parameters by name, whether actions are random, and the generator's state."""
        learner = self.trained or self
        return {
            "policy": module_state(learner.policy),
            "critics": module_state(learner.critics),
            "random_actions": self._random.copy(),
            "generator": self._generator.get_state().numpy().copy(),
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if names or shapes of parameters differ from the models'.
        """
        load_module_state(self.policy, state["policy"])
        learner = self.trained or self
        if learner is not self:
            load_module_state(learner.policy, state["policy"])
        load_module_state(learner.critics, state["critics"])
        self._random[:] = state["random_actions"]
        self._generator.set_state(torch.tensor(state["generator"], dtype=torch.uint8))

    def _train(self, mode: bool) -> None:
        self.policy.train(mode)
        self.critics.train(mode)

    def _draw(self, T: int, B: int, seed: int | None) -> Tensor:
        generator = self._generator if seed is None else torch.Generator().manual_seed(seed)
        noise = torch.empty((T, B, self.scale.size))
        if self.random_actions:
            return noise.uniform_(-1, 1, generator=generator)
        return noise.normal_(generator=generator)

    def _to_device(self, value: Any) -> Any:
        return value.to(self.device) if isinstance(value, Tensor) else value
