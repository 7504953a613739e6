"""`parllel play SPEC`: play episodes with anything that acts, and say what came of them."""

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
    """Play and print the episodes; return the exit status."""
    try:
        seeds = seeds_named(arguments.seeds)
    except ValueError as mistake:
        raise ValueError(f"--seeds: {mistake}") from None
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


def _policy_and_env(spec: str, env_id: str | None) -> tuple[Policy, EnvFactory]:
    if env_id is None:
        if not Path(spec).is_dir():
            raise ValueError(f"{spec}: expected --env, as only a run has environments of its own")
        policy = policy_of(spec)
        # Asked for one that its cages made, and not by name: it may have no name.
        assert isinstance(policy, RunPolicy)
        return policy, policy.make_env
    make_env = env_named(env_id)
    env = make_env()
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
