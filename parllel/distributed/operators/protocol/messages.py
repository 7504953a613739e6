"""Messages between an operator's worker and its driver, as typed values.

    driver   reset, step, stop, ping, init_agent, select_action        -->  worker's standard input
    driver   <--  ready, step, episode_end, error, stopped, pong, agent_ready, action_selected

Encoding: message_lines.py.
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
    """Base class of commands.

    Attributes:
        id: chosen by the driver, repeated in each reply to this command.
    """

    id: Id = UNSET


class ResetCommand(Command, tag="reset"):
    """Start an episode; answered by `ready`.

    Attributes:
        seed: of the environment, at least 0. None continues its random stream.
        agent_seed: the agent's seed is derived from it; default `seed`.
        max_steps: truncate the episode after this many steps.
        frame: include a picture in the reply, as PNG or as nested lists.
    """

    seed: OptionalSeed = UNSET
    agent_seed: OptionalSeed = UNSET
    max_steps: OptionalCount = UNSET
    frame: Frame = UNSET


class StepCommand(Command, tag="step"):
    """Choose an action and take it; answered by `step`, and by `episode_end` too if the episode ends.

    Attributes:
        frame: include a picture in the reply.
        last_frame: include one only if the episode ends with this step.
        action: a person's choice, for workers that leave the choice to a person.
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
        legal_actions: the actions that are legal now; None where the game does not tell.
        text: shown to language models.
        action: a person's choice, for workers that leave the choice to a person.
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
    """Base class of replies."""

    id: Id = UNSET


class ReadyReply(Reply, tag="ready"):
    """An episode has started.

    Attributes:
        action_names: in the order of the actions, if the environment names them.
        action_space: "text", and "n" and "start" if it is discrete.
        text: description of the state for a person who chooses elsewhere, beside the picture.
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
    rgb_array: Any = UNSET  # sent by other workers, never by ours


class _Decided(Reply, kw_only=True):
    """Fields of a reply that describe a decision."""

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
        step_index: the number of steps of the episode, including this one.
        action: as passed to the environment.
        raw, parsed: the agent's answer, and the action parsed from it.
        tokens: used by a language model; `prompt_tokens` and `completion_tokens` are its parts.
        calls: the number of answers of a language model.
        understood: whether the action follows from these answers.
        answers: as the model's server sent them.
        decide_s: seconds that the agent took.
        text: as in `ready`.
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
    rgb_array: Any = UNSET  # sent by other workers, never by ours


class EpisodeEndReply(Reply, tag="episode_end"):
    """The episode ended with the preceding `step`."""

    total_reward: float
    episode_length: int
    terminated: bool
    truncated: bool
    success: bool | UnsetType | None = UNSET


class ErrorReply(_Decided, tag="error"):
    """A command failed. The worker continues, unless it failed to start.

    If a decision was made, or a language model answered, before the failure, the fields of a `step` tell.
    """

    message: str


class StoppedReply(Reply, tag="stopped"):
    """The worker exits."""


class PongReply(Reply, tag="pong"):
    """The worker is alive."""


class AgentReadyReply(Reply, tag="agent_ready"):
    """The player is ready to choose actions."""

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
