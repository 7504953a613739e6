"""The messages between an operator's worker and what drives it, as typed values.

    driver   reset, step, stop, ping, init_agent, select_action        -->  worker's standard input
    driver   <--  ready, step, episode_end, error, stopped, pong, agent_ready, action_selected

How they are written and read: message_lines.py.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

PROTOCOL = 1
Id = int | str | UnsetType | None
Frame = Literal["png", "rgb"] | UnsetType | None
OptionalInt = int | UnsetType | None
OptionalSeed = Annotated[int, msgspec.Meta(ge=0)] | UnsetType | None
OptionalCount = Annotated[int, msgspec.Meta(ge=1)] | UnsetType | None
OptionalText = str | UnsetType | None
OptionalFloat = float | UnsetType | None


# ---------------------------------------------------------------------- commands


class Command(msgspec.Struct, tag_field="cmd", kw_only=True):
    """What a worker is asked to do.

    Attributes:
        id: chosen by the driver, and repeated in each reply to this command.
    """

    id: Id = UNSET


class ResetCommand(Command, tag="reset"):
    """Begin an episode; answered by `ready`.

    Attributes:
        seed: of the environment, at least 0. None goes on.
        agent_seed: from which the agent's is derived; default `seed`.
        max_steps: after which the episode is truncated.
        frame: send a picture along, as PNG or as nested lists.
    """

    seed: OptionalSeed = UNSET
    agent_seed: OptionalSeed = UNSET
    max_steps: OptionalCount = UNSET
    frame: Frame = UNSET


class StepCommand(Command, tag="step"):
    """Let the agent choose an action and take it; answered by `step`, at an episode's end also `episode_end`.

    Attributes:
        frame: send a picture along.
        last_frame: send one along if the episode ends with this step.
        action: what a person chose, for workers that leave the choice to one.
    """

    frame: Frame = UNSET
    last_frame: Frame = UNSET
    action: Any = UNSET


class StopCommand(Command, tag="stop"):
    """End the worker; answered by `stopped`."""


class PingCommand(Command, tag="ping"):
    """Ask for `pong`."""


class InitAgentCommand(Command, tag="init_agent"):
    """Become a player of a game that runs elsewhere; answered by `agent_ready`."""

    game_name: str
    player_id: str
    seed: OptionalSeed = UNSET
    env_id: OptionalText = UNSET
    env_kwargs: dict[str, Any] | UnsetType | None = UNSET


class SelectActionCommand(Command, tag="select_action"):
    """Choose a player's action; answered by `action_selected`.

    Attributes:
        observation: as JSON values.
        legal_actions: those that the game takes now; None where it does not say.
        text: what language models are shown.
        action: what a person chose, for workers that leave the choice to one.
    """

    player_id: str
    observation: Any
    legal_actions: list[Any] | UnsetType | None = UNSET
    info: dict[str, Any] | UnsetType | None = UNSET
    text: OptionalText = UNSET
    action: Any = UNSET


AnyCommand = (
    ResetCommand | StepCommand | StopCommand | PingCommand | InitAgentCommand | SelectActionCommand
)


# ---------------------------------------------------------------------- replies


class Reply(msgspec.Struct, tag_field="type", kw_only=True):
    """What a worker answers."""

    id: Id = UNSET


class ReadyReply(Reply, tag="ready"):
    """An episode has begun.

    Attributes:
        action_names: in the order of the actions, where the environment names them.
        action_space: "text", and "n" and "start" where it is discrete.
        text: what a person who chooses elsewhere reads beside the picture.
    """

    run_id: OptionalText = UNSET
    env_id: OptionalText = UNSET
    seed: OptionalInt = UNSET
    observation_shape: Any = UNSET
    protocol: OptionalInt = UNSET
    action_names: list[str] | UnsetType | None = UNSET
    action_space: Any = UNSET
    text: OptionalText = UNSET
    render_payload: Any = UNSET
    rgb_array: Any = UNSET  # read only


class _Decided(Reply, kw_only=True):
    """What a reply says of a decision."""

    raw: OptionalText = UNSET
    parsed: Any = UNSET
    tokens: OptionalInt = UNSET
    prompt_tokens: OptionalInt = UNSET
    completion_tokens: OptionalInt = UNSET
    calls: OptionalInt = UNSET
    understood: bool | UnsetType | None = UNSET
    answers: list[Any] | UnsetType | None = UNSET


class StepReply(_Decided, tag="step"):
    """A step was taken.

    Attributes:
        step_index: how many steps the episode has by now.
        action: as the environment was given it.
        raw, parsed: what the agent said, and what was made of it.
        tokens: that a language model took; those of the prompt, and of the completion.
        calls: answers of a language model.
        understood: whether the action follows from these answers.
        answers: as the model's server sent them.
        decide_s: what the agent took.
        text: as of `ready`.
    """

    step_index: int
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    episode_reward: float
    render_payload: Any = UNSET
    decide_s: OptionalFloat = UNSET
    text: OptionalText = UNSET
    rgb_array: Any = UNSET  # read only


class EpisodeEndReply(Reply, tag="episode_end"):
    """The episode ended with the `step` before."""

    total_reward: float
    episode_length: int
    terminated: bool
    truncated: bool
    success: bool | UnsetType | None = UNSET


class ErrorReply(_Decided, tag="error"):
    """A command failed; the worker lives on unless it could not be started.

    What had been decided, or answered by a language model, before it failed is in the fields of a `step`.
    """

    message: str


class StoppedReply(Reply, tag="stopped"):
    """The worker ends."""


class PongReply(Reply, tag="pong"):
    """The worker lives."""


class AgentReadyReply(Reply, tag="agent_ready"):
    """A player can be asked."""

    player_id: str | UnsetType = UNSET


class ActionSelectedReply(_Decided, tag="action_selected"):
    """A player's action."""

    action: Any
    player_id: str | UnsetType = UNSET
    decide_s: OptionalFloat = UNSET


AnyReply = (
    ReadyReply
    | StepReply
    | EpisodeEndReply
    | ErrorReply
    | StoppedReply
    | PongReply
    | AgentReadyReply
    | ActionSelectedReply
)
