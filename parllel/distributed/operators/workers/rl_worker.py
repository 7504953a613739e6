r"""Worker for trained policies: a run folder, or a model saved by CleanRL.

parllel operators worker rl \
    --env-id CartPole-v1 --policy runs/cartpole/ppo-seed0 --seeds 0:50

Settings for a run: "best", use the checkpoint of the best evaluation instead of the newest.

Settings for a CleanRL model: "greedy", choose the most probable action instead of sampling; "normalize",
normalise observations by their running mean and variance, as ppo_continuous_action.py does in training and
evaluation. The file does not contain these statistics: each worker starts them anew and continues them from
episode to episode. Default true for models of that script, else false.
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
_BOUND = 10.0  # normalised observations are clipped to this, as in ppo_continuous_action.py


def load(
    given: argparse.Namespace, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    """Return the policy of a run folder or file.

    Raises:
        FileNotFoundError: if there is no such folder or file.
        ValueError: for a setting of the other kind. Also raises the errors of `load_policy` and
            `CleanRlPolicy`.
    """
    if given.policy is None:
        raise ValueError("--policy: expected a run folder or a model saved by CleanRL, got none")
    path = Path(given.policy)
    if path.is_dir():
        _check_settings(settings, _OF_RUNS, f"{path}: a run folder")
        return loaded_run(load_policy(path, best=settings.get("best", False)), given, env_factory)
    if not path.is_file():
        raise FileNotFoundError(
            f"{path}: expected a run folder or a model saved by CleanRL, but the path does not "
            "exist"
        )
    _check_settings(settings, _OF_MODELS, f"{path}: a model of CleanRL")
    return _loaded_model(path, settings, env_factory)


def _loaded_model(
    path: Path, settings: dict[str, Any], env_factory: EnvFactory | None
) -> LoadedWorker:
    # Imported here: a run folder may need no torch.
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
    """Wrap an environment to yield the observations that ppo_continuous_action.py shows its agent."""
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
            raise ValueError(
                f"settings: {name!r} is unknown for {what}; expected one of {', '.join(known)}"
            )
        if not isinstance(value, bool):
            raise ValueError(f"settings: {name}: expected true or false, got {value!r}")


def main() -> int:
    """Run this worker."""
    parser = worker_parser("rl_worker", "Play with a trained policy.")
    return run_worker(parser, load, settings=(*_OF_RUNS, *_OF_MODELS))


if __name__ == "__main__":
    sys.exit(main())
