"""Play episodes with a server's agent, in a sampler, and print their mean return.

parllel remote serve --port 8081 --environment gymnasium/CartPole-v1 --agent runs/cartpole/ppo-seed0
python examples/remote/play.py http://127.0.0.1:8081
"""

from __future__ import annotations

import argparse
from contextlib import ExitStack
from functools import partial

import gymnasium as gym

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler
from parllel.distributed.remote import RemotePolicy
from parllel.distributed.web import read_token
from parllel.policies import PolicyAgent
from parllel.samplers import BasicSampler
from parllel_patterns import allocate_samples, build_cages


def play(url: str, env: str, n_episodes: int, B: int, seed: int, token: str | None) -> list[float]:
    """Play `n_episodes` episodes in B parallel environments and return their returns."""
    batch_spec = BatchSpec(64, B)
    returns: list[float] = []
    with ExitStack() as stack:
        cages = build_cages(partial(gym.make, env), B, seeds=Seeds(seed), stack=stack)
        spaces = cages[0].spaces
        policy = RemotePolicy(url, spaces.observation, spaces.action, token=token)
        handler = NumpyHandler(PolicyAgent(policy))
        samples = allocate_samples(cages, batch_spec, handler)
        sampler = stack.enter_context(BasicSampler(batch_spec, cages, handler, samples))
        while len(returns) < n_episodes:
            _, episodes = sampler.collect_batch(0)
            returns += [episode.return_ for episode in episodes]
    return returns[:n_episodes]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Play episodes with the agent of a server.")
    parser.add_argument("url")
    parser.add_argument("--env", default="CartPole-v1")
    parser.add_argument("--n-episodes", type=int, default=100)
    parser.add_argument("--B", type=int, default=16, help="environments side by side")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--token-file", help="file with the token of the server")
    given = parser.parse_args()
    token = None if given.token_file is None else read_token(given.token_file)
    returns = play(given.url, given.env, given.n_episodes, given.B, given.seed, token)
    print(f"mean return {sum(returns) / len(returns):.2f} of {len(returns)} episodes")
