"""`parllel show RUN`: watch the policy of a run."""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import signal
import sys
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import NoReturn

from parllel.cages import TrajInfo
from parllel.cli.trust import check_source
from parllel.pictures import (
    RenderedColumns,
    VideoFile,
    Window,
    WindowClosedError,
    check_video_path,
    has_display,
)
from parllel.runners import ShowPolicyRunner, rebuild
from parllel.samplers import EvalSampler


def run(arguments: argparse.Namespace) -> int:
    """Play episodes in a window, or into a video file; return the exit status."""
    # pygame prints a greeting on standard output when an environment imports it.
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    check_source(arguments.run, trusted=arguments.trust)
    path = Path(arguments.run)
    # numpy would refuse it too, after the seconds that building the run takes.
    if arguments.seed is not None and arguments.seed < 0:
        raise ValueError(f"--seed: expected 0 or more, got {arguments.seed}")
    video = _video_path(arguments.video, path)
    if video is not None:
        # The environments render into memory, and SDL would complain that there is no display.
        os.environ.setdefault("SDL_VIDEODRIVER", "dummy")
    with ExitStack() as stack:
        # By default SIGTERM ends a process without leaving its `with` blocks.
        before = signal.signal(signal.SIGTERM, _leave)
        stack.callback(signal.signal, signal.SIGTERM, before or signal.SIG_DFL)
        runner = rebuild(path, stack, best=arguments.best)
        # Not the run's steps: the newest checkpoint may be damaged, and an older one loaded.
        print(f"policy after {runner.result.elapsed_steps:,} environment steps")
        sampler = runner.eval_sampler
        if not isinstance(sampler, EvalSampler):
            raise ValueError(
                f"{path}: this run has no EvalSampler, so there are no environments to show; "
                "give its runner an eval_sampler"
            )
        rendered = RenderedColumns(sampler.cages, [arguments.column])
        fps = rendered.fps if arguments.fps is None else arguments.fps
        if video is None:
            window = stack.enter_context(Window(path.name, fps))
            with contextlib.suppress(WindowClosedError):
                _print(ShowPolicyRunner(sampler, show=window.show, **_settings(arguments)).run())
            return 0
        with VideoFile(video, fps) as file:
            trajs = ShowPolicyRunner(sampler, show=file.write, **_settings(arguments)).run()
    _print(trajs)
    print(f"The video is {video}")
    return 0


def _leave(number: int, frame: FrameType | None) -> NoReturn:
    """Exit by an exception, so that `with` discards a half-written video."""
    sys.exit(128 + number)


def _video_path(asked: str | None, folder: Path) -> Path | None:
    """Return where to write the video; None for a window instead."""
    if asked is not None:
        check_video_path(Path(asked))  # now: building the run can take many seconds
        return Path(asked)
    if has_display() and importlib.util.find_spec("pygame") is not None:
        return None
    return folder / "policy.mp4"


def _settings(arguments: argparse.Namespace) -> dict[str, int]:
    return {
        "n_episodes": arguments.episodes,
        "column": arguments.column,
        "seed": arguments.seed,
    }


def _print(trajs: list[TrajInfo]) -> None:
    returns = [float(traj.return_) for traj in trajs]
    for number, traj in enumerate(trajs, start=1):
        print(f"episode {number}: return {traj.return_:.2f} in {traj.length} steps")
    print(f"mean return {sum(returns) / len(returns):.2f}")
