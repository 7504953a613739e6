r"""Trained policies: the folder of a run, or a model that CleanRL saved.

parllel operators worker rl \
    --env-id CartPole-v1 --policy runs/cartpole/ppo-seed0 --seeds 0:50

Settings of a run: "best", the checkpoint of the best evaluation in place of the newest.

Settings of a model of CleanRL: "greedy", the most probable action in place of a drawn one; "normalize",
observations by their running mean and variance, as ppo_continuous_action.py does it in training and
evaluation. These are not in its file: they begin anew with each worker, and go on from episode to episode.
Default true for models of that script, else false.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.operators.workers.cleanrl_policy import CleanRlPolicy, check_names
from parllel.distributed.operators.workers.policy_worker import PolicyWorkerAgent, loaded_run
from parllel.distributed.operators.workers.worker_main import (
    EnvFactory,
    LoadedWorker,
    run_worker,
    worker_parser,
)
from parllel.policies.policy_loading import load_policy

_OF_RUNS, _OF_MODELS = ("best",), ("greedy", "normalize")
_BOUND = 10.0  # of normalised observations, in ppo_continuous_action.py


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the policy of a run or file.

    Raises:
        FileNotFoundError: if there is neither.
        ValueError: for a setting of the other kind; as `load_policy` and `CleanRlPolicy` do.
    """
    if given.policy is None:
        raise ValueError("--policy: expected the folder of a run or a file of CleanRL, got none")
    path = Path(given.policy)
    if path.is_dir():
        _check_settings(settings, _OF_RUNS, f"{path}: the folder of a run")
        return loaded_run(load_policy(path, best=settings.get("best", False)), given, env_factory)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected the folder of a run or a file of CleanRL, got neither"
        )
    _check_settings(settings, _OF_MODELS, f"{path}: a model of CleanRL")
    return _loaded_model(path, settings, env_factory)


def _loaded_model(
    path: Path, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    # Here, as the folder of a run may need no torch.
    from parllel.torch.state_dict_file import read_state_dict

    weights, title = read_state_dict(path), str(path)
    is_continuous = check_names(weights, title)
    greedy = settings.get("greedy", False)

    def make_policy(observation: Any, action: Any) -> CleanRlPolicy:
        return CleanRlPolicy(weights, observation, action, greedy=greedy, title=title)

    if env_factory is not None and settings.get("normalize", is_continuous):
        make_env = env_factory
        return LoadedWorker(PolicyWorkerAgent(make_policy), lambda: normalized(make_env()))
    return LoadedWorker(PolicyWorkerAgent(make_policy), env_factory)


def normalized(env: gym.Env[Any, Any]) -> gym.Env[Any, Any]:
    """Return an environment with the observations that ppo_continuous_action.py shows its agent."""
    flat = gym.wrappers.FlattenObservation(env)
    shape = flat.observation_space.shape
    assert shape is not None
    return gym.wrappers.TransformObservation(
        gym.wrappers.NormalizeObservation(flat),
        lambda seen: np.clip(seen, -_BOUND, _BOUND),
        gym.spaces.Box(-_BOUND, _BOUND, shape, np.float32),
    )


def _check_settings(settings: dict[str, Any], known: tuple[str, ...], what: str) -> None:
    for name, value in settings.items():
        if name not in known:
            raise ValueError(f"settings: {name!r} is not for {what}, which has {', '.join(known)}")
        if not isinstance(value, bool):
            raise ValueError(f"settings: {name}: expected true or false, got {value!r}")


def main() -> int:
    """Run this worker."""
    parser = worker_parser("rl_worker", "Play with a trained policy.")
    return run_worker(parser, load, settings=(*_OF_RUNS, *_OF_MODELS))


if __name__ == "__main__":
    sys.exit(main())
