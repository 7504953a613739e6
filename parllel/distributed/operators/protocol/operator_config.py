"""Configuration of an operator: its kind, name, environment and policy."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any
from urllib.parse import urlsplit

OPERATOR_TYPES = ("baseline", "chess", "human", "llm", "policy", "program", "rl")
_NEEDS_POLICY = ("baseline", "chess", "policy", "rl")
ID = re.compile(r"[A-Za-z0-9._-]{1,64}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# As settings, these would end up in the worker's command line, which every user of the machine can read.
_SECRETS = ("api_key", "password", "secret", "token")
STEP_S = 30.0  # default limit of a decision; the kinds below get longer
# A model's server may be slow, be asked again after a failure, and be asked to correct its answer.
_LONGER_S = {"human": 3600.0, "llm": 600.0}


@dataclass(frozen=True)
class OperatorConfig:
    """One operator, validated on construction. Nothing is opened or started.

    Args:
        operator_type: "rl" (a run folder, or a model saved by CleanRL), "policy" (any agent specification),
            "baseline" ("random", "noop" or "file.py:name"), "human", "llm", "chess" (a policy that plays
            PettingZoo's chess), or "program" (your own worker).
        operator_id: name of the operator, 1 to 64 letters, digits, ".", "_" and "-".
        env_id: name of the environment, see `parllel.policies.env_names`. Leave it out for players
            of a game, because the game names the environment.
        env_kwargs: keyword arguments of the environment, as JSON values.
        policy: the policy that chooses actions, as text or a path. Required by "rl", "policy",
            "baseline" and "chess".
        worker: command line of a "program", as a list of words.
        settings: settings specific to the kind, as JSON values, such as the model of "llm". They
            never hold an API key: `api_key_env` names the environment variable that does.
        max_steps: number of steps after which episodes are truncated. None uses the environment's
            own limit.
        variables: environment variables to set in the worker. They may hold secrets and are never shown.
        passed: names or patterns of this process's environment variables to pass on to the worker,
            such as "CUDA_VISIBLE_DEVICES".

    Raises:
        TypeError, ValueError: for an invalid value. Names the operator.
    """

    operator_type: str
    operator_id: str
    env_id: str | None = None
    _: KW_ONLY
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)
    policy: str | None = None
    worker: Sequence[str] | None = None
    settings: Mapping[str, Any] = field(default_factory=dict)
    max_steps: int | None = None
    variables: Mapping[str, str] = field(default_factory=dict, repr=False)
    passed: Sequence[str] = ()

    def __post_init__(self) -> None:
        check_id(self.operator_id)
        name = f"operator {self.operator_id!r}"
        if self.operator_type not in OPERATOR_TYPES:
            kinds = ", ".join(OPERATOR_TYPES)
            raise ValueError(
                f"{name}: operator_type: expected one of {kinds}; got {self.operator_type!r}"
            )
        check_env(name, self.env_id, self.env_kwargs)
        object.__setattr__(self, "policy", _policy(name, self.operator_type, self.policy))
        object.__setattr__(self, "worker", _worker(name, self.operator_type, self.worker))
        check_json(name, "settings", self.settings)
        _check_settings(name, self.settings)
        check_max_steps(name, self.max_steps)
        _check_variables(name, self.variables)
        object.__setattr__(self, "passed", _passed(name, self.passed))
        # Copied: the caller may change its mappings later.
        for own in ("env_kwargs", "settings", "variables"):
            object.__setattr__(self, own, dict(getattr(self, own)))

    @property
    def decider(self) -> str | None:
        """Display name of the policy, or of the language model."""
        model = self.settings.get("model") if self.operator_type == "llm" else None
        return self.policy if model is None else str(model)

    def as_json(self) -> dict[str, Any]:
        """Return the JSON values that may be shown and stored.

        They include the names of `variables`, but not the values.
        """
        return {
            "operator_type": self.operator_type,
            "operator_id": self.operator_id,
            "env_id": self.env_id,
            "env_kwargs": dict(self.env_kwargs),
            "policy": self.policy,
            "worker": None if self.worker is None else list(self.worker),
            "settings": dict(self.settings),
            "max_steps": self.max_steps,
            "variables": sorted(self.variables),
            "passed": list(self.passed),
        }


def step_timeout_of(operators: Iterable[OperatorConfig], given: float | None) -> float:
    """Return the time limit of a step in seconds.

    If `given` is None, this is the limit of the slowest kind among the operators.
    """
    if given is not None:
        return given
    return max(
        (_LONGER_S.get(config.operator_type, STEP_S) for config in operators), default=STEP_S
    )


def check_id(operator_id: object) -> None:
    """Raise ValueError unless the id can be used in file names, variables and messages."""
    # "." and ".." are folders.
    if (
        not isinstance(operator_id, str)
        or not ID.fullmatch(operator_id)
        or not operator_id.strip(".")
    ):
        raise ValueError(
            "operator_id: expected 1 to 64 letters, digits, dots, underscores and hyphens, "
            f"got {operator_id!r}"
        )


def check_env(name: str, env_id: object, env_kwargs: object) -> None:
    """Raise TypeError or ValueError unless the arguments can name an environment."""
    if env_id is not None and (not isinstance(env_id, str) or not env_id or "\0" in env_id):
        raise ValueError(f"{name}: env_id: expected the id of an environment, got {env_id!r}")
    check_json(name, "env_kwargs", env_kwargs)


def check_json(name: str, what: str, values: object) -> None:
    """Raise TypeError or ValueError unless `values` maps names to plain JSON values."""
    if not isinstance(values, Mapping) or not all(isinstance(key, str) for key in values):
        raise TypeError(f"{name}: {what}: expected a mapping of names, got {values!r}")
    try:
        # NaN and infinity are not JSON.
        json.dumps(dict(values), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise TypeError(f"{name}: {what}: expected only JSON values: {error}") from None


def check_max_steps(name: str, max_steps: object) -> None:
    """Raise ValueError unless `max_steps` is None or an int of at least 1."""
    if max_steps is None:
        return
    if isinstance(max_steps, bool) or not isinstance(max_steps, int) or max_steps < 1:
        raise ValueError(f"{name}: max_steps: expected None or at least 1, got {max_steps!r}")


def _policy(name: str, kind: str, policy: object) -> str | None:
    if policy is None:
        if kind in _NEEDS_POLICY:
            raise ValueError(f"{name}: policy: {kind!r} requires a policy, got None")
        return None
    if kind not in _NEEDS_POLICY:
        raise ValueError(
            f"{name}: policy: expected None, because {kind!r} has no policy, got {policy!r}"
        )
    if not isinstance(policy, (str, os.PathLike)):
        raise TypeError(
            f"{name}: policy: expected text or a path, because another process reads it, got "
            f"{type(policy).__name__}; put a function into a file and pass it as file.py:name"
        )
    text = os.fspath(policy)
    if not isinstance(text, str) or not text or "\0" in text:
        raise ValueError(f"{name}: policy: expected non-empty text, got {text!r}")
    if kind == "baseline" and text not in ("random", "noop") and ".py" not in text:
        raise ValueError(
            f"{name}: policy: expected random, noop or file.py:name for a baseline, got {text!r}; "
            "use operator_type='policy' for any other policy"
        )
    _check_no_password(name, "policy", text)
    return text


def _worker(name: str, kind: str, worker: object) -> tuple[str, ...] | None:
    if kind != "program":
        if worker is not None:
            raise ValueError(
                f"{name}: worker: expected operator_type='program' with a worker, got {kind!r}"
            )
        return None
    # A string is a sequence too: of single letters.
    if not isinstance(worker, Sequence) or isinstance(worker, (str, bytes)) or not worker:
        raise TypeError(
            f"{name}: worker: expected the words of a command line, such as "
            f"['python', 'worker.py'], got {worker!r}"
        )
    words = []
    for word in worker:
        if not isinstance(word, (str, os.PathLike)):
            raise TypeError(f"{name}: worker: expected words, got {word!r}")
        words.append(os.fspath(word))
    if not words[0] or any("\0" in word for word in words):
        raise ValueError(f"{name}: worker: expected a program and its arguments, got {worker!r}")
    return tuple(words)


def _check_settings(name: str, settings: Mapping[str, Any]) -> None:
    for key, value in settings.items():
        if key.lower() in _SECRETS:
            raise ValueError(
                f"{name}: settings: {key!r} would be visible to every user of this machine; put it into an "
                f"environment variable and give its name as {key}_env"
            )
        if key.endswith("_env") and not (isinstance(value, str) and _VARIABLE.fullmatch(value)):
            # The value is not shown: it may be the secret itself.
            raise ValueError(
                f"{name}: settings: {key}: expected the name of an environment variable"
            )
        if isinstance(value, str):
            _check_no_password(name, f"settings: {key}", value)


def _check_no_password(name: str, what: str, text: str) -> None:
    if "://" not in text:
        return
    try:
        has_password = urlsplit(text).password is not None
    except ValueError:
        has_password = "@" in text
    if has_password:
        raise ValueError(
            f"{name}: {what}: the URL contains a password, which would be visible to every user of this "
            "machine; pass it in an environment variable"
        )


def _check_variables(name: str, variables: object) -> None:
    if not isinstance(variables, Mapping):
        raise TypeError(f"{name}: variables: expected a mapping of names to text")
    for key, value in variables.items():
        if not isinstance(key, str) or not key or "=" in key or "\0" in key:
            raise ValueError(f"{name}: variables: expected the name of a variable, got {key!r}")
        if not isinstance(value, str) or "\0" in value:  # not shown, as it may be a secret
            raise TypeError(f"{name}: variables: {key}: expected text without zero bytes")


def _passed(name: str, passed: object) -> tuple[str, ...]:
    if isinstance(passed, (str, bytes)) or not isinstance(passed, Sequence):
        raise TypeError(f"{name}: passed: expected a list of names, got {passed!r}")
    if not all(isinstance(word, str) and word for word in passed):
        raise TypeError(f"{name}: passed: expected names of variables, got {passed!r}")
    return tuple(passed)
