"""Give agent and model an input of your own: here the number of the cart that each environment is.

Half of the carts have their wires crossed: they push right when told to push left. Nothing in the observation
says so, so a policy must be told which cart it steers. Three small classes do that, and nothing of parllel is
edited: the model takes `cart`, the handler gives it to the agent, and the algorithm gives it to updates.
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
    """Everything that can be changed about a run."""

    seed: int = 0  # everything random comes from it
    T: int = 64  # steps of each environment in a batch
    B: int = 16  # environments side by side
    n_steps: int = 150_000  # environment steps to train for
    log_interval_steps: int = 10_240  # environment steps between rows of the log
    target_return: float = 450.0  # mean return of an evaluation that ends the run
    ppo: PpoParameters = field(default_factory=lambda: PpoParameters(learning_rate=1e-3, epochs=8))


class CrossedWires(gym.ActionWrapper[Any, Any, Any]):
    """Push the other way."""

    def action(self, action: Any) -> Any:
        """Return the other one of two actions."""
        return 1 - action


def make_cart(cart: int, **options: Any) -> gym.Env[Any, Any]:
    """Make cart 0, which obeys, or cart 1, which does the opposite."""
    env = gym.make("CartPole-v1", **options)
    return CrossedWires(env) if cart else env


class CartModel(nn.Module):
    """A policy for carts of several kinds; `cart` [N] says which."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.model = PgModel((6,), CategoricalHead(2), (64, 64), seed)

    def forward(self, observation: Tensor, cart: Tensor) -> Any:
        """Return logits [N, 2] and values [N]."""
        one_hot = nn.functional.one_hot(cart, 2).to(observation.dtype)
        return self.model(torch.cat((observation, one_hot), dim=-1))


class CartHandler(TorchHandler):
    """Tell the agent which cart each column of the batch is."""

    def __init__(self, agent: CategoricalPgAgent, carts: Tensor) -> None:
        super().__init__(agent)
        self.carts = carts

    def agent_inputs(self, observation: Any, rows: Any, columns: Any) -> dict[str, Any]:
        """Add the carts of `columns` to the observation."""
        return {"observation": observation, "cart": self.carts[columns]}


class CartPPO(PPO):
    """Tell updates which cart each step was made with."""

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
    """Put a run together, in the order of the data; what must be closed goes on the stack."""
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
