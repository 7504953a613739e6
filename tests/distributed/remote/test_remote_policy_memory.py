"""Agents on a server that remember episodes."""

from __future__ import annotations

from functools import partial

import numpy as np
from served_policy import ServedPolicy, frequency_policy

from parllel import BatchSpec
from parllel.agents import NumpyHandler
from parllel.cages import Cage
from parllel.distributed.remote import RemotePolicy
from parllel.policies import OpponentEnv, PolicyAgent
from parllel.samplers import RecurrentSampler
from parllel.testing import RockPaperScissorsEnv
from parllel_patterns import allocate_samples

NUMBERS = [0, 2, 5, 3]
ROUNDS = 5
RESETS = ([0], [2, 3], [0])  # after so many rounds each


def spaces_of(served):
    return served.policy.observation_space, served.policy.action_space


def play(policy):
    """Return the moves [rounds, 4] of a policy, and where one is the first of an episode."""
    rng = np.random.default_rng(0)
    moves, first = [], []
    for reset in (NUMBERS, *RESETS):
        policy.reset(reset)
        for i in range(ROUNDS):
            seen = np.tile(np.eye(3, dtype=np.float32)[rng.integers(3, size=4)], 2)
            moves.append(policy.act(seen, NUMBERS))
            first.append([i == 0 and number in reset for number in NUMBERS])
    return np.stack(moves), np.array(first)


def test_what_an_agent_remembers_stays_apart_for_environments_and_clients():
    served = ServedPolicy(frequency_policy())
    with served.serving() as url:
        one, two = (RemotePolicy(url, *spaces_of(served)) for _ in range(2))
        assert one.recurrent
        # The second has seen nothing of the first one's episodes.
        found = [play(policy)[0] for policy in (one, two)]
        one.close()
        two.close()
    expected, first = play(frequency_policy())
    # First moves are drawn, and the rest follows from what was seen in the episode.
    for moves in found:
        np.testing.assert_array_equal(moves[~first], expected[~first])


def test_episodes_of_a_recurrent_agent_begin_anew_after_a_resume():
    served = ServedPolicy(frequency_policy())
    with served.serving() as url, RemotePolicy(url, *spaces_of(served)) as policy:
        seen = np.zeros((1, 6), np.float32)
        policy.act(seen, [3])
        policy.act(seen, [3])
        state = policy.state()
        assert state == {"steps": {"3": 2}}
        policy.load_state(state)
        policy.act(seen, [3])
        assert [rows[0]["step"] for rows in served.rows] == [0, 1, 0]


def test_a_recurrent_agent_is_told_where_episodes_begin():
    served = ServedPolicy(frequency_policy())
    with served.serving() as url:
        policy = RemotePolicy(url, *spaces_of(served))

        def make_env(rounds):
            return OpponentEnv(RockPaperScissorsEnv((rounds, rounds)), "red", {"blue": "random"})

        cages = [
            Cage(partial(make_env, rounds), index=i, reset_automatically=False)
            for i, rounds in enumerate((10, 20))
        ]
        handler, spec = NumpyHandler(PolicyAgent(policy)), BatchSpec(8, 2)
        samples = allocate_samples(cages, spec, handler)
        with RecurrentSampler(spec, cages, handler, samples) as sampler:
            for _ in range(6):
                sampler.collect_batch(0)
    steps = {
        number: [
            row["step"]
            for rows in served.rows
            for row in rows
            if row["env_index"] & 0xFFFFF == number
        ]
        for number in (0, 2)
    }
    # Episodes go on from batch to batch, and begin anew with the batch after their ends. The last batch is
    # over where the last of its episodes is.
    assert steps == {
        0: [*range(16), *range(16), *range(12)],
        2: [*range(24), *range(20)],
    }
