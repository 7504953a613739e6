"""Environments whose opponents are policies, in every kind of cage.

A CountingEnv is put into a game with two opponents. What the learner sees of it has to be what it was, and so
the contract of cages holds as it does for the CountingEnv itself.
"""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
from gymnasium import spaces

from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage, VectorizedCage
from parllel.policies import OpponentEnv, Policy
from parllel.testing.cages.cage_contract import CageContract
from parllel.testing.cages.cage_faults_contract import CageFaultsContract
from parllel.testing.cages.cage_hooks import SEEDS, CageHooks, record_columns
from parllel.testing.cages.cage_kinds import (
    MakesCage,
    MakesProcessCage,
    MakesSynchronizedCage,
    MakesVectorizedCage,
)
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    draw_actions,
    make_samples,
    simulate,
)
from parllel.testing.cages.step_methods_contract import StepMethodsContract
from parllel.testing.dummy_policies import FrequencyPolicy
from parllel.testing.faulty_envs import PHASES
from parllel.testing.rock_paper_scissors_env import RockPaperScissorsEnv


class CountingGame:
    """The learner plays an environment for one; the others act beside it, one of them for 2 steps."""

    possible_agents = ("early", "learner", "late")
    opponent_space = spaces.Box(-np.inf, np.inf, (1,), np.float32)

    def __init__(self, env):
        self.env = env
        self.agents = []

    def observation_space(self, agent):
        return self.env.observation_space if agent == "learner" else self.opponent_space

    def action_space(self, agent):
        return self.env.action_space if agent == "learner" else spaces.Box(-1, 1, (2,), np.float32)

    def reset(self, seed=None, options=None):
        observation, info = self.env.reset(seed=seed, options=options)
        self.agents = list(self.possible_agents)
        self._step = 0
        return {"learner": observation, **self._others()}, {"learner": info}

    def _others(self):
        return {name: np.float32([self._step]) for name in self.agents if name != "learner"}

    def step(self, actions):
        assert set(actions) == set(self.agents)
        for name in set(actions) - {"learner"}:
            # Clipped, as cages do.
            assert self.action_space(name).contains(actions[name])
        observation, reward, terminated, truncated, info = self.env.step(actions["learner"])
        self._step += 1
        terminations = dict.fromkeys(self.agents, False)
        truncations = dict.fromkeys(self.agents, False)
        terminations["learner"], truncations["learner"] = terminated, truncated
        if "early" in self.agents:
            terminations["early"] = self._step == 2
        rewards = dict.fromkeys(self.agents, 1000.0) | {"learner": reward}
        observations = {"learner": observation, **self._others()}
        self.agents = [
            name for name in self.agents if not (terminations[name] or truncations[name])
        ]
        return observations, rewards, terminations, truncations, {"learner": info}

    def __getattr__(self, name):
        # As PettingZoo's wrappers pass on what is inside.
        if name.startswith("_"):
            raise AttributeError(name)
        return self.env.get_wrapper_attr(name)

    def render(self):
        return self.env.render()

    def close(self):
        self.env.close()


class Drifting(Policy):
    """Draw in a Box, and beyond it."""

    def __init__(self):
        self.generators = {}

    def act(self, observation, env_indices):
        return np.stack([self.generators[int(i)].normal(size=2) for i in env_indices])

    def reset(self, env_indices=None, seeds=None):
        for number, seed in zip(env_indices, seeds, strict=True):
            self.generators[int(number)] = np.random.default_rng(seed)


def in_a_game(make):
    one = Drifting()  # plays both opponents
    return OpponentEnv(CountingGame(make()), "learner", {"early": one, "late": one})


class InAGame(CageHooks):
    """Cages of games, compared with what is inside."""

    def made(self, env_factories, **options):
        return super().made([partial(in_a_game, make) for make in env_factories], **options)

    def env_name(self, name):
        return "OpponentEnv"


class TestCage(InAGame, MakesCage, StepMethodsContract):
    # As the cage's own tests have it, since its rows are those of a VectorizedCage.
    test_columns = CageContract.test_columns_are_those_of_plain_loops
    test_attributes = CageContract.test_attributes_and_methods_are_reached_through_wrappers
    test_order = CageContract.test_calls_in_a_wrong_order_change_nothing
    calls_at_rest = CageContract.calls_at_rest


class TestVectorizedCage(InAGame, MakesVectorizedCage, CageContract):
    pass


# The messages of cages, in which no environment takes part, are tested with others.
class FewTests(InAGame):
    test_columns = CageContract.test_columns_are_those_of_plain_loops
    test_attributes = CageContract.test_attributes_and_methods_are_reached_through_wrappers
    test_errors = CageContract.test_what_an_environment_raises_arrives_as_itself
    fail_in_phase = CageContract.fail_in_phase


class TestProcessCage(FewTests, MakesProcessCage):
    test_results = StepMethodsContract.test_results_are_those_of_a_plain_loop
    test_methods = StepMethodsContract.test_methods_are_called_as_if_they_were_the_cages


class TestSynchronizedProcessCage(FewTests, MakesSynchronizedCage):
    storage = "managed"


@pytest.mark.few(6)
class TestFaults(InAGame, MakesSynchronizedCage, CageFaultsContract):
    # One fault of each kind: cages have them all, with other environments, in their own tests.
    @pytest.mark.parametrize("phase", PHASES)
    @pytest.mark.parametrize("fault", ["raise", "kill", "hang"])
    def test_faults_of_an_environment(self, fault, phase):
        super().test_faults_of_an_environment(fault, phase)


# ---------------------------------------------------------------------- a game that draws


def make_game():
    return OpponentEnv(RockPaperScissorsEnv((3, 6)), "red", {"blue": FrequencyPolicy(drawn=0.5)})


def single(cls, factories, seeds, **options):
    (factory,), (seed,) = factories, seeds
    return cls(factory, seed=seed, **options)


KINDS = {
    "Cage": partial(single, Cage),
    "ProcessCage": partial(single, ProcessCage),
    "VectorizedCage": VectorizedCage,
    "one worker": partial(SynchronizedProcessCage, n_workers=1, start_method="fork"),
    "taking part": partial(
        SynchronizedProcessCage, n_workers=1, participate=True, n_groups=2, start_method="fork"
    ),
}


@pytest.mark.parametrize("kind", KINDS)
def test_episodes_depend_on_the_seed_alone(kind):
    n = 1 if kind.startswith(("Cage", "ProcessCage")) else 3
    T, batches = 7, 3
    actions = [draw_actions(spaces.Discrete(3), i, batches, T) for i in range(n)]
    samples = make_samples(make_game(), T, n + 2, storage="managed", info=False)
    with KINDS[kind]([make_game] * n, seeds=SEEDS[:n]) as cage:
        cage.set_samples_buffer(samples, slice(1, 1 + n))
        columns = record_columns(cage, samples, actions)
    for i, found in enumerate(columns):
        expected = simulate(make_game(), SEEDS[i], actions[i], info=False)
        assert_same_batches(found, expected)
        assert len({reward for batch in found for reward in batch.rewards}) == 3
