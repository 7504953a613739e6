"""What an environment did before its process died is learned from, up to there."""

from __future__ import annotations

from functools import partial

import numpy as np
from worker_setup import make_handler, make_worker, ready

from parllel import BatchSpec
from parllel.distributed.rollouts import (
    FragmentSampler,
    FragmentSender,
    ReplayBuffer,
    RolloutWorker,
)
from parllel.testing.dummy_agents import fingerprint
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.faulty_envs import FaultyEnv
from parllel.transforms import EstimateAdvantage
from parllel_patterns import allocate_samples

T = 6


def test_batches_of_an_environment_that_crashes():
    # Three steps of an episode of 100, then the process is gone; again and again.
    crashing = partial(FaultyEnv, "step", "exit", number=4, lengths=100)
    sources = [make_worker(crashing, 0), make_worker(partial(CountingEnv, 100), 1)]
    estimate = EstimateAdvantage(0.9, 0.9)
    handler, spec = make_handler(), BatchSpec(T, 2)
    samples = allocate_samples(
        [source.cage for source in sources], spec, handler, [estimate], storage="local"
    )
    with ReplayBuffer(1000) as buffer:
        with FragmentSender(buffer) as sender:
            schedule = ready(sources, batch_size=1)
            with RolloutWorker(schedule, fragment_length=T, seed=0, sender=sender) as worker:
                while schedule.restarts < 2:
                    worker.run(n_steps=20)
                sender.flush(30)
        fragments = buffer.fetch(buffer.prepared(), 0)
        crashed = [one for one in fragments if one.environment == 0][:2]
        (whole, *_) = (one for one in fragments if one.environment == 1)
    assert [one.n_steps for one in crashed] == [3, 3]
    with ReplayBuffer(8) as buffer:
        sampler = FragmentSampler(spec, buffer, handler, samples, (), [estimate], timeout_s=5)
        with sampler:
            buffer.add([crashed[1], whole], 0)
            batch, _ = sampler.collect_batch(0)
            assert sampler.count_steps(batch) == 3 + T
            env, agent = batch.env, batch.agent
            last = [False, False, True, False, False, False]
            for field in (env.aborted, env.truncated, env.done):
                assert np.asarray(field)[:, 0].tolist() == last
                assert not np.asarray(field)[:, 1].any()
            assert not np.asarray(env.terminated).any()
            after = fingerprint(np.asarray(crashed[1].next_observation)[np.newaxis])[0]
            assert np.asarray(agent.final_value)[2, 0] == np.float32(after)
            # The value after the crash counts in the step before it, and nothing after that does.
            value, reward = (np.asarray(x) for x in (agent.agent_info.value, env.reward))
            error = reward[2, 0] + 0.9 * after - value[2, 0]
            np.testing.assert_allclose(np.asarray(agent.advantage)[2, 0], error, rtol=1e-5)
