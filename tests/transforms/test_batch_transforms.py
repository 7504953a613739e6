"""ClipRewards, NormalizeAdvantage, and what all transforms share."""

from __future__ import annotations

import numpy as np
import pytest
from python_code import output_of
from transform_samples import make_samples

from parllel.buffers.paths import field_at
from parllel.transforms import (
    BatchTransform,
    ClipRewards,
    EstimateAdvantage,
    NormalizeAdvantage,
    StepTransform,
)
from parllel.transforms.transform import optional_body_of


def test_clip_rewards_writes_a_field_of_its_own():
    transform = ClipRewards(-1.0, np.inf)
    samples = make_samples(2, 2, np.float32(0), transform)
    np.asarray(samples.env.reward)[...] = [[-3.0, 0.5], [7.0, -1.0]]
    transform.transform_batch(samples)
    assert np.asarray(samples.env.clipped_reward).tolist() == [[-1.0, 0.5], [7.0, -1.0]]
    assert np.asarray(samples.env.reward).tolist() == [[-3.0, 0.5], [7.0, -1.0]]


@pytest.mark.parametrize(("low", "high"), [(1.0, 1.0), (2.0, 1.0), (np.nan, 1.0)])
def test_clip_rewards_needs_a_range(low, high):
    with pytest.raises(
        ValueError, match=f"ClipRewards: low: expected less than high=1.0, got {low}"
    ):
        ClipRewards(low, high)


def test_clip_rewards_names_a_missing_field():
    with pytest.raises(ValueError, match=r"no field 'env\.bonus': 'bonus' is not one"):
        make_samples(2, 2, np.float32(0), ClipRewards(0, 1, source="env.bonus"))


@pytest.mark.parametrize("with_valid", [False, True])
def test_normalize_advantage_over_the_batch(with_valid):
    estimate, transform = EstimateAdvantage(0.9, 0.9), NormalizeAdvantage(1e-3)
    samples = make_samples(6, 4, np.float32(0), estimate, transform, valid=with_valid)
    rng = np.random.default_rng(0)
    values = rng.normal(1e3, 2.0, (6, 4)).astype(np.float32)
    valid = np.ones((6, 4), bool)
    if with_valid:
        valid = rng.random((6, 4)) < 0.6
        values[~valid] = np.nan
        np.asarray(samples.env.valid)[...] = valid
    np.asarray(samples.agent.advantage)[...] = values
    transform.transform_batch(samples)
    chosen = values[valid].astype(np.float64)
    expected = np.zeros((6, 4))
    expected[valid] = (chosen - chosen.mean()) / (chosen.std() + 1e-3)
    np.testing.assert_allclose(np.asarray(samples.agent.advantage), expected, rtol=1e-6, atol=1e-7)


def test_normalize_advantage_can_write_elsewhere_and_survives_edge_cases():
    transform = NormalizeAdvantage(target="agent.scaled_advantage")
    samples = make_samples(2, 2, np.float32(0), EstimateAdvantage(0.9, 0.9), transform, valid=True)
    np.asarray(samples.agent.advantage)[...] = 3.0
    np.asarray(samples.agent.scaled_advantage)[...] = 5.0
    transform.transform_batch(samples)  # nothing is valid
    assert not np.asarray(samples.agent.scaled_advantage).any()
    np.asarray(samples.env.valid)[...] = True
    transform.transform_batch(samples)  # no spread at all
    assert not np.asarray(samples.agent.scaled_advantage).any()
    assert np.asarray(samples.agent.advantage).tolist() == [[3.0, 3.0], [3.0, 3.0]]


@pytest.mark.parametrize("bad", [0.0, -1e-8, np.nan, np.inf])
def test_normalize_advantage_needs_a_positive_epsilon(bad):
    with pytest.raises(ValueError, match="NormalizeAdvantage: epsilon: expected a finite number"):
        NormalizeAdvantage(bad)


def test_a_transform_without_state_has_none_and_changes_nothing_at_the_end():
    class Double(BatchTransform):
        def transform_batch(self, samples):
            np.asarray(samples.env.reward)[...] *= 2

    class Nothing(StepTransform):
        def transform_step(self, samples, t, columns):
            pass

    samples = make_samples(2, 2, np.float32(0), Double(), Nothing())
    np.asarray(samples.env.reward)[...] = 4.0
    Nothing().end_batch(samples)
    observation = np.ones((3, 2))
    assert Nothing().transform_final(observation) is observation
    assert (Double().fields(samples), Double().stats, Double().state()) == ({}, {}, {})
    assert np.asarray(samples.env.reward).tolist() == [[4.0, 4.0], [4.0, 4.0]]


def test_fields_are_found_by_path():
    samples = make_samples(2, 3)
    assert field_at(samples, "agent.agent_info.value") is samples.agent.agent_info.value
    assert optional_body_of(samples, "env.valid") is None
    assert optional_body_of(samples, "env.reward").shape == (2, 3)
    with_none = samples._replace(env=samples.env._replace(valid=None))
    assert optional_body_of(with_none, "env.valid") is None
    with pytest.raises(ValueError, match=r"no field 'env\.reward\.x': 'x' is not"):
        field_at(samples, "env.reward.x")


def test_a_tree_is_not_taken_for_an_array():
    observation = {"left": np.float32(0), "right": np.float32(0)}
    transform = ClipRewards(0, 1, source="env.observation")
    with pytest.raises(
        ValueError, match=r"env\.observation: .*, got a tree of \['left', 'right'\]"
    ):
        make_samples(2, 2, observation, transform)


def test_importing_transforms_imports_no_compiler():
    code = "import sys, parllel.transforms; print('numba' in sys.modules)"
    assert output_of(code).strip() == "False"


@pytest.mark.parametrize("error", [RuntimeError("no locator"), PermissionError("read-only")])
def test_code_is_compiled_also_where_no_cache_can_be_written(monkeypatch, error):
    from numba.core.dispatcher import Dispatcher

    from parllel.transforms.compiled import compiled

    asked = []

    def enable_caching(self):
        asked.append(self)
        raise error

    monkeypatch.setattr(Dispatcher, "enable_caching", enable_caching)

    @compiled("i8(i8)")
    def successor(number):
        return number + 1

    assert successor(41) == 42
    assert len(asked) == 1
