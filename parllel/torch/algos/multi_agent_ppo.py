"""Proximal policy optimisation of several agents together."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from parllel.buffers.paths import field_at
from parllel.buffers.samples import Samples
from parllel.torch.agents.learning_group import MultiAgent
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.algos.ppo import PPO, mean, tensors_of
from parllel.torch.algos.ppo_inputs import PpoInputs, flat_tensors
from parllel.torch.algos.ppo_loss import compiled_loss, means_of
from parllel.types import Tree

ALIVE = "env.env_info.alive"


@dataclass(frozen=True)
class MultiAgentPpoInputs(PpoInputs):
    """Inputs of an update: N steps of K agents, in the order of the agents' names.

    `action` and `agent["observation"]` are trees by agent; `log_prob`, `value`, `advantage` and
    `return_` are [N, K].

    Attributes:
        alive: bool [N, K], which agents took part in each step; None if all always do.
    """

    alive: Tensor | None = None

    @property
    def n_steps(self) -> int:
        """Number of valid environment steps, whichever agents took part."""
        return len(self.return_) if self.valid is None else int(self.valid.sum())

    def mask(self) -> Tensor | None:
        """Return the mask of valid entries, bool [N, K], or None if all are valid."""
        if self.valid is None:
            return self.alive
        valid = self.valid.unsqueeze(1).expand_as(self.return_)
        return valid if self.alive is None else valid & self.alive


class MultiAgentPPO(PPO):
    """PPO for several agents of one environment.

    Each agent has a separate objective, computed from its own `log_prob`, `value`, `advantage` and
    `return_`; minibatches contain the same steps for all agents. The objective of agents that share
    parameters is the mean over their steps. Other agents are trained as if each had its own PPO, gradient
    clipping included. Only `kl_limit` is common: it is compared with the mean over agents.

    Reads, by agent, the fields that PPO reads, and `env.env_info.alive` if it exists: an agent ignores
    steps in which it did not take part.

    Diagnostics are means over all agents, and `<name>/<agent>` for each agent. The gradient norm is taken
    over all parameters.

    Args: as for PPO; `agent` is an `IndependentAgents` or an `EnsembleAgent`.

    Raises:
        ValueError: if an argument is out of range.
        TypeError: if `agent` is a single agent.
    """

    def __init__(self, agent: MultiAgent, **settings: Any) -> None:
        if not hasattr(agent, "learning_groups"):
            raise TypeError(
                "MultiAgentPPO: agent: expected IndependentAgents or an EnsembleAgent, got "
                f"{type(agent).__name__}. Use PPO for a single agent"
            )
        # First, because the optimiser needs the groups.
        self._groups, self._names = agent.learning_groups(), tuple(agent.names)
        super().__init__(cast(PgAgent, agent), **settings)
        self._multi_agent = agent
        places = {name: place for place, name in enumerate(agent.names)}
        self._columns = [[places[name] for name in group.names] for group in self._groups]

    def reads(self, samples: Samples) -> Sequence[str] | None:
        """Return the paths of the batch fields that updates read, for all agents together."""
        alive = getattr(samples.env.env_info, "alive", None) is not None
        # Without the fields of importance weights, which support only a single agent.
        names = ("action", "agent_info.log_prob", "agent_info.value", "advantage", "return_")
        valid = ["env.valid"] if getattr(samples.env, "valid", None) is not None else []
        own = [f"agent.{name}" for name in names]
        return ["agent.observation", *own, *valid, *([ALIVE] if alive else [])]

    def construct_agent_inputs(self, samples: Samples) -> MultiAgentPpoInputs:
        """Return the batch as tensors [T * B, ...] and [T * B, K]."""
        device = self.agent.device

        def flat(path: str) -> Any:
            return flat_tensors(samples, path, device, type(self).__name__)

        def stacked(path: str) -> Tensor:
            return self._stacked(flat(path), path)

        env = samples.env
        has_valid = getattr(env, "valid", None) is not None
        has_alive = getattr(env.env_info, "alive", None) is not None
        return MultiAgentPpoInputs(
            agent={"observation": flat("agent.observation")},
            action=flat("agent.action"),
            log_prob=stacked("agent.agent_info.log_prob"),
            value=stacked("agent.agent_info.value"),
            advantage=stacked("agent.advantage"),
            return_=stacked("agent.return_"),
            valid=flat("env.valid") if has_valid else None,
            alive=stacked(ALIVE) if has_alive else None,
        )

    def loss(self, inputs: PpoInputs) -> tuple[Tensor, dict[str, Tensor]]:
        """Return the sum over learning groups of their losses, and diagnostics."""
        assert isinstance(inputs, MultiAgentPpoInputs)
        mask = inputs.mask()
        known = self._updates.known_loss(inputs, mask, self._coefficients())
        if known is not None:
            return known[0], tensors_of(self._diagnostics_of(known[1]))
        outputs = self._multi_agent.evaluate(action=inputs.action, **inputs.agent)
        names = ("log_prob", "entropy", "value")
        log_prob, entropy, value = map(self._stacked, outputs, names)
        if self._adam.is_flat:
            found = compiled_loss(
                (log_prob, entropy, value),
                inputs,
                mask,
                coefficients=self._coefficients(),
                groups=self._columns,
            )
            if found is not None:
                return found[0], tensors_of(self._diagnostics_of(found[1]))
        log_ratio = log_prob - inputs.log_prob
        ratio = log_ratio.exp()
        clipped = ratio.clamp(1 - self.ratio_clip, 1 + self.ratio_clip)
        surrogate = torch.min(ratio * inputs.advantage, clipped * inputs.advantage)
        half_error = 0.5 * self._squared_error(value, inputs)

        cost = self.value_loss_coeff * half_error - surrogate
        if self.entropy_loss_coeff:
            cost = cost - self.entropy_loss_coeff * entropy
        # Means per group, so a group of one agent has the loss of its own PPO, however large the others are.
        losses = [
            mean(cost[:, columns], None if mask is None else mask[:, columns])
            for columns in self._columns
        ]
        # A sum, so that the number of groups does not scale any gradient.
        loss = torch.stack(losses).sum()
        with torch.no_grad():
            terms = {
                "policy_loss": -surrogate.detach(),
                "value_loss": half_error.detach(),
                "entropy": entropy.detach(),
                "approx_kl": ratio - 1 - log_ratio,
                "clip_fraction": ((ratio - 1).abs() > self.ratio_clip).to(ratio.dtype),
            }
            return loss, self._diagnostics(terms, mask)

    def _parameter_groups(self) -> list[list[Any]]:
        """Return the parameters by learning group, so that one agent's gradients do not shrink another's."""
        return [group.parameters for group in self._groups]

    def _norm_of_all(self, norms: list[float]) -> float:
        """Return the norm of all gradients. Raises FloatingPointError if one of a group is not finite."""
        for group, norm in zip(self._groups, norms, strict=True):
            if not math.isfinite(norm):
                raise FloatingPointError(
                    f"MultiAgentPPO: the gradient of {list(group.names)} is not finite: its norm "
                    f"is {norm}"
                )
        return super()._norm_of_all(norms)

    def _stacked(self, tree: Tree, what: str) -> Tensor:
        """Stack the leaves [N] of a tree by agent to [N, K]."""
        try:
            return torch.stack([field_at(tree, name) for name in self._multi_agent.names], dim=1)
        except ValueError as error:
            raise ValueError(f"MultiAgentPPO: {what}: {error}") from None

    def _diagnostics(self, terms: dict[str, Tensor], mask: Tensor | None) -> dict[str, Tensor]:
        found = {}
        for term, x in terms.items():
            found[term] = mean(x, mask)
            for k, name in enumerate(self._multi_agent.names):
                found[f"{term}/{name}"] = mean(x[:, k], None if mask is None else mask[:, k])
        return found

    def _diagnostics_of(self, sums: NDArray[np.float64]) -> dict[str, float]:
        """As `_diagnostics`, from the sums of a compiled loss, [K, N_SUMS]."""
        # All agents together first.
        found = means_of(sums.sum(axis=0))
        for name, row in zip(self._names, sums, strict=True):
            found.update((f"{term}/{name}", mean) for term, mean in means_of(row).items())
        return found

    def _explained_variances(self, inputs: PpoInputs) -> dict[str, float]:
        """Return the explained variance of each agent, and the mean of these."""
        assert isinstance(inputs, MultiAgentPpoInputs)
        return_, value = inputs.return_.double(), inputs.value.double()
        mask, found = inputs.mask(), {}
        for k, name in enumerate(self._names):
            # Agents have different numbers of valid steps, so they are handled one by one.
            chosen = slice(None) if mask is None else mask[:, k]
            own, error = return_[chosen, k], (return_ - value)[chosen, k]
            variance = float(own.var(correction=0)) if len(own) else 0.0
            residual = float(error.var(correction=0)) if len(own) else 0.0
            found[f"explained_variance/{name}"] = (
                1 - residual / variance if variance > 0 else math.nan
            )
        # Not over all agents together, where differences between the agents' returns would count as
        # explained.
        return {"explained_variance": float(np.mean(list(found.values()))), **found}

    def _alive(self, inputs: PpoInputs) -> Tensor | None:
        """Return which agents took part in each step, bool [N, K]; None if all did."""
        assert isinstance(inputs, MultiAgentPpoInputs)
        return inputs.alive

    def _known_class(self) -> type[PPO]:
        """Return the class whose methods a flat update replaces."""
        return MultiAgentPPO
