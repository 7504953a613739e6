"""Sides that act with a 2x64 categorical policy and value: ours, and one like CleanRL's loop.

Both have the same model with the same weights, and keep action, log-probability and value of each step.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode, SyncVectorEnv
from torch.distributions import Categorical

from benchmarks.peers.side import Side
from benchmarks.peers.sides.parllel_side import ParllelSide
from benchmarks.peers.workload import Workload
from parllel.agents import Handler
from parllel.torch import (
    CategoricalHead,
    CategoricalPgAgent,
    PgModel,
    SmallPolicyHandler,
    TorchHandler,
)

HIDDEN_SIZES = (64, 64)
FORWARDS = 400


def build_model(workload: Workload) -> tuple[PgModel, int]:
    """Return the model and the number of actions."""
    env = workload.factory()()
    n_actions = int(env.action_space.n)  # type: ignore[attr-defined]
    shape = env.observation_space.shape or ()
    env.close()
    return PgModel(shape, CategoricalHead(n_actions), HIDDEN_SIZES, seed=workload.seed), n_actions


class ParllelPolicySide(ParllelSide):
    """Ours; setting `policy` is "torch" or "compiled"."""

    def build_handler(self, workload: Workload, settings: dict[str, Any]) -> Handler:
        """Return the handler of a policy-gradient agent."""
        torch.set_num_threads(1)
        model, n_actions = build_model(workload)
        agent = CategoricalPgAgent(model, n_actions, seed=workload.seed)
        handlers: dict[str, type[TorchHandler]] = {
            "torch": TorchHandler,
            "compiled": SmallPolicyHandler,
        }
        return handlers[settings["policy"]](agent)


class ForwardSide(Side):
    """The model by itself, for the bound."""

    libraries = ("torch",)
    questions = ("forward_s",)

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        torch.set_num_threads(1)
        self._workload = workload
        self._model, _ = build_model(workload)
        env = workload.factory()()
        self._shape = env.observation_space.shape or ()
        env.close()

    def forward_s(self, batch: int) -> float:
        """Return the seconds of one bare forward pass over `batch` observations: the least of four means."""
        model, observation = self._model, torch.zeros(batch, *self._shape)
        means = []
        with torch.inference_mode():
            for _ in range(4):
                start = time.perf_counter()
                for _ in range(FORWARDS // 4):
                    model(observation)
                means.append((time.perf_counter() - start) / (FORWARDS // 4))
        return min(means)

    def run(self) -> int:
        """Run the model once for each row."""
        self.forward_s(self._workload.B)
        return self._workload.T * self._workload.B

    def first(self) -> dict[str, float]:
        """Warm up."""
        return {"steps": self.run(), "reward": 0.0, "ended": 0}


class CleanRlStyleSide(Side):
    """A hand-written loop in the style of single-file PPO implementations.

    SyncVectorEnv, tensors for everything, a `torch.distributions` object per step with its entropy. There is
    no wrapper that records episodes, which such scripts do have; ours keeps its records.

    Settings: `autoreset`, a gymnasium mode; `threads` of torch.
    """

    libraries = ("torch",)

    def __init__(self, workload: Workload, settings: dict[str, Any]) -> None:
        torch.set_num_threads(settings["threads"])
        torch.manual_seed(workload.seed)
        T, B = workload.T, workload.B
        self._model, _ = build_model(workload)
        mode = AutoresetMode(settings["autoreset"])
        self._same_step = mode is AutoresetMode.SAME_STEP
        self._envs = SyncVectorEnv([workload.factory()] * B, autoreset_mode=mode)
        shape = self._envs.single_observation_space.shape or ()
        self._obs = torch.zeros((T, B, *shape))
        self._actions = torch.zeros((T, B))
        self._logprobs = torch.zeros((T, B))
        self._rewards = torch.zeros((T, B))
        self._dones = torch.zeros((T, B))
        self._values = torch.zeros((T, B))
        self._next_obs = torch.Tensor(self._envs.reset(seed=list(workload.seeds()))[0])
        self._next_done = torch.zeros(B)
        self._ended = 0

    def run(self) -> int:
        """Roll out a batch and the value after it."""
        model, T = self._model, len(self._obs)
        next_obs, next_done = self._next_obs, self._next_done
        for step in range(T):
            self._obs[step] = next_obs
            self._dones[step] = next_done
            with torch.no_grad():
                logits, value = model(next_obs)
                distribution = Categorical(logits=logits)  # type: ignore[no-untyped-call]
                action = distribution.sample()  # type: ignore[no-untyped-call]
                logprob = distribution.log_prob(action)  # type: ignore[no-untyped-call]
                distribution.entropy()  # type: ignore[no-untyped-call]
                self._values[step] = value.flatten()
            self._actions[step] = action
            self._logprobs[step] = logprob
            obs, reward, terminated, truncated, _ = self._envs.step(action.cpu().numpy())
            done = np.logical_or(terminated, truncated)
            self._rewards[step] = torch.tensor(reward).view(-1)
            next_obs, next_done = torch.Tensor(obs), torch.Tensor(done)
        with torch.no_grad():
            model(next_obs)
        # In the other mode the row after an end is a reset and no step.
        resets = 0 if self._same_step else int(self._dones.sum())
        self._ended = int(self._dones[1:].sum() + next_done.sum())
        self._next_obs, self._next_done = next_obs, next_done
        return self._dones.numel() - resets

    def first(self) -> dict[str, float]:
        """Roll out the first batch."""
        steps = self.run()
        return {"steps": steps, "reward": float(self._rewards.sum()), "ended": self._ended}

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
