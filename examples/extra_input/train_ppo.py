"""Pass a custom input to agent and model: here, the cart index of each environment.

Half of the carts have crossed wires: they push right when the action is left. The observation does not show
it, so the policy needs the cart's index. Three small classes provide it, without changes to parllel: the
model takes `cart`, the handler passes it when acting, and the algorithm passes it in updates.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import gymnasium as gym
import torch
from rich.console import Console
from torch import Tensor, nn

from parllel import BatchSpec, Seeds
from parllel.cages import VectorizedCage
from parllel.runners import OnPolicyRunner
from parllel.runs import RunFolder
from parllel.torch import PPO, CategoricalHead, CategoricalPgAgent, PgModel, TorchHandler
from parllel.transforms import EstimateAdvantage, NormalizeAdvantage
from parllel_patterns import PpoParameters, build_eval_sampler, build_logger, build_sampler, main


@dataclass(frozen=True)
class Config:
    """Settings of a run."""

    seed: int = 0  # source of all random numbers
    T: int = 64  # steps of each environment in a batch
    B: int = 16  # parallel environments
    n_steps: int = 150_000  # environment steps to train for
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    target_return: float = 450.0  # mean evaluation return at which the run ends
    ppo: PpoParameters = field(default_factory=lambda: PpoParameters(learning_rate=1e-3, epochs=8))


class CrossedWires(gym.ActionWrapper[Any, Any, Any]):
    """CartPole with reversed actions."""

    def action(self, action: Any) -> Any:
        """Return the opposite action."""
        return 1 - action


def make_cart(cart: int, **options: Any) -> gym.Env[Any, Any]:
    """Make cart 0, which is normal, or cart 1, whose actions are reversed."""
    env = gym.make("CartPole-v1", **options)
    return CrossedWires(env) if cart else env


class CartModel(nn.Module):
    """A policy for several kinds of carts, selected by `cart` [N]."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.model = PgModel((6,), CategoricalHead(2), (64, 64), seed)

    def forward(self, observation: Tensor, cart: Tensor) -> Any:
        """Return logits [N, 2] and values [N]."""
        one_hot = nn.functional.one_hot(cart, 2).to(observation.dtype)
        return self.model(torch.cat((observation, one_hot), dim=-1))


class CartHandler(TorchHandler):
    """Handler that passes the cart index of each column to the agent."""

    def __init__(self, agent: CategoricalPgAgent, carts: Tensor) -> None:
        super().__init__(agent)
        self.carts = carts

    def agent_inputs(self, observation: Any, rows: Any, columns: Any) -> dict[str, Any]:
        """Return the carts of `columns` as an additional input."""
        return {"observation": observation, "cart": self.carts[columns]}


class CartPPO(PPO):
    """PPO that passes the cart index of each step to updates."""

    def __init__(self, agent: CategoricalPgAgent, carts: Tensor, **settings: Any) -> None:
        super().__init__(agent, **settings)
        self.carts = carts

    def construct_agent_inputs(self, samples: Any) -> Any:
        """Add the cart of each of the T * B steps."""
        inputs = super().construct_agent_inputs(samples)
        inputs.agent["cart"] = self.carts.repeat(len(inputs.return_) // len(self.carts))
        return inputs


def build(
    config: Config, stack: ExitStack, folder: RunFolder, console: Console | None
) -> OnPolicyRunner:
    """Build a run in the order of the data flow. Anything to close goes on the stack."""
    seeds, batch_spec = Seeds(config.seed), BatchSpec(config.T, config.B)
    carts = torch.arange(config.B) % 2
    factories = [partial(make_cart, int(cart), render_mode="rgb_array") for cart in carts]
    cages = [
        stack.enter_context(VectorizedCage(factories, seeds=seeds.spawn(name, config.B)))
        for name in ("environments", "evaluation")
    ]
    agent = CategoricalPgAgent(CartModel(seeds.integer("model")), 2, seed=seeds.integer("agent"))
    transforms = [EstimateAdvantage(0.98, 0.9), NormalizeAdvantage()]
    sampler = build_sampler(batch_spec, cages[:1], CartHandler(agent, carts), [], transforms)
    return OnPolicyRunner(
        batch_spec,
        sampler,
        CartPPO(agent, carts, **config.ppo, seed=seeds.integer("algorithm")),
        n_steps=config.n_steps,
        logger=stack.enter_context(build_logger(folder, console)),
        log_interval_steps=config.log_interval_steps,
        eval_sampler=build_eval_sampler(cages[1:], sampler, 2 * config.B),
        target_return=config.target_return,
        folder=folder,
        seeds=seeds,
        console=console,
    )


if __name__ == "__main__":
    result, _ = main(build, Config, base="runs/extra_input", name=lambda c: f"ppo-seed{c.seed}")
    raise SystemExit(result.exit_status)
