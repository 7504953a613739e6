"""What do PPO's ways to compute updates take, beside autograd and PyTorch's Adam?

All sides learn from the same made-up batch of T=128, 4 epochs of 4 minibatches, with a learning rate so small
that the policy stays where it is. They count the CPU time of their thread.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides

T = 128


def made_up_batch(agent: Any, B: int) -> Any:
    """Return samples as a sampler and the transforms would leave them."""
    from parllel.agents import agent_examples
    from parllel.buffers import AgentSamples, EnvSamples, Field, Samples, allocate, insert_field
    from parllel.torch import TorchHandler
    from parllel.types import BatchSpec

    handler = TorchHandler(agent)
    observation = np.zeros(4, np.float32)
    action, info = agent_examples(handler, observation)
    real = np.float32(0)
    samples: Any = allocate(
        Samples(
            agent=AgentSamples(action=action, agent_info=info, advantage=real, return_=real),
            env=EnvSamples(
                observation=Field(observation, padding=1),
                reward=real,
                terminated=False,
                truncated=False,
                done=False,
                env_info=None,
            ),
        ),
        BatchSpec(T, B),
    )
    samples = insert_field(samples, "agent.observation", samples.env.observation)
    rng = np.random.default_rng(0)
    np.asarray(samples.agent.observation)[:] = rng.normal(size=(T, B, 4))
    handler.bind(samples)
    handler.start_batch()
    for t in range(T):
        handler.step(t, slice(0, B))
    for field in (samples.agent.advantage, samples.agent.return_):
        np.asarray(field)[:] = rng.normal(size=(T, B))
    return samples


def learner(update: str, B: int, hidden_sizes: Sequence[int], *, known: bool) -> Any:
    """Return a function that learns from one batch."""
    from parllel.torch import PPO, CategoricalHead, CategoricalPgAgent, PgModel

    class OwnLoss(PPO):
        """A subclass, for which gradients come from autograd."""

        def loss(self, inputs: Any) -> Any:
            return super().loss(inputs)

    model = PgModel(4, CategoricalHead(2), hidden_sizes, seed=0)
    agent = CategoricalPgAgent(model, 2, seed=0)
    algorithm = (PPO if known else OwnLoss)(
        agent,
        learning_rate=1e-6,
        learning_rate_anneal_steps=None,
        epochs=4,
        minibatches=4,
        ratio_clip=0.2,
        value_clip=None,
        value_loss_coeff=0.5,
        entropy_loss_coeff=0.01,
        clip_grad_norm=0.5,
        kl_limit=None,
        seed=0,
        update=update,  # type: ignore[arg-type]
    )
    samples = made_up_batch(agent, B)

    def learn() -> int:
        algorithm.optimize_agent(T * B, samples)
        return 1

    return learn, algorithm


@contextmanager
def against_autograd(B: int, hidden_sizes: Sequence[int], *, known: bool) -> Iterator[Sides]:
    """Learn with "auto", and with autograd."""
    ours, algorithm = learner("auto", B, hidden_sizes, known=known)
    theirs, _ = learner("autograd", B, hidden_sizes, known=known)

    def check() -> None:
        ours()
        assert algorithm.update_method == ("flat" if known else "flat parameters")

    yield Sides(ours, theirs, check, clock=time.thread_time)


COMPARISONS = [
    Comparison(
        f"update/{name}",
        f"PPO's updates, T=128, B={B}, hidden layers of {size}, {how}: against autograd",
        partial(against_autograd, B, (size, size), known=known),
        target=goal,
        quick=name == "flat-16",
        needs=("torch",),
    )
    for name, B, size, known, goal, how in (
        ("flat-16", 16, 64, True, 3.5, "flat"),
        ("flat-128", 128, 64, True, 1.5, "flat"),
        ("flat-16-256", 16, 256, True, 1.3, "flat"),
        ("parameters-16", 16, 64, False, 1.9, "a subclass with another loss"),
    )
]

test_update = timed_sides(COMPARISONS)
