"""One leaf of a Dict is normalised: the agent sees the whole Dict, also where an episode ends."""

from __future__ import annotations

import contextlib
from functools import partial

import gymnasium as gym
import numpy as np
import pytest

from parllel.agents import Agent, NumpyHandler
from parllel.arrays import LazyFramesArray
from parllel.buffers import NamedTuple, buffer_leaves
from parllel.samplers import BasicSampler, EvalSampler
from parllel.seeding import Seeds
from parllel.transforms import EstimateAdvantage, NormalizeObservations
from parllel.types import BatchSpec
from parllel_patterns import allocate_eval_samples, allocate_samples, build_cages

SPEC = BatchSpec(5, 2)
BOX = gym.spaces.Box(-100, 100, (2,), np.float32)


class Drifting(gym.Env):
    """Observations that random numbers make, in a Dict; truncated after three steps."""

    action_space = gym.spaces.Discrete(2)

    def __init__(self, names=("v", "w"), nested=False):
        inner = gym.spaces.Dict(dict.fromkeys(names, BOX))
        self.nested = nested
        self.observation_space = gym.spaces.Dict(inner=inner) if nested else inner

    def _look(self):
        leaves = {
            name: self.np_random.normal(5, 2, 2).astype(np.float32)
            for name in (self.observation_space["inner"] if self.nested else self.observation_space)
        }
        return {"inner": leaves} if self.nested else leaves

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.t = 0
        return self._look(), {}

    def step(self, action):
        self.t += 1
        return self._look(), 0.0, False, self.t == 3, {}


class Looking(Agent):
    """Values are weighted sums of all leaves, so each leaf shows; what it saw last is remembered."""

    names = ("v", "w")

    def step(self, observation, *, env_indices=slice(None), noise=None):
        self.seen = observation
        n = len(self.leaves(observation)[0])
        return np.zeros(n, np.int64), NamedTuple(value=self.value(observation))

    def value(self, observation, *, env_indices=slice(None)):
        leaves = self.leaves(observation)
        return sum(10.0**i * leaf.sum(axis=1) for i, leaf in enumerate(leaves)).astype(np.float32)

    def leaves(self, observation):
        found = dict(buffer_leaves(observation))
        return [np.asarray(found[name]) for name in sorted(found)]


@pytest.fixture
def built():
    with contextlib.ExitStack() as stack:

        def build(steps, evaluate=False, **env):
            estimate = EstimateAdvantage(0.9, 0.9)
            cages = build_cages(partial(Drifting, **env), SPEC.B, seeds=Seeds(3))
            for cage in cages:
                stack.callback(cage.close)
            handler = NumpyHandler(Looking())
            samples = allocate_samples(cages, SPEC, handler, [*steps, estimate])
            sampler = BasicSampler(SPEC, cages, handler, samples, steps, [estimate])
            if not evaluate:
                return sampler
            cages = build_cages(partial(Drifting, **env), 1, seeds=Seeds(4))
            stack.callback(cages[0].close)
            eval_samples = allocate_eval_samples(cages)
            return sampler, EvalSampler(cages, handler, eval_samples, 1, steps)

        yield build


def reference(rows, mean, var):
    return np.clip((rows - mean) / np.sqrt(var + 1e-8), -10, 10)


@pytest.mark.parametrize(
    "arguments",
    [("env.observation.v",), ("env.observation.v", "agent.observation.v")],
    ids=["by default", "explicit"],
)
def test_one_leaf_is_normalised_and_the_others_are_as_they_were(built, arguments):
    sampler = built([NormalizeObservations(*arguments)])
    samples = sampler.samples
    assert samples.agent.observation._fields == ("v", "w")
    assert samples.agent.observation.w == samples.env.observation.w  # not a copy
    mean, var = np.zeros(2), np.ones(2)
    seen = np.empty((0, 2))
    for _ in range(3):
        sampler.collect_batch(0)
        v, w = (np.asarray(leaf) for leaf in samples.env.observation)
        np.testing.assert_allclose(
            np.asarray(samples.agent.observation.v), reference(v, mean, var), rtol=1e-4, atol=1e-5
        )
        np.testing.assert_array_equal(np.asarray(samples.agent.observation.w), w)
        assert np.asarray(samples.env.truncated).any()
        # Values of steps show that the agent was given both; those of ends are tested below.
        expected = np.asarray(samples.agent.observation.v).sum(2) + 10 * w.sum(2)
        np.testing.assert_allclose(np.asarray(samples.agent.agent_info.value), expected, rtol=1e-4)
        seen = np.concatenate([seen, v.reshape(-1, 2)])
        mean, var = seen.mean(axis=0), seen.var(axis=0)
    np.testing.assert_allclose(sampler.stats["NormalizeObservations/v/mean"], mean, rtol=1e-6)


@pytest.mark.parametrize("nested", [False, True])
def test_final_observations_and_evaluations_keep_the_dict(built, nested):
    path = "env.observation.inner.v" if nested else "env.observation.v"
    normalize = NormalizeObservations(path)
    sampler, eval_sampler = built([normalize], evaluate=True, nested=nested)
    values = []
    final_value = sampler.handler.final_value
    sampler.handler.final_value = lambda *a: (values.append(a[2]), final_value(*a))
    samples, _ = sampler.collect_batch(0)
    [seen] = values
    found = dict(buffer_leaves(seen))
    names = [f"inner.{name}" for name in "vw"] if nested else ["v", "w"]
    assert sorted(found) == names
    np.testing.assert_array_equal(found[names[0]], np.clip(found[names[0]], -10, 10))
    truncated = np.asarray(samples.env.truncated)
    expected = found[names[0]].sum(1) + 10 * found[names[1]].sum(1)
    np.testing.assert_allclose(np.asarray(samples.agent.final_value)[truncated], expected, 1e-5)

    eval_sampler.collect_batch(0)
    shown = dict(buffer_leaves(sampler.handler.agent.seen))
    assert sorted(shown) == names
    assert np.abs(shown[names[0]]).max() < 4  # of about 5 before
    assert np.abs(shown[names[1]]).max() > 1


def test_two_leaves_by_two_transforms(built):
    steps = [
        NormalizeObservations("env.observation.v"),
        NormalizeObservations("env.observation.w", clip=0.5),
    ]
    sampler = built(steps)
    for _ in range(2):
        samples, _ = sampler.collect_batch(0)
    assert np.abs(np.asarray(samples.agent.observation.w)).max() == 0.5
    assert np.abs(np.asarray(samples.agent.observation.v)).max() > 0.5
    final = NamedTuple(v=np.full((1, 2), 5.0, np.float32), w=np.full((1, 2), 50.0, np.float32))
    final = sampler.final_chain.as_seen(final)
    assert final.w.tolist() == [[0.5, 0.5]]
    np.testing.assert_allclose(final.v[0], reference(5.0, *moments_of(steps[0])), 1e-4, 1e-5)
    names = {name for name in sampler.stats if name.endswith("mean")}
    assert names == {"NormalizeObservations/v/mean", "NormalizeObservations/w/mean"}


def moments_of(transform):
    [state] = transform.state().values()
    return state["mean"], state["var"]


def test_the_agent_may_be_shown_one_leaf_alone(built):
    sampler = built([NormalizeObservations("env.observation.v", "agent.observation")])
    samples, _ = sampler.collect_batch(0)
    assert samples.agent.observation.shape == (5, 2, 2)
    assert np.asarray(samples.agent.final_value).any()


def test_a_leaf_on_the_way_to_what_the_agent_sees(built):
    steps = [
        NormalizeObservations("env.observation.v", "agent.halfway"),
        NormalizeObservations("agent.halfway", "agent.observation.v", clip=0.25),
    ]
    sampler = built(steps)
    for _ in range(2):
        samples, _ = sampler.collect_batch(0)
    assert np.abs(np.asarray(samples.agent.observation.v)).max() == 0.25
    final = {"v": np.full((1, 2), 50.0, np.float32), "w": np.ones((1, 2), np.float32)}
    final = sampler.final_chain.as_seen(final)
    assert final["v"].tolist() == [[0.25, 0.25]]
    assert final["w"].tolist() == [[1.0, 1.0]]


def test_what_cannot_be_is_refused_at_allocation(built):
    with pytest.raises(ValueError, match=r"needs the field env\.observation\.x: 'x' is not"):
        built([NormalizeObservations("env.observation.x")])
    with pytest.raises(ValueError, match=r"agent\.observation\.v: two transforms write it"):
        built([NormalizeObservations("env.observation.v")] * 2)
    box = build_cages(lambda: gym.make("CartPole-v1"), 1, seeds=Seeds(0))
    with box[0], pytest.raises(ValueError, match=r"agent\.observation\.v: .* is one array"):
        allocate_samples(
            box,
            BatchSpec(2, 1),
            NumpyHandler(Looking()),
            [NormalizeObservations("env.observation", "agent.observation.v")],
        )


def test_a_leaf_beside_stacks_of_frames():
    class Filming(gym.Env):
        observation_space = gym.spaces.Dict(
            camera=gym.spaces.Box(0, 255, (3, 4), np.uint8), speed=BOX
        )
        action_space = gym.spaces.Discrete(2)

        def reset(self, *, seed=None, options=None):
            super().reset(seed=seed)
            self.frames = [np.full(4, i, np.uint8) for i in range(3)]
            return self._look(), {}

        def step(self, action):
            self.frames = [*self.frames[1:], self.frames[-1] + np.uint8(1)]
            return self._look(), 0.0, False, False, {}

        def _look(self):
            return {"camera": np.stack(self.frames), "speed": np.full(2, 99, np.float32)}

    class Still(Agent):
        def step(self, observation, *, env_indices=slice(None), noise=None):
            self.camera = np.array(observation.camera)
            return np.zeros(len(observation.speed), np.int64), None

    cages = build_cages(Filming, 1, seeds=Seeds(0))
    handler, frames = NumpyHandler(Still()), {"env.observation.camera": 3}
    with cages[0]:
        spec, steps = BatchSpec(2, 1), [NormalizeObservations("env.observation.speed")]
        samples = allocate_samples(cages, spec, handler, steps, frames=frames)
        assert isinstance(samples.agent.observation.camera, LazyFramesArray)
        samples, _ = BasicSampler(spec, cages, handler, samples, steps).collect_batch(0)
        assert handler.agent.camera[0, :, 0].tolist() == [1, 2, 3]
        assert np.asarray(samples.agent.observation.speed).max() == 10
        whole = [NormalizeObservations()]
        with pytest.raises(ValueError, match="frames: expected 0, because a transform"):
            allocate_samples(cages, spec, handler, whole, frames=frames)


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("a.b", "dots separate"),
        ("", "which is empty"),
        ("__x", "two underscores"),
        ("_key", "'_key'"),
    ],
)
@pytest.mark.parametrize("evaluate", [False, True])
def test_keys_that_cannot_be_names_of_fields(name, reason, evaluate):
    cages = build_cages(partial(Drifting, (name, "w")), 1, seeds=Seeds(0))
    allocate = partial(allocate_samples, cages, BatchSpec(2, 1), NumpyHandler(Looking()))
    if evaluate:
        allocate = partial(allocate_eval_samples, cages)
    message = rf"^env\.observation\.{name}: .*{reason}.*renam"
    with cages[0], pytest.raises(ValueError, match=message):
        allocate()


def test_keys_that_are_numbers():
    class Numbered(Drifting):
        observation_space = gym.spaces.Dict({0: BOX, 1: BOX})

        def __init__(self):
            pass

        nested = False

    cages = build_cages(Numbered, 1, seeds=Seeds(0))
    with cages[0], pytest.raises(ValueError, match=r"^env\.observation\.0: .* got the key 0"):
        allocate_samples(cages, BatchSpec(2, 1), NumpyHandler(Looking()))


@pytest.mark.parametrize("name", ["joint angles", "a-b", "class", "_0", "T", "position/1", "*"])
def test_keys_that_are_only_unusual(name):
    cages = build_cages(partial(Drifting, (name, "w")), 2, seeds=Seeds(0))
    handler, steps = NumpyHandler(Looking()), [NormalizeObservations(f"env.observation.{name}")]
    with cages[0]:
        samples = allocate_samples(cages, SPEC, handler, steps)
        sampler = BasicSampler(SPEC, cages, handler, samples, steps)
        for _ in range(2):
            samples, _ = sampler.collect_batch(0)
        assert np.abs(np.asarray(getattr(samples.agent.observation, name))).max() < 5
