"""Baselines decide as the policies of the same names do, which they do not import."""

from __future__ import annotations

import json
import subprocess
import sys

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from played import assert_plays

from parllel.distributed.operators import OperatorConfig
from parllel.distributed.operators.protocol.given_action import GivenAction
from parllel.distributed.operators.workers.baseline_agents import NoopWorkerAgent, RandomWorkerAgent
from parllel.distributed.operators.workers.player_runtime import agent_seed
from parllel.policies import play_episodes, policy_of

SPACES = [
    spaces.Discrete(5),
    spaces.Discrete(3, start=-7),
    spaces.Discrete(3, start=2),
    spaces.MultiDiscrete([3, 4]),
    spaces.MultiDiscrete([[3, 4], [2, 2]], start=[[1, 0], [0, -3]]),
    spaces.MultiBinary((2, 3)),
    spaces.Box(-1, 1, (2,), np.float32),
    spaces.Box(1, np.inf, (2,), np.float64),
    spaces.Box(-np.inf, np.inf, ()),
    spaces.Box(0, 255, (2, 2), np.uint8),
    spaces.Dict(
        {"b": spaces.Discrete(9), "a": spaces.Tuple((spaces.Box(0, 1), spaces.Discrete(4)))}
    ),
]


class Anything(gym.Env):
    """Take any action of a space for eight steps, and keep it."""

    observation_space = spaces.Discrete(2)

    def __init__(self, action_space):
        self.action_space = action_space
        self.taken = []

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.n = 0
        return 0, {}

    def step(self, action):
        self.taken.append(action)
        self.n += 1
        return 0, 0.0, False, self.n == 8, {}


def shown(action):
    """Return an action with its types."""
    if isinstance(action, dict):
        return {name: shown(part) for name, part in action.items()}
    if isinstance(action, tuple):
        return tuple(shown(part) for part in action)
    if isinstance(action, int):
        return action
    return (type(action).__name__, str(action.dtype), action.shape, action.tolist())


@pytest.mark.parametrize("space", SPACES, ids=str)
@pytest.mark.parametrize(
    ("name", "make"), [("random", RandomWorkerAgent), ("noop", NoopWorkerAgent)]
)
def test_the_same_actions_as_the_policy_of_the_same_name(space, name, make):
    env = Anything(space)
    play_episodes(policy_of(name, env.observation_space, space), lambda: env, [4, 4, 7], n_envs=1)
    agent, given, taken = make(), GivenAction(space), []
    agent.bind(env.observation_space, space)
    for seed in (4, 4, 7):
        agent.reset(agent_seed(seed))
        taken += [given.of(agent.decide(0, {}).action) for _ in range(8)]
    assert [shown(action) for action in taken] == [shown(action) for action in env.taken]
    if name == "random":
        assert shown(taken[0]) == shown(taken[8])
        assert [shown(action) for action in taken[:8]] != [shown(action) for action in taken[16:]]


def test_without_a_seed_it_goes_on_drawing():
    agent = RandomWorkerAgent()
    agent.bind(None, spaces.Discrete(1000))
    agent.reset(1)
    first = [agent.decide(0, {}).action for _ in range(5)]
    agent.reset(None)
    assert [agent.decide(0, {}).action for _ in range(5)] != first


def test_players_choose_legal_actions():
    agents = RandomWorkerAgent(), NoopWorkerAgent()
    for agent in agents:
        agent.bind(None, spaces.Discrete(9))
        agent.reset(0)
    random, noop = (
        [agent.decide(0, {"legal_actions": [3, 5]}).action for _ in range(20)] for agent in agents
    )
    assert set(random) == {3, 5}
    assert set(noop) == {3}
    assert agents[1].decide(0, {"legal_actions": [3, 0]}).action == 0


@pytest.mark.parametrize("make", [RandomWorkerAgent, NoopWorkerAgent])
def test_spaces_without_a_size_are_refused_at_once(make):
    agent = make()
    with pytest.raises(TypeError, match="expected"):
        agent.bind(None, spaces.Text(3))
    agent.bind(None, None)
    with pytest.raises(TypeError, match="expected an action space to choose from, got None"):
        agent.decide(0, {})


@pytest.mark.parametrize("policy", ["random", "noop"])
@pytest.mark.parametrize("env_id", ["CartPole-v1", "Pendulum-v1"])
def test_the_worker_plays_the_episodes_of_the_policy(launcher, policy, env_id):
    def make_env():
        return gym.make(env_id, max_episode_steps=30)

    env = make_env()
    in_process = policy_of(policy, env.observation_space, env.action_space)
    episodes = play_episodes(in_process, make_env, range(5), keep_actions=True)
    kwargs = {"max_episode_steps": 30}
    config = OperatorConfig("baseline", "one", env_id, policy=policy, env_kwargs=kwargs)
    assert_plays(launcher.launch_operator(config, "one", interactive=True), episodes)


IMPORTED = """
import sys
from parllel.distributed.operators.workers.operators_worker import main
sys.argv[1:] = ["--env-id", "CartPole-v1", "--random", "--interactive"]
main()
print(*sys.modules, file=sys.stderr)
"""


def test_a_baseline_imports_little():
    """What takes long to import would be paid for each operator."""
    lines = b'{"cmd": "reset", "seed": 0}\n{"cmd": "step"}\n{"cmd": "stop"}\n'
    done = subprocess.run(
        [sys.executable, "-c", IMPORTED], input=lines, capture_output=True, check=True
    )
    assert [json.loads(line)["type"] for line in done.stdout.splitlines()] == [
        *("ready", "step", "stopped")
    ]
    modules = done.stderr.decode().split()
    heavy = {*("torch", "numba", "ray", "matplotlib", "h11", "rich", "cloudpickle", "PIL")}
    assert not heavy & {name.partition(".")[0] for name in modules}
    heavy = (
        "cages",
        "system.processes",
        "runs",
        "buffers",
        "distributed.web",
        "distributed.remote",
    )
    assert not [
        name for name in modules if name.startswith(tuple(f"parllel.{own}" for own in heavy))
    ]
    policies = {name for name in modules if name.startswith("parllel.policies.")}
    assert policies == {"parllel.policies.env_names"}
