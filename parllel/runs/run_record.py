"""The record of how a run was made, and the git state of its source."""

from __future__ import annotations

import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from parllel.runs.config import change_config, read_config
from parllel.runs.reference import Reference, reference_to

TRAINING = "training"  # the kind of every run that a runner trains, and of folders that name none
_KIND = re.compile(r"[a-z][a-z0-9_-]*")

# A repository on a slow network must not keep a run from starting.
GIT_TIMEOUT_S = 10.0

# In the form that `git apply` takes, for the whole repository, whatever the user's own settings are.
_DIFF_SETTINGS = ("relative", "noprefix", "mnemonicPrefix")
_DIFF = (
    *(part for name in _DIFF_SETTINGS for part in ("-c", f"diff.{name}=false")),
    *("diff", "--no-ext-diff", "--no-textconv", "--no-color", "HEAD"),
)


@dataclass(frozen=True)
class RunRecord:
    """Contents of run.json and config.json.

    Attributes:
        path: folder of the run.
        kind: "training", or another kind of run.
        config: the config as JSON values.
        build_function: reference to the function that builds the run; None for any other kind of
            run.
        config_class: reference to the config's dataclass; None for a dict.
        command: command line that started the run.
        working_directory: working directory of that command.
        created: local time at which the run was created, in ISO 8601.
        git: state of the build function's repository, see `git_state`.
        repeats: folder of the run that this one repeats, or None.
        history: a dict for each resume, with `time`, `step`, `changes`, `before` (the values before
            the changes) and `git`.
        outcome: `ended` (time), `elapsed_steps`, `evaluation_return`, `solved` and `stopped_by` of
            the last execution. It is None while the run is in progress, and if it failed or was
            killed. Any other kind of run has `ended` and further entries.
    """

    path: Path
    kind: str
    config: dict[str, Any]
    build_function: Reference | None
    config_class: Reference | None
    command: list[str]
    working_directory: str
    created: str
    git: dict[str, Any] | None
    repeats: str | None
    history: list[dict[str, Any]]
    outcome: dict[str, Any] | None

    def source(self) -> Reference:
        """Return the reference to the build function.

        Raises:
            ValueError: if this is not a training run. The message says what can be done with it.
        """
        if self.build_function is None:
            raise ValueError(
                f"{self.path}: expected a training run, got one of kind {self.kind!r}, which has "
                "no build function and no checkpoints; `parllel runs` lists it, and this command "
                f"ran it: {shlex.join(self.command)}"
            )
        return self.build_function

    def build(self) -> Any:
        """Import and return the build function. Raises the errors of `source` and `Reference.find`."""
        return self.source().find()

    def read_config(
        self, changes: Mapping[str, Any] | None = None, config_class: type | None = None
    ) -> Any:
        """Return the config: an object of its class, or a dict.

        Args:
            changes: changes of the config, as for `change_config`.
            config_class: class of the config; by default the recorded class is imported. A dict
                needs no class.

        Raises:
            ValueError, TypeError: if the class cannot be found, if the values no longer fit it, or
                for the reasons given in `change_config`.
        """
        values: Any = dict(self.config)
        if config_class is None and self.config_class is not None:
            config_class = self.config_class.find()
        if config_class is not None:
            try:
                values = read_config(config_class, values)
            except (TypeError, ValueError) as error:
                where = self.path / "config.json"
                raise ValueError(
                    f"{where} does not fit {config_class.__name__}: {error}"
                ) from error
        return change_config(values, changes) if changes else values


def describe_run(
    kind: str, build: Any, config: Any, repeats: str | os.PathLike[str] | None = None
) -> dict[str, Any]:
    """Return the contents of run.json for a new run, without the git state.

    Raises:
        ValueError: if the kind is not one lower-case word, if a training run has no build function,
            or if a run of any other kind has one.
    """
    if _KIND.fullmatch(kind) is None:
        raise ValueError(f"kind: expected one lower-case word, such as {TRAINING!r}, got {kind!r}")
    if (kind == TRAINING) != (build is not None):
        wanted = "a" if kind == TRAINING else "no"
        raise ValueError(f"a run of kind {kind!r}: expected {wanted} build function, got {build!r}")
    return {
        "kind": kind,
        **places_of(build, config),
        # With the interpreter and its options, which sys.argv leaves out.
        "command": list(sys.orig_argv),
        "working_directory": os.getcwd(),
        "created": now(),
        "git": None,
        "repeats": None if repeats is None else str(repeats),
        "history": [],
        "outcome": None,
    }


def places_of(build: Any, config: Any) -> dict[str, Any]:
    """Return the references to the build function and the config's class for run.json."""
    is_dict = isinstance(config, Mapping)
    return {
        "build": None if build is None else dataclasses.asdict(reference_to(build)),
        "config_class": None if is_dict else dataclasses.asdict(reference_to(type(config))),
    }


def read_record(path: Path, values: Mapping[str, Any], config: dict[str, Any]) -> RunRecord:
    """Build a record from the contents of run.json and config.json.

    Raises:
        KeyError, TypeError: for an entry that is missing or has the wrong type.
    """
    held = dict(values)
    kind = held.pop("kind", TRAINING)  # earlier versions knew no other
    build, config_class = held.pop("build"), held.pop("config_class")
    # As it is written: what lists runs prints it as it stands.
    if (
        not isinstance(kind, str)
        or _KIND.fullmatch(kind) is None
        or (kind == TRAINING) != (build is not None)
    ):
        raise TypeError(f"kind {kind!r} with build function {build!r}")
    names = {field.name for field in dataclasses.fields(RunRecord)}
    return RunRecord(
        path=path,
        kind=kind,
        config=dict(config),
        build_function=None if build is None else Reference(**build),
        config_class=None if config_class is None else Reference(**config_class),
        # Without what only later versions know.
        **{name: held[name] for name in names & set(held)},
    )


def now() -> str:
    """Return the local time with its UTC offset, to the second."""
    return datetime.now().astimezone().isoformat(timespec="seconds")


def git_state(folder: str | os.PathLike[str]) -> tuple[dict[str, Any] | None, bytes]:
    """Return the state of a folder's repository, and the diff of its files to the commit.

    The state has the keys `root`, `commit` and `branch` (each None if there is none), and `dirty`,
    which is whether tracked files differ, or None if git timed out. The state is None if there is
    no repository or git is not installed. Never raises.
    """
    # Ask git itself: in worktrees and submodules its files are elsewhere.
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
    # These variables may name another repository, for example in a git hook.
    environment = {key: value for key, value in os.environ.items() if not key.startswith("GIT_")}
    # Do not lock the index, which would interfere with the user's git commands.
    environment["GIT_OPTIONAL_LOCKS"] = "0"
    try:
        done = subprocess.run(
            ["git", "-C", str(Path(folder)), *arguments],
            # No input, so that git cannot wait at a prompt.
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=GIT_TIMEOUT_S,
            env=environment,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None


def _text(output: bytes | None) -> str | None:
    # Names of branches and folders may be bytes that are no text.
    return None if output is None else output.decode(errors="replace").strip()
