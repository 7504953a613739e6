"""A reward that is not one number is an error that names the environment, wherever it is stepped."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, cast

import gymnasium as gym
import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.vector import SyncVectorEnv

from parllel.cages import Cage, ProcessCage, TrajInfo, VectorEnvFactory, VectorizedCage
from parllel.envs import ParallelEnvAdapter
from parllel.errors import notes_of
from parllel.policies import play_episodes
from parllel.policies.basic_policies import ConstantPolicy
from parllel.testing.cages.row_reference import make_samples

LENGTH = 2
REWARDS = [np.array([1.0, 2.0]), [1.0], None, "high", 1j]


class Paying(gym.Env[Any, Any]):
    """Pays 1, but what it is told in one of its episodes; cages check the first."""

    observation_space = spaces.Box(0, 1, (2,), np.float32)
    action_space = spaces.Discrete(2)

    def __init__(self, reward: Any, episode: int = 0) -> None:
        self.reward, self.episode, self.begun = reward, episode, 0

    def reset(self, *, seed: int | None = None, options: Any = None) -> Any:
        super().reset(seed=seed)
        self.begun, self.left = self.begun + 1, LENGTH
        return np.zeros(2, np.float32), {}

    def step(self, action: Any) -> Any:
        self.left -= 1
        reward = self.reward if self.begun == self.episode + 1 else 1.0
        return np.zeros(2, np.float32), reward, not self.left, False, {}


class Summing(TrajInfo):
    """Takes steps one by one, as it has a `step`."""

    def step(self, *args: Any) -> None:
        super().step(*args)


def rows(cage: Any) -> None:
    with cage:
        samples = make_samples(Paying(0), 9, cage.n, storage="managed", info=False)
        cage.set_samples_buffer(samples, slice(0, cage.n))
        cage.start_reset(0)
        cage.finish_row()
        for t in range(9):
            cage.start_row(t)
            cage.finish_row()


def steps(cage: Any) -> None:
    with cage:
        cage.reset_async()
        cage.await_step()
        for _ in range(9):
            cage.step_async(0)
            cage.await_step()


ENTRY_POINTS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda make: rows(Cage(make)),
    "rows of several": lambda make: rows(VectorizedCage([make] * 2)),
    "rows taken one by one": lambda make: rows(Cage(make, traj_info=Summing)),
    "rows in a process": lambda make: rows(ProcessCage(make, start_method="fork")),
    "steps": lambda make: steps(Cage(make)),
    "steps in a process": lambda make: steps(ProcessCage(make, start_method="fork")),
    "episodes": lambda make: play_episodes(
        ConstantPolicy(0, Paying.action_space), make, [1, 2, 3], n_envs=1
    ),
}


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
@pytest.mark.parametrize("entry_point", ENTRY_POINTS)
@pytest.mark.parametrize("episode", [0, 2])
def test_cages_name_the_environment(entry_point: str, episode: int, reward: Any) -> None:
    message = r"^environment 0 \(Paying\): reward: expected a number, got "
    with pytest.raises(TypeError, match=message):
        ENTRY_POINTS[entry_point](partial(Paying, reward, episode))


def test_a_vector_environment_names_the_environment_of_a_wrong_reward() -> None:
    factory = VectorEnvFactory(lambda n: SyncVectorEnv([partial(Paying, REWARDS[0])] * n))
    with pytest.raises(ValueError, match="setting an array element") as caught:
        rows(VectorizedCage(factory, n=2))
    assert "in environment 0 (Paying), during step" in notes_of(caught.value)


class Pair:
    """Two agents, one of which is paid what it is told; PettingZoo's parallel interface."""

    metadata = {"name": "pair_v0"}
    possible_agents = ["ann", "bob"]

    def __init__(self, reward: Any) -> None:
        self.reward = reward
        self.agents: list[str] = []

    def observation_space(self, agent: str) -> Any:
        return Paying.observation_space

    def action_space(self, agent: str) -> Any:
        return Paying.action_space

    def reset(self, seed: int | None = None, options: Any = None) -> Any:
        self.agents = [*self.possible_agents]
        return self._all(np.zeros(2, np.float32)), self._all({})

    def step(self, actions: Any) -> Any:
        observations, infos = self._all(np.zeros(2, np.float32)), self._all({})
        ended = self._all(False)
        return observations, {"ann": 1.0, "bob": self.reward}, ended, dict(ended), infos

    def close(self) -> None:
        """Nothing is held."""

    def _all(self, value: Any) -> dict[str, Any]:
        return dict.fromkeys(self.possible_agents, value)


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_environments_of_several_agents_name_the_agent(reward: Any) -> None:
    env = ParallelEnvAdapter(cast("Any", Pair(reward)))
    env.reset()
    with pytest.raises(TypeError, match=r"^pair_v0: bob: reward: expected a number, got "):
        env.step({"ann": 0, "bob": 0})


def test_a_native_environment_of_one_names_it() -> None:
    class Native(SyncVectorEnv):
        def step(self, actions: Any) -> Any:
            observation, _, *rest = super().step(actions)
            return observation, np.ones((1, 2)), *rest

    env = VectorEnvFactory(lambda n: Native([partial(Paying, 1.0)] * n))()
    env.reset()
    with pytest.raises(TypeError, match=r"^Native\(.*: reward: expected a number, got array"):
        env.step(0)


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_operators_say_so_in_a_reply(reward: Any) -> None:
    pytest.importorskip("msgspec", reason="the extra `operators` is not installed")
    from parllel.distributed.operators.workers.interactive_runtime import InteractiveRuntime

    runtime = InteractiveRuntime(lambda observation: 0, partial(Paying, reward))
    runtime.bind()
    runtime.answer(b'{"cmd": "reset", "seed": 1}')
    reply = runtime.answer(b'{"cmd": "step"}')
    assert b"TypeError: Paying: reward: expected a number, got " in reply
    runtime.close()


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_games_of_operators_name_the_player(reward: Any) -> None:
    from parllel.envs.multi_agent_game import ParallelGame

    game = ParallelGame(Pair(reward))
    game.reset(1)
    with pytest.raises(TypeError, match=r"^bob: reward: expected a number, got "):
        game.step({"ann": 0, "bob": 0})


@pytest.fixture
def registered(request: pytest.FixtureRequest) -> Iterator[str]:
    gym.register("Paying-v0", partial(Paying, request.param))
    yield "gymnasium/Paying-v0"
    del gym.registry["Paying-v0"]


@pytest.mark.parametrize("registered", REWARDS, ids=repr, indirect=True)
def test_remote_episodes_name_the_environment(registered: str) -> None:
    pytest.importorskip("msgspec", reason="the extra `remote` is not installed")
    from parllel.distributed.remote import make

    with (
        make(registered) as env,
        pytest.raises(TypeError, match=r"^Paying-v0: reward: expected a number, got "),
    ):
        env.run([lambda observation: 0])


@pytest.mark.parametrize("reward", REWARDS, ids=repr)
def test_environments_of_agents_name_the_root(reward: Any) -> None:
    pytest.importorskip("msgspec", reason="the extra `kafka` is not installed")
    from parllel.distributed.messaging import Agent, ExecutionMode, KafkaMultiAgentEnv

    class World(KafkaMultiAgentEnv):
        def _extract_rewards(self, all_info: Any) -> Any:
            return dict.fromkeys(all_info, reward)

    class Root(Agent):
        def observe(self, state: Any) -> Any:
            return 0

    sync = {"root": Root("root", execution_mode=ExecutionMode.SYNC)}
    env = World(sync, ["root"], env_id="world")
    env.reset()
    with pytest.raises(TypeError, match=r"^world: root: reward: expected a number, got "):
        env.step({"root": 0})
    env.close()
