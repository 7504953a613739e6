"""What do PPO's ways to compute updates take, beside autograd and PyTorch's Adam?

All sides learn from the same batch of T=128, 4 epochs of 4 minibatches, with a learning rate so small that
the policy stays where it is. They count the CPU time of their thread.

    UPDATE_BEFORE=CHECKOUT python benchmarks/run.py --only update_before

compares with the PPO of another checkout of this repository, in a process that learns when it is told to.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces

from benchmarks.harness.measure import Comparison, Sides, timed_sides

T = 128
SETTINGS: dict[str, Any] = {
    "learning_rate": 1e-6,
    "learning_rate_anneal_steps": None,
    "epochs": 4,
    "minibatches": 4,
    "ratio_clip": 0.2,
    "value_clip": None,
    "value_loss_coeff": 0.5,
    "entropy_loss_coeff": 0.01,
    "clip_grad_norm": 0.5,
    "kl_limit": None,
    "seed": 0,
}


class Noise(gym.Env[Any, Any]):
    """Four random numbers and two actions, of which a mask may forbid one; episodes of 100 steps."""

    metadata: dict[str, Any] = {"render_modes": []}

    def __init__(self, masked: bool = False) -> None:
        seen = spaces.Box(-np.inf, np.inf, (4,), np.float32)
        self.masked, self.action_space = masked, spaces.Discrete(2)
        self.observation_space = (
            spaces.Dict(seen=seen, mask=spaces.MultiBinary(2)) if masked else seen
        )

    def reset(self, *, seed: int | None = None, options: Any = None) -> tuple[Any, dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        self.n_left = 100
        return self._observation(), {}

    def step(self, action: Any) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Reward at random."""
        self.n_left -= 1
        return self._observation(), self.np_random.random(), not self.n_left, False, {}

    def _observation(self) -> Any:
        seen = self.np_random.normal(size=4).astype(np.float32)
        if not self.masked:
            return seen
        mask = np.ones(2, np.int8)
        mask[self.np_random.integers(2)] = self.np_random.integers(2)
        return {"seen": seen, "mask": mask}


class NoiseForThree:
    """The same for three agents, as a PettingZoo environment."""

    metadata: dict[str, Any] = {"name": "noise_v0"}
    render_mode = None

    def __init__(self) -> None:
        self.possible_agents = ["fox", "hen", "dog"]
        self.agents: list[str] = []
        self._envs = {name: Noise() for name in self.possible_agents}

    def observation_space(self, agent: str) -> Any:
        """Return the space of an agent's observations."""
        return self._envs[agent].observation_space

    def action_space(self, agent: str) -> Any:
        """Return the space of an agent's actions."""
        return self._envs[agent].action_space

    def reset(self, seed: int | None = None, options: Any = None) -> tuple[Any, Any]:
        """Begin an episode with all agents."""
        self.agents = list(self.possible_agents)
        seeds = (
            dict.fromkeys(self.agents)
            if seed is None
            else {name: seed + i for i, name in enumerate(self.agents)}
        )
        found = {name: env.reset(seed=seeds[name]) for name, env in self._envs.items()}
        return tuple({name: pair[i] for name, pair in found.items()} for i in (0, 1))  # type: ignore[return-value]

    def step(self, actions: dict[str, Any]) -> tuple[Any, ...]:
        """Step all agents, whose episodes are equally long."""
        found = {name: env.step(actions[name]) for name, env in self._envs.items()}
        if any(parts[2] for parts in found.values()):
            self.agents = []
        return tuple({name: parts[i] for name, parts in found.items()} for i in range(5))

    def render(self) -> None:
        """There is nothing to see."""

    def close(self) -> None:
        """Nothing is held."""


def batch_of(make_env: Callable[[], Any], make_agent: Callable[[Any], Any], B: int) -> Any:
    """Return an agent, and samples as a sampler and the transforms leave them."""
    from parllel import BatchSpec, Seeds
    from parllel.torch import TorchHandler
    from parllel.transforms import (
        EstimateAdvantage,
        EstimateMultiAgentAdvantage,
        NormalizeAdvantage,
        NormalizeMultiAgentAdvantage,
    )
    from parllel_patterns import build_cages, build_sampler

    cages = build_cages(make_env, B, seeds=Seeds(0))
    agent = make_agent(cages[0].spaces)
    several = hasattr(agent, "learning_groups")
    transforms: list[Any] = (
        [EstimateMultiAgentAdvantage(0.99, 0.95), NormalizeMultiAgentAdvantage()]
        if several
        else [EstimateAdvantage(0.99, 0.95), NormalizeAdvantage()]
    )
    with build_sampler(BatchSpec(T, B), cages, TorchHandler(agent), [], transforms) as sampler:
        samples, _ = sampler.collect_batch(T * B)
    return agent, samples


def single(size: int, spaces: Any, **options: Any) -> Any:
    """Return an agent with separate networks of two layers."""
    from parllel import Seeds
    from parllel.torch import agent_for

    return agent_for(spaces, seeds=Seeds(0), hidden_sizes=(size, size), **options)


def several(sharing: Any, spaces: Any) -> Any:
    """Return three agents."""
    from parllel import Seeds
    from parllel.torch import agents_for

    return agents_for(spaces, seeds=Seeds(0), sharing=sharing, hidden_sizes=(64, 64))


def unknown(spaces: Any) -> Any:
    """Return an agent whose model is not of this library."""
    from torch import nn

    agent = single(64, spaces)

    class Wrapped(nn.Module):
        def __init__(self, inner: nn.Module) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, observation: Any) -> Any:
            return self.inner(observation)

    agent.model = Wrapped(agent.model)
    return agent


def algorithm_for(agent: Any, *, subclass: bool, **options: Any) -> Any:
    """Return PPO for an agent, or a subclass."""
    from parllel.torch import PPO, MultiAgentPPO

    class OwnLoss(PPO):
        def loss(self, inputs: Any) -> Any:
            return super().loss(inputs)

    if hasattr(agent, "learning_groups"):
        return MultiAgentPPO(agent, **SETTINGS, **options)
    return (OwnLoss if subclass else PPO)(agent, **SETTINGS, **options)  # type: ignore[arg-type]


@contextmanager
def against_autograd(
    make_env: Callable[[], Any],
    make_agent: Callable[[Any], Any],
    B: int,
    method: str,
    *,
    subclass: bool = False,
) -> Iterator[Sides]:
    """Learn with "auto", which must choose `method`, and with autograd."""
    works, algorithms = [], []
    for update in ("auto", "autograd"):
        agent, samples = batch_of(make_env, make_agent, B)
        algorithm = algorithm_for(agent, update=update, subclass=subclass)

        def learn(algorithm: Any = algorithm, samples: Any = samples) -> int:
            algorithm.optimize_agent(T * B, samples)
            return 1

        works.append(learn)
        algorithms.append(algorithm)

    def check() -> None:
        found = []
        for algorithm, learn in zip(algorithms, works, strict=True):
            learn()
            found.append(algorithm.update_method)
        assert found == [method, "autograd"]

    yield Sides(works[0], works[1], check, clock=time.thread_time)


# In a checkout that is older than this file.
def learn_when_told(B: int, size: int, subclass: bool) -> None:
    """Learn once for each line of standard input, and print the CPU time of that."""
    agent, samples = batch_of(Noise, partial(single, size), B)
    algorithm = algorithm_for(agent, subclass=subclass)
    for _ in sys.stdin:
        start = time.thread_time()
        algorithm.optimize_agent(T * B, samples)
        print(time.thread_time() - start, flush=True)


@contextmanager
def against_before(checkout: str, size: int, B: int, *, subclass: bool = False) -> Iterator[Sides]:
    """Learn with this code, and with that of another checkout."""
    # Not above: the other checkout runs this file too, and may not have it.
    from benchmarks.harness.other_checkout import OtherCheckout

    agent, samples = batch_of(Noise, partial(single, size), B)
    algorithm = algorithm_for(agent, subclass=subclass)
    theirs_s = [0.0]

    def ours() -> int:
        algorithm.optimize_agent(T * B, samples)
        return 1

    def theirs() -> int:
        theirs_s[0] += float(other.turn())
        return 1

    def check() -> None:
        ours()
        theirs()
        assert algorithm.update_method == (PARAMETERS if subclass else FLAT)

    with OtherCheckout(checkout, __file__, learn_when_told.__name__, B, size, subclass) as other:
        yield Sides(ours, theirs, check, clock=lambda: time.thread_time() + theirs_s[0])


def for_three() -> Any:
    """Return an environment with three agents."""
    from parllel.envs import ParallelEnvAdapter

    return ParallelEnvAdapter(NoiseForThree())


ONE = partial(against_autograd, Noise)
FLAT, PARAMETERS = "flat", "flat parameters"
COMPARISONS = [
    Comparison(
        f"update/{name}",
        f"PPO's updates, T=128, B={B}, hidden layers of {size}, {how}: against autograd",
        partial(make, B=B),
        target=goal,
        quick=name == "flat-16",
        needs=("torch",),
    )
    for name, B, size, goal, how, make in (
        ("flat-16", 16, 64, 3.5, "flat", partial(ONE, partial(single, 64), method=FLAT)),
        ("flat-128", 128, 64, 1.5, "flat", partial(ONE, partial(single, 64), method=FLAT)),
        ("flat-16-256", 16, 256, 1.3, "flat", partial(ONE, partial(single, 256), method=FLAT)),
        (
            *("masked-16", 16, 64, None, "flat, with an action mask"),
            partial(
                against_autograd,
                partial(Noise, masked=True),
                partial(single, 64, action_mask="mask"),
                method=FLAT,
            ),
        ),
        *(
            (
                *(f"{sharing}-16", 16, 64, None, f"flat, three agents, {sharing}"),
                partial(against_autograd, for_three, partial(several, sharing), method=FLAT),
            )
            for sharing in ("independent", "shared")
        ),
        (
            *("parameters-16", 16, 64, 1.9, "a subclass with another loss"),
            partial(ONE, partial(single, 64), method=PARAMETERS, subclass=True),
        ),
        (
            *("model-16", 16, 64, None, "a model of another class"),
            partial(ONE, unknown, method=PARAMETERS),
        ),
    )
]
BEFORE = os.environ.get("UPDATE_BEFORE")


def commit_of(checkout: str) -> str:
    """Return the name of a checkout's commit, if git knows it."""
    command = ["git", "-C", checkout, "log", "-1", "--format=commit %h of %as"]
    # The other checkout runs this file from its own folder, where a relative path leads nowhere.
    said = subprocess.run(command, capture_output=True, text=True, check=False).stdout
    return said.strip() or "the other checkout"


COMPARISONS += [
    Comparison(
        f"update_before/{name}",
        f"PPO's updates, T=128, B={B}, hidden layers of {size}{what}: against {commit_of(BEFORE)}",
        partial(against_before, BEFORE, size, B, subclass=bool(what)),
        target=goal,
        quick=False,
        needs=("torch",),
    )
    for name, B, size, what, goal in (
        ("flat-16", 16, 64, "", 3.5),
        ("flat-128", 128, 64, "", 1.5),
        ("flat-16-256", 16, 256, "", 1.3),
        ("parameters-16", 16, 64, ", a subclass with another loss", 1.9),
    )
    if BEFORE is not None
]

test_update = timed_sides(COMPARISONS)
