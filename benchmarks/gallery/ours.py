"""Ours: the build of examples/gallery/train.py; started as `python -m benchmarks.gallery.ours JOB`."""

from __future__ import annotations

import sys
import time
from dataclasses import replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

import gymnasium as gym
import torch

from benchmarks.end_to_end.settings import Reporter
from benchmarks.gallery.job import Job
from benchmarks.harness.child import end_with_parent
from parllel import load_policy, play_episodes
from parllel.runners import train
from parllel.runs.reference import import_script
from parllel_patterns import make_tuned_env

SCRIPT = Path(__file__).parents[2] / "examples" / "gallery" / "train.py"


def main(job: Job) -> None:
    """Train as the example does, evaluate the last checkpoint, and report."""
    end_with_parent()
    torch.set_num_threads(1)
    reporter = Reporter()
    build = import_script(SCRIPT).build
    reporter.ready(torch=torch.__version__, gymnasium=gym.__version__)
    # Episodes of evaluations during the training do not change it.
    config = replace(job.config, n_eval_episodes=1)
    with TemporaryDirectory(prefix="parllel-gallery-") as base:
        began = time.process_time()
        result, folder = train(build, config, base=base)
        cpu_s = time.process_time() - began
        policy = load_policy(folder.path)
        factory = partial(make_tuned_env, config.env_id)
        episodes = play_episodes(policy, factory, job.eval_seeds)
        policy.close()
    reporter.result(
        steps=result.elapsed_steps,
        cpu_s=cpu_s,
        curve=result.curves["training"],
        returns=[float(episode.traj.return_) for episode in episodes],
    )
    reporter.end()


if __name__ == "__main__":
    main(Job.from_json(sys.argv[1]))
