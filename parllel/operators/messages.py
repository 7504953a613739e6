"""The messages between an operator's worker and what drives it, as typed values, and as lines of JSON.

    driver   reset, step, stop, ping, init_agent, select_action        -->  worker's standard input
    driver   <--  ready, step, episode_end, error, stopped, pong, agent_ready, action_selected

Writing is strict: these names, no NaN. Reading is lenient: fields that are not known are ignored, those that
may be absent may be null, an int stands for a float, and some names that other workers use are understood.
"""

from __future__ import annotations

import json
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, UnsetType

from parllel.errors import ParllelError

PROTOCOL = 1
_SHOWN = 60  # characters of a line in messages
Id = int | str | UnsetType | None
Frame = Literal["png", "rgb"] | UnsetType | None
OptionalInt = int | UnsetType | None
OptionalSeed = Annotated[int, msgspec.Meta(ge=0)] | UnsetType | None
OptionalCount = Annotated[int, msgspec.Meta(ge=1)] | UnsetType | None
OptionalText = str | UnsetType | None
OptionalFloat = float | UnsetType | None


class MessageError(ParllelError, ValueError):
    """A line is no message, or a value cannot be written as one.

    Attributes:
        id: of the message, None if it has none or cannot be read.
    """

    def __init__(self, what: str, message_id: int | str | None = None) -> None:
        super().__init__(what)
        self.id = message_id


# ---------------------------------------------------------------------- commands


class Command(msgspec.Struct, tag_field="cmd", kw_only=True):
    """What a worker is asked to do.

    Attributes:
        id: chosen by the driver, and repeated in each reply to this command.
    """

    id: Id = UNSET


class Reset(Command, tag="reset"):
    """Begin an episode; answered by `ready`.

    Attributes:
        seed: of the environment, at least 0; the agent's is derived from it. None goes on.
        max_steps: after which the episode is truncated.
        frame: send a picture along, as PNG or as nested lists.
    """

    seed: OptionalSeed = UNSET
    max_steps: OptionalCount = UNSET
    frame: Frame = UNSET


class Step(Command, tag="step"):
    """Let the agent choose an action and take it; answered by `step`, at an episode's end also `episode_end`.

    Attributes:
        action: what a person chose, for workers that leave the choice to one.
    """

    frame: Frame = UNSET
    action: Any = UNSET


class Stop(Command, tag="stop"):
    """End the worker; answered by `stopped`."""


class Ping(Command, tag="ping"):
    """Ask for `pong`."""


class InitAgent(Command, tag="init_agent"):
    """Become a player of a game that runs elsewhere; answered by `agent_ready`."""

    game_name: str
    player_id: str
    seed: OptionalSeed = UNSET
    env_id: OptionalText = UNSET
    env_kwargs: dict[str, Any] | UnsetType | None = UNSET


class SelectAction(Command, tag="select_action"):
    """Choose a player's action; answered by `action_selected`.

    Attributes:
        observation: as JSON values.
        legal_actions: those that the game takes now; None where it does not say.
        text: what language models are shown.
    """

    player_id: str
    observation: Any
    legal_actions: list[Any] | UnsetType | None = UNSET
    info: dict[str, Any] | UnsetType | None = UNSET
    text: OptionalText = UNSET


AnyCommand = Reset | Step | Stop | Ping | InitAgent | SelectAction


# ---------------------------------------------------------------------- replies


class Reply(msgspec.Struct, tag_field="type", kw_only=True):
    """What a worker answers."""

    id: Id = UNSET


class Ready(Reply, tag="ready"):
    """An episode has begun."""

    run_id: OptionalText = UNSET
    env_id: OptionalText = UNSET
    seed: OptionalInt = UNSET
    observation_shape: Any = UNSET
    protocol: OptionalInt = UNSET
    action_names: list[str] | UnsetType | None = UNSET
    render_payload: Any = UNSET
    rgb_array: Any = UNSET  # read only


class Stepped(Reply, tag="step"):
    """A step was taken.

    Attributes:
        step_index: how many steps the episode has by now.
        action: as the environment was given it.
        raw, parsed: what the agent said, and what was made of it.
        tokens: that a language model took.
        decide_s: what the agent took.
    """

    step_index: int
    action: Any
    reward: float
    terminated: bool
    truncated: bool
    episode_reward: float
    render_payload: Any = UNSET
    raw: OptionalText = UNSET
    parsed: Any = UNSET
    tokens: OptionalInt = UNSET
    decide_s: OptionalFloat = UNSET
    rgb_array: Any = UNSET  # read only


class EpisodeEnd(Reply, tag="episode_end"):
    """The episode ended with the `step` before."""

    total_reward: float
    episode_length: int
    terminated: bool
    truncated: bool
    success: bool | UnsetType | None = UNSET


class Error(Reply, tag="error"):
    """A command failed; the worker lives on unless it could not be started."""

    message: str


class Stopped(Reply, tag="stopped"):
    """The worker ends."""


class Pong(Reply, tag="pong"):
    """The worker lives."""


class AgentReady(Reply, tag="agent_ready"):
    """A player can be asked."""

    player_id: str | UnsetType = UNSET


class ActionSelected(Reply, tag="action_selected"):
    """A player's action."""

    action: Any
    player_id: str | UnsetType = UNSET
    raw: OptionalText = UNSET
    parsed: Any = UNSET
    tokens: OptionalInt = UNSET
    decide_s: OptionalFloat = UNSET


class _EpisodeDone(EpisodeEnd, tag="episode_done"):
    pass


class _AgentInitialized(AgentReady, tag="agent_initialized"):
    pass


AnyReply = Ready | Stepped | EpisodeEnd | Error | Stopped | Pong | AgentReady | ActionSelected
_commands = msgspec.json.Decoder(AnyCommand)
_replies = msgspec.json.Decoder(AnyReply | _EpisodeDone | _AgentInitialized)
_encode = msgspec.json.Encoder(enc_hook=lambda value: _plain(value)).encode
_strict = json.JSONEncoder(allow_nan=False, default=lambda value: _plain(value))
_COMMANDS = {str(kind.__struct_config__.tag) for kind in Command.__subclasses__()}
_REPLIES = {str(kind.__struct_config__.tag) for kind in Reply.__subclasses__()}
_ALIASES = {"episode_done": "episode_end", "agent_initialized": "agent_ready"}


# ---------------------------------------------------------------------- lines


def read_command(line: bytes) -> AnyCommand:
    """Return the command of a line.

    Raises:
        MessageError: if it is none; says what was expected.
    """
    try:
        command: AnyCommand = _commands.decode(line)
        return command
    except (ValueError, RecursionError) as error:
        raise _explained(line, error, "cmd", _COMMANDS) from None


def read_reply(line: bytes) -> dict[str, Any]:
    """Return a reply as a dict: "type", and those fields that came, under the names of this module.

    Raises:
        MessageError: if it is none; says what was expected.
    """
    try:
        reply = _replies.decode(line)
    except (ValueError, RecursionError) as error:
        raise _explained(line, error, "type", _REPLIES | set(_ALIASES)) from None
    tag = str(reply.__struct_config__.tag)
    found = {"type": _ALIASES.get(tag, tag)}
    for name in reply.__struct_fields__:
        value = getattr(reply, name)
        if value is not UNSET:
            found[name] = value
    if "render_payload" in found or "rgb_array" in found:
        _rename_frame(found)
    return found


def write_command(command: AnyCommand) -> bytes:
    """Return a command as a line, its newline included.

    Raises:
        MessageError: for values that JSON does not have.
    """
    return _line(command)


def write_reply(reply: AnyReply) -> bytes:
    """Return a reply as a line, its newline included.

    Raises:
        MessageError: for values that JSON does not have.
    """
    return _line(reply)


def _line(message: msgspec.Struct) -> bytes:
    try:
        line = _encode(message)
        # What it writes for a NaN, too.
        if b"null" in line:
            _check_finite(message)
    except (TypeError, ValueError, RecursionError) as error:
        tag = message.__struct_config__.tag
        raise MessageError(f"{tag}: expected values that JSON has: {error}") from None
    return line + b"\n"


def _plain(value: Any) -> Any:
    """Return a number or array of numpy, or of torch, as Python has it."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"got {type(value).__module__}.{type(value).__qualname__}")


def _check_finite(message: msgspec.Struct) -> None:
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if value is not UNSET:
            try:
                _strict.encode(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def _rename_frame(found: dict[str, Any]) -> None:
    """Bring a frame that came under another name to this module's."""
    rgb = found.pop("rgb_array", None)
    payload = found.get("render_payload")
    if rgb is not None and payload is None:
        payload = found["render_payload"] = {"mode": "rgb", "rgb": rgb}
    if isinstance(payload, dict):
        if "rgb_array" in payload:
            payload.setdefault("rgb", payload.pop("rgb_array"))
        if payload.get("mode") == "rgb_array":
            payload["mode"] = "rgb"
        rows = payload.get("rgb")
        if isinstance(rows, list) and rows and isinstance(rows[0], list):
            payload.setdefault("width", len(rows[0]))
            payload.setdefault("height", len(rows))


def _explained(line: bytes, error: Exception, key: str, known: set[str]) -> MessageError:
    """Return what was wrong with a line, in one sentence."""
    beginning = line[:_SHOWN].decode("utf-8", "backslashreplace")
    value = None
    if isinstance(error, msgspec.ValidationError):
        # What comes after the place of this error may be no JSON at all.
        try:
            value = msgspec.json.decode(line)
        except (ValueError, RecursionError) as deeper:
            error = deeper
    if isinstance(error, RecursionError):
        return MessageError("expected a message, got lists nested too deeply")
    if not isinstance(error, msgspec.ValidationError):
        return MessageError(f"expected a line of JSON, got {beginning!r}: {error}")
    if not isinstance(value, dict) or not isinstance(value.get(key), str):
        return MessageError(f'expected an object with "{key}", got {beginning!r}', _id_of(value))
    name = value[key]
    if name not in known:
        what = "command" if key == "cmd" else "reply"
        return MessageError(
            f"unknown {what} {name[:_SHOWN]!r}; expected one of {', '.join(sorted(known))}",
            _id_of(value),
        )
    return MessageError(f"{name}: {error}", _id_of(value))


def _id_of(value: Any) -> int | str | None:
    found = value.get("id") if isinstance(value, dict) else None
    return found if isinstance(found, (int, str)) and not isinstance(found, bool) else None
