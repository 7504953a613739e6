"""`parllel show RUN`: episodes of a run's policy in a window, a video or a page."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any

import gymnasium as gym

from parllel.cages.stepping.make_envs import EnvFactory
from parllel.pictures.rendered_env import Frame, RenderedEnv
from parllel.pictures.video_file import VideoFile, check_video_path
from parllel.pictures.window import Window, WindowClosedError, has_display
from parllel.policies.episodes import Episode, play_episodes
from parllel.policies.policy_loading import load_policy
from parllel.policies.run_policy import RunPolicy
from parllel.runs.trust import check_source
from parllel.system.raised_signals import RaisedSignals

if TYPE_CHECKING:
    from parllel.cli.picture_page import PicturePage


def run(arguments: argparse.Namespace) -> int:
    """Play episodes in a window, into a video file or in a page. Returns the exit status."""
    # pygame prints a greeting on standard output when an environment imports it.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    check_source(arguments.run, trusted=arguments.trust)
    path = Path(arguments.run)
    # Before the run is built, which can take seconds.
    for name, least in (("seed", 0), ("episodes", 1)):
        value = getattr(arguments, name)
        if value < least:
            raise ValueError(f"--{name}: expected {least} or more, got {value}")
    if arguments.page and arguments.video is not None:
        raise ValueError("--video: expected without --page")
    if arguments.port is not None and not arguments.page:
        raise ValueError("--port: expected only with --page")
    video = None if arguments.page else _video_path(arguments.video, path)
    if video is not None or arguments.page:
        # The environments render to memory; without this, SDL fails for lack of a display.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    episodes: list[Episode] = []
    with ExitStack() as stack:
        # Exceptions, so that half a video is discarded.
        errors: dict[signal.Signals, Callable[[], BaseException]] = {
            signal.SIGINT: KeyboardInterrupt,
            signal.SIGTERM: lambda: SystemExit(128 + signal.SIGTERM),
        }
        signals = stack.enter_context(RaisedSignals(errors))
        policy = stack.enter_context(load_policy(path, best=arguments.best))
        # The policy's steps, not the run's: an older checkpoint is loaded if the newest is damaged.
        print(f"policy after {policy.elapsed_steps:,} environment steps")
        make_env = _factory_of(policy, arguments.column)
        screen = _Screen(arguments, video, path.name, stack, signals)
        stack.enter_context(contextlib.suppress(WindowClosedError))
        seeds = range(arguments.seed, arguments.seed + arguments.episodes)
        episodes = play_episodes(
            policy, make_env, seeds, n_envs=1, first_env=arguments.column, watch=screen.show
        )
        screen.end(episodes)
    _print(episodes)
    if video is not None:
        print(f"The video is {video}")
    return 0


class _Screen:
    """Window, video file or page, opened at the first frame, when the environment's frame rate is known."""

    def __init__(
        self,
        arguments: argparse.Namespace,
        video: Path | None,
        title: str,
        stack: ExitStack,
        signals: RaisedSignals,
    ) -> None:
        self._signals = signals
        self._arguments, self._video, self._title, self._stack = arguments, video, title, stack
        self._rendered: RenderedEnv | None = None
        self._write: Callable[[Frame], Any] | None = None
        self._page: PicturePage | None = None
        self._seed, self._step = -1, 0

    def show(self, seed: int, env: gym.Env[Any, Any]) -> None:
        """Show the current frame of an environment."""
        self._signals.check()
        if self._rendered is None:
            self._rendered = RenderedEnv(env)
        if self._write is None:
            fps = self._arguments.fps
            self._write = self._open(self._rendered.fps if fps is None else fps)
        self._step = self._step + 1 if seed == self._seed else 0
        self._seed = seed
        self._write(self._rendered.frame())

    def end(self, episodes: list[Episode]) -> None:
        """Show the returns in the page."""
        if self._page is not None:
            self._page.end("\n".join(_lines(episodes)))

    def _open(self, fps: float) -> Callable[[Frame], Any]:
        if self._arguments.page:
            # The web server's libraries take a third of a second, which only a page needs.
            from parllel.cli.picture_page import PicturePage

            port = self._arguments.port or 0
            page = PicturePage(self._title, fps, port, check=self._signals.check)
            self._page = self._stack.enter_context(page)
            page.start()
            return lambda frame: page.show(frame, f"seed {self._seed}, step {self._step}")
        if self._video is None:
            return self._stack.enter_context(Window(self._title, fps)).show
        return self._stack.enter_context(VideoFile(self._video, fps)).write


def _factory_of(policy: RunPolicy, column: int) -> EnvFactory:
    n = len(policy.env_factories)
    if not n:
        policy.make_env()  # raises with the reason
    if not 0 <= column < n:
        raise ValueError(f"--column: expected one of 0 to {n - 1}, got {column}")
    return policy.env_factories[column]


def _video_path(requested: str | None, folder: Path) -> Path | None:
    """Return the path of the video, or None for a window."""
    if requested is not None:
        check_video_path(Path(requested))  # early, as building the run can take many seconds
        return Path(requested)
    if has_display() and importlib.util.find_spec("pygame") is not None:
        return None
    return folder / "policy.mp4"


def _print(episodes: list[Episode]) -> None:
    for line in _lines(episodes):
        print(line)


def _lines(episodes: list[Episode]) -> list[str]:
    lines = [
        f"seed {episode.seed}: return {episode.traj.return_:.2f} in {episode.traj.length} steps"
        for episode in episodes
    ]
    if episodes:
        mean = sum(episode.traj.return_ for episode in episodes) / len(episodes)
        lines.append(f"mean return {mean:.2f}")
    return lines
