"""`parllel show RUN`: episodes of a run's policy in a window or a video."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import sys
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Any, NoReturn

import gymnasium as gym

from parllel.cages.stepping.make_envs import EnvFactory
from parllel.pictures.rendered_env import Frame, RenderedEnv
from parllel.pictures.video_file import VideoFile, check_video_path
from parllel.pictures.window import Window, WindowClosedError, has_display
from parllel.policies.episodes import Episode, play_episodes
from parllel.policies.policy_loading import load_policy
from parllel.policies.run_policy import RunPolicy
from parllel.runs.trust import check_source


def run(arguments: argparse.Namespace) -> int:
    """Play episodes in a window or into a video file. Returns the exit status."""
    # pygame prints a greeting on standard output when an environment imports it.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    check_source(arguments.run, trusted=arguments.trust)
    path = Path(arguments.run)
    # Before the run is built, which can take seconds.
    for name, least in (("seed", 0), ("episodes", 1)):
        value = getattr(arguments, name)
        if value < least:
            raise ValueError(f"--{name}: expected {least} or more, got {value}")
    video = _video_path(arguments.video, path)
    if video is not None:
        # The environments render to memory; without this, SDL fails for lack of a display.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    episodes: list[Episode] = []
    with ExitStack() as stack:
        # By default SIGTERM kills the process without leaving its `with` blocks.
        before = signal.signal(signal.SIGTERM, _leave)
        stack.callback(signal.signal, signal.SIGTERM, before or signal.SIG_DFL)
        policy = stack.enter_context(load_policy(path, best=arguments.best))
        # The policy's steps, not the run's: an older checkpoint is loaded if the newest is damaged.
        print(f"policy after {policy.elapsed_steps:,} environment steps")
        make_env = _factory_of(policy, arguments.column)
        screen = _Screen(arguments.fps, video, path.name, stack)
        stack.enter_context(contextlib.suppress(WindowClosedError))
        seeds = range(arguments.seed, arguments.seed + arguments.episodes)
        episodes = play_episodes(
            policy, make_env, seeds, n_envs=1, first_env=arguments.column, watch=screen.show
        )
    _print(episodes)
    if video is not None:
        print(f"The video is {video}")
    return 0


class _Screen:
    """Window or video file, opened at the first frame, when the environment's frame rate is known."""

    def __init__(self, fps: float | None, video: Path | None, title: str, stack: ExitStack) -> None:
        self._fps, self._video, self._title, self._stack = fps, video, title, stack
        self._rendered: RenderedEnv | None = None
        self._write: Callable[[Frame], Any] | None = None

    def show(self, seed: int, env: gym.Env[Any, Any]) -> None:
        """Show the current frame of an environment."""
        if self._rendered is None:
            self._rendered = RenderedEnv(env)
        if self._write is None:
            fps = self._rendered.fps if self._fps is None else self._fps
            if self._video is None:
                self._write = self._stack.enter_context(Window(self._title, fps)).show
            else:
                self._write = self._stack.enter_context(VideoFile(self._video, fps)).write
        self._write(self._rendered.frame())


def _factory_of(policy: RunPolicy, column: int) -> EnvFactory:
    n = len(policy.env_factories)
    if not n:
        policy.make_env()  # raises with the reason
    if not 0 <= column < n:
        raise ValueError(f"--column: expected one of 0 to {n - 1}, got {column}")
    return policy.env_factories[column]


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit by an exception, so that `with` blocks discard a half-written video."""
    sys.exit(128 + number)


def _video_path(requested: str | None, folder: Path) -> Path | None:
    """Return the path of the video, or None for a window."""
    if requested is not None:
        check_video_path(Path(requested))  # early, as building the run can take many seconds
        return Path(requested)
    if has_display() and importlib.util.find_spec("pygame") is not None:
        return None
    return folder / "policy.mp4"


def _print(episodes: list[Episode]) -> None:
    for episode in episodes:
        traj = episode.traj
        print(f"seed {episode.seed}: return {traj.return_:.2f} in {traj.length} steps")
    if episodes:
        mean = sum(episode.traj.return_ for episode in episodes) / len(episodes)
        print(f"mean return {mean:.2f}")
