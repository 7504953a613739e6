"""Policy-gradient agents: for any action distribution, and for the two most common ones."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from textwrap import shorten
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.algos.arguments import check_not_seeds
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.tree import buffer_map
from parllel.errors import UnusableDeviceError
from parllel.torch.distributions.categorical import Categorical
from parllel.torch.distributions.distribution import Distribution
from parllel.torch.distributions.gaussian import Gaussian
from parllel.torch.module_state import load_module_state, module_state
from parllel.types import State, Tree

AgentT = TypeVar("AgentT", bound="PgAgent")


class PgAgent(Agent):
    """Policy-gradient agent: samples actions from a distribution parameterised by a model.

    The agent starts in sample mode. Its info is `value` [N] and `log_prob` [N] of the action.
    Keyword arguments that a handler adds are passed on to the model.

    Args:
        model: module that returns `(params, value)`, see `parllel.torch.models`. It is moved to
            `device`.
        distribution: the action distribution, which takes `params`.
        seed: seed of the generator of all noise. The generator is always on the CPU, so the noise
            does not depend on the model's device.
        device: device on which the model runs.

    Raises:
        ValueError, TypeError: for a device that PyTorch cannot use on this machine.
        TypeError: if `model` is not a module, or `distribution` not a Distribution.

    Attributes:
        trained: on a copy that only samples, the agent whose parameters it mirrors: `state` returns that
            agent's parameters, and `load_state` loads them into both. None otherwise.
    """

    def __init__(
        self,
        model: nn.Module,
        distribution: Distribution,
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        _check_kinds(type(self).__name__, model, distribution)
        check_not_seeds(type(self).__name__, seed)
        self.device = usable_device(device, type(self).__name__)
        self.model = model.to(self.device)
        self.distribution = distribution
        self.action_space = distribution.action_space
        # Not torch's global generator: numbers drawn by user code must not change a run.
        self._generator = torch.Generator().manual_seed(seed)
        self._on_cpu = self.device.type == "cpu"
        self.trained: PgAgent | None = None
        self.sample_mode()

    @torch.inference_mode()
    def step(
        self,
        observation: Tree,
        *,
        env_indices: EnvIndices = ALL_ENVS,
        noise: Tensor | None = None,
        **inputs: Tree,
    ) -> tuple[Tensor, Tree]:
        """Return `(action, agent_info)`; in eval mode the action is the distribution's mode."""
        # Samples never need gradients: `evaluate` recomputes them. Inference mode is
        # cheaper than no_grad, as its results carry no version counters.
        params, value = self._forward(observation, inputs)
        action, log_prob = self._choose(params, value, noise)
        return action, NamedTuple(value=value, log_prob=log_prob)

    @torch.inference_mode()
    def value(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, **inputs: Tree
    ) -> Tensor:
        """Return the value estimate [N]."""
        value: Tensor = self._forward(observation, inputs)[1]
        return value

    def evaluate(
        self, observation: Tree, action: Tensor, **inputs: Tree
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return `(log_prob, entropy, value)`, each [N], with gradients for an update.

        Raises:
            ValueError: if the model's values differ in shape from the log probabilities, as they
                would silently broadcast in a loss.
        """
        return self.evaluate_outputs(*self.outputs(observation, **inputs), action)

    def outputs(self, observation: Tree, **inputs: Tree) -> tuple[Any, Tensor]:
        """Return the model's parameters of the distribution and values, with gradients for an update."""
        return self._forward(observation, inputs)

    def evaluate_outputs(
        self, params: Any, value: Tensor, action: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """As `evaluate`, from what `outputs` returned."""
        if not self._on_cpu:
            action = action.to(self.device)
        log_prob, entropy = self.distribution.log_prob_and_entropy(params, action)
        if value.shape != log_prob.shape:
            raise ValueError(
                f"{type(self.model).__name__}: expected values of shape {tuple(log_prob.shape)}, "
                f"got {tuple(value.shape)}; squeeze the last dimension of the value head"
            )
        return log_prob, entropy, value

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tensor | None:
        """Draw the noise of a batch, [T, B, ...] on the agent's device. Returns None in eval mode."""
        # Nothing is drawn, so an evaluation does not change the noise of later batches.
        if self._evaluating:
            return None
        return self._draw(T, B, seed)

    def sample_mode(self) -> None:
        """Sample actions, with modules such as dropout off."""
        self._evaluating = False
        self.model.eval()

    def train_mode(self) -> None:
        """Sample actions, with modules such as dropout on."""
        self._evaluating = False
        self.model.train()

    def eval_mode(self) -> None:
        """Act with the mode of the distribution. The generator is not used."""
        self._evaluating = True
        self.model.eval()

    def models(self) -> dict[str, Any]:
        """Return `{"model": model}`."""
        return {"model": self.model}

    def copy_to_device(self: AgentT, device: torch.device | str) -> AgentT:
        """Return an agent with a copy of the model on another device. Everything else is shared.

        Both agents share the noise generator and the memory of environments, so one can sample while the
        other is trained. Parameters are separate; see `trained`.
        """
        # Shallow: both agents draw from one generator, so the noise continues whichever of them draws.
        twin = copy.copy(self)
        twin.device = usable_device(device, type(self).__name__)
        # `to` moves modules in place, so without the copy it would move the trained model.
        twin.model = copy.deepcopy(self.model).to(twin.device)
        twin._on_cpu = twin.device.type == "cpu"
        return twin

    def state(self) -> State:
        """Return the parameters by name and the generator's state, as numpy arrays."""
        return {
            "model": module_state((self.trained or self).model),
            "generator": self._generator.get_state().numpy().copy(),
        }

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if names or shapes of parameters differ from the model's.
        """
        load_module_state(self.model, state["model"])
        if self.trained is not None:
            load_module_state(self.trained.model, state["model"])
        self._generator.set_state(torch.tensor(state["generator"], dtype=torch.uint8))

    def _choose(self, params: Any, value: Tensor, noise: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return an action for each of `value` [N], and its log probability."""
        if self._evaluating:
            action = self.distribution.mode(params)
            return action, self.distribution.log_prob(params, action)
        if noise is None:
            noise = self._draw(1, value.shape[0])[0]
        elif not self._on_cpu:
            # Noise drawn here may have been stored as numpy in the meantime.
            noise = buffer_map(self._to_device, noise)
        return self.distribution.sample_and_log_prob(params, noise)

    def _forward(self, observation: Tree, inputs: dict[str, Tree]) -> tuple[Any, Any]:
        if not self._on_cpu:
            observation, inputs = buffer_map(self._to_device, (observation, inputs))
        output = self.model(observation, **inputs)
        try:
            params, value = output
        except (TypeError, ValueError):
            raise self._no_pair(output) from None
        return params, value

    def _no_pair(self, output: Any) -> TypeError:
        got = f"a {type(output).__name__}"
        if isinstance(output, Tensor):
            got += f" of shape {tuple(output.shape)}"
        name = type(self.model).__name__
        return TypeError(f"{name}: expected PgOutput(params, value), got {got}")

    def _draw(self, T: int, B: int, seed: int | None = None) -> Tensor:
        # Drawn on the CPU, then moved: GPU generators draw different numbers from the same seed.
        return self.distribution.draw_noise(self._generator_for(seed), T, B).to(self.device)

    def _generator_for(self, seed: int | None) -> torch.Generator:
        return self._generator if seed is None else torch.Generator().manual_seed(seed)

    def _to_device(self, value: Any) -> Any:
        # Inputs that a handler adds may hold plain numbers.
        return value.to(self.device) if isinstance(value, Tensor) else value


def _check_kinds(who: str, model: Any, distribution: Any) -> None:
    for name, value, kind in (
        ("model", model, nn.Module),
        ("distribution", distribution, Distribution),
    ):
        if not isinstance(value, kind):
            hint = "; call it" if isinstance(value, type) else ""
            raise TypeError(f"{who}: {name}: expected a {kind.__name__}, got {value!r}{hint}")


def usable_device(device: torch.device | str, who: str) -> torch.device:
    """Return the device, after checking that tensors can be created on it.

    Raises:
        UnusableDeviceError: if PyTorch knows no such device, or cannot use it on this machine. A ValueError.
        TypeError: for anything that is not a device.
    """
    try:
        found = torch.device(device)
        if found.type != "cpu":
            # Not `torch.cuda.is_available`: there are other kinds of devices, and device indices.
            torch.zeros(1, device=found)
    # Without CUDA in its build PyTorch raises an AssertionError.
    except (RuntimeError, AssertionError, NotImplementedError, TypeError) as error:
        kind = TypeError if isinstance(error, TypeError) else UnusableDeviceError
        # PyTorch lists all of its backends where one is missing.
        why = shorten(str(error).partition("\n")[0], 200, placeholder=" ...")
        raise kind(
            f"{who}: device: expected one that PyTorch can use on this machine, got {device!r} ({why}); "
            "give device='cpu'"
        ) from None
    return found


class CategoricalPgAgent(PgAgent):
    """Policy-gradient agent for `n_actions` discrete actions: int64, counted from `start` as in Discrete.

    Args: see `PgAgent`; the model returns logits [N, n_actions]. For several choices at once pass
    a `MultiDiscrete` to a `PgAgent`.
    """

    def __init__(
        self,
        model: nn.Module,
        n_actions: int,
        *,
        start: int = 0,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, Categorical(n_actions, start), seed=seed, device=device)


class GaussianPgAgent(PgAgent):
    """Policy-gradient agent for continuous actions of shape `action_shape`, normally distributed.

    Actions are stored as drawn, so that likelihoods are correct. The cage clips them to the bounds of the
    Box before the environment receives them.

    Args: see `PgAgent`; the model returns `GaussianParams`.
    """

    def __init__(
        self,
        model: nn.Module,
        action_shape: int | Sequence[int],
        *,
        seed: int,
        device: torch.device | str = "cpu",
    ) -> None:
        super().__init__(model, Gaussian(action_shape), seed=seed, device=device)
