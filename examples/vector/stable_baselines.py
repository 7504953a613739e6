"""Stable-Baselines3 on `parllel.vector.VecEnv`: PPO on CartPole, or SAC on Pendulum.

    python examples/vector/stable_baselines.py ppo|sac [--n-steps N] [--seed SEED] [--dummy] [--evaluate N]

With --dummy it trains on Stable-Baselines3's DummyVecEnv and prints the same returns, to the last digit.
"""

from __future__ import annotations

import argparse
from typing import Any

import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.env_util import make_vec_env
from stable_baselines3.common.evaluation import evaluate_policy
from stable_baselines3.common.vec_env import DummyVecEnv

from parllel.vector import VecEnv

# Parameters of RL Baselines3 Zoo.
PPO_PARAMETERS: dict[str, Any] = {
    "n_steps": 32,
    "batch_size": 256,
    "n_epochs": 20,
    "learning_rate": 1e-3,
    "gamma": 0.98,
    "gae_lambda": 0.8,
    "ent_coef": 0.0,
}
SAC_PARAMETERS: dict[str, Any] = {"learning_rate": 1e-3, "gradient_steps": -1}
SETTINGS: dict[str, Any] = {
    "ppo": (PPO, "CartPole-v1", 8, 100_000, PPO_PARAMETERS),
    "sac": (SAC, "Pendulum-v1", 4, 12_000, SAC_PARAMETERS),
}


def main() -> None:
    """Train, evaluate, and print the mean return."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("algorithm", choices=[*SETTINGS])
    parser.add_argument("--n-steps", type=int, help="100,000 with PPO, 12,000 with SAC")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--dummy", action="store_true", help="train on DummyVecEnv")
    parser.add_argument("--evaluate", type=int, default=20, metavar="N", help="episodes")
    args = parser.parse_args()
    torch.set_num_threads(1)
    vec_env: Any = DummyVecEnv if args.dummy else VecEnv
    algorithm, env_id, n_envs, n_steps, parameters = SETTINGS[args.algorithm]
    env = make_vec_env(env_id, n_envs, seed=args.seed, vec_env_cls=vec_env)
    model = algorithm("MlpPolicy", env, seed=args.seed, device="cpu", **parameters)
    model.learn(args.n_steps or n_steps)
    env.close()
    tests = make_vec_env(env_id, seed=args.seed + 1000)
    found: Any = evaluate_policy(model, tests, args.evaluate)
    mean, deviation = map(float, found)
    print(f"mean return {mean!r}, standard deviation {deviation!r} over {args.evaluate} episodes")


if __name__ == "__main__":
    main()
