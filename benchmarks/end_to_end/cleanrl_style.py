"""A hand-written PPO in the style of CleanRL, with the same gymnasium and torch as ours.

One file and one loop, with the details that Huang et al. 2022 ("The 37 implementation details of PPO") list
for classic control: a vector of environments stepped in turn, tensors [T, B] for the batch,
`torch.distributions` in every step, orthogonal weights, Adam with epsilon 1e-5, annealed learning rate,
shuffled minibatches with normalised advantages, clipped ratios, an entropy bonus, a limit on the gradient's
norm, and diagnostics of each minibatch. Continuous actions are normally distributed and clipped, with
observations and rewards normalised. As there, a time limit counts as an end. It writes no logs.
"""

from __future__ import annotations

import sys
import time
from typing import Any

import gymnasium as gym
import numpy as np
import torch
from gymnasium.wrappers.utils import RunningMeanStd
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.distributions import Categorical, Normal

from benchmarks.end_to_end.settings import Reporter, Settings


def layer(n_in: int, n_out: int, gain: float = 2**0.5) -> nn.Linear:
    """Return a layer with orthogonal weights."""
    linear = nn.Linear(n_in, n_out)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


class Agent(nn.Module):
    """Policy and value function, each with trunks of its own."""

    def __init__(
        self,
        n_inputs: int,
        n_actions: int,
        hidden_sizes: tuple[int, ...],
        initial_log_std: float | None = None,
    ) -> None:
        super().__init__()
        self.critic = self._network(n_inputs, hidden_sizes, 1, 1.0)
        self.actor = self._network(n_inputs, hidden_sizes, n_actions, 0.01)
        self.log_std: nn.Parameter | None = None  # of continuous actions
        if initial_log_std is not None:
            self.log_std = nn.Parameter(torch.full((1, n_actions), initial_log_std))

    @staticmethod
    def _network(n_inputs: int, hidden: tuple[int, ...], n_out: int, gain: float) -> nn.Sequential:
        layers: list[nn.Module] = []
        for size in hidden:
            layers += [layer(n_inputs, size), nn.Tanh()]
            n_inputs = size
        return nn.Sequential(*layers, layer(n_inputs, n_out, gain))

    def forward(
        self, observation: Tensor, action: Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return the action (drawn if none is given), its log probability, entropy and value."""
        # What torch.distributions does is not typed.
        distribution: Any
        if self.log_std is None:
            distribution = Categorical(logits=self.actor(observation))
        else:
            mean = self.actor(observation)
            distribution = Normal(mean, self.log_std.expand_as(mean).exp())
        if action is None:
            action = distribution.sample()
        assert action is not None
        log_prob, entropy = distribution.log_prob(action), distribution.entropy()
        if self.log_std is not None:
            log_prob, entropy = log_prob.sum(1), entropy.sum(1)
        return action, log_prob, entropy, self.critic(observation).squeeze(-1)


class Normalizer:
    """Running statistics of observations and of discounted returns, clipped as CleanRL clips them."""

    def __init__(self, shape: tuple[int, ...], n: int, discount: float) -> None:
        statistics: Any = RunningMeanStd  # not typed
        self.observations, self.returns = statistics(shape=shape), statistics(shape=())
        self.discount, self.running = discount, np.zeros(n)

    def observation(self, x: NDArray[Any]) -> NDArray[Any]:
        """Return observations [B, ...] minus their mean, divided by their standard deviation."""
        self.observations.update(x)
        scaled = (x - self.observations.mean) / np.sqrt(self.observations.var + 1e-8)
        return np.asarray(np.clip(scaled, -10, 10))

    def reward(self, reward: NDArray[Any], done: NDArray[Any]) -> NDArray[Any]:
        """Return rewards [B] divided by the standard deviation of returns."""
        self.running = self.running * self.discount + reward
        self.returns.update(self.running)
        self.running[done] = 0
        return np.asarray(np.clip(reward / np.sqrt(self.returns.var + 1e-8), -10, 10))


class Trainer:
    """The loop's variables, and its two halves."""

    def __init__(self, settings: Settings) -> None:
        self.settings = s = settings
        torch.manual_seed(s.seed)
        self.shuffle = np.random.default_rng(s.seed)
        self.envs = gym.vector.SyncVectorEnv(
            [lambda: gym.wrappers.RecordEpisodeStatistics(gym.make(s.env)) for _ in range(s.B)],
            # Every step is a real one; in the default mode resets take steps of their own.
            autoreset_mode=gym.vector.AutoresetMode.SAME_STEP,
        )
        spaces: Any = self.envs
        shape, space = spaces.single_observation_space.shape, spaces.single_action_space
        self.bounds = (space.low, space.high) if isinstance(space, gym.spaces.Box) else None
        n_actions = int(space.n) if self.bounds is None else int(np.prod(space.shape))
        log_std = None if self.bounds is None else s.initial_log_std
        self.agent = Agent(int(np.prod(shape)), n_actions, s.hidden_sizes, log_std)
        self.normalizer = Normalizer(shape, s.B, s.discount) if s.normalize else None
        self.optimizer = torch.optim.Adam(self.agent.parameters(), lr=s.learning_rate, eps=1e-5)
        self.observations = torch.zeros((s.T, s.B, *shape))
        self.actions = torch.zeros((s.T, s.B, *space.shape))
        self.log_probs = torch.zeros((s.T, s.B))
        self.rewards = torch.zeros((s.T, s.B))
        self.dones = torch.zeros((s.T, s.B))
        self.values = torch.zeros((s.T, s.B))
        first, _ = self.envs.reset(seed=s.seed)
        if self.normalizer is not None:
            first = self.normalizer.observation(first)
        self.next_observation = torch.as_tensor(first, dtype=torch.float32)
        self.next_done = torch.zeros(s.B)

    def sample(self) -> list[float]:
        """Fill the tensors with T steps and return the returns of the episodes that ended."""
        returns: list[float] = []
        for t in range(self.settings.T):
            self.observations[t] = self.next_observation
            self.dones[t] = self.next_done
            with torch.no_grad():
                action, log_prob, _, value = self.agent(self.next_observation)
            self.values[t], self.actions[t], self.log_probs[t] = value, action, log_prob
            taken = action.numpy()
            if self.bounds is not None:
                taken = np.clip(taken, *self.bounds)
            observation, reward, terminated, truncated, info = self.envs.step(taken)
            done = terminated | truncated
            if self.normalizer is not None:
                observation = self.normalizer.observation(observation)
                reward = self.normalizer.reward(reward, done)
            self.rewards[t] = torch.as_tensor(reward, dtype=torch.float32)
            self.next_observation = torch.as_tensor(observation, dtype=torch.float32)
            self.next_done = torch.as_tensor(done, dtype=torch.float32)
            if "final_info" in info:
                episode = info["final_info"]["episode"]
                returns += episode["r"][episode["_r"]].tolist()
        return returns

    def advantages(self) -> Tensor:
        """Return generalised advantage estimates [T, B]."""
        s = self.settings
        with torch.no_grad():
            next_value = self.agent(self.next_observation)[3]
        advantages, last = torch.zeros((s.T, s.B)), torch.zeros(s.B)
        value, going_on = next_value, 1 - self.next_done
        for t in reversed(range(s.T)):
            delta = self.rewards[t] + s.discount * value * going_on - self.values[t]
            last = delta + s.discount * s.gae_lambda * going_on * last
            advantages[t] = last
            value, going_on = self.values[t], 1 - self.dones[t]
        return advantages

    def learn(self, learning_rate: float) -> dict[str, float]:
        """Run the epochs over the batch and return the last minibatch's diagnostics."""
        s = self.settings
        self.optimizer.param_groups[0]["lr"] = learning_rate
        advantages = self.advantages()
        returns = (advantages + self.values).reshape(-1)
        batch = (
            self.observations.reshape(s.batch_size, -1),
            self.actions.reshape(s.batch_size, *self.actions.shape[2:]),
            self.log_probs.reshape(-1),
            advantages.reshape(-1),
            returns,
        )
        diagnostics: dict[str, float] = {}
        size = s.batch_size // s.minibatches
        for _ in range(s.epochs):
            order = self.shuffle.permutation(s.batch_size)
            for start in range(0, s.batch_size, size):
                chosen = order[start : start + size]
                diagnostics = self.update(*(tensor[chosen] for tensor in batch))
        return diagnostics

    def update(
        self,
        observation: Tensor,
        action: Tensor,
        old_log_prob: Tensor,
        advantage: Tensor,
        return_: Tensor,
    ) -> dict[str, float]:
        """Take one step on a minibatch."""
        s = self.settings
        _, log_prob, entropy, value = self.agent(observation, action)
        log_ratio = log_prob - old_log_prob
        ratio = log_ratio.exp()
        with torch.no_grad():
            approx_kl = ((ratio - 1) - log_ratio).mean().item()
            clipped = ((ratio - 1).abs() > s.ratio_clip).float().mean().item()
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
        limited = ratio.clamp(1 - s.ratio_clip, 1 + s.ratio_clip)
        policy_loss = torch.max(-advantage * ratio, -advantage * limited).mean()
        value_loss = 0.5 * ((value - return_) ** 2).mean()
        entropy_bonus = s.entropy_loss_coeff * entropy.mean()
        loss = policy_loss - entropy_bonus + s.value_loss_coeff * value_loss
        self.optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(self.agent.parameters(), s.clip_grad_norm)
        self.optimizer.step()
        return {"approx_kl": approx_kl, "clip_fraction": clipped}


def main(settings: Settings) -> None:
    """Train and report."""
    torch.set_num_threads(settings.torch_threads)
    reporter = Reporter()
    trainer = Trainer(settings)
    reporter.ready(torch=torch.__version__, gymnasium=gym.__version__)
    for i in range(settings.n_batches):
        returns = trainer.sample()
        sampled_at = time.perf_counter()
        trainer.learn(settings.learning_rate * (1 - i / settings.n_batches))
        reporter.batch(sampled_at, returns)
    trainer.envs.close()
    reporter.end()


if __name__ == "__main__":
    main(Settings.from_json(sys.argv[1]))
