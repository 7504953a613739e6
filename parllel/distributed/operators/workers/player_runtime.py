"""A worker as one player of a game that runs in the driver."""

from __future__ import annotations

import json
import time
from typing import Any

import gymnasium as gym
from msgspec import UNSET

from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.distributed.operators.protocol.message_lines import MessageError
from parllel.distributed.operators.protocol.messages import (
    ActionSelectedReply,
    AgentReadyReply,
    ErrorReply,
    InitAgentCommand,
    SelectActionCommand,
    StepReply,
)
from parllel.distributed.operators.workers.worker_agent import (
    Decision,
    WorkerAgent,
    checked_decision,
)
from parllel.seeding import Seeds

Spaces = tuple[gym.Space[Any], gym.Space[Any]]


class PlayerRuntime:
    """Answer the commands for players.

    Where `init_agent` names the game, the agent is given observations as that has them, else JSON values.

    Args:
        agent: decides.
    """

    def __init__(self, agent: WorkerAgent) -> None:
        self._agent = agent
        self._player_id: str | None = None
        self._spaces: Spaces | None = None
        self._given: GivenAction | None = None
        self._known: dict[str, Spaces] = {}

    def init_agent(self, command: InitAgentCommand) -> AgentReadyReply:
        """Begin an episode of a game."""
        self._player_id = None  # until this has worked
        self._spaces = self._spaces_of(command)
        self._given = None if self._spaces is None else GivenAction(self._spaces[1])
        self._agent.bind(*(self._spaces or (None, None)))
        seed = command.seed if isinstance(command.seed, int) else None
        self._agent.reset(agent_seed(seed))
        self._player_id = command.player_id
        return AgentReadyReply(player_id=command.player_id)

    def _spaces_of(self, command: InitAgentCommand) -> Spaces | None:
        if not isinstance(command.env_id, str):
            return None
        kwargs = command.env_kwargs if isinstance(command.env_kwargs, dict) else {}
        # Remembered, as the game is made for it, and each episode begins with this command.
        key = json.dumps([command.env_id, kwargs, command.player_id], sort_keys=True)
        if key not in self._known:
            # Here, as workers that are no players do without it.
            from parllel.distributed.operators.games.player_spaces import player_spaces

            self._known[key] = player_spaces(command.env_id, kwargs, command.player_id)
        return self._known[key]

    def select_action(self, command: SelectActionCommand) -> ActionSelectedReply:
        """Let the agent choose, unless a person has."""
        if self._player_id is None:
            raise MessageError("select_action: send init_agent first")
        if command.player_id != self._player_id:
            raise MessageError(
                f"select_action: expected player_id {self._player_id!r}, as in init_agent, got "
                f"{command.player_id!r}"
            )
        if command.action is not UNSET:
            action = self._action_brought(command.action)
            return ActionSelectedReply(player_id=command.player_id, action=action)
        observation = command.observation
        if self._spaces is not None:
            from parllel.distributed.wire.space_json import from_json

            observation = from_json(self._spaces[0], observation)
        info: dict[str, Any] = {**(command.info or {}), "player_id": command.player_id}
        for name in ("legal_actions", "text"):
            value = getattr(command, name)
            if value:
                info[name] = value
        begun = time.perf_counter()
        decision = checked_decision(self._agent.decide(observation, info))
        took = time.perf_counter() - begun
        action = self._action_json(decision.action)
        reply = ActionSelectedReply(player_id=command.player_id, action=action, decide_s=took)
        show_decision(decision, reply)
        return reply

    def _action_brought(self, values: Any) -> Any:
        if not self._agent.takes_actions:
            raise MessageError(
                "select_action: action: expected none, as this operator decides itself"
            )
        if self._given is None:
            return values
        try:
            return self._given.to_json(self._given.from_json(values))
        except ValueError as error:
            raise MessageError(f"select_action: action: {error}") from None

    def _action_json(self, action: Any) -> Any:
        if self._given is not None:
            try:
                return self._given.to_json(self._given.of(action))
            except ValueError:
                pass  # the game has a rule for what is no action of it, and shows what was said
        return action.tolist() if hasattr(action, "tolist") else action


def show_decision(decision: Decision, reply: StepReply | ActionSelectedReply | ErrorReply) -> None:
    """Say in a reply how an action came about."""
    for name, value in zip(Decision._fields[1:], decision[1:], strict=True):
        if value is not None:
            setattr(reply, name, value)


def agent_seed(seed: int | None) -> int | None:
    """Return the agent's seed in the episode of a seed, which is the environment's own."""
    # As `play_episodes` derives it, for the same episodes. The environment would draw the same numbers from
    # the seed itself.
    return None if seed is None else Seeds(seed).integer("policy")
