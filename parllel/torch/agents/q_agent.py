"""Agent that acts greedily on action values, and at random with a probability epsilon."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np
import torch
from gymnasium import spaces
from numpy.typing import NDArray
from torch import Tensor, nn

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.algos.arguments import check_not_seeds
from parllel.buffers.tree import buffer_map
from parllel.torch.agents.pg_agent import usable_device
from parllel.torch.module_state import load_module_state, module_state
from parllel.types import State, Tree

AgentT = TypeVar("AgentT", bound="QAgent")


class QAgent(Agent):
    """Epsilon-greedy agent for `n_actions` discrete actions: int64, counted from `start` as in Discrete.

    With probability epsilon an action is drawn uniformly, otherwise it is the one with the largest value.
    Actions with a value of -inf, which a model with an action mask returns, are never taken. In eval mode
    actions are greedy. The agent starts in sample mode and has no agent info. Keyword arguments that a
    handler adds are passed on to the model.

    Args:
        model: module that maps observations [N, ...] to action values [N, n_actions], such as a `QModel`.
            It is moved to `device`.
        n_actions: number of actions.
        epsilon: of all environments, or of each: environment b has `epsilon[b % len(epsilon)]`, for example
            `epsilon_ladder(B)`. DQN replaces it before each batch unless its schedule is None.
        start: the first action.
        seed: seed of the generator of all noise. The generator is always on the CPU, so the noise
            does not depend on the model's device.
        device: device on which the model runs.

    Raises:
        ValueError, TypeError: for a device that PyTorch cannot use on this machine.
        ValueError: for an epsilon outside of [0, 1], or `n_actions` below one.
        TypeError: if `model` is not a module.

    Attributes:
        epsilon: float32 [B], or [1] for all environments. Set it with `set_epsilon`.
        trained: on a copy that only samples, the agent whose parameters it mirrors; see PgAgent.
    """

    def __init__(
        self,
        model: nn.Module,
        n_actions: int,
        *,
        epsilon: float | Sequence[float] = 1.0,
        start: int = 0,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        who = type(self).__name__
        if not isinstance(model, nn.Module):
            hint = "; call it" if isinstance(model, type) else ""
            raise TypeError(f"{who}: model: expected a Module, got {model!r}{hint}")
        check_not_seeds(who, seed)
        if n_actions < 1:
            raise ValueError(f"{who}: n_actions: expected at least 1, got {n_actions}")
        self.device = usable_device(device, who)
        self.model = model.to(self.device)
        self.n_actions, self.start = int(n_actions), int(start)
        self.action_space = spaces.Discrete(self.n_actions, start=self.start)
        self.epsilon = _checked_epsilon(epsilon, who)
        # Not torch's global generator: numbers drawn by user code must not change a run.
        self._generator = torch.Generator().manual_seed(seed)
        self._on_cpu = self.device.type == "cpu"
        self.trained: QAgent | None = None
        self.sample_mode()

    @torch.inference_mode()
    def step(
        self,
        observation: Tree,
        *,
        env_indices: EnvIndices = ALL_ENVS,
        noise: Tensor | None = None,
        **inputs: Tree,
    ) -> tuple[Tensor, None]:
        """Return `(action, None)`; in eval mode the action is greedy."""
        return self._choose(self.action_values(observation, **inputs), env_indices, noise), None

    @torch.inference_mode()
    def value(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, **inputs: Tree
    ) -> Tensor:
        """Return the value of the greedy action [N]."""
        return self.action_values(observation, **inputs).amax(-1)

    def action_values(self, observation: Tree, **inputs: Tree) -> Tensor:
        """Return the values [N, n_actions], with gradients for an update.

        Raises:
            TypeError: if the model returns anything else.
        """
        if not self._on_cpu:
            observation, inputs = buffer_map(self._to_device, (observation, inputs))
        values = self.model(observation, **inputs)
        if not isinstance(values, Tensor) or values.shape[-1:] != (self.n_actions,):
            got = f"a {type(values).__name__}"
            if isinstance(values, Tensor):
                got += f" of shape {tuple(values.shape)}"
            raise TypeError(
                f"{type(self.model).__name__}: expected values [N, {self.n_actions}], got {got}"
            )
        return values

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tensor | None:
        """Draw the exploration of a batch, float32 [T, B] on the agent's device. Returns None in eval mode.

        -1 where the agent acts greedily, which depends on `epsilon`; elsewhere a number in [0, 1) that
        selects a random action.
        """
        # Nothing is drawn, so an evaluation does not change the noise of later batches.
        if self._evaluating:
            return None
        return self._draw(T, self._epsilon_of(slice(0, B), B), seed)

    def set_epsilon(self, epsilon: float | Sequence[float] | NDArray[Any]) -> None:
        """Set the probability of random actions, for noise drawn from now on.

        A single number is set for all environments.

        Raises:
            ValueError: outside of [0, 1], or if there are several and their number has changed.
        """
        new = _checked_epsilon(epsilon, type(self).__name__)
        if len(new) not in (1, len(self.epsilon)):
            # Copies in other processes have received arrays of this size.
            raise ValueError(
                f"{type(self).__name__}: epsilon: expected {len(self.epsilon)} numbers, as at construction, "
                f"or one, got {len(new)}"
            )
        self.epsilon[...] = new

    def sample_mode(self) -> None:
        """Explore, with modules such as dropout off."""
        self._evaluating = False
        self.model.eval()

    def train_mode(self) -> None:
        """Explore, with modules such as dropout on."""
        self._evaluating = False
        self.model.train()

    def eval_mode(self) -> None:
        """Act greedily. The generator is not used."""
        self._evaluating = True
        self.model.eval()

    def models(self) -> dict[str, Any]:
        """Return `{"model": model, "epsilon": epsilon}`: copies in other processes explore alike."""
        return {"model": self.model, "epsilon": self.epsilon}

    def copy_to_device(self: AgentT, device: torch.device | str) -> AgentT:
        """Return an agent with a copy of the model on another device. Everything else is shared.

        Both agents share the noise generator and epsilon, so one can sample while the other is trained.
        Parameters are separate; see `trained`.
        """
        # Shallow: both agents draw from one generator, so the noise continues whichever of them draws.
        twin = copy.copy(self)
        twin.device = usable_device(device, type(self).__name__)
        # `to` moves modules in place, so without the copy it would move the trained model.
        twin.model = copy.deepcopy(self.model).to(twin.device)
        twin._on_cpu = twin.device.type == "cpu"
        return twin

    def state(self) -> State:
        """Return the parameters by name, epsilon, and the generator's state, as numpy arrays."""
        return {
            "model": module_state((self.trained or self).model),
            "epsilon": self.epsilon.copy(),
            "generator": self._generator.get_state().numpy().copy(),
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if names or shapes of parameters differ from the model's, or the number of epsilons.
        """
        load_module_state(self.model, state["model"])
        if self.trained is not None:
            load_module_state(self.trained.model, state["model"])
        self.set_epsilon(state["epsilon"])
        self._generator.set_state(torch.tensor(state["generator"], dtype=torch.uint8))

    def _choose(self, values: Tensor, env_indices: EnvIndices, noise: Tensor | None) -> Tensor:
        """Return an action for each row of `values` [..., n_actions]."""
        action = values.argmax(-1)
        if not self._evaluating:
            if noise is None:
                n = values.shape[-2]
                noise = self._draw(1, self._epsilon_of(env_indices, n))[0]
            elif not self._on_cpu:
                # Noise drawn here may have been stored as numpy in the meantime.
                noise = self._to_device(noise)
            action = explore(values, action, noise)
        return action + self.start if self.start else action

    def _epsilon_of(self, env_indices: EnvIndices, n: int) -> NDArray[np.float32]:
        """Return the epsilons of n environments, [n]."""
        if isinstance(env_indices, slice):
            first = env_indices.start or 0
            env_indices = np.arange(first, first + n)
        # Modulo, since an example of noise is drawn for one environment, and workers have some of them.
        chosen: NDArray[np.float32] = self.epsilon[np.asarray(env_indices) % len(self.epsilon)]
        return chosen

    def _draw(self, T: int, epsilon: NDArray[np.float32], seed: int | None = None) -> Tensor:
        generator = self._generator if seed is None else torch.Generator().manual_seed(seed)
        # Drawn on the CPU, then moved: GPU generators draw different numbers from the same seed.
        drawn = torch.rand(2, T, len(epsilon), generator=generator)
        explores, choice = drawn[0], drawn[1]
        # Both are always drawn, so the noise of other cells does not depend on epsilon.
        return choice.masked_fill_(explores >= torch.from_numpy(epsilon), -1.0).to(self.device)

    def _to_device(self, value: Any) -> Any:
        # Inputs that a handler adds may hold plain numbers.
        return value.to(self.device) if isinstance(value, Tensor) else value


def explore(values: Tensor, greedy: Tensor, noise: Tensor) -> Tensor:
    """Replace greedy actions where there is exploration; see `QAgent.draw_noise`.

    values [..., n_actions]: -inf for forbidden actions.  greedy: int64 [...].  noise: float32 [...].
    """
    allowed = values > -torch.inf
    # The k-th of the allowed actions. In float32, the product with a number below 1 stays below the factor.
    counts = allowed.cumsum(-1)
    k = (noise * counts[..., -1]).long()
    chosen = (counts > k.unsqueeze(-1)).to(torch.uint8).argmax(-1)
    return torch.where(noise < 0, greedy, chosen)


def epsilon_ladder(B: int, base: float = 0.4, alpha: float = 7.0) -> list[float]:
    """Return an epsilon for each of B environments, base^(1 + alpha i / (B - 1)) (Horgan et al. 2018).

    Environments that explore much and little learn from each other's experience, so that no schedule needs to
    be tuned.
    """
    return [base ** (1 + alpha * i / max(B - 1, 1)) for i in range(B)]


def _checked_epsilon(epsilon: Any, who: str) -> NDArray[np.float32]:
    array = np.array(epsilon, np.float32).reshape(-1)
    # Not `any(array < 0)`, which lets NaN pass.
    if np.ndim(epsilon) > 1 or not array.size or not np.all((array >= 0) & (array <= 1)):
        raise ValueError(f"{who}: epsilon: expected probabilities, one or [B], got {epsilon!r}")
    return array
