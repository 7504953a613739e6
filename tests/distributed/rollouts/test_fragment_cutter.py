"""Fragments joined together give back the steps, and every gap between steps can be seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from fragments import observation, step_record
from hypothesis import given, settings
from hypothesis import strategies as st

from parllel.buffers import NamedTuple
from parllel.distributed.rollouts import FragmentCutter

EVENTS = st.sampled_from([None] * 8 + ["terminated", "truncated", "crash", "dropped"])
SCRIPTS = st.lists(st.tuples(st.integers(0, 2), EVENTS), max_size=60)


class Model:
    """What fragments must say, as a list of rows by environment and epoch."""

    def __init__(self, fragment_length, recurrent):
        self.cutter = FragmentCutter(fragment_length, producer="w", recurrent=recurrent)
        self.fragments = []
        self.rows = {}
        self.epochs, self.numbers, self.first = {}, {}, {}

    def run(self, script):
        for at, (environment, event) in enumerate(script):
            epoch = self.epochs.setdefault(environment, 0)
            if event in ("crash", "dropped"):
                self.break_off(environment, keep=event == "crash")
                continue
            number = self.numbers.get(environment, 0)
            step = step_record(environment, number, end=event, version=at // 4)
            row = [number, event, at // 4, self.first.get(environment, True), False]
            self.rows.setdefault((environment, epoch), []).append(row)
            self.numbers[environment] = number + 1
            self.first[environment] = event is not None
            expected = self.cutter.position(environment)
            fragment = self.cutter.add_step(step)
            if fragment is not None:
                assert fragment.key == ("w", environment, *expected[:2])
                assert expected[2] == fragment.n_steps - 1
                self.fragments.append(fragment)

    def break_off(self, environment, *, keep):
        epoch, begun = self.epochs[environment], self.cutter.position(environment)[2]
        rows = self.rows.setdefault((environment, epoch), [])
        fragment = self.cutter.break_off(environment, keep=keep)
        assert (fragment is not None) == (keep and begun > 0)
        if fragment is not None:
            self.fragments.append(fragment)
            # An episode that had ended before the crash was not broken off by it.
            rows[-1][4] = rows[-1][1] is None
        elif begun:
            del rows[-begun:]
        self.epochs[environment], self.first[environment] = epoch + 1, True
        # Its number is lost with the step in which it crashed, so observations differ after the gap.
        self.numbers[environment] = self.numbers.get(environment, 0) + 10


@settings(max_examples=150)
@given(SCRIPTS, st.integers(1, 5), st.booleans())
def test_joined_fragments_give_back_the_steps(script, fragment_length, recurrent):
    model = Model(fragment_length, recurrent)
    model.run(script)
    for environment in range(3):
        if environment in model.epochs:
            model.break_off(environment, keep=True)
    joined = {key: [] for key in model.rows}
    last = {}
    for fragment in model.fragments:
        check_rows(fragment, joined[fragment.key[1:3]], fragment_length, recurrent)
        before = last.get(fragment.environment)
        if before is not None and fragment.epoch == before.epoch:
            assert fragment.follows(before)
            if not (recurrent and before.env.done.any()):
                assert_observation(before.next_observation, fragment.env.observation, 0)
        else:
            assert fragment.env.first[0]
        last[fragment.environment] = fragment
    assert joined == model.rows


def check_rows(fragment, joined, fragment_length, recurrent):
    """Compare each row with the step that it must come from, and add it to `joined`."""
    env, agent, n = fragment.env, fragment.agent, fragment.n_steps
    assert fragment.length == (fragment_length if recurrent else n)
    ends = {}
    for t in range(n):
        number = int(env.observation.count[t])
        end = "terminated" if env.terminated[t] else "truncated" if env.truncated[t] else None
        same = step_record(fragment.environment, number)
        assert_observation(same.observation, env.observation, t)
        assert agent.action[t] == same.action
        assert agent.agent_info.value[t] == same.agent_info.value
        assert env.reward[t] == same.reward
        assert env.done[t] == (end is not None)
        if end == "truncated":
            ends[t] = number
        flags = [int(env.version[t]), bool(env.first[t]), bool(env.aborted[t])]
        joined.append([number, end, *flags])
    if recurrent:
        np.testing.assert_array_equal(env.valid, np.arange(fragment_length) < n)
        assert not env.done[: n - 1].any()
        assert not fragment.final_observations
        assert agent.initial_rnn_state == env.observation.count[0]
        assert not agent.action[n:].any()
        last = int(fragment.next_observation.count)
        assert last == (-number if n - 1 in ends else number + 1)
        if n < fragment_length:
            assert env.observation.count[n] == last
    else:
        assert sorted(fragment.final_observations) == sorted(ends)
        for t, number in ends.items():
            final = fragment.final_observations[t]
            assert final.count == -number
            np.testing.assert_array_equal(final.mark, [fragment.environment, -number])


def assert_observation(one, leaves, t):
    one = one if isinstance(one, dict) else one._asdict()
    np.testing.assert_array_equal(one["mark"], leaves.mark[t])
    assert one["count"] == leaves.count[t]


def test_memory_is_not_shared_with_the_steps_or_the_next_fragment():
    cutter = FragmentCutter(2)
    mark = np.zeros(3, np.float32)
    fragments = []
    for number in range(4):
        step = step_record(0, number)
        step.observation, step.next_observation = mark, mark
        mark[:] = number
        step.action = mark
        if (fragment := cutter.add_step(step)) is not None:
            fragments.append(fragment)
    mark[:] = 100
    assert [fragment.agent.action[:, 0].tolist() for fragment in fragments] == [[0, 1], [2, 3]]
    assert not np.shares_memory(fragments[0].next_observation, fragments[1].env.observation)


def test_what_is_not_stored_is_none():
    cutter = FragmentCutter(1)
    fragment = cutter.add_step(step_record(0, 0))
    assert fragment.env.env_info is None
    assert fragment.agent._fields == ("action", "agent_info")
    step = replace(
        step_record(0, 1),
        env_info={"speed": 1.5, "laps": 2},
        agent_observation=np.zeros(4, np.float32),
    )
    fragment = FragmentCutter(1).add_step(step)
    assert fragment.env.env_info.speed.dtype == np.float32  # as samples store numbers of Python
    assert fragment.env.env_info.laps.dtype == np.int64
    assert fragment.agent.observation.shape == (1, 4)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"action": np.zeros(1, np.int64)},
            r"agent.action: expected int64 \[\] .* got int64 \[1\]",
        ),
        ({"action": 0.5}, r"agent.action: expected int64 \[\] .* got float64 \[\]"),
        ({"agent_info": NamedTuple(v=1.0)}, r"agent.agent_info: expected the fields \['value'\]"),
        ({"agent_info": 1.0}, r"agent.agent_info: expected the fields \['value'\].* got float"),
        ({"env_info": {"a": 1}}, r"env.env_info: expected nothing as .* got the fields \['a'\]"),
        ({"truncated": True}, "environment 4: expected final_observation with the last step"),
    ],
)
def test_steps_unlike_the_first_are_refused(changes, message):
    cutter = FragmentCutter(3)
    cutter.add_step(step_record(4, 0))
    with pytest.raises(ValueError, match=message):
        cutter.add_step(replace(step_record(4, 1), **changes))
    assert cutter.position(4) == (0, 0, 1)
    cutter.add_step(step_record(4, 1))
    fragment = cutter.add_step(step_record(4, 2))
    np.testing.assert_array_equal(fragment.env.observation.count, [0, 1, 2])


def test_the_oldest_version_of_what_was_begun():
    cutter = FragmentCutter(3)
    assert cutter.oldest_version(0) is None
    for number, version in enumerate([7, 8]):
        cutter.add_step(step_record(0, number, version=version))
    assert cutter.oldest_version(0) == 7
    cutter.break_off(0, keep=False)
    assert cutter.oldest_version(0) is None
    assert cutter.position(0) == (1, 0, 0)


def test_an_environment_that_is_reset_after_its_step():
    """The observation after the reset is then known with the next step only."""
    cutter = FragmentCutter(2)
    cutter.add_step(step_record(0, 0, end="terminated", after=99))
    fragment = cutter.add_step(step_record(0, 1))
    np.testing.assert_array_equal(fragment.env.observation.count, [0, 1])
    assert fragment.next_observation.mark.tolist() == observation(0, 2)["mark"].tolist()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fragment_length": 0}, "fragment_length: expected at least 1, got 0"),
        ({"fragment_length": 5, "producer": ""}, "producer: expected a name"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        FragmentCutter(**arguments)
