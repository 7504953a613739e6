"""Trees to bytes and JSON and back, without pickle.

Raises:
    ImportError: if msgspec is not installed.
"""

from parllel.errors import install_command as _install_command

try:
    import msgspec as _msgspec  # noqa: F401
except ModuleNotFoundError as error:
    if error.name != "msgspec":
        raise
    raise ImportError(f"parllel.wire needs msgspec: {_install_command('wire')}") from error

from parllel.wire.action_json import action_from_json
from parllel.wire.digest import digest
from parllel.wire.json_text import json_bytes, parse_json
from parllel.wire.limits import Limits
from parllel.wire.message import decode, encode, encode_part
from parllel.wire.space_json import from_json, to_json
from parllel.wire.wire_error import WireError

__all__ = [
    "Limits",
    "WireError",
    "action_from_json",
    "decode",
    "digest",
    "encode",
    "encode_part",
    "from_json",
    "json_bytes",
    "parse_json",
    "to_json",
]
