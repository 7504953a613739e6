"""Weights: the part of an agent's state that is sent to its copies in other processes.

Weights are the entries of `agent.state()` named by `agent.models()`. Other entries are not sent: random and
recurrent state belong to the agent that samples.
"""

from __future__ import annotations

from parllel.agents.agent import Agent
from parllel.types import State


def weights_of(agent: Agent) -> State:
    """Return the entries of the agent's state that `models()` names.

    Raises:
        ValueError: if the state lacks one of these entries.
        NotImplementedError: if the agent does not implement `models()`.
    """
    names = agent.models()
    if not names:
        return {}
    state = agent.state()
    missing = [name for name in names if name not in state]
    if missing:
        raise ValueError(
            f"{type(agent).__name__}: expected state() to have an entry for each of models(), "
            f"{sorted(names)}; {missing} are missing"
        )
    return {name: state[name] for name in names}


def state_without_weights(agent: Agent) -> State:
    """Return the agent's state without its weights; all of it if the agent has no `models()`."""
    try:
        names = set(agent.models())
    except NotImplementedError:
        names = set()
    return {name: part for name, part in agent.state().items() if name not in names}


def load_weights(agent: Agent, weights: State) -> None:
    """Load weights returned by `weights_of` for another agent of the same class.

    Raises:
        ValueError: if `agent.load_state` refuses the weights because they do not fit.
    """
    # Together with the agent's other state, because `load_state` expects all entries.
    agent.load_state({**agent.state(), **weights})
