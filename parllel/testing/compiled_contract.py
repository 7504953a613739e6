"""Contract of compiled environments: inherit it and define `make_env`, and pytest collects the tests.

    class TestMyWorld(CompiledEnvContract):
        def make_env(self, **options):
            return MyWorld(**options)

The expected episodes are computed by the functions of the class as plain Python, and compared bit for bit.
"""

from __future__ import annotations

import copy
import itertools
import types
import warnings
from collections.abc import Iterator
from typing import Any

import gymnasium as gym
import numpy as np
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env

from parllel.buffers.allocation import Field, allocate
from parllel.buffers.samples import AgentSamples, EnvSamples, Samples
from parllel.buffers.tree import buffer_leaves, buffer_map
from parllel.cages.spaces import example_of as example_of_space
from parllel.cages.spaces import stored_example
from parllel.cages.vectorized_cage import VectorizedCage
from parllel.envs.compiled.compiled_env import CompiledEnv
from parllel.envs.compiled.env_functions import Triple, example_of
from parllel.envs.states.env_state import env_state, load_env_state
from parllel.types import BatchSpec, Tree

__all__ = ["CompiledEnvContract"]


class CompiledEnvContract:
    """Tests of an environment class made by `compiled_env`, with random actions.

    Attributes:
        uses_rng: whether the episodes depend on the seed.
        seeds: seeds to play, at least two.
        n_steps: steps to play with each seed, over several episodes if they are short.
    """

    uses_rng = True
    seeds = (0, 1, 2)
    n_steps = 150

    def make_env(self, **options: Any) -> CompiledEnv:
        """Return a new environment. The options are `render_mode`, or none."""
        raise NotImplementedError(
            f"{type(self).__name__} must define make_env() to create an environment"
        )

    def actions(self, seed: int) -> Iterator[Any]:
        """Yield actions to play. Override if random ones never get far."""
        # The environment's own space must not be seeded, as environments of a class share it.
        space = copy.deepcopy(self.make_env().action_space)
        space.seed(seed)
        while True:
            yield space.sample()

    def play(self, env: Any, seed: int, *, actions: int | None = None) -> list[Any]:
        """Return the outcomes of resets and steps as comparable values. Only the first reset has a seed.

        actions: seed of the actions, if it is another one.
        """
        observation, _ = env.reset(seed=seed)
        found: list[Any] = [_bits(observation)]
        chosen = self.actions(seed if actions is None else actions)
        for action in itertools.islice(chosen, self.n_steps):
            observation, reward, terminated, truncated, _ = env.step(action)
            found.append((_bits(observation), _bits(reward), bool(terminated), bool(truncated)))
            if terminated or truncated:
                found.append(_bits(env.reset()[0]))
        return found

    def test_compiled_functions_return_the_bits_of_plain_python(self) -> None:
        for seed in self.seeds:
            env = self.make_env()
            # First in Python, which raises for a wrong index; compiled code would corrupt memory.
            expected = self.play(_PlainEnv(env), seed)
            _check_outcomes(self.play(env, seed), expected, seed)

    def test_equal_seeds_give_equal_episodes(self) -> None:
        runs, used = [], self.make_env()
        for seed in self.seeds:
            run = self.play(self.make_env(), seed, actions=0)
            # Also in an environment that was used before: a field that reset does not write would be seen.
            _check_outcomes(self.play(used, seed, actions=0), run, seed)
            runs.append(run)
        # Any of them: two seeds may draw the same number.
        runs += [self.play(used, seed, actions=0) for seed in range(100, 110)]
        differ = any(run != runs[0] for run in runs)
        assert differ == self.uses_rng, "with the same actions, episodes of different seeds " + (
            "differ, in spite of uses_rng = False" if differ else "are equal: set uses_rng = False"
        )

    def test_observations_are_in_their_space_and_rewards_finite(self) -> None:
        for seed in self.seeds:
            env = self.make_env()
            assert env.observation_space.contains(env.reset(seed=seed)[0])
            for action in itertools.islice(self.actions(seed), self.n_steps):
                observation, reward, terminated, truncated, _ = env.step(action)
                assert env.observation_space.contains(observation), observation
                assert np.isfinite(reward)
                if terminated or truncated:
                    env.reset()

    def test_episodes_are_truncated_at_the_step_limit_only(self) -> None:
        env = self.make_env()
        limit = env.functions.max_episode_steps
        env.reset(seed=self.seeds[0])
        for action in itertools.islice(self.actions(0), self.n_steps):
            _, _, terminated, truncated, _ = env.step(action)
            assert truncated == (env.elapsed_steps == limit)
            if terminated or truncated:
                env.reset()
                assert env.elapsed_steps == 0
        if limit is None:
            return
        # Without playing all of a long episode.
        env.load_state({**env.state(), "elapsed_steps": limit - 1})
        assert env.step(next(self.actions(0)))[3]

    def test_parameters_stay_as_they_were_set(self) -> None:
        env = self.make_env()
        names = list(env.functions.parameters)
        before = [getattr(env, name) for name in names]
        self.play(env, self.seeds[0])
        assert [getattr(env, name) for name in names] == before

    def test_a_state_continues_exactly(self) -> None:
        actions = list(itertools.islice(self.actions(1), 40))
        env, other = self.make_env(), self.make_env()
        env.reset(seed=self.seeds[0])
        for action in actions[:5]:
            if any(env.step(action)[2:4]):
                env.reset()
        other.reset(seed=self.seeds[1])
        state = env_state(env)
        assert state is not None
        load_env_state(other, state)
        for action in actions:
            mine, theirs = env.step(action), other.step(action)
            assert _bits(theirs[0]) == _bits(mine[0])
            assert theirs[1:4] == mine[1:4]
            if mine[2] or mine[3]:
                assert _bits(other.reset()[0]) == _bits(env.reset()[0])

    def test_rows_of_a_cage_equal_single_environments(self) -> None:
        T, n = self.n_steps, len(self.seeds)
        with VectorizedCage([self.make_env] * n, seeds=list(self.seeds)) as cage:
            samples = _samples_for(cage, BatchSpec(T, n))
            # An observation is written over an older one. What observe leaves out would be seen.
            for _, array in buffer_leaves(samples.env.observation):
                array[...] = 1
            cage.set_samples_buffer(samples, slice(0, n))
            cage.start_reset(0)
            cage.finish_row()
            chosen = [self.actions(seed) for seed in self.seeds]
            for t in range(T):
                for b in range(n):
                    samples.agent.action[t, b] = next(chosen[b])
                cage.start_row(t)
                cage.finish_row()
            for b, seed in enumerate(self.seeds):
                self._check_column(samples, b, seed)

    def _check_column(self, samples: Samples, b: int, seed: int) -> None:
        env, seen = self.make_env(), samples.env
        observation, _ = env.reset(seed=seed)
        _check_leaves(seen.observation[0, b], observation)
        actions = self.actions(seed)
        for t in range(len(seen.reward)):
            observation, reward, terminated, truncated, _ = env.step(next(actions))
            if terminated or truncated:
                observation, _ = env.reset()
            _check_leaves(seen.observation[t + 1, b], observation)
            expected = (np.asarray(seen.reward).dtype.type(reward), terminated, truncated)
            rows = (seen.reward, seen.terminated, seen.truncated)
            assert tuple(np.asarray(row)[t, b] for row in rows) == expected, f"row {t}, column {b}"

    def test_pictures_are_rgb_and_change_nothing(self) -> None:
        if self.make_env().functions.render is None:
            return
        env, watched = self.make_env(), self.make_env(render_mode="rgb_array")
        env.reset(seed=self.seeds[0])
        watched.reset(seed=self.seeds[0])
        for action in itertools.islice(self.actions(0), 5):
            picture = watched.render()
            assert (picture.dtype, picture.ndim, picture.shape[-1]) == (np.uint8, 3, 3)
            mine, theirs = watched.step(action), env.step(action)
            assert _bits(mine[0]) == _bits(theirs[0])
            if any(mine[2:4]):
                break

    def test_gymnasium_accepts_it(self) -> None:
        with warnings.catch_warnings():
            # About spaces that are unusual, for example without bounds.
            warnings.simplefilter("ignore")
            check_env(self.make_env(), skip_render_check=True)


class _PlainEnv:
    """The environment as its functions specify it, with nothing compiled."""

    def __init__(self, env: CompiledEnv) -> None:
        functions = env.functions
        memo: dict[Any, Any] = {}
        self._functions = Triple(*(_as_python(one, memo) for one in functions.plain))
        self._space: gym.Space[Any] = env.observation_space
        self._discrete = isinstance(env.action_space, spaces.Discrete)
        self._limit = functions.max_episode_steps
        self._record: Any = functions.new_states(1).view(np.recarray)[0]
        for name in functions.parameters:
            self._record[name] = getattr(env, name)
        self._rng = np.random.default_rng()
        self._n = 0

    def reset(self, *, seed: int | None = None) -> tuple[Any, None]:
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self._n = 0
        self._functions.reset(self._record, self._rng)
        return self._observation(), None

    def step(self, action: Any) -> tuple[Any, Any, Any, Any, None]:
        action = int(action) if self._discrete else np.array(action)
        reward, terminated = self._functions.step(self._record, action, self._rng)
        self._n += 1
        return self._observation(), float(reward), terminated, self._n == self._limit, None

    def _observation(self) -> Any:
        out = example_of(self._space)
        self._functions.observe(self._record, out)
        return out._asdict() if isinstance(self._space, spaces.Dict) else out


def _as_python(value: Any, memo: dict[Any, Any]) -> Any:
    """Return a copy of a function that calls no compiled functions.

    memo: functions converted before.
    """
    function = getattr(value, "py_func", value)
    if function in memo:
        return memo[function]
    known = dict(function.__globals__)
    memo[function] = plain = types.FunctionType(
        function.__code__,
        known,
        function.__name__,
        function.__defaults__,
        tuple(types.CellType() for _ in function.__closure__ or ()),
    )
    for name in _names_in(function.__code__):
        if hasattr(known.get(name), "py_func"):
            known[name] = _as_python(known[name], memo)
    for mine, cell in zip(plain.__closure__ or (), function.__closure__ or (), strict=True):
        held = cell.cell_contents
        mine.cell_contents = _as_python(held, memo) if hasattr(held, "py_func") else held
    return plain


def _names_in(code: types.CodeType) -> set[str]:
    inner = (_names_in(part) for part in code.co_consts if isinstance(part, types.CodeType))
    return set(code.co_names).union(*inner)


def _check_outcomes(found: list[Any], expected: list[Any], seed: int) -> None:
    # One by one: pytest explains two unequal lists by a search that can take minutes.
    for i, (mine, wanted) in enumerate(zip(found, expected, strict=False)):
        assert mine == wanted, f"seed {seed}, outcome {i}"
    assert len(found) == len(expected), f"seed {seed}"


def _samples_for(cage: VectorizedCage, spec: BatchSpec) -> Samples:
    observation = buffer_map(lambda x: Field(x, padding=1), stored_example(cage.spaces.observation))
    flags = dict.fromkeys(("terminated", "truncated", "done"), False)
    env = EnvSamples(observation=observation, reward=np.float32(0), env_info=None, **flags)
    action = np.asarray(example_of_space(cage.spaces.action))
    agent = AgentSamples(action=Field(action, dtype=action.dtype), agent_info=None)
    samples: Samples = allocate(Samples(agent=agent, env=env), spec)
    return samples


def _check_leaves(found: Tree, expected: Tree) -> None:
    leaves = dict(buffer_leaves(expected))
    for path, leaf in buffer_leaves(found):
        # Buffers hold float32 for float64.
        wanted = np.asarray(leaves[path]).astype(leaf.dtype)
        np.testing.assert_array_equal(np.asarray(leaf), wanted, err_msg=path)


def _bits(value: Any) -> Any:
    """Return arrays and numbers as bytes, which are equal only if all bits are."""
    if isinstance(value, dict):
        return {name: _bits(part) for name, part in value.items()}
    array = np.asarray(value)
    return array.dtype.str, array.shape, array.tobytes()
