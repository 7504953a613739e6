"""The contract of compiled environments finds the mistakes that their authors make."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces

from parllel.envs.compiled import compiled_env
from parllel.testing.compiled_contract import CompiledEnvContract


class Right:
    observation_space = spaces.Box(-9, 9, (2,), np.float32)
    action_space = spaces.Discrete(2)
    state = np.dtype([("x", np.float64), ("n", np.int64)])
    parameters = {"speed": 1.0}

    @staticmethod
    def reset(state, rng):
        state.x = rng.uniform(-1, 1)
        state.n = 0

    @staticmethod
    def step(state, action, rng):
        state.x += state.speed * (action - 0.5)
        state.n += 1
        return state.x, state.n == 7 or abs(state.x) > 8

    @staticmethod
    def observe(state, out):
        out[0] = state.x
        out[1] = state.n


class ForgetfulReset(Right):
    @staticmethod
    def reset(state, rng):
        state.x += rng.uniform(-1, 1)
        state.n = 0


class NoRandomness(Right):
    @staticmethod
    def reset(state, rng):
        state.x = state.n = 0


class ChangingParameter(Right):
    @staticmethod
    def step(state, action, rng):
        state.speed *= 0.5
        return 0.0, False


class PartialObservation(Right):
    @staticmethod
    def observe(state, out):
        out[0] = state.x
        if state.n < 3:
            out[1] = state.n


class LeavesTheSpace(Right):
    @staticmethod
    def step(state, action, rng):
        state.n += 1
        return 0.0, state.n == 20


class RoundedBySquares(Right):
    @staticmethod
    def step(state, action, rng):
        # The compiler multiplies, and numpy calls the C library's pow. A chaotic map shows each last bit.
        for _ in range(50):
            state.x = 1.0 - 1.9 * state.x**2
        return state.x, False


def run(body, *names):
    """Run tests of the contract on a class; all of them if none is named."""
    cls = compiled_env(body)

    class Contract(CompiledEnvContract):
        def make_env(self, **options):
            return cls(**options)

    for name in names or [name for name in dir(Contract) if name.startswith("test_")]:
        getattr(Contract(), name)()


def test_an_environment_without_mistakes_passes():
    run(Right)


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (ForgetfulReset, "test_equal_seeds_give_equal_episodes"),
        (NoRandomness, "test_equal_seeds_give_equal_episodes"),
        (ChangingParameter, "test_parameters_stay_as_they_were_set"),
        (PartialObservation, "test_rows_of_a_cage_equal_single_environments"),
        (LeavesTheSpace, "test_observations_are_in_their_space_and_rewards_finite"),
        (RoundedBySquares, "test_compiled_functions_return_the_bits_of_plain_python"),
    ],
)
@pytest.mark.few(4)
def test_a_mistake_is_found(body, name):
    with pytest.raises(AssertionError):
        run(body, name)
