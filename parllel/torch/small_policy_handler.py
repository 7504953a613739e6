"""Compiled sampling with small fully connected policies, without PyTorch in the steps.

this process   start_batch: draws the noise, publishes the parameters (shared memory)  -> workers
workers        compute actions from both, in rows of the samples; they import no PyTorch
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from parllel.agents.agent import EnvIndices
from parllel.agents.handler import Handler
from parllel.agents.shared_parameters import SharedParameters
from parllel.agents.small_policy import Layers, SmallPolicy
from parllel.agents.small_worker_policy import SmallWorkerPolicy
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.samples import Samples
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.handler import TorchHandler
from parllel.torch.known_models import choices_of, known_agent, layers_of, sizes_of
from parllel.torch.models.heads import GaussianHead
from parllel.types import CompiledActs, State, Tree, overrides

_NAME = "SmallPolicyHandler"
_INSTEAD = "TorchHandler takes any agent in PyTorch"


class SmallPolicyHandler(TorchHandler):
    """Handler that acts with a compiled copy of the agent's networks.

    Use it instead of `TorchHandler` for typical policies on low-dimensional observations, on the CPU. With
    two layers of 64 units, a step of 16 environments takes a tenth of the time, because nearly all of it was
    the overhead of calls into PyTorch. The gain shrinks as the arithmetic grows: three times as fast with 128
    environments or layers of 256 units, and hardly any gain with both.

    `start_batch`, `load_state` and `update_parameters` copy the parameters. `step` and `decide` then return
    the same actions as `TorchHandler` with the same noise, and values and log probabilities that differ by
    float32 rounding. Learning, evaluation and the values of final observations still use PyTorch. Parameters
    changed within a batch take effect with the next batch.

    Args:
        agent: a PgAgent, CategoricalPgAgent or GaussianPgAgent on the CPU, whose model is a PgModel in
            float32 without an encoder, with a CategoricalHead or GaussianHead. Subclasses are rejected,
            because they may compute something else, and so are modules with hooks.

    Raises:
        TypeError: if agent, model or distribution has the wrong class, or a subclass of the handler
            overrides `agent_inputs`.
        ValueError: if the model has the wrong device or dtype, or has hooks.
    """

    agent: PgAgent

    def __init__(self, agent: PgAgent) -> None:
        known_agent(agent, _NAME, _INSTEAD)
        _check_plain(agent.model)
        if type(self).agent_inputs is not Handler.agent_inputs:
            raise TypeError(
                f"{type(self).__name__}: agent_inputs is overridden, but compiled steps read only "
                f"agent.observation. Derive from TorchHandler instead"
            )
        super().__init__(agent)
        model: Any = agent.model
        self._make_policy = partial(SmallPolicy, **_settings(agent))
        self._policy = self._make_policy()
        self._shared: SharedParameters | None = None
        # Cached, because looking parameters up in their modules takes as long as copying them.
        self._parameters = [layers_of(network) for network in (model.policy, model.critic)]
        self._log_std: Tensor | None = getattr(model.head, "log_std", None)
        self.update_parameters()

    def worker_policy(self) -> Callable[[], SmallWorkerPolicy]:
        """Return a picklable policy factory for `SynchronizedProcessCage.set_policy`.

        Workers do not import PyTorch.

        From then on, `start_batch` also publishes the parameters to the workers and fills the field
        `agent.noise`, which the samples must have.
        """
        if self._shared is None:
            # Only now: without workers, no shared memory is needed.
            self._shared = SharedParameters(self._policy.parameters)
        return partial(SmallWorkerPolicy, self._make_policy, self._shared)

    def provides_for(self, policy: Any) -> bool:
        """Return whether a policy belongs to this handler or is of an unknown kind."""
        own = self._shared is not None and getattr(policy, "args", ())[1:] == (self._shared,)
        return own or super().provides_for(policy)

    def bind(self, samples: Samples) -> None:
        """Bind the buffer to read from and write to.

        Raises:
            ValueError: for the reasons given in `SmallPolicy.bind`.
        """
        super().bind(samples)
        self._policy.bind(samples)

    def use_batch(self, number: int) -> None:
        """Switch to batch `number` of a buffer that holds several."""
        super().use_batch(number)
        self._policy.use_batch(number)

    def release(self) -> None:
        """Release the buffer, and the workers' policies."""
        super().release()
        self._policy, self._shared = self._make_policy(), None

    def start_batch(self) -> None:
        """Draw the noise of the batch, in sample mode, and copy the parameters."""
        # First, because it draws the noise used below.
        super().start_batch()
        if self._noise is not None:
            self.update_parameters()
            # Not a copy: the noise of a batch stays in place until the next batch.
            self._policy.start_batch(self._noise.numpy())
            if self._shared is not None:
                # No fence against workers: cages start the batch only after this returns.
                self._shared.publish(self._policy.parameters)

    def update_parameters(self) -> None:
        """Copy the agent's parameters to the compiled networks."""
        log_std = None if self._log_std is None else _array(self._log_std)
        policy, critic = map(_arrays, self._parameters)
        self._policy.set_parameters(policy, critic, log_std)

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`, and copy the parameters."""
        super().load_state(state)
        # For `decide`, which can be called before a batch starts.
        self.update_parameters()

    def decide(
        self, observation: Tree, env_indices: EnvIndices, noise: Tree = None
    ) -> tuple[Tree, Tree]:
        """Like `Handler.decide`, with the most recently copied parameters."""
        if not self._sampling or noise is None:
            return super().decide(observation, env_indices, noise)
        cells = noise.numpy() if isinstance(noise, Tensor) else noise
        action, log_prob, value = self._policy.decide(np.asarray(observation), cells)
        return action, NamedTuple(value=value, log_prob=log_prob)

    def _bind_step(self, columns: slice) -> Callable[[int], None]:
        # Modes without batch noise use PyTorch, which draws its own noise where needed.
        if self._sampling and self._noise is not None:
            return partial(self._policy.step, columns=columns)
        return super()._bind_step(columns)

    def compiled_acts(self) -> CompiledActs | None:
        """Return how compiled code finds the actions of this batch, in sample mode."""
        changed = overrides(self, SmallPolicyHandler, "step", "bound_step", "_bind_step")
        if changed or not self._sampling or self._noise is None:
            return None
        return self._policy.compiled_acts()

    def bootstrap_value(self, t: int, columns: slice) -> None:
        """Write the value of observation row `t` into row `t` of `agent.agent_info.value`."""
        if self._sampling and self._noise is not None:
            self._policy.write_values(t, columns)
        else:
            super().bootstrap_value(t, columns)

    def close(self) -> None:
        """Close the agent and release the shared parameters. Idempotent."""
        super().close()
        if self._shared is not None:
            self._shared.close()


def _check_plain(model: Any) -> None:
    """Check that there is no encoder, that hidden layers end with tanh, and that states share a deviation."""
    if model.encoder is not None:
        raise TypeError(
            f"{_NAME}: agent.model.encoder: expected a model without one, got a "
            f"{type(model.encoder).__name__}; {_INSTEAD}"
        )
    if isinstance(model.head, GaussianHead) and model.head.log_std is None:
        raise ValueError(
            f"{_NAME}: agent.model.head: state_dependent: expected a deviation that is the same in all "
            f"states; {_INSTEAD}"
        )
    if model.policy.activation != "tanh":
        raise ValueError(
            f"{_NAME}: agent.model: activation: expected 'tanh', got {model.policy.activation!r}; {_INSTEAD}"
        )


def _settings(agent: PgAgent) -> dict[str, Any]:
    """Return the arguments of a SmallPolicy with the agent's sizes."""
    model: Any = agent.model
    distribution: Any = agent.distribution
    choices = choices_of(distribution)
    nvec, start = choices or (None, None)
    return {
        "policy_sizes": sizes_of(model.policy),
        "critic_sizes": sizes_of(model.critic),
        "nvec": nvec,
        "start": start,
        "action_shape": distribution.action_space.shape,
    }


def _arrays(layers: list[tuple[Tensor, Tensor]]) -> Layers:
    return [(_array(weight), _array(bias)) for weight, bias in layers]


def _array(parameter: Tensor) -> NDArray[np.float32]:
    array: NDArray[np.float32] = parameter.detach().numpy()
    return array
