from __future__ import annotations

import numpy as np
import pytest
from painted_env import PaintedEnv

from parllel.algos import Algorithm
from parllel.logging import Logger, Writer
from parllel.runners import HistogramRecorder, OnPolicyRunner
from parllel.samplers import BasicSampler
from parllel.testing.sampler_setup import SamplerSetup
from parllel.transforms import every_nth

WEIGHT = np.arange(6.0).reshape(2, 3)


class Histograms(Writer):
    shows_pictures = True

    def __init__(self):
        self.found = {}

    def write(self, step, values):
        pass

    def message(self, level, text):
        pass

    def histogram(self, step, key, values):
        assert values.ndim == 1
        self.found[step, key] = values

    def close(self):
        pass


class Keep(Algorithm):
    """Keeps the batches, and has weights that change."""

    def __init__(self, agent):
        self.agent = agent
        self.batches = {}

    def optimize_agent(self, elapsed_steps, samples):
        self.batches[elapsed_steps] = (
            np.array(samples.env.reward),
            np.array(samples.agent.action),
        )
        return {}


@pytest.fixture
def run():
    def run(writer, recorder):
        parts = SamplerSetup(5, (PaintedEnv, PaintedEnv)).build()
        agent = parts.handler.agent
        agent.models = lambda: {"policy": None}
        agent.state = lambda: {"policy": {"net": {"weight": WEIGHT}, "name": "mlp"}}
        algorithm = Keep(parts.handler.agent)
        with BasicSampler(parts.batch_spec, parts.cages, parts.handler, parts.samples) as sampler:
            steps = parts.batch_spec.size
            OnPolicyRunner(
                parts.batch_spec,
                sampler,
                algorithm,
                n_steps=5 * steps,
                logger=Logger([writer]),
                log_interval_steps=steps,
                callbacks=[recorder],
            ).run()
        return algorithm, steps

    return run


def test_due_batches_are_sent_as_they_are(run):
    writer = Histograms()
    algorithm, steps = run(writer, HistogramRecorder(every_nth(2)))
    assert {step for step, _ in writer.found} == {steps, 3 * steps, 5 * steps}
    for step in (steps, 3 * steps, 5 * steps):
        reward, action = algorithm.batches[step]
        np.testing.assert_array_equal(writer.found[step, "rewards"], reward.ravel())
        np.testing.assert_array_equal(writer.found[step, "actions"], action.ravel())
        np.testing.assert_array_equal(writer.found[step, "weights/policy/net/weight"], range(6))
    assert len(writer.found) == 9


def test_nothing_is_computed_for_writers_that_show_none(run):
    writer = Histograms()
    writer.shows_pictures = False
    run(writer, HistogramRecorder(every_nth(1)))
    assert writer.found == {}


def test_the_count_is_in_the_checkpoint():
    one, two = HistogramRecorder(), HistogramRecorder()
    one._n_batches = 7
    two.load_state(one.state())
    assert two.state() == {"n_batches": 7}


def test_a_number_is_no_schedule():
    said = r"HistogramRecorder: schedule: expected a function such as every_nth\(10\), got 10"
    with pytest.raises(TypeError, match=said):
        HistogramRecorder(10)
