"""A worker as one player of a game that runs in the driver."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import gymnasium as gym

from parllel.errors import WrongStateError
from parllel.operators.given_action import GivenAction
from parllel.operators.messages import ActionSelected, AgentReady, InitAgent, SelectAction
from parllel.operators.worker_agent import WorkerAgent
from parllel.seeding import Seeds

# Of a player: its observation space and its action space.
SpacesOfPlayer = Callable[[InitAgent], tuple[gym.Space[Any], gym.Space[Any]]]


class PlayerRuntime:
    """Answer the commands for players.

    Args:
        agent: decides.
        spaces_of_player: what tells a player's spaces; None hands observations over as JSON values.
    """

    def __init__(self, agent: WorkerAgent, spaces_of_player: SpacesOfPlayer | None = None) -> None:
        self._agent = agent
        self._spaces_of_player = spaces_of_player
        self._player_id: str | None = None
        self._spaces: tuple[gym.Space[Any], gym.Space[Any]] | None = None
        self._given: GivenAction | None = None

    def init_agent(self, command: InitAgent) -> AgentReady:
        """Begin a game."""
        self._player_id = None  # until this has worked
        if self._spaces_of_player is not None:
            spaces = self._spaces_of_player(command)
            self._given = GivenAction(spaces[1])
            self._spaces = spaces
        self._agent.bind(*(self._spaces or (None, None)))
        seed = command.seed if isinstance(command.seed, int) else None
        self._agent.reset(agent_seed(seed))
        self._player_id = command.player_id
        return AgentReady(player_id=command.player_id)

    def select_action(self, command: SelectAction) -> ActionSelected:
        """Let the agent choose."""
        if self._player_id is None:
            raise WrongStateError("select_action: send init_agent first")
        if command.player_id != self._player_id:
            raise WrongStateError(
                f"select_action: expected player_id {self._player_id!r}, as in init_agent, got "
                f"{command.player_id!r}"
            )
        observation = command.observation
        if self._spaces is not None:
            from parllel.wire import from_json

            observation = from_json(self._spaces[0], observation)
        info: dict[str, Any] = {**(command.info or {}), "player_id": command.player_id}
        for name in ("legal_actions", "text"):
            value = getattr(command, name)
            if value:
                info[name] = value
        begun = time.perf_counter()
        decision = self._agent.decide(observation, info)
        took = time.perf_counter() - begun
        action = decision.action
        if self._given is not None:
            action = self._given.to_json(self._given.of(action))
        reply = ActionSelected(player_id=command.player_id, action=action, decide_s=took)
        if decision.raw is not None:
            reply.raw = decision.raw
        if decision.parsed is not None:
            reply.parsed = decision.parsed
        if decision.tokens is not None:
            reply.tokens = decision.tokens
        return reply


def agent_seed(seed: int | None) -> int | None:
    """Return the agent's seed in the episode of a seed, which is the environment's own."""
    # As `play_episodes` derives it, for the same episodes. The environment would draw the same numbers from
    # the seed itself.
    return None if seed is None else Seeds(seed).integer("policy")
