"""Advantages of several agents against plain Python."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transform_samples import with_fields, write_padded_rows

from parllel.buffers import AgentSamples, EnvSamples, Field, NamedTuple, Samples
from parllel.envs import multi_agent_info
from parllel.testing.transform_samples import allocate_numbers
from parllel.transforms import EstimateMultiAgentAdvantage, NormalizeMultiAgentAdvantage
from parllel.types import BatchSpec

AGENTS = ("fox", "hen", "dog")
ENDS = ("alive", "terminated", "truncated")


def make_samples(T, B, transforms, info=None, valid=False):
    value = {agent: Field(np.float32(0), padding=1) for agent in AGENTS}
    samples = allocate_numbers(
        BatchSpec(T, B),
        observation=np.float32(0),
        agent_info=NamedTuple(value=value),
        env_info=multi_agent_info(AGENTS) if info is None else info,
        valid=valid,
    )
    return with_fields(samples, *transforms)


def play(seed, T, B, leave=0.15):
    """Return arrays by path, as the adapter and the handler would have left them.

    Agents leave one after the other; the episode is over when nobody is left, or cut by a time limit.
    """
    rng = np.random.default_rng(seed)
    flags = {f"{end}.{agent}": np.zeros((T, B), bool) for end in ENDS for agent in AGENTS}
    terminated, truncated = np.zeros((T, B), bool), np.zeros((T, B), bool)
    for b in range(B):
        left, all_terminated = set(AGENTS), True
        for t in range(T):
            for agent in AGENTS:
                flags[f"alive.{agent}"][t, b] = agent in left
            for agent in sorted(left):
                if rng.random() < leave:
                    end = ("terminated", "truncated")[rng.integers(2)]
                    flags[f"{end}.{agent}"][t, b] = True
                    all_terminated &= end == "terminated"
                    left.remove(agent)
            cut = rng.random() < 0.05
            terminated[t, b] = not left and all_terminated
            truncated[t, b] = (not left and not all_terminated) or cut
            if not left or cut:
                left, all_terminated = set(AGENTS), True
    numbers = {
        f"{name}.{agent}": rng.normal(0, 2, (T + (name == "value"), B)).astype(np.float32)
        for name in ("reward", "value", "final_value")
        for agent in AGENTS
    }
    return {**flags, **numbers, "terminated": terminated, "truncated": truncated}


def fill(samples, batch):
    for name in ("terminated", "truncated"):
        np.asarray(getattr(samples.env, name))[...] = batch[name]
    for agent in AGENTS:
        write_padded_rows(getattr(samples.agent.agent_info.value, agent), batch[f"value.{agent}"])
        if "final_value" in samples.agent._fields:
            final = getattr(samples.agent.final_value, agent)
            np.asarray(final)[...] = batch[f"final_value.{agent}"]
        for name, node in samples.env.env_info._asdict().items():
            np.asarray(getattr(node, agent))[...] = batch[f"{name}.{agent}"]


def reference(batch, agent, discount, gae_lambda, ends=True):
    """Sum one-step errors forwards from each step, up to the last step of this agent."""
    reward, value = batch[f"reward.{agent}"], batch[f"value.{agent}"]
    T, B = reward.shape
    result = np.zeros((T, B))
    for b in range(B):
        for start in range(T):
            if ends and not batch[f"alive.{agent}"][start, b]:
                continue
            weight = 1.0
            for t in range(start, T):
                own_end = ends and batch[f"terminated.{agent}"][t, b]
                own_cut = ends and batch[f"truncated.{agent}"][t, b]
                if batch["terminated"][t, b] or own_end:
                    behind = 0.0
                elif batch["truncated"][t, b]:
                    behind = float(batch[f"final_value.{agent}"][t, b])
                else:
                    behind = float(value[t + 1, b])  # row T bootstraps; a cut agent's last sight
                error = float(reward[t, b]) + discount * behind - float(value[t, b])
                result[start, b] += weight * error
                if batch["terminated"][t, b] or batch["truncated"][t, b] or own_end or own_cut:
                    break
                weight *= discount * gae_lambda
    return result


@settings(max_examples=40)
@given(
    seed=st.integers(0, 2**32 - 1),
    T=st.integers(1, 12),
    B=st.integers(1, 4),
    discount=st.sampled_from([0.0, 0.9, 1.0]),
    gae_lambda=st.sampled_from([0.0, 0.8, 1.0]),
)
def test_every_agent_gets_the_advantages_of_its_own_steps(seed, T, B, discount, gae_lambda):
    transform = EstimateMultiAgentAdvantage(discount, gae_lambda)
    samples = make_samples(T, B, [transform])
    for n in range(2):  # the second batch goes through the same views
        batch = play(seed + n, T, B)
        fill(samples, batch)
        transform.transform_batch(samples)
        for agent in AGENTS:
            found = np.asarray(getattr(samples.agent.advantage, agent))
            expected = reference(batch, agent, discount, gae_lambda)
            np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
            alive = batch[f"alive.{agent}"]
            return_ = np.asarray(getattr(samples.agent.return_, agent))
            value = batch[f"value.{agent}"][:-1]
            np.testing.assert_allclose(return_, (expected + value) * alive, rtol=1e-5, atol=1e-5)


def test_where_no_flags_are_stored_everybody_lives_as_long_as_the_episode():
    transform = EstimateMultiAgentAdvantage(0.9, 0.8)
    info = {"reward": dict.fromkeys(AGENTS, np.float32(0))}
    samples = make_samples(9, 3, [transform], info)
    batch = play(5, 9, 3)
    fill(samples, batch)
    transform.transform_batch(samples)
    assert batch["truncated"].any()
    for agent in AGENTS:
        np.testing.assert_allclose(
            np.asarray(getattr(samples.agent.advantage, agent)),
            reference(batch, agent, 0.9, 0.8, ends=False),
            rtol=1e-5,
            atol=1e-5,
        )


def test_one_reward_can_be_that_of_all():
    transform = EstimateMultiAgentAdvantage(0.9, 0.8, reward="env.reward")
    samples = make_samples(6, 2, [transform], {"ignored": dict.fromkeys(AGENTS, np.float32(0))})
    batch = play(1, 6, 2)
    batch.update({f"ignored.{agent}": 0 for agent in AGENTS})
    fill(samples, batch)
    team = np.random.default_rng(2).normal(size=(6, 2)).astype(np.float32)
    np.asarray(samples.env.reward)[...] = team
    transform.transform_batch(samples)
    for agent in AGENTS:
        batch[f"reward.{agent}"] = team
        np.testing.assert_allclose(
            np.asarray(getattr(samples.agent.advantage, agent)),
            reference(batch, agent, 0.9, 0.8, ends=False),
            rtol=1e-5,
            atol=1e-5,
        )


@pytest.mark.parametrize("valid", [False, True])
def test_advantages_are_normalised_for_each_agent_over_what_counts(valid):
    estimate, normalize = EstimateMultiAgentAdvantage(0.9, 0.8), NormalizeMultiAgentAdvantage()
    samples = make_samples(12, 3, [estimate, normalize], valid=valid)
    rng = np.random.default_rng(0)
    counts = {agent: rng.random((12, 3)) < 0.7 for agent in AGENTS}
    advantage = {agent: rng.normal(i, i + 1, (12, 3)) for i, agent in enumerate(AGENTS)}
    for agent in AGENTS:
        np.asarray(getattr(samples.env.env_info.alive, agent))[...] = counts[agent]
        np.asarray(getattr(samples.agent.advantage, agent))[...] = advantage[agent]
    if valid:
        whole = rng.random((12, 3)) < 0.7
        np.asarray(samples.env.valid)[...] = whole
        counts = {agent: mask & whole for agent, mask in counts.items()}
    normalize.transform_batch(samples)
    for agent, mask in counts.items():
        chosen = np.float32(advantage[agent])[mask].astype(np.float64)
        expected = np.zeros((12, 3))
        expected[mask] = (chosen - chosen.mean()) / np.sqrt(((chosen - chosen.mean()) ** 2).mean())
        found = np.asarray(getattr(samples.agent.advantage, agent))
        np.testing.assert_allclose(found, expected, atol=1e-6)


def test_nobody_alive_gives_zeros_and_no_warning():
    estimate, normalize = EstimateMultiAgentAdvantage(0.9, 0.8), NormalizeMultiAgentAdvantage()
    samples = make_samples(3, 2, [estimate, normalize])
    np.asarray(samples.agent.advantage.fox)[...] = 4
    normalize.transform_batch(samples)
    assert not np.asarray(samples.agent.advantage.fox).any()


def test_samples_that_do_not_fit_are_refused():
    transform = EstimateMultiAgentAdvantage(0.9, 0.8)
    info = multi_agent_info(AGENTS)
    del info["alive"]
    with pytest.raises(ValueError, match=r"expected all of \['alive', .*'truncated'\] only"):
        make_samples(3, 2, [transform], info)
    with pytest.raises(ValueError, match=r"no field 'env\.env_info\.reward'"):
        make_samples(3, 2, [transform], {"x": np.float32(0)})
    single = Samples(
        agent=AgentSamples(action=None, agent_info=NamedTuple(value=np.float32(0))),
        env=EnvSamples(
            observation=None, reward=None, terminated=None, truncated=None, done=None, env_info=None
        ),
    )
    with pytest.raises(ValueError, match=r"agent_info\.value: expected a field for each agent"):
        transform.fields(single)


@pytest.mark.parametrize("name", ["discount", "gae_lambda"])
def test_fractions_out_of_range_are_named(name):
    with pytest.raises(ValueError, match=rf"EstimateMultiAgentAdvantage: {name}: .* got 1\.5"):
        EstimateMultiAgentAdvantage(**{"discount": 0.9, "gae_lambda": 0.9, name: 1.5})
    with pytest.raises(ValueError, match="NormalizeMultiAgentAdvantage: epsilon"):
        NormalizeMultiAgentAdvantage(epsilon=0)
