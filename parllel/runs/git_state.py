"""The commit that the source of a run is at, and how it differs from it."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

# A repository on a slow network must not keep a run from starting.
TIMEOUT_S = 10.0

# In the form that `git apply` takes, for the whole repository, whatever the user's own settings are.
_SETTINGS = ("relative", "noprefix", "mnemonicPrefix")
_DIFF = (
    *(part for name in _SETTINGS for part in ("-c", f"diff.{name}=false")),
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD"),
)


def git_state(folder: str | os.PathLike[str]) -> tuple[dict[str, Any] | None, bytes]:
    """Return the state of the repository that a folder is in, and how its files differ from the commit.

    The state has the keys `root`, `commit` and `branch` (None if there is none yet, or no branch), and
    `dirty`: whether tracked files differ, None if git took too long to say. It is None if there is no
    repository, or no git. Nothing is raised.
    """
    # Asked of git itself, as its files lie elsewhere in worktrees and submodules.
    root = _git(folder, "rev-parse", "--show-toplevel")
    if root is None:
        return None, b""
    commit = _git(folder, "rev-parse", "--verify", "--quiet", "HEAD")
    branch = _git(folder, "symbolic-ref", "--short", "--quiet", "HEAD")
    difference = b"" if commit is None else _git(folder, *_DIFF)
    state = {
        "root": _text(root),
        "commit": _text(commit),
        "branch": _text(branch),
        "dirty": None if difference is None else bool(difference),
    }
    return state, difference or b""


def _git(folder: str | os.PathLike[str], *arguments: str) -> bytes | None:
    # Within a git hook, say, these variables name another repository.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    # To look must not lock the index, which would get in the way of git commands of the user.
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(folder)), *arguments],
            # It must not wait for an answer, should it ask for anything.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(output: bytes | None) -> str | None:
    # Names of branches and folders may be bytes that are no text.
    return None if output is None else output.decode(errors="replace").strip()
