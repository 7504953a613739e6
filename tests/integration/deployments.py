"""The places in which a trained policy plays: each returns {seed: (return, length)}.

A product of matrices may round differently for several rows than for one. So a policy is asked for one
observation at a time everywhere, also where a sampler asks for all of its environments at once.
"""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, TypeAlias

import gymnasium as gym
import numpy as np
import short_runs
from short_runs import NAMES, SeedTraj, make_seeded

from parllel import Seeds
from parllel.agents import NumpyHandler
from parllel.cages import CageInterface, SynchronizedProcessCage
from parllel.policies import Policy, PolicyAgent, load_policy, play_episodes, policy_of
from parllel.samplers import EvalSampler
from parllel_patterns import allocate_eval_samples

FILE = short_runs.__file__
ROOT = Path(__file__).parents[2]
N_SEEDS = 20
# The episodes of `parllel.distributed.remote.evaluate`, whose configuration has the first seed.
SEEDS = [7, *(Seeds(7).integer(f"episode {number}") for number in range(1, N_SEEDS))]
WAIT_S = 120.0

Played: TypeAlias = dict[int, tuple[float, int]]


class OneByOne(Policy):
    """Ask a policy without a memory for one row at a time."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.observation_space, self.action_space = policy.observation_space, policy.action_space

    def act(self, observation: Any, env_indices: Any) -> Any:
        rows = [observation[i : i + 1] for i in range(len(env_indices))]
        return np.concatenate([self.policy.act(row, [0]) for row in rows])

    def close(self) -> None:
        self.policy.close()


def in_process(name: str, run: Path) -> Played:
    with load_policy(run) as policy:
        return by_hand(name, policy)


def by_hand(name: str, policy: Policy) -> Played:
    """Play in environments of this process, one after the other."""
    found = play_episodes(policy, partial(gym.make, NAMES[name]), SEEDS, n_envs=1)
    return {one.seed: (float(one.traj.return_), one.traj.length) for one in found}


def by_seed(trajs: Iterable[Any]) -> Played:
    """Return the first episode of each seed."""
    played: Played = {}
    for traj in trajs:
        played.setdefault(traj.seed, (float(traj.return_), traj.length))
    return played


# ---------------------------------------------------------------------- processes


def in_worker_processes(name: str, run: Path) -> Played:
    makes = [partial(make_seeded, name, seed) for seed in SEEDS]
    with ExitStack() as stack:
        cage = SynchronizedProcessCage(makes, n_workers=2, seeds=range(N_SEEDS), traj_info=SeedTraj)
        cages: list[CageInterface] = [stack.enter_context(cage)]
        agent = PolicyAgent(OneByOne(load_policy(run)))
        samples = allocate_eval_samples(cages)
        sampler = EvalSampler(cages, NumpyHandler(agent), samples, N_SEEDS)
        stack.callback(agent.close)
        return by_seed(stack.enter_context(sampler).collect_batch(0)[1])


def from_the_folder(name: str, run: Path) -> Played:
    """Play by the command, which makes the environments of the run."""
    seeds = ",".join(map(str, SEEDS))
    command = [sys.executable, "-m", "parllel", "play", str(run), "--trust", "--json"]
    done = subprocess.run([*command, "--seeds", seeds], capture_output=True, text=True, check=True)
    lines = [json.loads(line) for line in done.stdout.splitlines()]
    return {one["seed"]: (one["return"], one["length"]) for one in lines if "seed" in one}


@contextmanager
def served(name: str, run: Path) -> Iterator[str]:
    """Serve a run, and yield the URL."""
    words = ["remote", "serve", "--port", "0", "--trust", "--import", FILE]
    words += ["--environment", f"gymnasium/{NAMES[name]}", "--agent", str(run)]
    command = [sys.executable, "-m", "parllel", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        try:
            found = re.fullmatch(r"serving on (http://\S+)\n", server.stdout.readline())
            assert found is not None
            yield found[1]
        finally:
            server.send_signal(signal.SIGTERM)


# ---------------------------------------------------------------------- URLs


def over_json(name: str, url: str) -> Played:
    with gym.make(NAMES[name]) as env:
        spaces = env.observation_space, env.action_space
    with policy_of(url, *spaces) as policy:
        return by_hand(name, policy)


def in_games(name: str, agent: Any) -> Played:
    """Play by the environments of `parllel.distributed.remote`, whose rewards are returns so far."""
    from parllel.distributed.remote import evaluate

    played: list[tuple[float, int]] = []
    evaluate(
        f"gymnasium/{NAMES[name]}",
        [agent],
        {"seed": SEEDS[0], "actTimeout": 60},
        episodes=N_SEEDS,
        on_episode=lambda env: played.append((env.state[0]["reward"], len(env.steps) - 1)),
    )
    return dict(zip(SEEDS, played, strict=True))


# ---------------------------------------------------------------------- operators


def as_operators(name: str, run: Path, url: str, base: Path) -> dict[str, Played]:
    """Play an experiment of two operators."""
    from parllel.distributed.operators import Experiment, OperatorConfig, read_telemetry

    env_id = f"{FILE}:short_{name}"
    operators = [
        OperatorConfig("rl", "rl", env_id, policy=str(run)),
        OperatorConfig("policy", "url", env_id, policy=url),
    ]
    result = Experiment("played", operators, seeds=SEEDS, start_timeout_s=WAIT_S).run(base)
    assert not result.failures
    files = {
        one: result.folder / "telemetry" / f"played_{one}_episodes.jsonl" for one in ["rl", "url"]
    }
    return {
        one: {e["seed"]: (e["total_reward"], e["episode_length"]) for e in read_telemetry(file)}
        for one, file in files.items()
    }


# ---------------------------------------------------------------------- messages


def as_root_agent(name: str, run: Path, **settings: Any) -> Played:
    """Play as the example does, which is a script."""
    from parllel.runs.reference import import_script

    example = import_script(ROOT / "examples" / "messaging" / "pilot.py")
    with load_policy(run) as policy:
        return example.play(policy, partial(gym.make, NAMES[name]), SEEDS, **settings)
