"""Agent specifications, and their meanings in the order in which they are tried.

a Policy                        itself
a class derived from Policy     constructed with (observation_space, action_space)
any other callable              FunctionPolicy: called with one observation
"random", "noop"                RandomPolicy, ConstantPolicy.noop
"http://...", "https://..."     RemotePolicy: an agent on a server
"scheme:..."                    the function registered for the scheme
"file.py", "file.py:name"       the last function or Policy defined in the file, or the named one
a path                          the trained policy of the run in that folder
any other value                 ConstantPolicy: an action
"""

from __future__ import annotations

import importlib
import inspect
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gymnasium as gym

from parllel.errors import install_command
from parllel.policies.basic_policies import ConstantPolicy, FunctionPolicy, RandomPolicy
from parllel.policies.policy import Policy
from parllel.policies.policy_file import policy_in_file
from parllel.policies.policy_loading import load_policy

_FILE = re.compile(r"(?P<file>.+\.py)(:(?P<name>\w+))?")
_SCHEME = re.compile(r"[a-z][a-z0-9+.-]+")


@dataclass(frozen=True)
class _Scheme:
    target: str  # "module:function"
    extra: str | None


# Listed here, because a package can register nothing before it is imported.
_REMOTE = _Scheme("parllel.distributed.remote.remote_policy:remote_policy", "remote")
_SCHEMES: dict[str, _Scheme] = {"http": _REMOTE, "https": _REMOTE}
_WORDS = ("random", "noop")


def register_scheme(scheme: str, target: str, *, extra: str | None = None) -> None:
    """Register a function for specifications "scheme:...". Its module is imported on first use.

    Args:
        scheme: two or more of a-z, 0-9, "+", "." and "-".
        target: "module:function". It is called with the whole specification and, by name,
            `observation_space` and `action_space`, and returns a Policy.
        extra: the extra that installs the module's dependencies, for the ImportError if they are missing.

    Raises:
        ValueError: for an invalid scheme or target, or a scheme registered for another target.
    """
    if not _SCHEME.fullmatch(scheme):
        raise ValueError(
            f"scheme: expected at least two of the characters a-z, 0-9, +, . and -, got {scheme!r}"
        )
    if not re.fullmatch(r"[\w.]+:\w+", target):
        raise ValueError(f"target: expected 'module:function', got {target!r}")
    known = _SCHEMES.setdefault(scheme, _Scheme(target, extra))
    if known.target != target:
        raise ValueError(f"scheme {scheme!r}: already registered for {known.target}, got {target}")


def policy_of(
    spec: Any,
    observation_space: gym.Space[Any] | None = None,
    action_space: gym.Space[Any] | None = None,
    *,
    seed: int | None = None,
) -> Policy:
    """Return the policy of a specification. See the module docstring.

    Executes the file of a path, or the script named in the folder of a run.

    Args:
        spec: the specification.
        observation_space, action_space: of one environment. "random", "noop" and constant actions require
            `action_space`; runs have stored theirs.
        seed: of "random", for environments that are reset without a seed.

    Raises:
        ValueError: for an unknown specification, an action that is not in the space, and as `load_policy`.
        FileNotFoundError: for a file that does not exist.
        TypeError: if an action space is required, or a scheme's function does not return a Policy.
        ImportError: if a scheme's dependencies are not installed; names the extra.
    """
    # Before callables, because a Policy may have `__call__`.
    if isinstance(spec, Policy):
        return spec
    if inspect.isclass(spec) and issubclass(spec, Policy):
        made: Policy = spec(observation_space, action_space)  # type: ignore[call-arg]
        return made
    if callable(spec):
        return FunctionPolicy(spec, observation_space, action_space)
    if isinstance(spec, (str, os.PathLike)):
        return _policy_named(os.fspath(spec), observation_space, action_space, seed)
    return ConstantPolicy(spec, _needed(action_space, f"the action {spec!r}"))


def code_of(spec: str | os.PathLike[str]) -> Path | None:
    """Return the file or run folder whose code `policy_of` would execute, or None.

    For callers that confirm before executing code named by somebody else.
    """
    text = os.fspath(spec)
    if text in _WORDS or _scheme_of(text) is not None:
        return None
    match = _FILE.fullmatch(text)
    if match:
        return Path(match["file"])
    return Path(text) if text and Path(text).is_dir() else None


def _scheme_of(spec: str) -> _Scheme | None:
    scheme, colon, _ = spec.partition(":")
    return _SCHEMES.get(scheme) if colon else None


def _policy_named(spec: str, observation_space: Any, action_space: Any, seed: int | None) -> Policy:
    if spec == "random":
        return RandomPolicy(_needed(action_space, spec), seed)
    if spec == "noop":
        return ConstantPolicy.noop(_needed(action_space, spec))
    scheme = _scheme_of(spec)
    if scheme is not None:
        return _policy_of_scheme(spec, scheme, observation_space, action_space)
    match = _FILE.fullmatch(spec)
    if match:
        # Parsed again as a specification, because a file may define a function, a class or a policy.
        thing = policy_in_file(Path(match["file"]), match["name"])
        return policy_of(thing, observation_space, action_space, seed=seed)
    # Last, because a folder may have any name, even "random".
    if spec and Path(spec).is_dir():  # "" would be the current folder
        return load_policy(spec)
    schemes = "".join(f", {name}:..." for name in sorted(_SCHEMES))
    raise ValueError(
        f"policy {spec!r}: expected random, noop, the folder of a run, file.py or file.py:name{schemes}; "
        "there is no such folder"
    )


def _policy_of_scheme(
    spec: str, scheme: _Scheme, observation_space: Any, action_space: Any
) -> Policy:
    module, _, function = scheme.target.partition(":")
    try:
        found = getattr(importlib.import_module(module), function)
    except ModuleNotFoundError as error:
        hint = "" if scheme.extra is None else f": {install_command(scheme.extra)}"
        name = spec.partition(":")[0]  # only the scheme: the rest may hold the password of a URL
        raise ImportError(
            f"policy {name}:...: needs {error.name}{hint}", name=error.name
        ) from error
    policy = found(spec, observation_space=observation_space, action_space=action_space)
    if not isinstance(policy, Policy):
        raise TypeError(f"{scheme.target}: expected it to return a Policy, got {policy!r}")
    return policy


def _needed(action_space: gym.Space[Any] | None, what: str) -> gym.Space[Any]:
    if action_space is None:
        raise TypeError(f"policy_of: {what}: expected an action_space to choose from, got None")
    return action_space
