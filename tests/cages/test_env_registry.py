"""Environments that a package or a script has registered, in processes that have not run it."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import ale_py
import gymnasium as gym
import numpy as np
import pytest
from mpe2 import simple_spread_v3
from start_methods import SENT_SPAWN_SOAKS

from parllel.agents import NumpyHandler, RandomAgent
from parllel.buffers import Samples
from parllel.cages import Cage, ProcessCage, SynchronizedProcessCage
from parllel.cages.env_registry import adopt_registry, pack_registry
from parllel.samplers import AsynchronousSampler, BasicSampler
from parllel.testing.dummy_envs import CountingEnv
from parllel.testing.dummy_parallel_env import CountingParallelEnv
from parllel.types import BatchSpec
from parllel_patterns import allocate_samples

PACKAGE = """
import gymnasium as gym
import numpy as np

class Grid(gym.Env):
    observation_space = gym.spaces.Box(0, 9, (2,), np.float32)
    action_space = gym.spaces.Discrete(2)
    def __init__(self, size=3):
        self.size = size
    def reset(self, *, seed=None, options=None):
        return np.zeros(2, np.float32), {}
    def step(self, action):
        return np.zeros(2, np.float32), 0.0, False, False, {}
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """Install a package that registers environments when it is imported, and import it."""
    folder = tmp_path / "tiny_grids"
    folder.mkdir()
    (folder / "grids.py").write_text(PACKAGE)
    registering = "".join(
        f"gym.register('tiny/Grid{n}-v0', 'tiny_grids.grids:Grid', kwargs={{'size': {n}}})\n"
        for n in (4, 5)
    )
    (folder / "__init__.py").write_text(f"import gymnasium as gym\n{registering}")
    monkeypatch.syspath_prepend(str(tmp_path))
    before = dict(gym.registry)
    __import__("tiny_grids")
    yield "tiny_grids"
    for name in set(gym.registry) - set(before):
        del gym.registry[name]
    for name in [name for name in sys.modules if name.startswith("tiny_grids")]:
        del sys.modules[name]


@pytest.fixture
def registered() -> Iterator[Any]:
    """Return what registers environments until the end of the test."""
    before = dict(gym.registry)
    yield gym.register
    gym.registry.clear()
    gym.registry.update(before)


class Told(gym.Wrapper[Any, Any, Any, Any]):
    """Tell of what a worker knows."""

    @property
    def limit(self) -> int:
        """After how many steps an episode is cut."""
        assert self.env.spec is not None
        return int(self.env.spec.max_episode_steps or 0)


def made(name: str) -> gym.Env[Any, Any]:
    return Told(gym.make(name))


@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
def test_games_of_ale_are_made_in_a_worker(start_method: Any, capfd: Any) -> None:
    assert ale_py.__version__
    with ProcessCage(lambda: gym.make("ALE/Pong-v5"), start_method=start_method) as cage:
        assert cage.spaces.name == "ALE/Pong-v5"
        assert cage.spaces.observation.shape == (210, 160, 3)
    assert "Overriding" not in capfd.readouterr().err


@pytest.mark.parametrize("start_method", SENT_SPAWN_SOAKS)
def test_a_package_that_the_main_script_imported(
    package: str, start_method: Any, capfd: Any
) -> None:
    factories = [partial(gym.make, f"tiny/Grid{n}-v0") for n in (4, 5)]
    with SynchronizedProcessCage(factories, n_workers=1, start_method=start_method) as cage:
        assert cage.size == [4, 5]
    assert "Overriding" not in capfd.readouterr().err


def test_a_factory_that_imports_the_package_itself_is_not_warned(package: str, capfd: Any) -> None:
    def factory() -> Any:
        __import__("tiny_grids")
        return gym.make("tiny/Grid5-v0")

    with ProcessCage(factory) as cage:
        assert cage.size == 5
    with ProcessCage(lambda: gym.make("tiny_grids:tiny/Grid4-v0")) as cage:
        assert cage.size == 4
    assert "Overriding" not in capfd.readouterr().err


@pytest.mark.parametrize("start_method", ["fork", "forkserver"])
def test_environments_that_the_script_itself_registered(start_method: Any, registered: Any) -> None:
    class Mine(CountingEnv):
        """Known here alone."""

    kwargs = {"lengths": 9, "action_space": gym.spaces.Discrete(3)}  # a space is no plain value
    registered("Mine-v3", Mine, max_episode_steps=7, kwargs=kwargs)
    registered("LongPole-v1", "gymnasium.envs.classic_control:CartPoleEnv", max_episode_steps=5000)
    factories = [partial(made, "Mine-v3"), partial(made, "Mine-v3")]
    with SynchronizedProcessCage(factories, n_workers=1, start_method=start_method) as cage:
        assert cage.spaces.action == gym.spaces.Discrete(3)
        assert cage.lengths == [(9,), (9,)]
        assert cage.limit == [7, 7]
    with ProcessCage(partial(made, "LongPole-v1"), start_method=start_method) as one:
        assert one.limit == 5000


def test_what_was_registered_anew_is_what_workers_make(registered: Any) -> None:
    entry = gym.spec("CartPole-v1").entry_point
    del gym.registry["CartPole-v1"]
    registered("CartPole-v1", entry, max_episode_steps=17)
    with ProcessCage(partial(made, "CartPole-v1")) as cage:
        assert cage.limit == 17


def test_a_process_of_a_process_knows_it_too(package: str) -> None:
    def build() -> BasicSampler:
        cages = [ProcessCage(lambda: gym.make("tiny/Grid5-v0"))]
        handler = NumpyHandler(RandomAgent(cages[0].spaces.action, seed=1))
        spec = BatchSpec(2, 1)
        return BasicSampler(spec, cages, handler, allocate_samples(cages, spec, handler))

    with AsynchronousSampler(build) as sampler:
        samples: Samples = sampler.collect_batch(0)[0]
        assert np.asarray(samples.env.observation).shape == (2, 1, 2)


def test_what_cannot_be_sent_is_named(registered: Any) -> None:
    registered("Stuck-v0", CountingEnv, kwargs={"lengths": threading.Lock()})
    with (
        ProcessCage(lambda: gym.make("Stuck-v0"), start_method="forkserver") as cage,
        pytest.raises(gym.error.NameNotFound, match=r"Stuck-v0 is registered .* could not be sent"),
    ):
        _ = cage.spaces


@pytest.mark.parametrize("kind", [Cage, partial(ProcessCage, start_method="fork")])
def test_what_nobody_registered_says_what_to_import(kind: Any) -> None:
    with (
        pytest.raises(gym.error.UnregisteredEnv, match=r"import it in the script before the cage"),
        kind(lambda: gym.make("nowhere/Grid-v0")) as cage,
    ):
        _ = cage.spaces


def test_packing_is_the_same_after_a_way_through_another_process(package: str) -> None:
    code = (
        "import sys; from parllel.cages.env_registry import *; import gymnasium\n"
        "adopt_registry(sys.stdin.buffer.read())\n"
        "assert 'tiny/Grid4-v0' not in gymnasium.registry and 'tiny_grids' not in sys.modules\n"
        "sys.stdout.buffer.write(pack_registry())"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=pack_registry(), capture_output=True, timeout=60
    )
    assert done.returncode == 0, done.stderr.decode()
    before = dict(gym.registry)
    adopt_registry(done.stdout)
    assert dict(gym.registry) == before


@pytest.mark.parametrize("kind", [Cage, partial(ProcessCage, start_method="fork")])
def test_raw_environments_of_pettingzoo_are_told_of_the_adapter(kind: Any) -> None:
    with (
        pytest.raises(TypeError, match=r"PettingZoo .*lambda: parllel\.envs\.ParallelEnvAdapter"),
        kind(partial(CountingParallelEnv, {"a": 3, "b": 3})) as cage,
    ):
        _ = cage.spaces


def test_environments_in_which_agents_take_turns_are_told_of_the_way() -> None:
    with pytest.raises(TypeError, match=r"ParallelEnvAdapter\(pettingzoo\.utils\.aec_to_parallel"):
        Cage(simple_spread_v3.env)
