"""Records of episodes that are told what the agent said, across batches and places."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from sampler_cages import CAGES, vectorized

from parllel.cages import TrajInfo
from parllel.samplers import BasicSampler, RecurrentSampler
from parllel.testing.sampler_contract import ENVIRONMENTS
from parllel.testing.sampler_setup import MakeCages, SamplerSetup, make_sampler


class ValuesOfAnEpisode(TrajInfo):
    def __init__(self):
        super().__init__()
        self.values = []

    def see_agent_info(self, agent_info):
        self.values.append((float(agent_info.value), int(agent_info.draw)))


@pytest.mark.parametrize("cls", [BasicSampler, RecurrentSampler])
@pytest.mark.parametrize("cages", CAGES.values(), ids=CAGES.keys())
def test_an_episode_knows_what_the_agent_said_at_each_of_its_steps(cages, cls):
    recurrent = cls is RecurrentSampler
    setup = SamplerSetup(4, ENVIRONMENTS, storage="managed", recurrent=recurrent)
    setup = replace(setup, **cages)
    options = {**setup.cage_options, "traj_info": ValuesOfAnEpisode}
    setup = replace(setup, cage_options=options)
    pieces = [[] for _ in ENVIRONMENTS]
    expected, found = [], []
    with make_sampler(cls, setup) as sampler:
        for _ in range(6):
            samples, trajs = sampler.collect_batch(0)
            info = samples.agent.agent_info
            value, draw = np.asarray(info.value), np.asarray(info.draw)
            done = np.asarray(samples.env.done)
            valid = np.asarray(samples.env.valid) if recurrent else np.ones_like(done)
            for t, b in np.ndindex(*done.shape):
                if valid[t, b]:
                    pieces[b].append((float(value[t, b]), int(draw[t, b])))
                if done[t, b]:
                    expected.append(pieces[b])
                    pieces[b] = []
            found += [traj.values for traj in trajs]
            assert [len(traj.values) for traj in trajs] == [traj.length for traj in trajs]
    assert len(expected) > 6
    assert sorted(found) == sorted(expected)


def test_random_steps_have_no_agent():
    setup = SamplerSetup(4, ENVIRONMENTS, make_cages=MakeCages(vectorized))
    setup = replace(setup, cage_options={"traj_info": ValuesOfAnEpisode})
    with make_sampler(BasicSampler, setup, decorrelation_steps=3, decorrelation_seed=0) as sampler:
        _, trajs = sampler.collect_batch(0)
        assert any(len(traj.values) < traj.length for traj in trajs)
        _, trajs = sampler.collect_batch(0)
