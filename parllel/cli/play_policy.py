"""`parllel play SPEC`: play episodes with anything that acts, and say what came of them."""

from __future__ import annotations

import argparse
import json
import math
import re
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.cages import EnvFactory
from parllel.policies import Episode, Policy, RunPolicy, code_of, play_episodes, policy_of
from parllel.runs import check_source

MOST_SEEDS = 1_000_000


def run(arguments: argparse.Namespace) -> int:
    """Play and print the episodes; return the exit status."""
    seeds = seeds_of(arguments.seeds)
    code = code_of(arguments.spec)
    # The other code is a file, which the user chose by its name.
    if code is not None and code.is_dir():
        check_source(str(code), trusted=arguments.trust)
    policy, make_env = _policy_and_env(arguments.spec, arguments.env)
    with policy:
        episodes = play_episodes(policy, make_env, seeds)
    for one in episodes:
        _print_one(one, as_json=arguments.json)
    returns = [float(one.traj.return_) for one in episodes]
    error = float(np.std(returns, ddof=1)) / math.sqrt(len(returns)) if len(returns) > 1 else None
    mean = float(np.mean(returns))
    if arguments.json:
        print(json.dumps({"mean": mean, "standard_error": error, "episodes": len(episodes)}))
    else:
        spread = "" if error is None else f" ± {error:.2f} (standard error)"
        print(f"mean return {mean:.2f}{spread} of {len(episodes)} episodes")
    return 0


def seeds_of(text: str) -> list[int]:
    """Return the seeds that "0-9,20" names; ValueError for another form, or too many."""
    seeds: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d+)(?:-(\d+))?", part.strip())
        first, last = (0, -1) if match is None else (int(match[1]), int(match[2] or match[1]))
        if last < first:
            raise ValueError(f"--seeds: expected seeds such as 0-99 or 3,5,8-10, got {text!r}")
        if len(seeds) + last - first >= MOST_SEEDS:  # before memory is taken for them
            raise ValueError(f"--seeds: expected at most {MOST_SEEDS:,} seeds, got {text!r}")
        seeds += range(first, last + 1)
    return seeds


def _policy_and_env(spec: str, env_id: str | None) -> tuple[Policy, EnvFactory]:
    if env_id is None:
        if not Path(spec).is_dir():
            raise ValueError(f"{spec}: expected --env, as only a run has environments of its own")
        policy = policy_of(spec)
        # Asked for one that its cages made, and not by name: it may have no name.
        assert isinstance(policy, RunPolicy)
        return policy, policy.make_env
    make_env: Any = partial(gym.make, env_id)
    try:
        env = make_env()
    except gym.error.Error as error:
        raise ValueError(f"--env {env_id}: {error}") from error
    spaces = env.observation_space, env.action_space
    env.close()
    return policy_of(spec, *spaces), make_env


def _print_one(one: Episode, *, as_json: bool) -> None:
    traj = one.traj
    if as_json:
        end = {"terminated": one.terminated, "truncated": one.truncated}
        values = {"seed": one.seed, "return": float(traj.return_), "length": traj.length, **end}
        print(json.dumps(values))
    else:
        print(f"seed {one.seed}: return {traj.return_:.2f} in {traj.length} steps")
