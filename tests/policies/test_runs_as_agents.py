"""The policy of a run as an agent of episodes, in a process of its own."""

from __future__ import annotations

from types import SimpleNamespace

import gymnasium as gym
import pytest

from parllel.distributed.remote import Agent, AgentFailure
from parllel.distributed.wire import from_json, to_json
from parllel.policies import load_policy

CONTEXT = SimpleNamespace(
    name="gymnasium", configuration={"actTimeout": 60}, agents={}, debug=False
)


@pytest.mark.parametrize("kind", ["normalized", "recurrent"])
@pytest.mark.few(1)
def test_it_acts_as_in_this_process(trained, kind):
    path = trained(kind)
    with load_policy(path) as policy, Agent(str(path), CONTEXT) as agent:
        assert agent.kind == "run"
        assert agent.recurrent is policy.recurrent is (kind == "recurrent")
        space = policy.observation_space
        space.seed(1)
        # Two episodes at once, of which the second begins anew in the middle.
        for step in range(4):
            seen = [space.sample() for _ in range(2)]
            steps = [step, step % 2]
            for number in range(2):
                if steps[number] == 0:
                    policy.reset([number])
            rows = [
                {"observation": to_json(space, one), "step": n, "env_index": i}
                for i, (one, n) in enumerate(zip(seen, steps, strict=True))
            ]
            actions, _ = agent.act_batch(rows)
            expected = policy.act(
                gym.vector.utils.concatenate(
                    space, seen, gym.vector.utils.create_empty_array(space, 2)
                ),
                [0, 1],
            )
            for i, action in enumerate(actions):
                assert not isinstance(action, AgentFailure), action
                assert (from_json(policy.action_space, action) == expected[i]).all()


def test_what_it_cannot_see_is_an_error(trained):
    with Agent(trained("normalized"), CONTEXT) as agent:
        failure, _ = agent.act({"step": 0})
        assert failure.status == "ERROR"
        assert failure.reason.startswith('observation: expected an object with "observation"')
