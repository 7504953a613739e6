"""Several agents in one environment, each with its own model."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn

from parllel.agents.agent import ALL_ENVS, Agent, EnvIndices
from parllel.buffers.named_tuple import NamedTuple
from parllel.buffers.paths import field_at
from parllel.seeding import Seeds
from parllel.torch.agents.learning_group import LearningGroup
from parllel.torch.agents.pg_agent import PgAgent
from parllel.torch.distributions.ensemble import joint_space
from parllel.types import State, Tree


class IndependentAgents(Agent):
    """Combines one agent per key of the Dict spaces into a single agent for samplers and handlers.

    Each agent sees only its own observation, draws its own noise, and learns separately. Actions,
    and `value` and `log_prob` of the agent info, are trees keyed by agent. Keyword inputs added by
    a handler are passed to every agent.

    Args:
        agents: the agents, keyed by name. They must have no recurrent state, share a device, and
            share no parameters.

    Attributes:
        agents: the agents, keyed by name.
        names: names of the agents.
        model: one module that holds all models, for the optimiser.

    Raises:
        ValueError: if there are no agents, or they share parameters, are on different devices, or are
            recurrent.
    """

    def __init__(self, agents: Mapping[str, PgAgent]) -> None:
        self.agents = dict(agents)
        if not self.agents:
            raise ValueError("IndependentAgents: expected at least one agent, got none")
        self.names = tuple(self.agents)
        self.action_space = joint_space({n: agent.action_space for n, agent in self.agents.items()})
        # Algorithms move each batch to a single device: the agent's.
        self.device, *others = {agent.device for agent in self.agents.values()}
        if others:
            raise ValueError(
                f"IndependentAgents: expected one device, got {[self.device, *others]}"
            )
        if any(agent.recurrent for agent in self.agents.values()):
            raise ValueError("IndependentAgents: expected agents without recurrent state")
        # Not a ModuleDict: agent names could clash with methods of the module.
        self.model: nn.Module = nn.ModuleList([agent.model for agent in self.agents.values()])
        # By identity: equal weights are fine, but shared ones would be clipped once per group.
        owners: dict[int, str] = {}
        for name, agent in self.agents.items():
            for parameter in agent.model.parameters():
                if owners.setdefault(id(parameter), name) != name:
                    raise ValueError(
                        f"IndependentAgents: {owners[id(parameter)]!r} and {name!r} share parameters. Use an "
                        "EnsembleAgent with a SharedModel"
                    )

    def step(
        self,
        observation: Tree,
        *,
        env_indices: EnvIndices = ALL_ENVS,
        noise: Tree = None,
        **inputs: Tree,
    ) -> tuple[Tree, Tree]:
        """Return `(action, agent_info)`, trees keyed by agent."""
        actions, values, log_probs = {}, {}, {}
        for name, agent in self.agents.items():
            actions[name], info = agent.step(
                field_at(observation, name),
                env_indices=env_indices,
                noise=None if noise is None else field_at(noise, name),
                **inputs,
            )
            values[name], log_probs[name] = info.value, info.log_prob
        info = NamedTuple(value=NamedTuple(**values), log_prob=NamedTuple(**log_probs))
        return NamedTuple(**actions), info

    def value(
        self, observation: Tree, *, env_indices: EnvIndices = ALL_ENVS, **inputs: Tree
    ) -> Tree:
        """Return the value estimates [N], keyed by agent."""
        return self._each(
            lambda agent, own: agent.value(own, env_indices=env_indices, **inputs), observation
        )

    def evaluate(self, observation: Tree, action: Tree, **inputs: Tree) -> tuple[Tree, Tree, Tree]:
        """Return `(log_prob, entropy, value)` by agent, each [N], with gradients for an update.

        Raises:
            ValueError: for the reasons given in `PgAgent.evaluate`.
        """
        parts = {
            name: agent.evaluate(field_at(observation, name), field_at(action, name), **inputs)
            for name, agent in self.agents.items()
        }
        log_prob, entropy, value = [
            NamedTuple(**dict(zip(parts, values, strict=True)))
            for values in zip(*parts.values(), strict=True)
        ]
        return log_prob, entropy, value

    def learning_groups(self) -> list[LearningGroup]:
        """Return one group per agent."""
        return [
            LearningGroup((name,), list(agent.model.parameters()))
            for name, agent in self.agents.items()
        ]

    def draw_noise(self, T: int, B: int, *, seed: int | None = None) -> Tree:
        """Draw the noise of each agent from its own generator; None in eval mode."""
        noise = {}
        for name, agent in self.agents.items():
            # Derived by name, otherwise agents with the same action space would draw the same noise.
            own = None if seed is None else Seeds(seed).integer(name)
            noise[name] = agent.draw_noise(T, B, seed=own)
        # All agents are in the same mode, so either all of them draw or none does.
        return None if None in noise.values() else NamedTuple(**noise)

    def sample_mode(self) -> None:
        """Put all agents in sample mode."""
        for agent in self.agents.values():
            agent.sample_mode()

    def train_mode(self) -> None:
        """Put all agents in train mode."""
        for agent in self.agents.values():
            agent.train_mode()

    def eval_mode(self) -> None:
        """Put all agents in eval mode."""
        for agent in self.agents.values():
            agent.eval_mode()

    def models(self) -> dict[str, Any]:
        """Return the models, keyed by agent."""
        return {name: agent.model for name, agent in self.agents.items()}

    def state(self) -> State:
        """Return the weights, keyed by agent, and the rest of the agents' state under "_others".

        The rest is kept separate because only weights are sent to a sampling process, which draws
        its own noise.
        """
        state: State = {"_others": {}}
        for name, agent in self.agents.items():
            whole, weights = agent.state(), agent.models()
            state[name] = {key: part for key, part in whole.items() if key in weights}
            state["_others"][name] = {k: part for k, part in whole.items() if k not in weights}
        return state

    def load_state(self, state: State) -> None:
        """Restore a state returned by `state`.

        Raises:
            ValueError: if the state belongs to agents with other names.
        """
        others = state.get("_others", {})
        names = [name for name in state if name != "_others"]
        if set(names) != set(self.names):
            raise ValueError(f"IndependentAgents: expected {list(self.names)}, got {names}")
        for name, agent in self.agents.items():
            agent.load_state({**state[name], **others.get(name, {})})

    def close(self) -> None:
        """Close all agents. Idempotent."""
        for agent in self.agents.values():
            agent.close()

    def _each(self, function: Callable[[PgAgent, Tree], Any], tree: Tree) -> NamedTuple:
        return NamedTuple(
            **{name: function(agent, field_at(tree, name)) for name, agent in self.agents.items()}
        )
