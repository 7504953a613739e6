"""Runtime of a worker that is one player of a game. The game itself runs in the driver.

driver    init_agent(game, player, seed)        -->  spaces of the player, agent.reset
          select_action(observation, legal ...) -->  agent.decide
          <-- action_selected; whether the action is legal is decided by the driver
"""

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
    """Answers the commands for players.

    If `init_agent` names the game, the agent receives observations in the types of its space; otherwise it
    receives JSON values.

    Args:
        agent: agent that chooses the actions.
    """

    def __init__(self, agent: WorkerAgent) -> None:
        self._agent = agent
        self._player_id: str | None = None
        self._spaces: Spaces | None = None
        self._given: GivenAction | None = None
        self._known: dict[str, Spaces] = {}  # by game, arguments and player

    def init_agent(self, command: InitAgentCommand) -> AgentReadyReply:
        """Start an episode of a game."""
        # Unset until everything below has succeeded: after a failed start, actions are refused.
        self._player_id = None
        self._spaces = self._spaces_of(command)
        self._given = None if self._spaces is None else GivenAction(self._spaces[1])
        # With unknown spaces, the agent sees and returns JSON values.
        self._agent.bind(*(self._spaces or (None, None)))
        seed = command.seed if isinstance(command.seed, int) else None
        self._agent.reset(agent_seed(seed))  # after `bind`, which may make the policy that is reset
        self._player_id = command.player_id
        return AgentReadyReply(player_id=command.player_id)

    def _spaces_of(self, command: InitAgentCommand) -> Spaces | None:
        if not isinstance(command.env_id, str):
            return None
        kwargs = command.env_kwargs if isinstance(command.env_kwargs, dict) else {}
        # Cached: each episode starts with this command, and finding the spaces means making the game.
        key = json.dumps([command.env_id, kwargs, command.player_id], sort_keys=True)
        if key not in self._known:
            # Imported here: workers that play no games do not need it.
            from parllel.distributed.operators.games.player_spaces import player_spaces

            self._known[key] = player_spaces(command.env_id, kwargs, command.player_id)
        return self._known[key]

    def select_action(self, command: SelectActionCommand) -> ActionSelectedReply:
        """Ask the agent for an action, unless the command contains a person's choice."""
        if self._player_id is None:
            raise MessageError("select_action: send init_agent first")
        # A mix-up of seats would go unnoticed: the observation of another seat has the same form.
        if command.player_id != self._player_id:
            raise MessageError(
                f"select_action: expected player_id {self._player_id!r}, as in init_agent, got "
                f"{command.player_id!r}"
            )
        if command.action is not UNSET:
            # Without `decide_s`: the driver has measured how long the person took.
            action = self._action_brought(command.action)
            return ActionSelectedReply(player_id=command.player_id, action=action)
        observation = command.observation
        if self._spaces is not None:
            # Imported here: only players of games that are named need it.
            from parllel.distributed.wire.space_json import from_json

            observation = from_json(self._spaces[0], observation)
        info: dict[str, Any] = {**(command.info or {}), "player_id": command.player_id}
        for name in ("legal_actions", "text"):
            # Left out if the game does not tell: agents test whether the keys are present.
            value = getattr(command, name)
            if value:
                info[name] = value
        # Only the agent's time. The driver measures the round trip, as `latency_s`.
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
                "select_action: action: expected none, because this operator decides itself"
            )
        if self._given is None:
            return values  # the space is unknown here; the driver checks the action
        try:
            return self._given.to_json(self._given.from_json(values))
        except ValueError as error:
            raise MessageError(f"select_action: action: {error}") from None

    def _action_json(self, action: Any) -> Any:
        if self._given is not None:
            try:
                return self._given.to_json(self._given.of(action))
            except ValueError:
                # Sent as it is: the game's rule for illegal actions decides, and records show it.
                pass
        return action.tolist() if hasattr(action, "tolist") else action


def show_decision(decision: Decision, reply: StepReply | ActionSelectedReply | ErrorReply) -> None:
    """Copy the details of a decision to a reply."""
    for name, value in zip(Decision._fields[1:], decision[1:], strict=True):
        if value is not None:
            setattr(reply, name, value)


def agent_seed(seed: int | None) -> int | None:
    """Derive the agent's seed in an episode from the seed of the environment."""
    # Derived as in `play_episodes`, so that the episodes are the same. Not the seed itself: the environment
    # draws from that, and the two streams would be equal.
    return None if seed is None else Seeds(seed).integer("policy")
