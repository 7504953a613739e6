"""Specifications of agents, in the order in which they are recognised.

kind         specification                                  acts
proto        dict with "type": "proto" or "proto_config"    on the server at its "url", by protobuf
builtin      name of a built-in agent                       in this process
policy       a Policy                                       in this process
callable     any other callable                             in this process
constant     anything else except text and paths            always with this action
url          text that starts with http:// or https://      on that server, by JSON
run          folder with a run.json                         in a separate process
file         "file.py", "file.py:name", any other file,     in a separate process
             folder with a main.py
archive      zip, tar or tar.gz file with a main.py         in a separate process
source       Python source that defines something           in a separate process
"""

from __future__ import annotations

import ast
import os
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from parllel.distributed.remote.agent_archive import MAIN, is_archive
from parllel.distributed.remote.agent_context import AgentContext
from parllel.distributed.remote.agent_process import AgentCode
from parllel.distributed.remote.plain_values import plain
from parllel.distributed.remote.policy_call import PolicyCall
from parllel.distributed.remote.protobuf_agent import ProtobufAgent
from parllel.distributed.remote.url_agent import UrlAgent
from parllel.distributed.wire.wire_error import WireError
from parllel.policies.policy import Policy

_FILE = re.compile(r"(?P<file>.+\.py)(:(?P<name>[^\W\d]\w*))?")
# Statements that can define an agent in a single line of source.
_DEFINES = (ast.FunctionDef, ast.ClassDef, ast.Assign, ast.Import, ast.ImportFrom)


def kind_of(raw: Any, environment: AgentContext) -> str:
    """Return the kind of a specification (see the top of this module), without executing anything.

    A path that does not exist is a "file".

    Raises:
        TypeError: for None and for an Agent, which need no building.
    """
    if isinstance(raw, Mapping) and (raw.get("type") == "proto" or "proto_config" in raw):
        return "proto"
    if isinstance(raw, str) and raw in environment.agents:
        return "builtin"
    if isinstance(raw, Policy):
        return "policy"
    if callable(raw):
        return "callable"
    if not isinstance(raw, (str, os.PathLike)):
        if raw is None or hasattr(raw, "act_batch"):
            raise TypeError(f"agent: expected a specification, got {raw!r}")
        return "constant"
    return _kind_of_text(os.fspath(raw))


def _kind_of_text(text: str) -> str:
    if text.startswith(("http://", "https://")):
        return "url"
    if os.path.isdir(text):
        is_run = os.path.isfile(os.path.join(text, "run.json"))
        return "file" if os.path.isfile(os.path.join(text, MAIN)) and not is_run else "run"
    if is_archive(text) and os.path.isfile(text):
        return "archive"
    if os.path.isfile(text) or (_FILE.fullmatch(text) and "\n" not in text):
        return "file"
    if "\n" in text:
        return "source"
    # One line may be source, or a misspelled path or name.
    try:
        statements = ast.parse(text).body
    # RecursionError and MemoryError: deeply nested text, which a request may contain.
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return "file"
    return "source" if any(isinstance(node, _DEFINES) for node in statements) else "file"


def code_of_agent(raw: str | os.PathLike[str], kind: str, builtin: Mapping[str, Any]) -> AgentCode:
    """Return the code that the agent's process executes.

    Raises:
        FileNotFoundError: if its file or folder does not exist.
    """
    text = os.fspath(raw)
    if kind == "source":
        return AgentCode(kind, text, None, "agent of source text")
    if kind == "run":
        if not (Path(text) / "run.json").is_file():
            raise FileNotFoundError(
                f"agent {text!r}: expected a file or the folder of a run, got a folder without run.json "
                f"and without {MAIN}"
            )
        return AgentCode(kind, os.path.abspath(text), None, f"agent {text}")
    if kind == "archive":
        return AgentCode(kind, os.path.abspath(text), None, f"agent {text}")
    if os.path.isdir(text):
        return AgentCode(kind, os.path.abspath(os.path.join(text, MAIN)), None, f"agent {text}")
    match = None if os.path.isfile(text) else _FILE.fullmatch(text)
    file, name = (match["file"], match["name"]) if match else (text, None)
    if not os.path.isfile(file):
        names = ", ".join(sorted(builtin)) or "none"
        raise FileNotFoundError(
            f"agent {text[:200]!r}: there is no such file, run folder or built-in agent ({names})"
        )
    return AgentCode(kind, os.path.abspath(file), name, f"agent {text}")


def build_agent(raw: Any, environment: AgentContext) -> tuple[Callable[..., Any] | AgentCode, str]:
    """Build an agent from a specification; return it with the kind of the specification.

    An agent in this process or on a server is a function of (observation, configuration), or of fewer
    arguments. Any other agent is the code that its process will execute. No code is executed and no server is
    contacted here.

    Raises:
        ValueError: for a protobuf specification without a URL, or an invalid URL.
        FileNotFoundError: for a path that does not exist, or an unknown name.
        TypeError: for a constant that is not a JSON value, for None, and for an Agent.
    """
    kind = kind_of(raw, environment)
    if kind == "proto":
        return ProtobufAgent(raw, environment.name), kind
    if kind == "url":
        return UrlAgent(raw, environment.name), kind
    if kind == "builtin":
        return environment.agents[raw], kind
    if kind == "callable":
        made: Callable[..., Any] = raw
        return made, kind
    if kind == "policy":
        return PolicyCall(raw), kind
    if kind == "constant":
        try:
            action = plain(raw)
        except WireError as error:
            raise TypeError(f"agent: expected an action, got {raw!r}: {error}") from None
        return lambda: action, kind
    return code_of_agent(raw, kind, environment.agents), kind
