"""How many environment steps per second does off-policy training take, beside Stable-Baselines3?"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from functools import partial
from typing import Any

import gymnasium as gym

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from parllel.seeding import Seeds
from parllel.types import BatchSpec

# Settings of RL Baselines3 Zoo for DQN on CartPole: 128 gradient steps after every 256 environment steps.
T, UPDATES = 256, 128
BATCH_SIZE, CAPACITY, LEARNING_STARTS = 64, 100_000, 1000
LEARNING_RATE, DISCOUNT = 2.3e-3, 0.99


class OurDqn:
    """DQN on CartPole, with an environment in this process.

    Args:
        hidden_sizes: of the network.
        stack: closes the cages and the sampler.
    """

    def __init__(self, hidden_sizes: tuple[int, ...], stack: ExitStack) -> None:
        from parllel.replays import UniformReplay
        from parllel.samplers import BasicSampler
        from parllel.torch import DQN, TorchHandler, q_agent_for
        from parllel.transforms import FinalObservations
        from parllel_patterns import allocate_samples, build_cages

        spec, seeds = BatchSpec(T, 1), Seeds(0)
        cages = build_cages(partial(gym.make, "CartPole-v1"), 1, seeds=seeds, stack=stack)
        agent = q_agent_for(cages[0].spaces, seeds=seeds, hidden_sizes=hidden_sizes)
        handler, transforms = TorchHandler(agent), [FinalObservations()]
        samples = allocate_samples(cages, spec, handler, transforms, n_batches=CAPACITY // T)
        self.replay = UniformReplay(samples, batch_size=BATCH_SIZE, discount=DISCOUNT, seed=1)
        self.sampler = BasicSampler(spec, cages, handler, samples, batch_transforms=transforms)
        stack.callback(self.sampler.close)
        self.algorithm = DQN(
            agent,
            learning_rate=LEARNING_RATE,
            learning_rate_anneal_steps=None,
            double=False,
            target_update_interval=UPDATES,
            tau=1.0,
            huber_delta=1.0,
            clip_grad_norm=10.0,
            initial_epsilon=1.0,
            final_epsilon=0.04,
            epsilon_anneal_steps=8000,
        )
        self.steps = 0

    def iterate(self) -> int:
        """Sample, and learn once enough steps are stored; return the number of steps."""
        self.algorithm.before_sampling(self.steps)
        self.sampler.collect_batch(self.steps)
        self.replay.add(self.replay.samples)
        self.steps += T
        if self.steps > LEARNING_STARTS:
            for _ in range(UPDATES):
                self.algorithm.optimize_agent(self.steps, self.replay.sample())
        return T


class TheirDqn:
    """The same by Stable-Baselines3."""

    def __init__(self, hidden_sizes: tuple[int, ...]) -> None:
        from stable_baselines3 import DQN

        self.model = DQN(
            "MlpPolicy",
            gym.make("CartPole-v1"),
            learning_rate=LEARNING_RATE,
            batch_size=BATCH_SIZE,
            buffer_size=CAPACITY,
            learning_starts=LEARNING_STARTS,
            gamma=DISCOUNT,
            target_update_interval=10,
            train_freq=T,
            gradient_steps=UPDATES,
            exploration_fraction=0.16,
            exploration_final_eps=0.04,
            policy_kwargs={"net_arch": list(hidden_sizes)},
            seed=0,
            device="cpu",
        )

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return int(self.model.num_timesteps)

    def iterate(self) -> int:
        """Sample and learn; return the number of steps."""
        # No log is written: what it would cost is not the question.
        self.model.learn(T, reset_num_timesteps=False, log_interval=10**9)
        return T


# Defaults of Stable-Baselines3, which learns after each step; ours takes as many gradient steps after SAC_T.
SAC_T, SAC_STEPS, SAC_BATCH_SIZE, SAC_STARTS = 32, 32, 256, 1024


class OurSac:
    """SAC on HalfCheetah with one gradient step per environment step, in this process."""

    def __init__(self, stack: ExitStack) -> None:
        from parllel.replays import UniformReplay
        from parllel.samplers import BasicSampler
        from parllel.torch import SAC, TorchHandler, sac_agent_for
        from parllel.transforms import FinalObservations
        from parllel_patterns import SAC_DEFAULTS, allocate_samples, build_cages

        spec, seeds = BatchSpec(SAC_T, 1), Seeds(0)
        cages = build_cages(partial(gym.make, "HalfCheetah-v5"), 1, seeds=seeds, stack=stack)
        agent = sac_agent_for(cages[0].spaces, seeds=seeds)
        handler, transforms = TorchHandler(agent), [FinalObservations()]
        samples = allocate_samples(cages, spec, handler, transforms, n_batches=CAPACITY // SAC_T)
        self.replay = UniformReplay(
            samples, batch_size=SAC_BATCH_SIZE, discount=DISCOUNT, seed=seeds.integer("replay")
        )
        self.sampler = BasicSampler(spec, cages, handler, samples, batch_transforms=transforms)
        stack.callback(self.sampler.close)
        self.algorithm = SAC(agent, **SAC_DEFAULTS, seed=seeds.integer("algorithm"))
        self.steps = 0

    def iterate(self) -> int:
        """Sample, and learn once enough steps are stored; return the number of steps."""
        for _ in range(SAC_STEPS // SAC_T):
            self.algorithm.before_sampling(self.steps)
            # Past the random actions, which need no policy.
            self.algorithm.agent.random_actions = self.steps < SAC_STARTS
            self.sampler.collect_batch(self.steps)
            self.replay.add(self.replay.samples)
            self.steps += SAC_T
            if self.steps > SAC_STARTS:
                for _ in range(SAC_T):
                    self.algorithm.optimize_agent(self.steps, self.replay.sample())
        return SAC_STEPS


class TheirSac:
    """The same by Stable-Baselines3."""

    def __init__(self) -> None:
        from stable_baselines3 import SAC

        self.model = SAC(
            "MlpPolicy",
            gym.make("HalfCheetah-v5"),
            buffer_size=CAPACITY,
            learning_starts=SAC_STARTS,
            batch_size=SAC_BATCH_SIZE,
            gamma=DISCOUNT,
            seed=0,
            device="cpu",
        )

    @property
    def steps(self) -> int:
        """Environment steps so far."""
        return int(self.model.num_timesteps)

    def iterate(self) -> int:
        """Sample and learn; return the number of steps."""
        self.model.learn(SAC_STEPS, reset_num_timesteps=False, log_interval=10**9)
        return SAC_STEPS


def sac(n_threads: int) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up both SACs, past the start of learning."""

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        threads = torch.get_num_threads()
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, threads)
            sides: list[Any] = [OurSac(stack), TheirSac()]
            torch.set_num_threads(n_threads)
            for side in sides:
                while side.steps < SAC_STARTS + 2 * SAC_STEPS:
                    side.iterate()

            def check() -> None:
                ours, theirs = sides
                assert ours.algorithm.n_updates == ours.steps - SAC_STARTS
                assert ours.algorithm.update_method == "flat"
                assert theirs.steps % SAC_STEPS == 0

            yield Sides(
                sides[0].iterate,
                sides[1].iterate,
                check,
                note=f"one gradient step per step, batches of {SAC_BATCH_SIZE}, two layers of 256 units",
            )

    return make


def dqn(hidden_sizes: tuple[int, ...]) -> Callable[[], AbstractContextManager[Sides]]:
    """Return what sets up both DQNs, with full arrays of tensors and past the start of learning."""

    @contextmanager
    def make() -> Iterator[Sides]:
        import torch

        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        with ExitStack() as stack:
            stack.callback(torch.set_num_threads, threads)
            sides: list[Any] = [OurDqn(hidden_sizes, stack), TheirDqn(hidden_sizes)]
            for side in sides:
                while side.steps < LEARNING_STARTS + 2 * T:
                    side.iterate()

            def check() -> None:
                ours, theirs = sides
                assert ours.algorithm.n_updates == (ours.steps - 3 * T) // T * UPDATES
                assert theirs.steps % T == 0

            yield Sides(
                sides[0].iterate,
                sides[1].iterate,
                check,
                note=f"{UPDATES} gradient steps after every {T} environment steps, batches of {BATCH_SIZE}",
            )

    return make


COMPARISONS = [
    Comparison(
        f"off_policy/dqn_{size}",
        f"DQN on CartPole with two layers of {size} units: steps per second, against Stable-Baselines3",
        dqn((size, size)),
        target=2.0,
        quick=False,
        needs=("torch", "stable_baselines3"),
    )
    for size in (64, 256)
] + [
    Comparison(
        f"off_policy/sac_{n}",
        f"SAC on HalfCheetah on {n} thread{'s' * (n > 1)}: steps per second, against Stable-Baselines3",
        sac(n),
        target=2.0,
        quick=False,
        needs=("torch", "stable_baselines3", "mujoco"),
    )
    for n in (1, 2)
]

test_off_policy = timed_sides(COMPARISONS)
