"""Permissions: the agents that requests may name."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parllel.distributed.remote.agent_archive import MAIN
from parllel.distributed.remote.agent_context import AgentContext
from parllel.distributed.remote.build_agent import kind_of
from parllel.distributed.web.web_error import WebError
from parllel.runs.run_folder import RunFolder

_MAX_LINE = 4096  # characters of a specification
_NAMED = re.compile(r"(?P<path>.+\.py)(?P<name>:\w+)", re.DOTALL)


@dataclass(frozen=True)
class Permissions:
    """Agents that a request may name, in addition to built-in agents and constant actions.

    Attributes:
        agent_root: folder below which files, archives, run folders and folders with a main.py are
            allowed. Links are resolved first. The script of a run must be below this folder too.
            None allows no paths.
        allow_source: whether Python source text is allowed.
        allow_url: whether agents at URLs are allowed.
    """

    agent_root: Path | None = None
    allow_source: bool = False
    allow_url: bool = False

    def __post_init__(self) -> None:
        if self.agent_root is None:
            return
        root = Path(self.agent_root).resolve()
        if not root.is_dir():
            raise FileNotFoundError(f"--agent-root {self.agent_root}: there is no such folder")
        object.__setattr__(self, "agent_root", root)

    def allowed(self, raw: Any, environment: AgentContext) -> Any:
        """Check a specification from a request. Returns it for an Agent, with its path resolved.

        Raises:
            WebError: 403 with the flag that would allow it, 404 for a file that does not exist.
        """
        if isinstance(raw, str) and len(raw) > _MAX_LINE and "\n" not in raw:
            # Neither a path nor written by a person. Finding out whether it is Python would mean parsing it.
            raise WebError(400, f"agents: expected at most {_MAX_LINE:,} characters in a line")
        kind = kind_of(raw, environment)
        if kind in ("builtin", "constant"):
            return raw
        if kind in ("url", "proto"):
            if not self.allow_url:
                raise WebError(403, "agents at URLs need a server with --allow-url")
            return raw
        if kind == "source":
            if not self.allow_source:
                raise WebError(403, "agents as Python source need a server with --allow-source")
            return raw
        if not isinstance(raw, str):
            raise WebError(403, f"a request cannot name an agent of the kind {kind}")
        return self._below_root(raw)

    def _below_root(self, raw: str) -> str:
        root = self.agent_root
        if root is None:
            raise WebError(403, "agents from files need a server with --agent-root DIR")
        found = _NAMED.fullmatch(raw)
        name = "" if found is None else found["name"]
        try:
            path = (root / raw.removesuffix(name)).resolve()
            inside = path.is_relative_to(root)
            exists = inside and (path.is_file() or path.is_dir())
        except (OSError, ValueError, RuntimeError) as error:  # too long, NUL, a loop of links
            raise WebError(400, "agents: expected the path of a file or folder") from error
        if not inside:
            # Before any check of existence, so that clients learn nothing about files outside.
            raise WebError(403, "the path of the agent leads out of the --agent-root folder")
        if not exists:
            raise WebError(404, f"agents: there is no file {raw[:200]} below --agent-root")
        if path.is_dir() and (path / MAIN).is_file() and not (path / "run.json").exists():
            if not (path / MAIN).resolve().is_relative_to(root):
                raise WebError(403, "the path of the agent leads out of the --agent-root folder")
        elif path.is_dir():
            self._check_run(path, root)
        return f"{path}{name}"

    def _check_run(self, path: Path, root: Path) -> None:
        """Refuse a run whose script is outside the root, as a forged folder could name any file."""
        try:
            record = RunFolder.open(str(path)).read_record()
            script = record.source()
        except (OSError, ValueError) as error:
            raise WebError(400, f"agents: {path.name} is not the folder of a run") from error
        for reference in (script, record.config_class):
            if reference is None or reference.problem is not None:  # never imported
                continue
            file = None if reference.file is None else Path(reference.file).resolve()
            if file is None or not file.is_relative_to(root):
                raise WebError(403, "the script of the run is not in the --agent-root folder")
