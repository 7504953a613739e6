"""A trainer learns from fragments as other runners learn from batches."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from producers import SPEC, Producer, make_agent, make_fragment_sampler, make_parts

from parllel import BatchSpec
from parllel.buffers import buffer_leaves
from parllel.distributed.rollouts import ReplayBuffer, Trainer
from parllel.logging import Logger, Writer
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import PPO
from parllel.transforms import (
    EstimateAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
    NormalizeRewards,
)
from parllel_patterns import PPO_DEFAULTS


class Rows(Writer):
    def __init__(self):
        self.rows = {}

    def write(self, step, values):
        self.rows[step] = dict(values)

    def message(self, level, text):
        assert level == "notice", text

    def close(self):
        pass


def transforms():
    return [
        NormalizeRewards(0.98),
        EstimateAdvantage(0.98, 0.9, reward="env.normalized_reward"),
        NormalizeAdvantage(),
    ]


def ppo_of(agent):
    return PPO(agent, **{**PPO_DEFAULTS, "learning_rate": 3e-3}, seed=3)


def make_trainer(sampler, updates, *, rows=None, **arguments):
    return Trainer(
        SPEC,
        sampler,
        ppo_of(sampler.agent),
        n_steps=updates * SPEC.size,
        log_interval_steps=SPEC.size,
        logger=Logger([rows or Rows()]),
        **arguments,
    )


def weights(agent):
    return {path: np.array(leaf) for path, leaf in buffer_leaves(agent.state()["model"])}


def assert_same_weights(one, other):
    one, other = weights(one), weights(other)
    assert set(one) == set(other)
    for path, values in one.items():
        np.testing.assert_array_equal(values, other[path], err_msg=path)


@pytest.mark.parametrize("step", [(), (NormalizeObservations,)], ids=["raw", "normalized"])
def test_fragments_of_the_newest_weights_teach_what_an_on_policy_runner_learns(step):
    updates = 5
    source = Producer(ReplayBuffer(8), step=[cls() for cls in step], batch=transforms())
    with source.sampler as plain:
        OnPolicyRunner(
            SPEC,
            plain,
            ppo_of(source.agent),
            n_steps=updates * SPEC.size,
            log_interval_steps=SPEC.size,
            logger=Logger([Rows()]),
        ).run()
    buffer, statistics, producer = make_parts(max_staleness=0, step=[cls() for cls in step])
    rows = Rows()
    # Its own agent begins with other weights, which do not count.
    sampler = make_fragment_sampler(
        buffer,
        step=[cls() for cls in step],
        batch=transforms(),
        publish_to=[producer.load_and_produce],
        statistics=statistics,
    )
    with sampler, producer.sampler:
        before = weights(sampler.agent)
        result = make_trainer(sampler, updates, rows=rows).run()
        assert_same_weights(sampler.agent, source.agent)
        assert any(
            (values != before[path]).any() for path, values in weights(sampler.agent).items()
        )
        assert sampler.version == updates + 1
    assert result.elapsed_steps == updates * SPEC.size
    assert list(rows.rows) == [SPEC.size * (n + 1) for n in range(updates)]
    for row in rows.rows.values():
        assert row["asynchronous/staleness/mean"] == row["sampler/staleness"] == 0
        assert 0 <= row["asynchronous/waited_s"] <= row["time/sampling_s"]
    assert sum(row.get("training/length/count", 0) for row in rows.rows.values()) > 0


def test_weights_are_published_every_so_many_updates():
    buffer, _, producer = make_parts()
    versions = []

    def publish_to(weights, version):
        producer.load_weights(weights, version)
        versions.append((buffer.counts()["accepted"] // SPEC.B, version))

    sampler = make_fragment_sampler(buffer, batch=transforms(), publish_to=[publish_to])
    with sampler, producer.sampler:
        for _ in range(8):
            producer.produce()
        rows = Rows()
        make_trainer(sampler, 7, rows=rows, publish_interval=3).run()
    assert versions == [(0, 1), (3, 2), (6, 3)]
    # All batches were made before the first version.
    staleness = [row["sampler/staleness"] for row in rows.rows.values()]
    assert staleness == [1, 1, 1, 2, 2, 2, 3]


def test_a_producer_in_a_thread_goes_on_while_the_trainer_learns():
    buffer, statistics, producer = make_parts(capacity=2 * SPEC.B)
    newest, stopped = [], threading.Event()

    def produce():
        while not stopped.is_set():
            if newest:
                producer.load_weights(*newest[-1])
            samples, trajs = producer.sampler.collect_batch(0)
            statistics.report(trajs)
            fragments = producer.cutter.add_batch(samples, producer.version)
            while fragments and not stopped.is_set():
                fragments = fragments[buffer.add(fragments, timeout_s=0.1) :]

    thread = threading.Thread(target=produce)
    sampler = make_fragment_sampler(
        buffer,
        batch=transforms(),
        publish_to=[lambda *published: newest.append(published)],
        statistics=statistics,
    )
    with producer.sampler, sampler:
        thread.start()
        rows = Rows()
        try:
            make_trainer(sampler, 8, rows=rows).run()
        finally:
            stopped.set()
            thread.join(20)
    assert not thread.is_alive()
    assert buffer.ledger.balanced()
    ages = [row["sampler/staleness"] for row in rows.rows.values()]
    # A batch that is made, two in the buffer, one that is learned from, and the first publication.
    assert all(0 <= age <= 5 for age in ages), ages
    assert buffer.counts()["accepted"] == 8 * SPEC.B


def test_a_run_goes_on_from_a_checkpoint(tmp_path, open_fonts):
    folder = RunFolder(tmp_path, "run")
    trained = make_agent()
    for updates, agent in ((3, trained), (5, make_agent(seed=7))):
        buffer, statistics, producer = make_parts(max_staleness=0)
        sampler = make_fragment_sampler(
            buffer,
            agent=agent,
            batch=transforms(),
            publish_to=[producer.load_and_produce],
            statistics=statistics,
        )
        with sampler, producer.sampler:
            rows = Rows()
            trainer = make_trainer(sampler, updates, rows=rows, folder=folder)
            if updates == 5:
                _, state = folder.checkpoints.load_newest()
                trainer.load_state(state)
                assert_same_weights(agent, trained)
                assert state["parts"]["sampler"]["version"] == 4
                normaliser = sampler.batch_transforms[0]
                assert normaliser.state()["statistics"]["count"] == 3 * SPEC.size
            result = trainer.run()
    assert result.elapsed_steps == 5 * SPEC.size
    assert list(rows.rows) == [4 * SPEC.size, 5 * SPEC.size]
    # One more than without the break: the workers of the resumed run are given its weights.
    assert sampler.version == 7
    assert normaliser.state()["statistics"]["count"] == 5 * SPEC.size


def test_what_a_trainer_does_not_take_is_refused():
    buffer, _, producer = make_parts()
    with producer.sampler, make_fragment_sampler(buffer) as sampler:
        with pytest.raises(ValueError, match="publish_interval: expected at least 1, got 0"):
            make_trainer(sampler, 1, publish_interval=0)
        arguments = {"n_steps": 1, "log_interval_steps": 1, "logger": Logger([])}
        with pytest.raises(TypeError, match=r"expected a FragmentSampler, got BasicSampler; Asyn"):
            Trainer(SPEC, producer.sampler, ppo_of(producer.agent), **arguments)
        with pytest.raises(ValueError, match="expected a sampler with the agent of the algorithm"):
            Trainer(SPEC, sampler, ppo_of(producer.agent), **arguments)
        with pytest.raises(ValueError, match=r"batch_spec: expected BatchSpec\(T=16, .*got Batch"):
            Trainer(BatchSpec(8, 4), sampler, ppo_of(sampler.agent), **arguments)
