"""Environments as text, for people at terminals and for language models."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import gymnasium as gym

from parllel.distributed.operators.workers.interactive_runtime import action_names
from parllel.policies.env_names import env_named, file_of, takes_render_mode


class TextView:
    """Makes an environment and shows it as text: by its render mode "ansi", or by MiniGrid's own text.

    Args:
        make_env: function that makes the environment from its specification.
        env_id, env_kwargs: specification of the environment. If it sets no render mode, "ansi" is
            used where available.
        prefers_text: whether to use "ansi" even if the environment renders pictures.
    """

    def __init__(
        self,
        make_env: Callable[[], gym.Env[Any, Any]],
        env_id: str,
        env_kwargs: Mapping[str, Any],
        *,
        prefers_text: bool,
    ) -> None:
        self._make_env, self._prefers_text = make_env, prefers_text
        self._env_id = env_id
        self._make_text: Callable[[], gym.Env[Any, Any]] | None = None
        # Functions in files choose their own mode and may not accept one.
        if "render_mode" not in env_kwargs and file_of(env_id) is None:
            self._make_text = env_named(env_id, {**env_kwargs, "render_mode": "ansi"})
        self._env: gym.Env[Any, Any] | None = None

    @property
    def env(self) -> gym.Env[Any, Any]:
        """The most recently made environment."""
        assert self._env is not None
        return self._env

    def make(self) -> gym.Env[Any, Any]:
        """Make the environment."""
        env = self._make_env()
        has_text = "ansi" in (env.metadata.get("render_modes") or ())
        wants_text = has_text and (self._prefers_text or not env.render_mode)
        if self._make_text is not None and wants_text and takes_render_mode(self._env_id):
            env.close()
            env = self._make_text()
        self._env = env
        return env

    def text(self) -> str | None:
        """Return the environment as text, or None if it has no text form."""
        inner: Any = self.env.unwrapped
        if self.env.render_mode == "ansi":
            return str(self.env.render())
        if callable(getattr(inner, "pprint_grid", None)):
            return f"{inner.pprint_grid()}\n{getattr(inner, 'mission', '')}"
        return None

    def view(self) -> tuple[str | None, Sequence[str] | None]:
        """Return the environment as text and the names of its actions, each None if missing."""
        return self.text(), self.names()

    def names(self) -> list[str] | None:
        """Return the names of the actions, or None if they have no names."""
        return action_names(self.env)
