"""A replay over the buffer of a sampler: the same transitions whatever cage writes them, and no copy."""

from __future__ import annotations

from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.wrappers import FrameStackObservation
from replay_model import Model, Setup, Step
from test_uniform_replay import check

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.arrays import LazyFramesArray
from parllel.buffers.tree import buffer_leaves
from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.envs.states.random_state import generator_from, generator_state
from parllel.replays import UniformReplay
from parllel.samplers import BasicSampler, RecurrentSampler
from parllel.testing.dummy_agents import CountingAgent, RecurrentCountingAgent
from parllel.transforms import FinalObservations
from parllel_patterns import allocate_samples

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")


class NoisyEnv(gym.Env):
    """Every observation is different; episodes end in either way at random."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Discrete(3)

    def _observe(self):
        return self.np_random.normal(size=3).astype(np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return self._observe(), {}

    def step(self, action):
        ends = self.np_random.random(2) < 0.1
        reward = float(np.float32(self.np_random.normal()))
        return self._observe(), reward, bool(ends[0]), bool(ends[1]), {}

    def state(self):
        return {"generator": generator_state(self.np_random)}

    def load_state(self, state):
        self.np_random = generator_from(state["generator"])


class StackedEnv(FrameStackObservation):
    def __init__(self):
        super().__init__(NoisyEnv(), 3)


def synchronized(makers, **options):
    return [SynchronizedProcessCage(makers, n_workers=1, start_method="fork", **options)]


def singly(cls, makers, seeds, **options):
    more = {} if cls is Cage else {"start_method": "fork"}
    return [
        cls(make, seed=seed, index=i, **more, **options)
        for i, (make, seed) in enumerate(zip(makers, seeds, strict=True))
    ]


CAGES: dict[str, Any] = {
    "Cage": partial(singly, Cage),
    "ProcessCage": partial(singly, ProcessCage),
    "VectorizedCage": lambda makers, **options: [VectorizedCage(makers, **options)],
    "SynchronizedProcessCage": synchronized,
    "participating": partial(synchronized, participate=True),
}


class Sampling:
    """A sampler over a buffer of `n_batches` batches, and the batches that it has collected."""

    def __init__(self, kind, spec, n_batches, *, make=NoisyEnv, waits=False, frames=0):
        options = {"seeds": range(7, 7 + spec.B), "reset_automatically": not waits}
        self.cages = CAGES[kind]([make] * spec.B, **options)
        final = FinalObservations()
        agent = RecurrentCountingAgent(3, n_envs=spec.B) if waits else CountingAgent(3)
        handler = NumpyHandler(agent)
        self.samples = allocate_samples(
            self.cages, spec, handler, transforms=[final], n_batches=n_batches, frames=frames
        )
        cls = RecurrentSampler if waits else BasicSampler
        self.sampler = cls(spec, self.cages, handler, self.samples, batch_transforms=[final])

    def collect(self):
        return self.sampler.collect_batch(0)[0]


def add_to_model(model: Model, batch: Any) -> None:
    """Read a batch of a buffer that holds one."""
    env, agent = batch.env, batch.agent
    valid = np.asarray(env.valid) if hasattr(env, "valid") else np.ones(env.done.shape, bool)
    T, B = env.done.shape
    observation = np.array(agent.observation[: T + 1])
    final = np.array(agent.final_observation)
    for b in range(B):
        for t in range(T):
            truncated = bool(np.asarray(env.truncated)[t, b])
            step = Step(
                observation[t, b],
                int(np.asarray(agent.action)[t, b]),
                np.asarray(env.reward)[t, b],
                final[t, b] if truncated else observation[t + 1, b],
                bool(np.asarray(env.terminated)[t, b]),
                truncated,
                bool(valid[t, b]),
            )
            model.steps[b].append(step)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("kind", CAGES)
def test_every_cage_writes_the_transitions_into_the_replay(kind, waits):
    spec, N, n_step = BatchSpec(4, 2), 4, 2
    one = Sampling("VectorizedCage", spec, 1, waits=waits)
    many = Sampling(kind, spec, N, waits=waits)
    replay = UniformReplay(many.samples, batch_size=600, discount=0.9, n_step=n_step, seed=0)
    model = Model(Setup(T=4, B=2, N=N), n_step, 0.9, [[], []])
    with one.sampler, many.sampler:
        for _ in range(2 * N + 2):
            add_to_model(model, one.collect())
            replay.add(many.collect())
            check(Holder(model), replay)


class Holder:
    """What `check` wants to know of a writer."""

    def __init__(self, model):
        self.model = model


@pytest.mark.parametrize("kind", ["VectorizedCage", "SynchronizedProcessCage"])
def test_frames_are_stored_once_and_stacks_drawn_whole(kind):
    spec, N = BatchSpec(3, 2), 4
    one = Sampling("VectorizedCage", spec, 1, make=StackedEnv)
    many = Sampling(kind, spec, N, make=StackedEnv, frames=3)
    assert isinstance(many.samples.agent.observation, LazyFramesArray)
    replay = UniformReplay(many.samples, batch_size=600, discount=0.9, seed=0)
    model = Model(Setup(T=3, B=2, N=N, k=3), 1, 0.9, [[], []])
    with one.sampler, many.sampler:
        for _ in range(2 * N + 2):
            add_to_model(model, one.collect())
            replay.add(many.collect())
            check(Holder(model), replay)


@pytest.mark.parametrize("kind", CAGES)
def test_what_an_environment_writes_is_in_the_replay_already(kind):
    spec = BatchSpec(2, 2)
    many = Sampling(kind, spec, 5)
    samples = many.samples
    replay = UniformReplay(samples, batch_size=4, discount=0.9, seed=0)
    memory = [leaf[1] for leaf in replay._observe._leaves]
    addresses = [words.ctypes.data for words in memory]
    # Replay, sampler, handler and cage use one memory; workers map the same pages of it.
    (observation,) = [leaf for _, leaf in buffer_leaves(samples.agent.observation)]
    assert observation.block is samples.env.observation.block
    assert addresses == [observation.block.public().ctypes.data]
    if kind not in ("Cage", "VectorizedCage"):
        assert observation.storage == "managed"
    with many.sampler:
        for _ in range(3):
            batch = many.collect()
            assert batch is samples
            window = observation.block.window + observation.padding
            seen = np.array(observation[:3])
            stored = memory[0][window : window + 3].view(np.float32)
            np.testing.assert_array_equal(stored.reshape(3, 2, -1), seen)
            replay.add(batch)
    assert [words.ctypes.data for words in memory] == addresses


def test_final_observations_of_many_batches_are_those_of_one():
    spec, found = BatchSpec(3, 2), []
    for n_batches in (1, 4):
        sampling = Sampling("SynchronizedProcessCage", spec, n_batches)
        field = sampling.samples.agent.final_observation
        assert field.full_size == 3
        with sampling.sampler:
            for _ in range(9):
                batch = sampling.collect()
                cut = np.asarray(batch.env.truncated) & ~np.asarray(batch.env.terminated)
                found.append(np.array(batch.agent.final_observation)[cut])
    assert sum(len(one) for one in found) > 4
    for one, other in zip(found[:9], found[9:], strict=True):
        np.testing.assert_array_equal(one, other)


def drawn_numbers(replay: UniformReplay) -> list[np.ndarray]:
    drawn = replay.sample()
    found = [drawn.observation, drawn.next_observation, drawn.action, drawn.reward, drawn.discount]
    return [np.array(one) for one in found]


def resumed(kind: str, n_batches: int, states: list[Any], first: str) -> tuple[Sampling, Any]:
    """Return a sampling and its replay, restored in one of the two orders."""
    other = Sampling(kind, BatchSpec(2, 2), n_batches)
    replay = UniformReplay(other.samples, batch_size=300, discount=0.9, n_step=2, seed=0)
    other.sampler.handler.load_state(states[2])
    order = [(other.sampler, states[0]), (replay, states[1])]
    for part, state in order if first == "sampler" else order[::-1]:
        if state is not None:
            part.load_state(state)
    return other, replay


@pytest.mark.parametrize("first", ["sampler", "replay"])
@pytest.mark.parametrize("n_before", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("kind", ["VectorizedCage", "SynchronizedProcessCage"])
@pytest.mark.few(8)
def test_sampler_and_replay_go_on_together(kind, n_before, first):
    one = Sampling(kind, BatchSpec(2, 2), 3)
    replay = UniformReplay(one.samples, batch_size=300, discount=0.9, n_step=2, seed=0)
    with one.sampler:
        for _ in range(n_before):
            replay.add(one.collect())
        replay.sample()
        other, restored = resumed(
            kind, 3, [one.sampler.state(), replay.state(), one.sampler.handler.state()], first
        )
        with other.sampler:
            for _ in range(5):
                replay.add(one.collect())
                restored.add(other.collect())
                assert (
                    other.samples.env.done.block.window_number
                    == one.samples.env.done.block.window_number
                )
                for a, b in zip(drawn_numbers(replay), drawn_numbers(restored), strict=True):
                    np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("first", ["sampler", "replay"])
def test_environments_that_begin_anew_do_not_follow_the_steps_before(first):
    spec, n_step = BatchSpec(2, 2), 2
    one = Sampling("VectorizedCage", spec, 1)
    two = Sampling("VectorizedCage", spec, 4)
    replay = UniformReplay(two.samples, batch_size=300, discount=0.9, n_step=n_step, seed=0)
    model = Model(Setup(T=2, B=2, N=4), n_step, 0.9, [[], []])
    with one.sampler, two.sampler:
        for _ in range(6):
            add_to_model(model, one.collect())
            replay.add(two.collect())
        states = [
            two.sampler.state(environments=False),
            replay.state(),
            two.sampler.handler.state(),
        ]
        other, restored = resumed("VectorizedCage", 4, states, first)
        again = Sampling("VectorizedCage", spec, 1)
        again.sampler.handler.load_state(one.sampler.handler.state())
        again.sampler.load_state(one.sampler.state(environments=False))
    for steps in model.steps:
        if not (steps[-1].terminated or steps[-1].truncated):
            steps[-1].usable = False
    with other.sampler, again.sampler:
        for _ in range(6):
            add_to_model(model, again.collect())
            restored.add(other.collect())
            drawn = restored.sample()
            numbers = set(drawn.observation[:, -1].tolist())
            assert numbers == set(model.drawable())


def test_a_replay_that_was_not_saved_begins_anew_in_the_middle_of_its_buffer():
    one = Sampling("VectorizedCage", BatchSpec(2, 2), 3)
    with one.sampler:
        for _ in range(4):
            one.collect()
        other, replay = resumed(
            "VectorizedCage", 3, [one.sampler.state(), None, one.sampler.handler.state()], "sampler"
        )
    model = Model(Setup(T=2, B=2, N=3), 2, 0.9, [[], []])
    single = Sampling("VectorizedCage", BatchSpec(2, 2), 1)
    with other.sampler, single.sampler:
        for _ in range(4):
            single.collect()
        for _ in range(8):
            add_to_model(model, single.collect())
            replay.add(other.collect())
            check(Holder(model), replay)
