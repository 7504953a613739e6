"""Encoding of messages as lines of JSON, and decoding.

Writing is strict: only the names of `messages`, and no NaN. Reading is lenient: unknown fields are ignored,
optional fields may be null, an int is accepted as a float, and so are some names used by other workers.
"""

from __future__ import annotations

import json
from typing import Any, get_args

import msgspec
from msgspec import UNSET

from parllel.distributed.operators.protocol.messages import (
    AgentReadyReply,
    AnyCommand,
    AnyReply,
    Command,
    EpisodeEndReply,
)
from parllel.errors import ParllelError

_SHOWN = 60  # characters of a line in error messages


class MessageError(ParllelError, ValueError):
    """Raised for a line that is not a message, or a value that cannot be written as one.

    Attributes:
        id: id of the message. None if it is missing or cannot be read.
    """

    def __init__(self, what: str, message_id: int | str | None = None) -> None:
        super().__init__(what)
        self.id = message_id


class _EpisodeDone(EpisodeEndReply, tag="episode_done"):
    pass


class _AgentInitialized(AgentReadyReply, tag="agent_initialized"):
    pass


def _plain(value: Any) -> Any:
    """Return a NumPy or torch number or array as plain Python values."""
    if callable(getattr(value, "tolist", None)):
        return value.tolist()
    raise TypeError(f"got {type(value).__module__}.{type(value).__qualname__}")


_commands = msgspec.json.Decoder(AnyCommand)
_replies = msgspec.json.Decoder(AnyReply | _EpisodeDone | _AgentInitialized)
_encode = msgspec.json.Encoder(enc_hook=_plain).encode
_strict = json.JSONEncoder(allow_nan=False, default=_plain)
_COMMANDS = {str(kind.__struct_config__.tag) for kind in Command.__subclasses__()}
REPLIES = tuple(str(kind.__struct_config__.tag) for kind in get_args(AnyReply))
_ALIASES = {"episode_done": "episode_end", "agent_initialized": "agent_ready"}


def read_command(line: bytes) -> AnyCommand:
    """Decode a command.

    Raises:
        MessageError: if the line is not a command. Says what was expected.
    """
    try:
        command: AnyCommand = _commands.decode(line)
        return command
    except (ValueError, RecursionError) as error:
        raise _explained(line, error, "cmd", _COMMANDS) from None


def read_reply(line: bytes) -> dict[str, Any]:
    """Decode a reply to a dict.

    The dict contains "type" and the fields that are present, named as in the module `messages`.

    Raises:
        MessageError: if the line is not a reply. Says what was expected.
    """
    try:
        reply = _replies.decode(line)
    except (ValueError, RecursionError) as error:
        raise _explained(line, error, "type", {*REPLIES, *_ALIASES}) from None
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
    """Encode a command as a line, including its newline.

    Raises:
        MessageError: for values that JSON cannot represent.
    """
    return _line(command)


def write_reply(reply: AnyReply) -> bytes:
    """Encode a reply as a line, including its newline.

    Raises:
        MessageError: for values that JSON cannot represent.
    """
    return _line(reply)


def _line(message: msgspec.Struct) -> bytes:
    try:
        line = _encode(message)
        # msgspec writes NaN and infinity as null. Lines without any null need no second look.
        if b"null" in line:
            _check_finite(message)
    except (TypeError, ValueError, RecursionError) as error:
        tag = message.__struct_config__.tag
        raise MessageError(f"{tag}: expected values that JSON can hold: {error}") from None
    return line + b"\n"


def _check_finite(message: msgspec.Struct) -> None:
    for name in message.__struct_fields__:
        value = getattr(message, name)
        if value is not UNSET:
            try:
                _strict.encode(value)
            except ValueError as error:
                raise ValueError(f"{name}: {error}") from None


def _rename_frame(found: dict[str, Any]) -> None:
    """Rename the fields of a frame that other workers name differently."""
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
    """Return the error that says what is wrong with a line, in one sentence."""
    beginning = line[:_SHOWN].decode("utf-8", "backslashreplace")
    value = None
    if isinstance(error, msgspec.ValidationError):
        # msgspec stops at the first wrong field. The rest of the line may not be JSON at all, which is worse.
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
