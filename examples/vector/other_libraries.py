"""TorchRL and Tianshou on `parllel.vector.VectorEnv`, each compared with its usual vector environment.

    python examples/vector/other_libraries.py torchrl|tianshou

Prints "equal" if both have collected the same steps.
"""

from __future__ import annotations

import argparse
from copy import deepcopy
from functools import partial
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv

from parllel.vector import VectorEnv

B, N_STEPS = 4, 100
MAKES = [partial(gym.make, "CartPole-v1")] * B
PLACES: list[dict[str, Any]] = [{"parallel": False}, {"n_workers": 1, "n_main": 2}]


def compare_torchrl() -> None:
    """Roll out with TorchRL, which resets environments itself with a mask."""
    from torchrl.envs import GymWrapper  # type: ignore[import-not-found, unused-ignore]

    def roll_out(envs: Any) -> Any:
        env = GymWrapper(envs, categorical_action_encoding=True)
        env.set_seed(3)
        actions = iter(
            torch.randint(0, 2, (N_STEPS, B), generator=torch.Generator().manual_seed(0))
        )
        steps = env.rollout(
            N_STEPS,
            lambda tensordict: tensordict.set("action", next(actions)),
            break_when_any_done=False,
        )
        env.close()
        return steps

    mode = AutoresetMode.DISABLED
    expected = roll_out(SyncVectorEnv(MAKES, autoreset_mode=mode))
    for options in PLACES:
        found = roll_out(VectorEnv(MAKES, autoreset_mode=mode, **options))
        assert found["next", "done"].any()
        for key in ("observation", *(("next", name) for name in ("observation", "reward", "done"))):
            assert torch.equal(found[key], expected[key]), key


class ForTianshou:
    """A VectorEnv as Tianshou's collectors call it, for `collect(n_step=...)`."""

    is_async = False

    def __init__(self, makes: list[Any], **options: Any) -> None:
        self.env = VectorEnv(makes, autoreset_mode=AutoresetMode.DISABLED, **options)
        self.action_space = [deepcopy(self.env.single_action_space) for _ in makes]
        self.env_num = len(makes)

    def __len__(self) -> int:
        return self.env_num

    def reset(self, env_id: Any = None, **kwargs: Any) -> tuple[Any, Any]:
        """Reset some environments, or all."""
        which = np.arange(self.env_num) if env_id is None else np.atleast_1d(env_id)
        if len(which) < self.env_num:
            kwargs["options"] = {"reset_mask": np.isin(np.arange(self.env_num), which)}
        if "seed" in kwargs:  # the same for each, as Tianshou's own classes pass it on
            kwargs["seed"] = [kwargs["seed"]] * self.env_num
        observation, _ = self.env.reset(**kwargs)
        return observation[which], np.array([{} for _ in which])

    def step(self, action: Any, id: Any = None) -> tuple[Any, ...]:  # noqa: A002 (Tianshou's name)
        """Step all environments."""
        assert id is None or len(id) == self.env_num, (
            "expected all environments: collect(n_step=...)"
        )
        *results, _ = self.env.step(action)
        return (*results, np.array([{"env_id": i} for i in range(self.env_num)]))

    def close(self) -> None:
        """Close the environments."""
        self.env.close()


def compare_tianshou() -> None:
    """Collect with Tianshou."""
    from tianshou.algorithm.random import (  # type: ignore[import-not-found, unused-ignore]
        MARLRandomDiscreteMaskedOffPolicyAlgorithm,
    )
    from tianshou.data import (  # type: ignore[import-not-found, unused-ignore]
        Collector,
        VectorReplayBuffer,
    )
    from tianshou.env import DummyVectorEnv  # type: ignore[import-not-found, unused-ignore]

    def collect(env: Any) -> Any:
        for i, space in enumerate(env.action_space):
            space.seed(i)
        policy = MARLRandomDiscreteMaskedOffPolicyAlgorithm(action_space=env.action_space[0])
        buffer = VectorReplayBuffer(N_STEPS * B, B)
        collector = Collector(policy, env, buffer)
        collector.reset(gym_reset_kwargs={"seed": 3})
        collector.collect(n_step=N_STEPS * B, random=True)
        collector.close()
        return buffer

    expected = collect(DummyVectorEnv(MAKES))
    for options in PLACES:
        found = collect(ForTianshou(MAKES, **options))
        assert found.done.any()
        for key in ("obs", "act", "rew", "terminated", "truncated", "obs_next"):
            np.testing.assert_array_equal(getattr(found, key), getattr(expected, key), key)


def main() -> None:
    """Compare one library."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("library", choices=["torchrl", "tianshou"])
    compare = {"torchrl": compare_torchrl, "tianshou": compare_tianshou}
    compare[parser.parse_args().library]()
    print("equal")


if __name__ == "__main__":
    main()
