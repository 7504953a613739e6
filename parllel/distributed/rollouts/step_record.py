"""One step of one environment, as it is handed on while environments run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parllel.types import Tree


# Neither frozen nor checked, since one is made for each step.
@dataclass(slots=True)
class StepRecord:
    """One step of one environment; leaves are numpy values without dimensions of time or environments.

    They may be views of memory that the next step overwrites: copy what is to outlive the call that hands
    the record over.

    Attributes:
        environment: its number in the worker.
        observation: what the action answers.
        action: as the agent gave it.
        agent_info: what else the agent said.
        reward, terminated, truncated: what followed the action.
        next_observation: what the next action will answer; after the end of an episode that of the reset,
            if the environment has been reset.
        version: of the weights that chose the action.
        final_observation: the last one of an episode that ended here, where `next_observation` is not it.
        env_info: values of the keys that are stored, None if none are.
        agent_observation: what the agent saw, where this is not `observation`.
        rnn_state: the agent's recurrent state before the step, where it has one.
    """

    environment: int
    observation: Tree
    action: Tree
    agent_info: Tree
    reward: Any
    terminated: Any
    truncated: Any
    next_observation: Tree
    version: int
    final_observation: Tree = None
    env_info: Tree = None
    agent_observation: Tree = None
    rnn_state: Tree = None
