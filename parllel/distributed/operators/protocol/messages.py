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
        id: number chosen by the driver. Each reply to this command repeats it.
    """

    id: Id = UNSET


class ResetCommand(Command, tag="reset"):
    """Start an episode; answered by `ready`.

    Attributes:
        seed: seed of the environment, at least 0. None continues its random stream.
        agent_seed: seed from which the agent's seed is derived. Default: `seed`.
        max_steps: number of steps after which the episode is truncated.
        frame: include a picture in the reply, as PNG or as nested lists.
    """

    seed: OptionalSeed = UNSET
    agent_seed: OptionalSeed = UNSET
    max_steps: OptionalCount = UNSET
    frame: Frame = UNSET


class StepCommand(Command, tag="step"):
    """Choose an action and take it.

    Answered by `step`, followed by `episode_end` if the episode ends.

    Attributes:
        frame: include a picture in the reply.
        last_frame: include a picture only if the episode ends with this step.
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
        observation: the observation as JSON values.
        legal_actions: the actions that are legal now. None if the game does not list them.
        text: description of the position, shown to language models.
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
        action_names: names of the actions in order, if the environment names them.
        action_space: dict with "text", and with "n" and "start" if the space is discrete.
        text: description of the state, shown beside the picture to a person who chooses outside the
            worker.
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
    prompts: list[Any] | UnsetType | None = UNSET


class StepReply(_Decided, tag="step"):
    """A step was taken.

    Attributes:
        step_index: number of steps of the episode, including this one.
        action: the action as passed to the environment.
        raw, parsed: the agent's answer, and the action parsed from it.
        tokens: number of tokens used by a language model, the sum of `prompt_tokens` and
            `completion_tokens`.
        calls: number of answers of a language model.
        understood: whether the action follows from these answers.
        answers: the answers as sent by the model's server.
        prompts: the messages sent to the model for this decision, without answers and earlier turns.
        decide_s: seconds that the agent took.
        text: description of the state, as in `ready`.
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

    If a decision was made or a language model answered before the failure, the reply also has the
    decision fields of a `step`.
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
