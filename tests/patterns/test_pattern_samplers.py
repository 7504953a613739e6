from __future__ import annotations

from contextlib import ExitStack
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from parllel.agents import NumpyHandler
from parllel.arrays import LazyFramesArray
from parllel.buffers import buffer_leaves
from parllel.envs import ParallelEnvAdapter
from parllel.errors import ClosedError
from parllel.samplers import (
    AlternatingSampler,
    BasicSampler,
    EvalSampler,
    Plan,
    RecurrentSampler,
    RolloutSampler,
)
from parllel.seeding import Seeds
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_parallel_env import CountingParallelEnv
from parllel.torch import SmallPolicyHandler, TorchHandler, agent_for, agents_for
from parllel.transforms import (
    EstimateAdvantage,
    EstimateMultiAgentAdvantage,
    NormalizeAdvantage,
    NormalizeObservations,
)
from parllel.types import BatchSpec
from parllel_patterns import (
    allocate_eval_samples,
    allocate_samples,
    build_cages,
    build_eval_sampler,
    build_rollout_sampler,
    build_sampler,
)

SPEC = BatchSpec(8, 4)
CARTPOLE = partial(gym.make, "CartPole-v1")


@pytest.fixture
def stack():
    with ExitStack() as stack:
        yield stack


def cartpole(stack, **options):
    seeds = Seeds(0)
    cages = build_cages(CARTPOLE, SPEC.B, seeds=seeds, stack=stack, **options)
    return cages, agent_for(cages[0].spaces, seeds=seeds)


def transforms():
    return [NormalizeObservations()], [EstimateAdvantage(0.9, 0.9), NormalizeAdvantage()]


def assert_same(samples, expected):
    leaves, others = dict(buffer_leaves(samples)), dict(buffer_leaves(expected))
    assert set(leaves) - {"agent.noise"} == set(others) - {"agent.noise"}
    for path, leaf in others.items():
        if path != "agent.noise":
            np.testing.assert_array_equal(np.asarray(leaves[path]), np.asarray(leaf), err_msg=path)


def test_one_call_gives_the_sampler_that_is_built_by_hand(stack):
    cages, agent = cartpole(stack)
    made = build_sampler(SPEC, cages, TorchHandler(agent), *transforms())
    others, same_agent = cartpole(stack)
    handler, (step, batch) = TorchHandler(same_agent), transforms()
    samples = allocate_samples(others, SPEC, handler, [*step, *batch])
    by_hand = BasicSampler(SPEC, others, handler, samples, step, batch)
    assert type(made) is BasicSampler
    for _ in range(2):
        assert_same(made.collect_batch(0)[0], by_hand.collect_batch(0)[0])


def test_decorrelation_and_env_info_reach_their_places(stack):
    cages, agent = cartpole(stack)
    arguments = {"decorrelation_steps": 30, "decorrelation_seed": 0}
    info = {"answer": np.int64(0)}
    sampler = build_sampler(SPEC, cages, TorchHandler(agent), env_info=info, **arguments)
    assert "answer" in sampler.samples.env.env_info._fields
    sampler.close()
    cages, agent = cartpole(stack)
    samples, _ = build_sampler(SPEC, cages, TorchHandler(agent), **arguments).collect_batch(0)
    assert np.abs(np.asarray(samples.env.observation[0])).max() > 0.05  # where resets end


def test_cages_that_wait_get_a_sampler_that_resets_them(stack):
    cages, agent = cartpole(stack, reset_automatically=False)
    sampler = build_sampler(SPEC, cages, TorchHandler(agent))
    assert type(sampler) is RecurrentSampler
    assert sampler.samples.env.valid.shape == SPEC.shape


def test_a_class_of_samplers_can_be_asked_for(stack):
    cages, agent = cartpole(stack, parallel=Plan(1, 0, 2), start_method="fork")
    sampler = build_sampler(SPEC, cages, TorchHandler(agent), sampler_class=AlternatingSampler)
    assert type(sampler) is AlternatingSampler
    sampler.collect_batch(0)


@pytest.mark.parametrize("parallel", [False, True])
def test_rollouts_need_one_call(stack, parallel):
    options = {"parallel": Plan(1, 2), "start_method": "fork"} if parallel else {}
    cages, agent = cartpole(stack, **options)
    _, batch = transforms()
    sampler = build_rollout_sampler(SPEC, cages, SmallPolicyHandler(agent), batch)
    assert type(sampler) is (RolloutSampler if parallel else BasicSampler)
    others, same_agent = cartpole(stack)
    _, same_batch = transforms()
    plain = build_sampler(SPEC, others, SmallPolicyHandler(same_agent), [], same_batch)
    for _ in range(2):
        assert_same(sampler.collect_batch(0)[0], plain.collect_batch(0)[0])


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"batch_spec": (8, 4)}, r"batch_spec: expected a BatchSpec, got a tuple"),
        ({"cages": CountingEnv}, r"cages: expected a list of cages, as build_cages returns, got"),
        ({"handler": CountingAgent(4)}, r"handler: expected a Handler.*pass TorchHandler\(agent\)"),
        (
            {"step_transforms": None},
            "step_transforms: expected a list of transforms, got a NoneType",
        ),
        (
            {"batch_transforms": NormalizeAdvantage()},
            "batch_transforms: .* got a NormalizeAdvantage",
        ),
        (
            {"batch_transforms": [NormalizeAdvantage]},
            "expected transforms, got the class .*; call it",
        ),
    ],
)
def test_wrong_arguments_are_named(stack, wrong, message):
    cages, agent = cartpole(stack)
    right = {"batch_spec": SPEC, "cages": cages, "handler": TorchHandler(agent)}
    with pytest.raises(TypeError, match=message):
        build_sampler(**{**right, **wrong})


@pytest.mark.parametrize(
    ("build", "wrong", "message"),
    [
        (build_sampler, {"frame": 4}, r"^build_sampler: .* 'frame'; did you mean frames\?$"),
        (build_sampler, {"decorrelation": 4}, "'decorrelation'; did you mean decorrelation_s"),
        (
            build_rollout_sampler,
            {"dtypes": {}},
            r"^build_rollout_sampler: .* did you mean dtype\?$",
        ),
        (allocate_samples, {"n_batch": 4}, r"^allocate_samples: .*'n_batch'; .* n_batches\?$"),
    ],
)
def test_a_misspelt_argument_is_told_the_right_one(stack, build, wrong, message):
    cages, agent = cartpole(stack)
    right = {"batch_spec": SPEC, "cages": cages, "handler": SmallPolicyHandler(agent)}
    with pytest.raises(TypeError, match=message):
        build(**right, **wrong)
    if build is build_sampler:
        sampler = build_sampler(**right)
        with pytest.raises(TypeError, match=r"^build_eval_sampler: .* did you mean max_steps\?$"):
            build_eval_sampler(cages, sampler, 4, max_step=9)


def test_rollouts_need_a_policy_that_can_act_in_workers(stack):
    cages, agent = cartpole(stack)
    with pytest.raises(TypeError, match=r"such as SmallPolicyHandler\(agent\), got a TorchHandler"):
        build_rollout_sampler(SPEC, cages, TorchHandler(agent))


def test_evaluation_sees_the_world_as_training_does(stack):
    cages, agent = cartpole(stack)
    step, batch = transforms()
    sampler = build_sampler(SPEC, cages, TorchHandler(agent), step, batch)
    sampler.collect_batch(0)
    eval_cages = build_cages(CARTPOLE, 2, seeds=Seeds(1), stack=stack)
    made = build_eval_sampler(eval_cages, sampler, 4, max_steps=600)
    assert made.step_transforms == step
    others = build_cages(CARTPOLE, 2, seeds=Seeds(1), stack=stack)
    handler = sampler.handler
    samples = allocate_samples(others, BatchSpec(1, 2), handler, step)
    by_hand = EvalSampler(others, handler, samples, 4, step)
    lengths = [[t.length for t in one.collect_batch(0)[1]] for one in (made, by_hand)]
    assert lengths[0] == lengths[1]


def stacked():
    return gym.wrappers.FrameStackObservation(CountingEnv(), 3)


def test_evaluation_stores_the_types_that_training_does(stack):
    make_env = partial(CountingEnv, layout="float64")
    cages = build_cages(make_env, SPEC.B, seeds=Seeds(0), stack=stack)
    asked = {"env.observation": np.float64}
    sampler = build_sampler(SPEC, cages, NumpyHandler(CountingAgent(4)), dtype=asked)
    assert sampler.samples.env.observation.dtype == np.float64
    eval_cages = build_cages(make_env, 2, seeds=Seeds(1), stack=stack)
    made = build_eval_sampler(eval_cages, sampler, 2)
    assert made.samples.env.observation.dtype == np.float64


def test_evaluation_stores_frames_as_training_does(stack):
    cages = build_cages(stacked, SPEC.B, seeds=Seeds(0), stack=stack)
    sampler = build_sampler(SPEC, cages, NumpyHandler(CountingAgent(4)), frames=3)
    assert isinstance(sampler.samples.env.observation, LazyFramesArray)
    eval_cages = build_cages(stacked, 2, seeds=Seeds(1), stack=stack)
    made = build_eval_sampler(eval_cages, sampler, 2)
    assert made.samples.env.observation.frames == 3
    assert type(allocate_eval_samples(eval_cages).env.observation) is not LazyFramesArray


def make_team():
    return ParallelEnvAdapter(CountingParallelEnv({"a": 5, "b": 7}))


def test_several_agents_need_one_call(stack):
    cages = build_cages(make_team, SPEC.B, seeds=Seeds(0), stack=stack)
    agents = agents_for(cages[0].spaces, seeds=Seeds(1), sharing="independent")
    estimate = EstimateMultiAgentAdvantage(0.9, 0.9)
    sampler = build_sampler(SPEC, cages, TorchHandler(agents), [], [estimate])
    samples, _ = sampler.collect_batch(0)
    rewards = samples.env.env_info.reward
    assert set(rewards._fields) == set(agents.names)
    total = sum(np.asarray(rewards._get(name)) for name in agents.names)
    np.testing.assert_allclose(np.asarray(samples.env.reward), total)


def test_a_stack_closes_the_cages():
    with ExitStack() as stack:
        (cage,) = build_cages(CARTPOLE, 1, seeds=Seeds(0), stack=stack)
    with pytest.raises(ClosedError, match="used after close"):
        cage.reset_async()
