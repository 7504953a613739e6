"""`parllel play SPEC`: episodes of a policy or any other agent, and their returns."""

from __future__ import annotations

import argparse
import json
import math
from pathlib import Path

import numpy as np

from parllel.cages.stepping.make_envs import EnvFactory
from parllel.policies.env_names import env_named
from parllel.policies.episodes import Episode, play_episodes
from parllel.policies.policy import Policy
from parllel.policies.run_policy import RunPolicy
from parllel.policies.specification import code_of, policy_of
from parllel.runs.trust import check_source
from parllel.seeding import seeds_named


def run(arguments: argparse.Namespace) -> int:
    """Play the episodes and print their returns. Returns the exit status."""
    try:
        seeds = seeds_named(arguments.seeds)
    except ValueError as error:
        raise ValueError(f"--seeds: {error}") from None
    code = code_of(arguments.spec)
    # Only a run's script needs trust: a file of code was named by the user.
    if code is not None and code.is_dir():
        check_source(str(code), trusted=arguments.trust)
    policy, make_env = _policy_and_env(arguments.spec, arguments.env)
    with policy:
        episodes = play_episodes(policy, make_env, seeds)
    for episode in episodes:
        _print_episode(episode, as_json=arguments.json)
    returns = [float(episode.traj.return_) for episode in episodes]
    n = len(returns)
    standard_error = float(np.std(returns, ddof=1)) / math.sqrt(n) if n > 1 else None
    mean = float(np.mean(returns))
    if arguments.json:
        print(json.dumps({"mean": mean, "standard_error": standard_error, "episodes": n}))
    else:
        spread = "" if standard_error is None else f" ± {standard_error:.2f} (standard error)"
        print(f"mean return {mean:.2f}{spread} of {len(episodes)} episodes")
    return 0


def _policy_and_env(spec: str, env_id: str | None) -> tuple[Policy, EnvFactory]:
    if env_id is None:
        if not Path(spec).is_dir():
            raise ValueError(f"{spec}: requires --env, because only a run records its environments")
        policy = policy_of(spec)
        # By the factory of its cages rather than by name: the environment may have no name.
        assert isinstance(policy, RunPolicy)
        return policy, policy.make_env
    make_env = env_named(env_id)
    env = make_env()
    spaces = env.observation_space, env.action_space
    env.close()
    return policy_of(spec, *spaces), make_env


def _print_episode(episode: Episode, *, as_json: bool) -> None:
    seed, traj = episode.seed, episode.traj
    if as_json:
        end = {"terminated": episode.terminated, "truncated": episode.truncated}
        values = {"seed": seed, "return": float(traj.return_), "length": traj.length, **end}
        print(json.dumps(values))
    else:
        print(f"seed {seed}: return {traj.return_:.2f} in {traj.length} steps")
