from __future__ import annotations

from functools import partial

import numpy as np
import pytest

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import MultiAgentTrajInfo, SynchronizedProcessCage, VectorizedCage
from parllel.envs import ParallelEnvAdapter, multi_agent_info
from parllel.samplers import BasicSampler
from parllel.testing.dummy_parallel_env import CountingParallelEnv
from parllel_patterns import allocate_samples

LIVES = {"fox": 2, "hen": 5}


def make_env():
    return ParallelEnvAdapter(CountingParallelEnv(LIVES))


@pytest.mark.parametrize("in_processes", [False, True])
def test_returns_are_sums_of_each_agent_across_batches(in_processes):
    B, spec = 2, BatchSpec(4, 2)
    options = {
        "traj_info": partial(MultiAgentTrajInfo, discount=0.5),
        "seeds": Seeds(0).spawn("environments", B),
    }
    if in_processes:
        cage = SynchronizedProcessCage([make_env] * B, n_workers=1, participate=True, **options)
    else:
        cage = VectorizedCage([make_env] * B, **options)
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=0))
    info = multi_agent_info(cage.spaces.action)
    samples = allocate_samples([cage], spec, handler, env_info=info)
    rewards = {name: [] for name in LIVES}
    trajs = []
    with BasicSampler(spec, [cage], handler, samples) as sampler:
        for n in range(3):
            trajs += sampler.collect_batch(n * spec.size)[1]
            for name in LIVES:
                field = getattr(samples.env.env_info.reward, name)
                rewards[name].append(np.array(field, np.float64))
    # 12 steps of each column: two episodes of five steps, and two steps of a third.
    by_agent = {name: np.concatenate(parts) for name, parts in rewards.items()}
    expected = [
        {name: parts[start : start + 5, b].sum() for name, parts in by_agent.items()}
        for b in range(B)
        for start in (0, 5)
    ]
    found = [traj.returns for traj in sorted(trajs, key=lambda traj: traj.return_)]
    expected.sort(key=lambda row: sum(row.values()))
    assert len(found) == 4
    for traj, row in zip(found, expected, strict=True):
        assert traj == pytest.approx(row, rel=1e-6)
    for traj in trajs:
        row = traj.as_dict()
        assert list(row) == [
            "length",
            "return",
            "discounted_return",
            "return_fox",
            "return_hen",
        ]
        assert row["return"] == pytest.approx(row["return_fox"] + row["return_hen"])
        assert row["length"] == 5


def test_info_without_rewards_by_agent_is_refused():
    traj = MultiAgentTrajInfo()
    with pytest.raises(
        ValueError, match=r"info\['reward'\] to be a dict keyed by agent, got an info with \['x"
    ):
        traj.step(None, None, 1.0, False, False, {"x": 1})
