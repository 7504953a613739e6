"""Is it worth creating the tensors over the batch once, instead of in every step?"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np

from benchmarks.harness.measure import Comparison, Sides, timed_sides
from benchmarks.samples import make_policy_samples

T, B, FEATURES, ACTIONS = 64, 16, 4, 2
HIDDEN = (64, 64)


@contextmanager
def views() -> Iterator[Sides]:
    """Let a 2x64 policy with value act on all rows of a batch, with noise drawn beforehand."""
    import torch

    from parllel.torch import CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler

    model = PgModel((FEATURES,), CategoricalHead(ACTIONS), HIDDEN, seed=0)
    agent = CategoricalPgAgent(model, ACTIONS, seed=0)
    mine, theirs = make_policy_samples(T, B, FEATURES), make_policy_samples(T, B, FEATURES)
    handler = TorchHandler(agent)
    handler.bind(mine)
    handler.start_batch()
    noise = handler._noise
    columns = slice(0, B)
    fields = (theirs.agent.action, theirs.agent.agent_info.value, theirs.agent.agent_info.log_prob)
    observation_rows = np.asarray(theirs.agent.observation)
    rows_of_fields = [np.asarray(field) for field in fields]

    def once() -> int:
        for t in range(T):
            handler.step(t, columns)
        return T

    def every_step() -> int:
        for t in range(T):
            observation = torch.from_numpy(observation_rows[t, columns])
            action, info = agent.step(observation, env_indices=columns, noise=noise[t, columns])
            values = (action, info.value, info.log_prob)
            for rows, value in zip(rows_of_fields, values, strict=True):
                torch.from_numpy(rows[t, columns]).copy_(value)
        return T

    def check() -> None:
        once()
        every_step()
        np.testing.assert_array_equal(mine.agent.action, fields[0])
        np.testing.assert_array_equal(mine.agent.agent_info.value, fields[1])
        np.testing.assert_array_equal(mine.agent.agent_info.log_prob, fields[2])

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # more of them only add noise to matrices of this size
    try:
        yield Sides(once, every_step, check)
    finally:
        torch.set_num_threads(threads)


COMPARISONS = [
    Comparison(
        "torch_views",
        f"handler.step at B={B}, against torch.from_numpy per step",
        views,
        needs=("torch",),
    )
]

test_torch_views = timed_sides(COMPARISONS)
