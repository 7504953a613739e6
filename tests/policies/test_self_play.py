"""The policy of a run as the opponent of the next run."""

from __future__ import annotations

from functools import partial

import numpy as np
import pytest
import torch
from gymnasium import spaces
from winning_run import Config, build, make_env

from parllel.cages import ProcessCage, VectorizedCage
from parllel.envs.states import env_state, load_env_state
from parllel.policies import load_policy
from parllel.runners import checkpointing, train
from parllel.testing.cages.cage_hooks import SEEDS, record_columns
from parllel.testing.cages.row_reference import (
    assert_same_batches,
    draw_actions,
    make_samples,
    simulate,
)


@pytest.fixture(scope="module", autouse=True)
def quickly():
    """Use one thread, and draw no pictures, which takes longer than to learn."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpointing, "plot_learning_curve", lambda *arguments: None)
        yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """Return the path of a run."""
    config = Config(n_batches=4, n_episodes=16)
    _, folder = train(build, config, base=tmp_path_factory.mktemp("runs"), name="first")
    return str(folder.path)


def vectorized(make, seed):
    return VectorizedCage([make], seeds=[seed])


def in_a_worker(make, seed):
    return ProcessCage(make, seed=seed, timeout_s=60)


@pytest.mark.parametrize("make_cage", [vectorized, in_a_worker])
@pytest.mark.few(1)
def test_a_run_plays_in_whatever_process_the_environment_is(make_cage, run):
    make, T, batches = partial(make_env, run), 8, 3
    samples = make_samples(make(), T, 3, storage="managed", info=False)
    actions = draw_actions(spaces.Discrete(3), 0, batches, T)
    with make_cage(make, SEEDS[0]) as cage:
        cage.set_samples_buffer(samples, slice(1, 2))
        (found,) = record_columns(cage, samples, [actions])
    assert_same_batches(found, simulate(make(), SEEDS[0], actions, info=False))


def test_a_game_against_a_run_goes_on_from_its_state(run):
    env, other = make_env(run), make_env(run)
    env.reset(seed=0)
    for move in range(5):
        env.step(move % 3)
    load_env_state(other, env_state(env))
    for move in range(5):
        (seen, *rest), (expected, *others) = other.step(move % 3), env.step(move % 3)
        np.testing.assert_array_equal(seen, expected)
        assert rest == others
    for one in (env, other):
        one.close()


@pytest.mark.soak
def test_a_later_run_beats_an_earlier_one(run, tmp_path):
    """And its policy can be loaded, though the environments of its run load the other."""
    config = Config(seed=1, opponent=run, n_batches=8, n_episodes=32)
    _, folder = train(build, config, base=tmp_path)
    env, returns = make_env(run), []
    with load_policy(folder.path) as policy:
        for seed in range(40):
            observation, _ = env.reset(seed=seed)
            returns.append(0.0)
            over = False
            while not over:
                observation, reward, over, _, _ = env.step(policy.act_one(observation))
                returns[-1] += reward
    env.close()
    assert np.mean(returns) > 5 * np.std(returns) / np.sqrt(len(returns))
