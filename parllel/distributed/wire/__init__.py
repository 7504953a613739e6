"""Serialisation of trees to bytes and JSON, without pickle.

Raises:
    ImportError: if msgspec is not installed.
"""

from parllel.errors import install_command as _install_command

try:
    import msgspec as _msgspec  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "msgspec":
        raise
    raise ImportError(
        f"parllel.distributed.wire needs msgspec: {_install_command('wire')}"
    ) from error

from parllel.distributed.wire.digest import digest
from parllel.distributed.wire.json_text import json_bytes, parse_json
from parllel.distributed.wire.limits import Limits
from parllel.distributed.wire.message import decode, encode
from parllel.distributed.wire.space_json import action_from_json, from_json, to_json
from parllel.distributed.wire.wire_error import WireError

__all__ = [
    "Limits",
    "WireError",
    "action_from_json",
    "decode",
    "digest",
    "encode",
    "from_json",
    "json_bytes",
    "parse_json",
    "to_json",
]
