"""Contract of what vector environments in the form of other libraries need of a cage.

Resets by mask, with seeds and options; rows that reset what waits; infos that no buffer declares; attributes
and calls by environment. The references are plain loops over environments, and gymnasium's SyncVectorEnv.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import pytest
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parllel.errors import WrongStateError
from parllel.testing.cages.cage_hooks import FIRST, CageHooks, run_groups

ROWS = 24  # several episodes of each environment


class RecordsResets(gym.Wrapper[Any, Any, Any, Any]):
    """Puts the arguments of the last reset, and values of several types, into the info of each step."""

    def __init__(self, env: gym.Env[Any, Any]) -> None:
        super().__init__(env)
        self.asked: Any = None
        self.steps = 0

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[Any, dict[str, Any]]:
        """Remember the arguments."""
        # An empty dict, which SyncVectorEnv leaves of options with only a mask, is none.
        self.asked = seed, options or None
        observation, info = self.env.reset(seed=seed, options=options)
        return observation, {**info, "options": options or None}

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Add to the info."""
        self.steps += 1
        observation, reward, terminated, truncated, info = self.env.step(action)
        info.update(number=np.float64(self.steps / 8), flag=self.steps % 2 == 0)
        if self.steps % 5 == 0:
            info["sometimes"] = np.arange(self.steps % 3)
        return observation, reward, terminated, truncated, info


class NumberInfos(gym.Wrapper[Any, Any, Any, Any]):
    """Infos of numbers only, the same keys in each step."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Replace the info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        step = int(info["step"])
        numbers = {"x": np.float64(step / 3), "y": float(step), "n": step, "ok": step % 2 == 0}
        return observation, reward, terminated, truncated, {**numbers, "f": np.float32(step / 3)}


class LongInfos(gym.Wrapper[Any, Any, Any, Any]):
    """Infos that fit no mail box of a worker, now and then."""

    def step(self, action: Any) -> tuple[Any, Any, bool, bool, dict[str, Any]]:
        """Add an array to the info."""
        observation, reward, terminated, truncated, info = self.env.step(action)
        if info["step"] % 2:
            info["long"] = np.arange(40_000)
        return observation, reward, terminated, truncated, info


def wrapped(make: Any, wrapper: Any) -> Any:
    """Make an environment and wrap it."""
    return wrapper(make())


def times(env: Any, factor: int, plus: int = 0) -> float:
    """Return a number that shows which environment was called with which arguments."""
    return float(env.get_wrapper_attr("gravity")) * factor + plus


class CageVectorContract(CageHooks):
    """Tests of resets by mask, rows with next-step resets, infos, attributes and calls by list.

    Attributes:
        exact_infos: whether infos have the types that the environments gave them; a native vector environment
            stacks them.
        resets_early: whether an environment that waits for a reset has been reset already, too early for
            seeds and options.
    """

    exact_infos = True
    resets_early = False

    def plain(self, wrapper: Any = RecordsResets, **options: Any) -> list[Any]:
        """Return factories of the tests' environments in a wrapper."""
        return [partial(wrapped, make, wrapper) for make in self.factories(**options)]

    def same(self, one: dict[str, Any], other: dict[str, Any]) -> bool:
        """Return whether two infos are equal."""
        return one.keys() == other.keys() and all(
            np.array_equal(value, other[key])
            and (type(value) is type(other[key]) or not self.exact_infos)
            for key, value in one.items()
        )

    def cells(self, samples: Any, t: int) -> np.ndarray[Any, Any]:
        """Return the cage's columns of an observation row, copied."""
        return np.array(samples.env.observation[t][FIRST : FIRST + self.n])

    def choose(self, k: int) -> np.ndarray[Any, Any]:
        """Return a mask that changes with k, never empty."""
        mask = np.array([(i + k) % 3 == 0 for i in range(self.n)])
        mask[k % self.n] = True
        return mask

    @pytest.mark.parametrize("automatic", [True, False], ids=["automatic", "wait"])
    def test_resets_by_mask_with_seeds_and_options(self, automatic: bool) -> None:
        if self.resets_early and not automatic:
            pytest.skip(
                "a seed for an environment that has been reset already begins one more episode"
            )
        cage, samples = self.bound(
            self.plain(), T=1, info=False, reset_automatically=automatic, infos=True
        )
        envs = [make() for make in self.plain()]
        rng = np.random.default_rng(0)
        waits = np.ones(self.n, bool)
        with cage:
            seeds: list[Any] = [100 + i for i in range(self.n)]
            run_groups(cage, "start_reset", 1, seeds=seeds)
            expected = [env.reset(seed=seed)[0] for env, seed in zip(envs, seeds, strict=True)]
            waits[:] = False
            np.testing.assert_array_equal(self.cells(samples, 1), np.array(expected))
            for k in range(ROWS):
                actions = rng.integers(0, 4, self.n)
                for i in range(self.n):
                    samples.agent.action[0, FIRST + i] = actions[i]
                run_groups(cage, "start_row", 0)
                for i, env in enumerate(envs):
                    if waits[i]:
                        expected[i] = np.zeros_like(expected[i])
                        continue
                    expected[i], _, terminated, truncated, _ = env.step(int(actions[i]))
                    if terminated or truncated:
                        waits[i] = not automatic
                        if automatic:
                            expected[i] = env.reset()[0]
                np.testing.assert_array_equal(self.cells(samples, 1), np.array(expected))
                np.testing.assert_array_equal(cage.needs_reset, waits)
                # Any environments, whether they wait or are in the middle of an episode.
                mask = self.choose(k)
                given = [None if (i + k) % 2 else 7 * k + i for i in range(self.n)]
                options = None if k % 3 else {"k": k}
                run_groups(cage, "start_reset", 1, which=mask, seeds=given, options=options)
                infos = cage.collect_infos().infos
                for i in np.flatnonzero(mask).tolist():
                    expected[i], info = envs[i].reset(seed=given[i], options=options)
                    waits[i] = False
                    assert infos[i] == info
                assert [info == {} for info in infos] == (~mask).tolist()
                np.testing.assert_array_equal(self.cells(samples, 1), np.array(expected))
                np.testing.assert_array_equal(cage.needs_reset, waits)
            assert cage.env_apply(_asked) == [env.asked for env in envs]

    def test_a_mask_without_seeds_touches_nothing_else(self) -> None:
        cage, samples = self.bound(self.factories(), T=2)
        with cage:
            run_groups(cage, "start_reset", 0)
            before = self.cells(samples, 0)
            mask = self.choose(1)
            run_groups(cage, "start_reset", 0, which=mask)
            changed = (self.cells(samples, 0) != before).any(axis=1)
            np.testing.assert_array_equal(changed, mask)
            # None at all is a valid choice: a caller need not look first.
            run_groups(cage, "start_reset", 0, which=np.zeros(self.n, bool))
            np.testing.assert_array_equal((self.cells(samples, 0) != before).any(axis=1), mask)
            assert cage.collect_completed_trajs() == []

    @pytest.mark.parametrize("wrapper", [RecordsResets, NumberInfos, LongInfos])
    def test_rows_that_reset_what_waits_are_gymnasiums_next_step(self, wrapper: Any) -> None:
        makes = self.plain(wrapper)
        cage, samples = self.bound(makes, T=2, info=False, reset_automatically=False, infos=True)
        reference = SyncVectorEnv(makes, autoreset_mode=AutoresetMode.NEXT_STEP)
        seeds: list[int | None] = [3 + i for i in range(self.n)]
        rng = np.random.default_rng(1)
        with cage:
            run_groups(cage, "start_reset", 0, seeds=seeds)
            expected, infos = reference.reset(seed=seeds)
            np.testing.assert_array_equal(self.cells(samples, 0), expected)
            self.compare_infos(cage.collect_infos().infos, infos)
            for k in range(ROWS):
                t = k % 2
                actions = rng.integers(0, 4, self.n)
                for i in range(self.n):
                    samples.agent.action[t, FIRST + i] = actions[i]
                run_groups(cage, "start_row_or_reset", t)
                expected, reward, terminated, truncated, infos = reference.step(actions)
                np.testing.assert_array_equal(self.cells(samples, t + 1), expected)
                mine = slice(FIRST, FIRST + self.n)
                np.testing.assert_array_equal(samples.env.reward[t][mine], reward)
                np.testing.assert_array_equal(samples.env.terminated[t][mine], terminated)
                np.testing.assert_array_equal(samples.env.truncated[t][mine], truncated)
                np.testing.assert_array_equal(cage.needs_reset, terminated | truncated)
                if k % 4 != 3:  # rows may be left out
                    found = cage.collect_infos()
                    assert found.finals == {}
                    self.compare_infos(found.infos, infos)

    def compare_infos(self, found: Sequence[dict[str, Any]], expected: dict[str, Any]) -> None:
        """Compare infos by environment with those that gymnasium has stacked."""
        keys = {key for info in found for key in info}
        assert {*keys, *(f"_{key}" for key in keys)} == expected.keys()
        for key in keys:
            has = expected[f"_{key}"]
            assert [key in info for info in found] == has.tolist()
            for i in np.flatnonzero(has).tolist():
                value, stacked = found[i][key], expected[key][i]
                if self.exact_infos:  # an element of an array of numbers is a numpy number
                    assert np.asarray(value).dtype == np.asarray(stacked).dtype, key
                np.testing.assert_array_equal(value, stacked)

    def test_finals_are_the_last_steps_of_episodes(self) -> None:
        makes = self.plain(RecordsResets, reuse=True)
        cage, samples = self.bound(makes, T=1, info=False, infos=True)
        envs = [make() for make in makes]
        ends = 0
        with cage:
            run_groups(cage, "start_reset", 0, seeds=list(range(self.n)))
            for i, env in enumerate(envs):
                env.reset(seed=i)
            for _ in range(ROWS):
                for i in range(self.n):
                    samples.agent.action[0, FIRST + i] = 1
                run_groups(cage, "start_row", 0)
                infos, finals = cage.collect_infos()
                expected: dict[int, Any] = {}
                for i, env in enumerate(envs):
                    observation, _, terminated, truncated, info = env.step(1)
                    if terminated or truncated:
                        expected[i] = np.array(observation), info
                        _, info = env.reset()
                    assert self.same(infos[i], info)
                assert finals.keys() == expected.keys()
                for i, (observation, info) in expected.items():
                    np.testing.assert_array_equal(finals[i][0], observation)
                    assert self.same(finals[i][1], info)
                ends += len(finals)
            assert ends > 0
            # The caller follows the episodes: nothing is left behind that nobody collects.
            assert cage.collect_completed_trajs() == []
            assert cage.collect_final_observations() == []

    def test_infos_are_reported_once(self) -> None:
        cage, _ = self.bound(self.factories(), infos=True)
        with cage:
            run_groups(cage, "start_reset", 0)
            assert all(cage.collect_infos().infos)
            infos, finals = cage.collect_infos()
            assert list(infos) == [{}] * self.n
            assert finals == {}

    def test_attributes_and_calls_by_environment(self) -> None:
        cage, _ = self.bound(self.factories())
        with cage:
            values = [float(2 + i) for i in range(self.n)]
            cage.set_attr("gravity", values)
            assert self.each(cage.gravity) == values
            assert cage.env_apply(times, arguments=[(10, i) for i in range(self.n)]) == [
                value * 10 + i for i, value in enumerate(values)
            ]
            last = self.n - 1
            assert cage.env_apply(times, which=[last], arguments=[(3,)]) == [values[last] * 3]
            order = [last, 0] if last else [0]
            assert cage.env_apply(times, which=order, arguments=[(1,)] * len(order)) == [
                values[i] for i in order
            ]
            assert cage.env_apply(times, which=[]) == []
            with pytest.raises(AttributeError, match="gravitty"):
                cage.set_attr("gravitty", values)
            with pytest.raises(TypeError, match="positional argument"):
                cage.env_apply(times)
            # An error in a call leaves the environments usable.
            run_groups(cage, "start_reset", 0)

    def test_wrong_arguments_are_refused_before_anything_happens(self) -> None:
        cage, samples = self.bound(self.factories())
        n = self.n
        with cage:
            run_groups(cage, "start_reset", 0)
            before = self.cells(samples, 0)
            for error, match, options in (
                (ValueError, rf"which: expected shape \({n},\)", {"which": np.ones(n + 1, bool)}),
                (TypeError, "which: expected an array of bool", {"which": [1] * n}),
                (ValueError, f"seeds: expected {n}", {"seeds": [1] * (n + 1)}),
                (TypeError, "options: expected a dict", {"options": 3}),
            ):
                with pytest.raises(error, match=match):
                    cage.start_reset(0, **options)
            with pytest.raises(ValueError, match=f"gravity: expected {n} values"):
                cage.set_attr("gravity", [1.0] * (n + 1))
            with pytest.raises(TypeError, match="gravity: expected a list"):
                cage.set_attr("gravity", 1.0)
            with pytest.raises(IndexError, match=f"environment {n}: expected 0 to {n - 1}"):
                cage.env_apply(times, which=[n])
            with pytest.raises(ValueError, match="environment 0 was selected twice"):
                cage.env_apply(times, which=[0, 0])
            with pytest.raises(ValueError, match="arguments: expected 1"):
                cage.env_apply(times, which=[0], arguments=[])
            with pytest.raises(WrongStateError, match="with infos=True"):
                cage.collect_infos()
            np.testing.assert_array_equal(self.cells(samples, 0), before)


def _asked(env: Any) -> Any:
    return env.asked
