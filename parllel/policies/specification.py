"""One grammar for everything that can act: what a specification means, in the order in which it is tried.

a Policy                        itself
a class derived from Policy     constructed with (observation_space, action_space)
any other callable              FunctionPolicy: called with one observation
"random", "noop"                RandomPolicy, ConstantPolicy.noop
"http://...", "https://..."     RemotePolicy: the agent of a server acts
"scheme:..."                    what was registered for the scheme
"file.py", "file.py:name"       the last function or Policy that the file defines, or the one of that name
a path                          the policy of the run in that folder
anything but text and paths     ConstantPolicy: an action
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


# Named here, as a package registers nothing until it is imported.
_REMOTE = _Scheme("parllel.distributed.remote.remote_policy:remote_policy", "remote")
_SCHEMES: dict[str, _Scheme] = {"http": _REMOTE, "https": _REMOTE}
_WORDS = ("random", "noop")


def register_scheme(scheme: str, target: str, *, extra: str | None = None) -> None:
    """Let a function understand specifications that begin with "scheme:"; it is imported when needed.

    Args:
        scheme: two or more of a-z, 0-9, "+", "." and "-".
        target: "module:function". It is called with the whole specification and, by name,
            `observation_space` and `action_space`, and returns a Policy.
        extra: that installs what the module imports, for the message if it is missing.

    Raises:
        ValueError: for another form, or a scheme that is registered for something else.
    """
    if not _SCHEME.fullmatch(scheme):
        raise ValueError(f"scheme: expected at least two of a-z, 0-9, +, . and -, got {scheme!r}")
    if not re.fullmatch(r"[\w.]+:\w+", target):
        raise ValueError(f"target: expected 'module:function', got {target!r}")
    known = _SCHEMES.setdefault(scheme, _Scheme(target, extra))
    if known.target != target:
        raise ValueError(f"scheme {scheme!r}: is registered for {known.target}, got {target}")


def policy_of(
    spec: Any,
    observation_space: gym.Space[Any] | None = None,
    action_space: gym.Space[Any] | None = None,
    *,
    seed: int | None = None,
) -> Policy:
    """Return the policy that a specification means; see the top of this module.

    The file of a path is executed, and so is the script that the folder of a run names.

    Args:
        spec: the specification.
        observation_space, action_space: of one environment. "random", "noop" and actions need the second;
            a run knows its own.
        seed: of "random", for environments that are not given seeds of their own.

    Raises:
        ValueError: for text that means nothing, an action outside of the space, and as `load_policy` does.
        FileNotFoundError: for a file that is not there.
        TypeError: if an action space is needed, or a scheme's function returns something else.
        ImportError: if a scheme needs what is not installed; names the extra.
    """
    # Before callables, which a Policy with `__call__` is as well.
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
    """Return the file, or the folder of a run, whose code `policy_of` would execute; None if there is none.

    For those who ask before they execute what somebody else has named.
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
        # Through the grammar again, as a file may define a function, a class or a policy.
        thing = policy_in_file(Path(match["file"]), match["name"])
        return policy_of(thing, observation_space, action_space, seed=seed)
    # Last, since a folder may have any name, even one of those above.
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
        name = spec.partition(":")[0]  # alone, as the rest may hold the password of a URL
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
