"""Several agents as one environment: alone, in cages, and from PettingZoo."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces
from hypothesis import given, settings
from hypothesis import strategies as st
from mpe2 import simple_spread_v3

from parllel import BatchSpec, Seeds
from parllel.agents import NumpyHandler, RandomAgent
from parllel.cages import SynchronizedProcessCage, VectorizedCage
from parllel.cages.stepping.make_envs import words_of
from parllel.envs import ParallelEnvAdapter, multi_agent_info
from parllel.envs.space_elements import zero_of
from parllel.samplers import BasicSampler
from parllel.testing.dummy_parallel_env import (
    CountingParallelEnv,
    counting_observation,
    counting_reward,
)
from parllel_patterns import allocate_samples

LIVES = {"fox": 2, "hen": 5, "dog": 3}
ENDS = {"fox": "truncated", "hen": "truncated", "dog": "terminated"}


def adapter(lives=LIVES, ends=ENDS):
    return ParallelEnvAdapter(CountingParallelEnv(lives, ends))


def expected_observation(i, life, step):
    """Return what agent number `i` is to see after `step` steps of an episode."""
    return counting_observation(i, step) * (step <= life)


def expected_step(lives, ends, step, actions):
    """Return rewards, alive, terminated, truncated by agent, and the flags of the environment."""
    alive = {name: step <= life for name, life in lives.items()}
    rewards = {
        name: counting_reward(i, step, actions[name]) if alive[name] else 0.0
        for i, name in enumerate(lives)
    }
    last = {name: step == life for name, life in lives.items()}
    flags = [
        {name: last[name] and ends.get(name, "terminated") == end for name in lives}
        for end in ("terminated", "truncated")
    ]
    over = step == max(lives.values())
    all_terminated = all(ends.get(name, "terminated") == "terminated" for name in lives)
    return rewards, alive, *flags, (over and all_terminated, over and not all_terminated)


def check_episode(lives, ends):
    env = adapter(lives, ends)
    env.action_space.seed(0)
    observation, info = env.reset(seed=3)
    assert env.parallel_env.seeds == [3]
    assert info["alive"] == dict.fromkeys(lives, True)
    for step in range(1, max(lives.values()) + 1):
        assert list(observation) == list(lives)
        actions = env.action_space.sample()
        observation, reward, terminated, truncated, info = env.step(actions)
        rewards, alive, own_terminated, own_truncated, over = expected_step(
            lives, ends, step, actions
        )
        for i, (name, life) in enumerate(lives.items()):
            np.testing.assert_array_equal(
                observation[name], expected_observation(i, life, step), err_msg=name
            )
        assert reward == pytest.approx(sum(rewards.values()))
        assert info["reward"] == pytest.approx(rewards)
        assert (info["alive"], info["terminated"], info["truncated"]) == (
            alive,
            own_terminated,
            own_truncated,
        )
        assert info["info"] == {name: {"step": step} for name in lives if alive[name]}
        assert (terminated, truncated) == over
        assert set(env.parallel_env.actions[-1]) == {name for name in lives if alive[name]}
    assert terminated or truncated


@settings(max_examples=40)
@given(
    st.lists(st.tuples(st.integers(1, 6), st.sampled_from(["terminated", "truncated"])), min_size=1)
)
def test_an_episode_is_what_it_should_be_whoever_leaves_when(agents):
    lives = {f"agent_{i}": life for i, (life, _) in enumerate(agents)}
    check_episode(lives, {f"agent_{i}": end for i, (_, end) in enumerate(agents)})


def test_spaces_are_dicts_in_the_order_of_the_agents():
    names = [f"agent_{i}" for i in range(11)]
    env = adapter(dict.fromkeys(names, 2), {})
    assert list(env.observation_space) == list(env.action_space) == names
    assert env.observation_space["agent_10"].shape == (12,)
    assert env.action_space["agent_10"] == spaces.Discrete(3)
    assert env.agents == tuple(names)


def test_rendering_and_closing_reach_the_environment():
    env = adapter()
    env.reset()
    env.step(env.action_space.sample())
    assert (env.render() == 1).all()
    assert env.render_mode == "rgb_array"
    env.close()
    assert env.parallel_env.closed == 1


def test_zeros_are_the_nearest_that_a_space_has():
    space = spaces.Dict(
        {
            "box": spaces.Box(np.float32([1, -3, -2]), np.float32([2, -1, 2])),
            "choice": spaces.Discrete(3, start=5),
            "flags": spaces.MultiBinary(2),
            "pair": spaces.Tuple((spaces.Discrete(2), spaces.MultiDiscrete([2, 3], start=[-4, 1]))),
        }
    )
    zero = zero_of(space)
    assert zero["box"].tolist() == [1, -1, 0]
    assert zero["box"].dtype == np.float32
    assert zero["choice"] == 5
    assert zero["flags"].tolist() == [0, 0]
    assert zero["pair"][0] == 0
    assert zero["pair"][1].tolist() == [-3, 1]
    assert space.contains({**zero, "choice": np.int64(zero["choice"])})
    with pytest.raises(TypeError, match="expected elements of a fixed size"):
        zero_of(spaces.Text(3))


# ---------------------------------------------------------------------- in cages


def cages_of(kind, factory, B):
    seeds = Seeds(4).spawn("environments", B)
    if kind == "vectorized":
        return VectorizedCage([factory] * B, seeds=seeds)
    return SynchronizedProcessCage([factory] * B, n_workers=1, participate=True, seeds=seeds)


def sample(kind, factory, T, B, n_batches):
    """Return copies of the fields of each batch, by path, and the final observations."""
    cage = cages_of(kind, factory, B)
    spec = BatchSpec(T, B)
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=1))
    info = multi_agent_info(cage.spaces.action)
    storage = "local" if kind == "vectorized" else "managed"
    samples = allocate_samples([cage], spec, handler, env_info=info, storage=storage)
    batches = []
    with BasicSampler(spec, [cage], handler, samples) as sampler:
        for n in range(n_batches):
            sampler.collect_batch(n * spec.size)
            env = samples.env
            batches.append(
                {
                    "observation": copied(env.observation),
                    "action": copied(samples.agent.action),
                    **{name: copied(part) for name, part in env.env_info._asdict().items()},
                    **{
                        f"env_{name}": np.array(getattr(env, name))
                        for name in ("reward", "terminated", "truncated", "done")
                    },
                }
            )
    return batches


def copied(tree):
    return {name: np.array(leaf) for name, leaf in tree._asdict().items()}


@pytest.mark.parametrize("kind", ["vectorized", "synchronized"])
def test_rows_hold_what_each_agent_saw_and_got(kind):
    T, B = 7, 3
    first, second = sample(kind, adapter, T, B, 2)
    episode = max(LIVES.values())
    for n, batch in enumerate((first, second)):
        for t in range(T):
            step = (n * T + t) % episode
            for b in range(B):
                actions = {name: batch["action"][name][t, b] for name in LIVES}
                rewards, *flags, over = expected_step(LIVES, ENDS, step + 1, actions)
                for i, (name, life) in enumerate(LIVES.items()):
                    np.testing.assert_array_equal(
                        batch["observation"][name][t, b], expected_observation(i, life, step)
                    )
                    assert batch["reward"][name][t, b] == pytest.approx(rewards[name], rel=1e-6)
                    for field, flag in zip(
                        ("alive", "terminated", "truncated"), flags, strict=True
                    ):
                        assert batch[field][name][t, b] == flag[name]
                assert batch["env_reward"][t, b] == pytest.approx(sum(rewards.values()), rel=1e-6)
                assert (batch["env_terminated"][t, b], batch["env_truncated"][t, b]) == over
                assert batch["env_done"][t, b] == any(over)


spread = partial(simple_spread_v3.parallel_env, max_cycles=5)


def make_spread():
    return ParallelEnvAdapter(spread())


@pytest.mark.parametrize("kind", ["vectorized", "synchronized"])
def test_an_environment_of_pettingzoo_gives_what_a_plain_loop_gives(kind):
    T, B = 8, 2
    (batch,) = sample(kind, make_spread, T, B, 1)
    for b, seed in enumerate(Seeds(4).spawn("environments", B)):
        env = spread()
        observations, _ = env.reset(seed=words_of(seed)[0])
        for t in range(T):
            for name in env.possible_agents:
                np.testing.assert_array_equal(
                    batch["observation"][name][t, b], observations[name], err_msg=f"{name} {t}"
                )
            actions = {name: batch["action"][name][t, b] for name in env.agents}
            observations, rewards, _, truncations, _ = env.step(actions)
            for name, reward in rewards.items():
                assert batch["reward"][name][t, b] == np.float32(reward)
                assert batch["alive"][name][t, b]
                assert batch["truncated"][name][t, b] == truncations[name]
            assert batch["env_reward"][t, b] == pytest.approx(sum(rewards.values()), rel=1e-6)
            assert batch["env_truncated"][t, b] == (t == 4)
            if not env.agents:
                observations, _ = env.reset()
        env.close()


def test_final_observations_are_those_of_all_agents():
    cage = VectorizedCage([adapter], seeds=[0])
    handler = NumpyHandler(RandomAgent(cage.spaces.action, seed=1))
    spec = BatchSpec(6, 1)
    samples = allocate_samples([cage], spec, handler)
    cage.set_samples_buffer(samples, slice(0, 1))
    cage.start_reset(0)
    cage.finish_row()
    for t in range(6):
        cage.start_random_row(t)
        cage.finish_row()
    (final,) = cage.collect_final_observations(truncated_only=True)
    cage.close()
    assert (final.row, final.column) == (4, 0)
    for i, (name, life) in enumerate(LIVES.items()):
        np.testing.assert_array_equal(final.observation[name], expected_observation(i, life, 5))


# ---------------------------------------------------------------------- what is refused


class Misbehaving(CountingParallelEnv):
    """Does one thing wrong, given by name."""

    def __init__(self, wrong):
        super().__init__({"a": 2, "b": 4})
        self.wrong = wrong

    def reset(self, seed=None, options=None):
        observations, infos = super().reset(seed, options)
        if self.wrong == "late":
            self.agents.remove("b")
        elif self.wrong == "unseen":
            del observations["b"]
        return observations, infos

    def step(self, actions):
        observations, *rest = super().step(actions)
        if self.wrong == "vanish":
            self.agents.remove("b")
        elif self.wrong == "newcomer":
            self.agents.append("c")
        elif self.wrong == "left out":
            del observations["a"]
        elif self.wrong == "comes back" and self._step == 3:
            self.agents.append("a")
        return observations, *rest


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ("vanish", "step: expected agent 'b' to be terminated or truncated before it left"),
        ("newcomer", "step: agent 'c' was not in the previous step; .* appear later"),
        ("comes back", "step: agent 'a' was not in the previous step"),
        (
            "left out",
            r"flags for agent 'a', which took part in the step, got only those of \[\['b'\], \['a', 'b'\]",
        ),
    ],
)
def test_agents_that_come_and_go_without_a_word_are_refused(wrong, message):
    env = ParallelEnvAdapter(Misbehaving(wrong))
    env.reset()

    def play():
        for _ in range(3):
            env.step(env.action_space.sample())

    with pytest.raises(ValueError, match=message):
        play()


def test_agents_who_are_not_there_at_first_are_refused():
    env = ParallelEnvAdapter(Misbehaving("late"))
    with pytest.raises(
        ValueError, match=r"reset: expected all possible agents \['a', 'b'\], got \['a'\]; agents"
    ):
        env.reset()


def test_agents_without_an_observation_at_first_are_refused():
    env = ParallelEnvAdapter(Misbehaving("unseen"))
    with pytest.raises(
        ValueError, match=r"reset: expected an observation for each .* \['a'\]; \['b'\] are missing"
    ):
        env.reset()


@pytest.mark.parametrize("name", ["", "_private", "a.b", 3])
def test_names_that_cannot_be_fields_are_refused(name):
    with pytest.raises(ValueError, match="possible_agents: expected names without dots"):
        ParallelEnvAdapter(CountingParallelEnv({name: 2}))


def test_an_environment_needs_agents():
    with pytest.raises(ValueError, match="possible_agents: expected at least one, got none"):
        ParallelEnvAdapter(CountingParallelEnv({}))
