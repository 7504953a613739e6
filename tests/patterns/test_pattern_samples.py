from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import NamedArrayTuple, buffer_leaves
from parllel.buffers.tree import buffer_close
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.samplers import Plan
from parllel.seeding import Seeds
from parllel.testing.dummy_agents import CountingAgent
from parllel.testing.dummy_envs import CountingEnv
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage, NormalizeObservations
from parllel.types import BatchSpec
from parllel_patterns import allocate_eval_samples, allocate_samples, build_cages, default_storage

SPEC = BatchSpec(4, 2)
COUNTING = CountingAgent(4)


@pytest.fixture
def allocated():
    """Return a function that makes cages and samples, which are closed at the end."""
    kept = []

    def make(
        transforms=(),
        agent=COUNTING,
        spec=SPEC,
        parallel=False,
        evaluate=False,
        env=None,
        **options,
    ):
        cages = build_cages(
            partial(CountingEnv, **(env or {})),
            spec.B,
            seeds=Seeds(0),
            parallel=Plan(1) if parallel else False,
            start_method="fork",
        )
        kept.extend(cages)
        if evaluate:
            samples = allocate_eval_samples(cages)
        else:
            samples = allocate_samples(cages, spec, NumpyHandler(agent), transforms, **options)
        return cages, samples

    yield make
    while kept:
        kept.pop().close()


def layout(samples):
    return {
        path: (leaf.shape, leaf.dtype.name, leaf.padding) for path, leaf in buffer_leaves(samples)
    }


def test_the_fields_of_cages_and_agent(allocated):
    _, samples = allocated()
    assert layout(samples) == {
        "agent.action": ((4, 2), "int64", 0),
        "agent.agent_info.value": ((4, 2), "float32", 1),
        "agent.agent_info.draw": ((4, 2), "int32", 0),
        "agent.observation": ((4, 2, 3), "float32", 1),
        "env.observation": ((4, 2, 3), "float32", 1),
        "env.reward": ((4, 2), "float32", 0),
        "env.terminated": ((4, 2), "bool", 0),
        "env.truncated": ((4, 2), "bool", 0),
        "env.done": ((4, 2), "bool", 0),
    }
    assert samples.env.env_info is None


def test_what_the_agent_sees_is_what_the_environments_write(allocated):
    _, samples = allocated()
    assert samples.agent.observation is samples.env.observation
    _, samples = allocated([EstimateAdvantage(0.9, 0.9), NormalizeAdvantage()])
    assert samples.agent.observation is samples.env.observation
    assert layout(samples)["agent.advantage"] == ((4, 2), "float32", 0)
    assert layout(samples)["agent.return_"] == ((4, 2), "float32", 0)


def test_unless_a_transform_owns_it(allocated):
    _, samples = allocated([NormalizeObservations()], env={"layout": "image"})
    assert samples.agent.observation != samples.env.observation
    assert layout(samples)["agent.observation"] == ((4, 2, 2, 2, 3), "float32", 1)
    assert layout(samples)["env.observation"] == ((4, 2, 2, 2, 3), "uint8", 1)
    np.asarray(samples.agent.observation)[...] = 9
    assert not np.asarray(samples.env.observation).any()


def test_nested_observations(allocated):
    _, samples = allocated(env={"layout": "dict"})
    assert samples.agent.observation is samples.env.observation
    assert isinstance(samples.env.observation, NamedArrayTuple)
    found = layout(samples)
    assert found["env.observation.mark"] == ((4, 2, 1), "float32", 1)
    assert found["env.observation.clock._0"] == ((4, 2), "int32", 1)
    assert found["env.observation.clock._1"] == ((4, 2, 2), "float32", 1)


def test_infos_that_are_asked_for(allocated):
    infos = {"step": 0, "half": np.zeros(1)}
    cages, samples = allocated(env_info=infos)
    found = layout(samples)
    assert found["env.env_info.step"] == ((4, 2), "int64", 0)
    assert found["env.env_info.half"] == ((4, 2, 1), "float32", 0)
    [cage] = cages
    cage.set_samples_buffer(samples, slice(0, 2))
    cage.start_reset()
    cage.finish_row()
    for t in range(3):
        cage.start_row(t)
        cage.finish_row()
    assert np.asarray(samples.env.env_info.step).tolist() == [[1, 1], [2, 2], [3, 3], [0, 0]]
    assert np.asarray(samples.env.env_info.half)[2, 1].tolist() == [1.5]


@pytest.mark.parametrize(
    ("space", "expected"),
    [
        (spaces.Discrete(3), ((4, 2), "int64", 0)),
        (spaces.Box(-1, 1, (2,), np.float64), ((4, 2, 2), "float32", 0)),
        (spaces.MultiDiscrete([2, 3]), ((4, 2, 2), "int64", 0)),
        (spaces.MultiBinary(5), ((4, 2, 5), "int8", 0)),
    ],
    ids=str,
)
def test_actions_keep_their_integers(allocated, space, expected):
    env = {"action_space": space}
    _, samples = allocated(agent=RandomAgent(space, 0), env=env)
    assert layout(samples)["agent.action"] == expected
    assert samples.agent.agent_info is None


def test_the_storage_is_what_the_cages_need(allocated):
    here, samples = allocated()
    assert {leaf.storage for _, leaf in buffer_leaves(samples)} == {"local"}
    processes, samples = allocated(parallel=True)
    assert {leaf.storage for _, leaf in buffer_leaves(samples)} == {"managed"}
    assert (default_storage(here), default_storage(processes)) == ("local", "managed")
    assert default_storage([*here, *processes]) == "managed"
    assert isinstance(here[0], VectorizedCage)
    assert isinstance(processes[0], SynchronizedProcessCage)
    buffer_close(samples)


def test_the_storage_can_be_chosen(allocated):
    _, samples = allocated(storage={"env.*": "managed"}, transforms=[EstimateAdvantage(0.9, 0.9)])
    storages = {path: leaf.storage for path, leaf in buffer_leaves(samples)}
    managed = {path for path, storage in storages.items() if storage == "managed"}
    # What the agent sees is the environments' own array.
    assert managed == {path for path in storages if path.startswith("env.")} | {"agent.observation"}
    assert storages["agent.advantage"] == "local"
    _, samples = allocated(storage="shared", transforms=[EstimateAdvantage(0.9, 0.9)])
    assert {leaf.storage for _, leaf in buffer_leaves(samples)} == {"shared"}


@pytest.mark.parametrize("parallel", [False, True])
def test_evaluation_has_one_row(allocated, parallel):
    cages, samples = allocated(evaluate=True, parallel=parallel, spec=BatchSpec(9, 3))
    assert layout(samples) == {
        "agent.action": ((1, 3), "int64", 0),
        "env.observation": ((1, 3, 3), "float32", 1),
        "env.reward": ((1, 3), "float32", 0),
        "env.terminated": ((1, 3), "bool", 0),
        "env.truncated": ((1, 3), "bool", 0),
        "env.done": ((1, 3), "bool", 0),
    }
    assert samples.env.reward.storage == ("managed" if parallel else "local")
    cages[-1].set_samples_buffer(samples, slice(3 - cages[-1].n, 3))


@pytest.mark.parametrize(
    ("space", "path"),
    [
        (spaces.Discrete(3), "agent.action"),
        (
            spaces.Dict(left=spaces.Box(-1, 1, (2,)), right=spaces.MultiBinary(2)),
            "agent.action.right",
        ),
    ],
)
def test_fractions_are_no_actions_of_whole_numbers(allocated, space, path):
    agent = RandomAgent(spaces.Box(-1, 1), 0)
    if path.endswith("right"):
        agent = RandomAgent(spaces.Dict(left=space["left"], right=spaces.Box(-1, 1, (2,))), 0)
    agent.action_space = None  # only an example tells what it draws
    with pytest.raises(
        ValueError, match=rf"^CountingEnv: {path}: expected whole numbers, .* got float32"
    ):
        allocated(agent=agent, env={"action_space": space})


def test_without_cages_there_is_nothing_to_allocate():
    with pytest.raises(ValueError, match="cages: expected at least one"):
        allocate_samples([], SPEC, NumpyHandler(COUNTING))
    with pytest.raises(ValueError, match="cages: expected at least one"):
        allocate_eval_samples([])


def test_two_transforms_cannot_own_one_field(allocated):
    with pytest.raises(ValueError, match="two transforms write it"):
        allocated([NormalizeObservations(), NormalizeObservations()])
