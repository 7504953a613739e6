"""PPO in one file, in the style of CleanRL, on `parllel.vector.VectorEnv`.

    python examples/vector/ppo_in_one_file.py [--n-steps N] [--seed SEED] [--sync] [--output FILE]

The line that makes the environments is the only one that knows parllel. With --sync it makes gymnasium's
SyncVectorEnv, and the same numbers are printed, to the last digit.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from gymnasium.wrappers.vector import RecordEpisodeStatistics
from torch import Tensor, nn
from torch.distributions import Categorical

from parllel.vector import VectorEnv

T, B, N_EPOCHS, N_MINIBATCHES = 128, 16, 4, 8
LEARNING_RATE, DISCOUNT, GAE_LAMBDA, CLIP, ENTROPY = 2.5e-3, 0.98, 0.9, 0.2, 0.0


def make_network(n_inputs: int, n_outputs: int, gain: float) -> nn.Sequential:
    """Return two hidden layers and an output with orthogonal weights."""
    layers = [nn.Linear(n_inputs, 64), nn.Linear(64, 64), nn.Linear(64, n_outputs)]
    for layer, scale in zip(layers, (2**0.5, 2**0.5, gain), strict=True):
        nn.init.orthogonal_(layer.weight, scale)
        nn.init.zeros_(layer.bias)
    return nn.Sequential(layers[0], nn.Tanh(), layers[1], nn.Tanh(), layers[2])


def main() -> None:
    """Train, and print the mean return of the episodes that ended in each batch."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--n-steps", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--sync", action="store_true", help="step gymnasium's SyncVectorEnv")
    parser.add_argument("--output", type=Path, help="where to save the weights")
    args = parser.parse_args()
    torch.manual_seed(args.seed)
    torch.set_num_threads(1)

    vector_env = SyncVectorEnv if args.sync else VectorEnv  # the line that differs
    envs = RecordEpisodeStatistics(
        vector_env([partial(gym.make, "CartPole-v1")] * B, autoreset_mode=AutoresetMode.SAME_STEP)
    )
    actor, critic = make_network(4, 2, 0.01), make_network(4, 1, 1.0)
    parameters = [*actor.parameters(), *critic.parameters()]
    optimizer = torch.optim.Adam(parameters, LEARNING_RATE, eps=1e-5)
    observations = torch.zeros(T + 1, B, 4)
    actions = torch.zeros(T, B, dtype=torch.int64)
    log_probs, rewards, dones = torch.zeros(3, T, B)

    observations[0] = torch.from_numpy(envs.reset(seed=args.seed)[0])
    n_batches = max(args.n_steps // (T * B), 1)
    for batch in range(n_batches):
        optimizer.param_groups[0]["lr"] = LEARNING_RATE * (1 - batch / n_batches)
        returns: list[float] = []
        for t in range(T):
            with torch.no_grad():
                policy: Any = Categorical(logits=actor(observations[t]))
            actions[t] = policy.sample()
            log_probs[t] = policy.log_prob(actions[t])
            observation, reward, terminated, truncated, infos = envs.step(actions[t].numpy())
            observations[t + 1] = torch.from_numpy(observation)
            rewards[t] = torch.from_numpy(reward)
            dones[t] = torch.from_numpy(terminated | truncated)
            if truncated.any():  # not the end of the task: its value is still to come
                last = np.stack(infos["final_obs"][truncated])
                with torch.no_grad():
                    rewards[t, truncated] += DISCOUNT * critic(torch.from_numpy(last))[:, 0]
            if "episode" in infos:
                returns += infos["episode"]["r"][infos["_episode"]].tolist()
        advantages, targets = estimate(critic, observations, rewards, dones)
        flat = [
            x.flatten(0, 1) for x in (observations[:T], actions, log_probs, advantages, targets)
        ]
        for _ in range(N_EPOCHS):
            for indices in torch.randperm(T * B).chunk(N_MINIBATCHES):
                loss = loss_of(actor, critic, *(x[indices] for x in flat))
                optimizer.zero_grad()
                loss.backward()  # type: ignore[no-untyped-call]
                nn.utils.clip_grad_norm_(parameters, 0.5)
                optimizer.step()
        observations[0] = observations[T]
        mean = float(np.mean(returns)) if returns else float("nan")
        print(
            f"{(batch + 1) * T * B} steps: mean return {mean!r}, loss {loss.item()!r}", flush=True
        )
    envs.close()
    if args.output is not None:
        torch.save({"actor": actor.state_dict(), "critic": critic.state_dict()}, args.output)


def estimate(
    critic: nn.Module, observations: Tensor, rewards: Tensor, dones: Tensor
) -> tuple[Tensor, Tensor]:
    """Return advantages and targets of the value, [T, B]."""
    with torch.no_grad():
        values = critic(observations)[..., 0]
    advantages, following = torch.zeros(T, B), torch.zeros(B)
    for t in reversed(range(T)):
        going_on = 1 - dones[t]
        delta = rewards[t] + DISCOUNT * values[t + 1] * going_on - values[t]
        following = advantages[t] = delta + DISCOUNT * GAE_LAMBDA * going_on * following
    return advantages, advantages + values[:T]


def loss_of(
    actor: nn.Module,
    critic: nn.Module,
    observations: Tensor,
    actions: Tensor,
    log_probs: Tensor,
    advantages: Tensor,
    targets: Tensor,
) -> Tensor:
    """Return the loss of a minibatch."""
    policy: Any = Categorical(logits=actor(observations))
    ratio = (policy.log_prob(actions) - log_probs).exp()
    advantages = (advantages - advantages.mean()) / (advantages.std() + 1e-8)
    gain = torch.min(ratio * advantages, ratio.clamp(1 - CLIP, 1 + CLIP) * advantages)
    error = nn.functional.mse_loss(critic(observations)[:, 0], targets)
    loss: Tensor = 0.5 * error - gain.mean() - ENTROPY * policy.entropy().mean()
    return loss


if __name__ == "__main__":
    main()
