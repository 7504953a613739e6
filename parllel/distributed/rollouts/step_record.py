"""One step of one environment, as passed to progress handlers and fragment cutters."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from parllel.types import Tree


# Neither frozen nor validated, because one is created for every step.
@dataclass(slots=True)
class StepRecord:
    """One step of one environment. Leaves are numpy values without time and environment dimensions.

    They may be views of memory that the next step overwrites, so copy values that must outlive the call which
    passes the record.

    Attributes:
        environment: number of the environment in the worker.
        observation: observation before the action.
        action: action of the agent.
        agent_info: further outputs of the agent.
        reward, terminated, truncated: results of the action.
        next_observation: observation for the next action. After the end of an episode, this is the
            reset observation if the environment was reset.
        version: version of the weights that chose the action.
        final_observation: last observation of an episode that ended with this step. None if
            `next_observation` is the last observation.
        env_info: values of the stored keys. None if no keys are stored.
        agent_observation: the agent's observation, if it differs from `observation`.
        rnn_state: the agent's recurrent state before the step, if it has one.
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
