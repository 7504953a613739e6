"""Play many episodes with the same agents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

from parllel.distributed.remote.agent import Agent
from parllel.distributed.remote.agent_settings import AgentSettings
from parllel.distributed.remote.environment import Environment, make
from parllel.distributed.remote.games.episode import Row

# What such agents remember of an episode would reach the next one.
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
    """Return the rewards of all agents in each of `episodes` episodes; None of an agent that failed.

    An episode that runTimeout stopped has no result: its rewards are None, of all agents.

    Agents of files and source text, and built-in ones, are made anew for each episode, as they may
    remember; others play all of them.

    Args:
        name, configuration, info, debug, settings: as `make` takes them.
        agents: specifications, Agents or None, one for each seat.
        episodes: how many.
        steps: from which every episode goes on; default from a start of its own.
        statuses: whether to return `{"rewards": [...], "statuses": [...]}` for each episode, and `"stopped"`,
            which says why, if it was.
        on_episode: called with the environment after each episode.

    Raises: as `make` and `Environment.run` do; ValueError if `episodes` is below 1.
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
                env.reset(len(playing))  # or one that was stopped would go on
            env.run(playing)
            results.append(_result(env) if statuses else _result(env)["rewards"])
            if on_episode is not None:
                on_episode(env)
    return results


def _result(env: Environment) -> dict[str, Any]:
    """Return what an episode ended with."""
    replay = env.to_json()
    result = {"rewards": replay["rewards"], "statuses": replay["statuses"]}
    stopped = env.info.get("stopped")
    return {**result, "stopped": stopped} if stopped else result


def _again(agent: Agent | None, raw: Any) -> Any:
    """Return what acts in the episodes after the first: the agent, or a specification to make another of."""
    if agent is None or agent is raw or agent.kind not in _ANEW:
        return agent
    agent.close()
    return raw
