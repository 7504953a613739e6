"""Agents that remember, published statistics, several agents, and classes of a user's script."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from ray_setup import rollouts
from weighted_agent import RecurrentWeightedAgent, weighted
from worker_setup import B, T, make_cages, ready

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.buffers import NamedTuple
from parllel.cages import MultiAgentTrajInfo
from parllel.distributed.rollouts import FragmentSampler, FragmentSender, RolloutWorker
from parllel.envs import ParallelEnvAdapter, multi_agent_info
from parllel.runs.reference import import_script
from parllel.testing import RockPaperScissorsEnv
from parllel.testing.dummy_agents import CountingAgent
from parllel.transforms import NormalizeObservations
from parllel_patterns import allocate_samples

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("ray_here")]
SPEC = BatchSpec(T, 2 * B)


def test_statistics_travel_with_the_weights_of_agents_that_remember():
    cages, handler = make_cages("vectorized"), weighted(recurrent=True, n_envs=2 * B)
    step, by_version, episodes, made = [NormalizeObservations()], {}, [], set()
    samples = allocate_samples(cages, SPEC, handler, step)
    script = import_script(Path(__file__).with_name("ray_script.py"))
    with rollouts(script.build_worker, 2) as (buffer, statistics, workers):
        sampler = FragmentSampler(
            SPEC, buffer, handler, samples, step, workers=workers, statistics=statistics
        )
        while len(made) < 3 or not episodes:
            # The weights of a version are its number.
            handler.agent.load_state(
                {**handler.agent.state(), **RecurrentWeightedAgent.weights(sampler.version + 1)}
            )
            by_version[sampler.version + 1] = step[0].state()["env.observation"]
            sampler.publish()
            batch, trajs = sampler.collect_batch(0)
            episodes += trajs
            made |= check_batch(batch, by_version)
        assert {type(traj) for traj in episodes} == {script.ScriptTraj}
        assert all(traj.halves == traj.length / 2 > 0 for traj in episodes)
    cages[0].close()


def check_batch(batch, by_version):
    """Compare what agents saw and did with what was published; return the versions that acted."""
    valid = np.asarray(batch.env.valid)
    versions = np.asarray(batch.env.version)[valid]
    np.testing.assert_array_equal(np.asarray(batch.agent.agent_info.weight)[valid], versions)
    raw, seen = (np.asarray(node.observation)[:T][valid] for node in (batch.env, batch.agent))
    for version in set(versions.tolist()):
        moments, own = by_version[version], versions == version
        mean, variance = np.asarray(moments["mean"]), np.asarray(moments["var"])
        if not moments["count"]:
            mean, variance = np.zeros_like(mean), np.ones_like(variance)
        expected = np.clip((raw[own] - mean) / np.sqrt(variance + 1e-8), -10, 10)
        np.testing.assert_allclose(seen[own], expected, rtol=1e-4, atol=1e-4)
    # A fragment ends with its episode.
    done = np.asarray(batch.env.done)
    assert not (valid[1:] & done[:-1]).any()
    return set(versions.tolist())


class Players(CountingAgent):
    """The same action for each agent of the environment, and values of its own."""

    def step(self, observation, **arguments):
        action, info = super().step(observation, **arguments)
        both = NamedTuple(red=info.value, blue=-info.value)
        return NamedTuple(red=action, blue=action), NamedTuple(value=both)


def make_game():
    return ParallelEnvAdapter(RockPaperScissorsEnv())


def build_players(place):
    cages = make_cages("single", makes=[make_game] * 2, traj_info=MultiAgentTrajInfo)
    info = multi_agent_info(["red", "blue"])
    sender = FragmentSender(place.storage)
    place.stack.callback(sender.close, 0.0)
    return RolloutWorker(
        ready(cages, NumpyHandler(Players(3)), env_info=info),
        fragment_length=4,
        seed=0,
        producer=place.name,
        sender=sender,
        statistics=place.statistics,
        task="paper",
    )


def test_several_agents():
    with rollouts(build_players) as (buffer, statistics, workers):
        workers.load_weights({}, 1)
        found, episodes = [], []
        while not episodes:
            workers.check()
            found += buffer.fetch(1, 1.0)
            episodes += statistics.drain_tasks()
        assert {task for task, _ in episodes} == set(statistics.episodes) == {"paper"}
        assert statistics.stats["paper/episodes"] == len(episodes)
        episodes = [traj for _, traj in episodes]
        assert all(traj.returns["red"] == -traj.returns["blue"] for traj in episodes)
        for fragment in found:
            reward, action = fragment.env.env_info.reward, fragment.agent.action
            np.testing.assert_array_equal(action.red, action.blue)
            # Equal moves win nothing.
            assert not reward.red.any()
            assert fragment.env.env_info.alive.blue.any()
            assert (
                fragment.agent.agent_info.value.red[0] == -fragment.agent.agent_info.value.blue[0]
            )
