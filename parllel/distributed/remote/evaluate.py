"""Evaluation of agents over several episodes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from parllel.distributed.remote.agent import Agent
from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.environment import Environment, make
from parllel.distributed.remote.games.episode import Row

# Kinds of agents that are rebuilt per episode, as they could carry state from one episode into the next.
_ANEW = ("file", "archive", "source", "builtin")


def evaluate(
    name: str,
    agents: Sequence[Any],
    configuration: Mapping[str, Any] | None = None,
    *,
    episodes: int = 1,
    steps: Sequence[Row] | None = None,
    info: Mapping[str, Any] | None = None,
    debug: bool = False,
    statuses: bool = False,
    on_episode: Callable[[Environment], None] | None = None,
    settings: AgentSettings | None = None,
) -> list[Any]:
    """Play episodes and return the rewards of all agents in each episode.

    The reward of an agent that failed is None. An episode stopped by runTimeout has no result, so
    all its rewards are None.

    Agents from files, archives and source text, and built-in agents, are rebuilt for each episode, since they
    may keep state. Other agents play all episodes.

    Args:
        name, configuration, info, debug, settings: arguments of `make`.
        agents: a specification, an Agent or None for each seat.
        episodes: number of episodes.
        steps: steps from which every episode continues. By default, each episode starts anew.
        statuses: whether to return `{"rewards": [...], "statuses": [...]}` for each episode. If the
            episode was stopped, the dict has the reason as `"stopped"`.
        on_episode: function called with the environment after each episode.

    Raises the errors of `make` and `Environment.run`, and ValueError if `episodes` is below 1.
    """
    if type(episodes) is not int or episodes < 1:
        raise ValueError(f"episodes: expected an int of at least 1, got {episodes!r}")
    results: list[Any] = []
    with ExitStack() as stack:
        env = stack.enter_context(
            make(name, configuration, info=info, steps=steps, debug=debug, settings=settings)
        )
        playing: list[Any] = list(env.initialize_agents(agents))
        for number in range(episodes):
            if number == 1:
                playing = [_again(agent, raw) for agent, raw in zip(playing, agents, strict=True)]
            if number and steps:
                env.load(steps)
            elif number:
                env.reset(len(playing))  # `run` would continue an episode that was stopped
            env.run(playing)
            results.append(_result(env) if statuses else _result(env)["rewards"])
            if on_episode is not None:
                on_episode(env)
    return results


def _result(env: Environment) -> dict[str, Any]:
    """Return rewards and statuses at the end of an episode."""
    replay = env.to_json()
    result = {"rewards": replay["rewards"], "statuses": replay["statuses"]}
    stopped = env.info.get("stopped")
    return {**result, "stopped": stopped} if stopped else result


def _again(agent: Agent | None, raw: Any) -> Any:
    """Return the agent for later episodes, or its specification if it has to be rebuilt."""
    if agent is None or agent is raw or agent.kind not in _ANEW:
        return agent
    agent.close()
    return raw
