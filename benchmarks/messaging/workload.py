"""Environments of eleven agents that only forward messages: a root with ten leaves.

environment --action--> root --action--> leaves      2 hops down
environment <---info--- root <---info--- leaves      2 hops up, 22 messages in all

With leaves on hosts, 2 hops and 20 messages are added between these:

environment <--action-- leaves                       a leaf's action on the physics
environment ---info---> leaves                       its observation
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from parllel.distributed.messaging import (
    Agent,
    ExecutionMode,
    KafkaBroker,
    KafkaMultiAgentEnv,
    VectorizedKafkaEnv,
)

N_LEAVES = 10
N_HOPS = 4
MESSAGES = 2 * (N_LEAVES + 1)  # of an environment in a step
HOSTED_HOPS = N_HOPS + 2
HOSTED_MESSAGES = MESSAGES + 2 * N_LEAVES
N_ENVS = 128
ROOT = "root"

SCALAR: Any = 0.5
FOUR_FLOATS: Any = np.linspace(0.0, 1.0, 4, dtype=np.float32)


class Leaf(Agent):
    """An agent that reports what it was sent."""

    def observe(self, global_state: Any) -> None:
        """See nothing."""

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Report the last action."""
        return {"value": self._last_action}


class Root(Leaf):
    """An agent that sends what it was sent to all below it, and reports what one of them reported."""

    def decide(self, observation: None, action: Any) -> dict[str, Any]:
        """Return the same for all."""
        return dict.fromkeys(self.subordinates, action)

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Report what the first reported."""
        return next(iter(infos.values()))


class StillEnv(KafkaMultiAgentEnv):
    """No physics: what the leaves do changes nothing."""

    def apply_actions(self, actions: dict[str, Any]) -> None:
        """Ignore what the leaves do."""

    def get_global_state(self) -> None:
        """Show nothing."""


def create_agents(env_id: str) -> dict[str, Agent]:
    """Create the agents of one environment."""
    leaves: dict[str, Agent] = {f"leaf{i}": Leaf(f"leaf{i}") for i in range(N_LEAVES)}
    return {ROOT: Root(ROOT, subordinates=leaves), **leaves}


def make_envs(
    broker: KafkaBroker | None,
    n: int = N_ENVS,
    mode: ExecutionMode = ExecutionMode.ASYNC,
    hosted: Sequence[str] = (),
) -> VectorizedKafkaEnv:
    """Return n environments that have been reset; `broker` is left open by them.

    hosted: patterns of the ids of agents that run in other processes.
    """
    envs = VectorizedKafkaEnv(
        create_agents,
        [ROOT],
        num_envs=n,
        env_class=StillEnv,
        broker=broker,
        execution_mode=mode,
        hosted=hosted,
    )
    envs.reset()
    return envs
