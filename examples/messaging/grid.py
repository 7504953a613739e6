r"""Run 128 rollouts of devices under a grid at once, over one broker.

    python examples/messaging/grid.py
    python examples/messaging/grid.py --kafka 127.0.0.1:9092

    policy  --power-->   grid  --share of power-->          device
            <--totals--        <--need and power taken--

Both commands print the same digest of the rollouts, and so does `--sync`, where the grid calls its devices
directly, without a broker. So do two terminals, or machines, where the devices run in the first one:

    parllel messaging host --bootstrap 127.0.0.1:9092 --run grid --agents "device*" \
        examples/messaging/grid.py:create_agents
    python examples/messaging/grid.py --kafka 127.0.0.1:9092 --run grid --hosted "device*"
"""

from __future__ import annotations

import argparse
from typing import Any

import gymnasium as gym
import numpy as np

from parllel.distributed.messaging import (
    Agent,
    ExecutionMode,
    KafkaMultiAgentEnv,
    VectorizedKafkaEnv,
)
from parllel.distributed.wire import digest

RAMP = 0.5  # fraction of the distance to its setpoint that a device moves per step


class DeviceAgent(Agent):
    """A device that takes power, at most its share and at most what it needs."""

    def __init__(self, agent_id: str, policy: DevicePolicy, env_id: str) -> None:
        super().__init__(agent_id, level=1, env_id=env_id)
        self.policy = policy

    def observe(self, global_state: dict[str, Any]) -> dict[str, float]:
        """Return the device's need and power, in kW."""
        return {
            "demand": global_state["demand"][self.agent_id],
            "power": global_state["power"][self.agent_id],
        }

    def decide(self, observation: dict[str, float], action: float) -> float:
        """Return the setpoint, in kW."""
        return self.policy.compute_action(observation, action)

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Report the observation, and the missing power as a cost."""
        seen: dict[str, float] = self._last_observation
        return {**seen, "reward": -((seen["demand"] - seen["power"]) ** 2)}


class GridAgent(Agent):
    """A grid that distributes power to its devices, and pays for what they take."""

    def __init__(
        self, agent_id: str, devices: list[DeviceAgent], policy: GridPolicy, env_id: str
    ) -> None:
        subordinates: dict[str, Agent] = {device.agent_id: device for device in devices}
        super().__init__(
            agent_id,
            level=2,
            observation_space=gym.spaces.Box(0.0, np.inf, (3,), np.float64),
            action_space=gym.spaces.Box(0.0, np.inf, (), np.float64),
            subordinates=subordinates,
            env_id=env_id,
        )
        self.policy = policy
        self.demands = dict.fromkeys(subordinates, 1.0)

    def reset(self) -> None:
        """Clear the devices' needs."""
        self.demands = dict.fromkeys(self.subordinates, 1.0)

    def observe(self, global_state: dict[str, Any]) -> np.ndarray:
        """Return the price of power, before the devices have reported."""
        return np.array([global_state["price"], 0.0, 0.0])

    def decide(self, observation: np.ndarray, action: float) -> dict[str, float]:
        """Return each device's share of the policy's power."""
        return self.policy.compute_actions(float(action), self.demands)

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Report total need and power, and the price. The reward is the negative cost."""
        self.demands = {name: info["demand"] for name, info in infos.items()}
        price = float(self._last_observation[0])
        demand, power, reward = (
            sum(info[key] for info in infos.values()) for key in ("demand", "power", "reward")
        )
        observation = np.array([price, demand, power])
        return {"observation": observation, "reward": reward - price * power}

    def state(self) -> dict[str, Any]:
        """Return the state for a checkpoint."""
        return {"demands": dict(self.demands)}

    def load_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `state`."""
        self.demands = dict(state["demands"])


class GridEnv(KafkaMultiAgentEnv):
    """Physics: the devices' needs drift, and their power moves half of the way to the setpoint per step."""

    def reset_physics(self) -> None:
        """Draw each device's need, in kW."""
        self.demand = {
            leaf.agent_id: self.np_random.uniform(0.5, 1.5) for leaf in self.hierarchy.leaves
        }
        self.power = dict.fromkeys(self.demand, 0.0)

    def apply_actions(self, actions: dict[str, float]) -> None:
        """Move each device's power towards its setpoint, and its need randomly."""
        for name, setpoint in actions.items():
            self.power[name] += RAMP * (setpoint - self.power[name])
            drift = self.np_random.normal(0.0, 0.1)
            self.demand[name] = float(np.clip(self.demand[name] + drift, 0.0, 2.0))

    def get_global_state(self) -> dict[str, Any]:
        """Return needs, power, and the price of a kWh, which has a period of 24 steps."""
        price = 0.2 + 0.1 * float(np.sin(2 * np.pi * self.timestep / 24))
        return {"demand": self.demand, "power": self.power, "price": price}


class DevicePolicy:
    """Take the available power, up to the need."""

    def compute_action(self, observation: dict[str, float], action: float) -> float:
        """Return the setpoint."""
        return min(action, observation["demand"])


class GridPolicy:
    """Distribute power in proportion to needs."""

    def compute_actions(self, power: float, demands: dict[str, float]) -> dict[str, float]:
        """Return each device's share."""
        total = sum(demands.values()) or 1.0
        return {name: power * demand / total for name, demand in demands.items()}


class Policy:
    """Policy of the root agents: as much power as needed, less at high prices."""

    def compute_actions(self, observations: dict[str, np.ndarray]) -> dict[str, float]:
        """Return the power for each grid, in kW."""
        return {
            name: max(float(demand - price), 0.5)
            for name, (price, demand, _) in observations.items()
        }


device_policy, grid_policy, policy = DevicePolicy(), GridPolicy(), Policy()


def create_agents(env_id: str) -> dict[str, Agent]:
    """Create agents for one environment instance."""
    device1 = DeviceAgent(agent_id="device1", policy=device_policy, env_id=env_id)
    device2 = DeviceAgent(agent_id="device2", policy=device_policy, env_id=env_id)
    grid = GridAgent(
        agent_id="grid1", devices=[device1, device2], policy=grid_policy, env_id=env_id
    )
    return {"grid1": grid, "device1": device1, "device2": device2}


def roll_out(vec_env: VectorizedKafkaEnv, episodes: int, episode_length: int) -> dict[str, Any]:
    """Return observations and rewards of the grids: [episode, step, environment, ...]."""
    all_observations, all_rewards = [], []
    vec_env.reset(seed=0)  # determines all later resets
    for _ in range(episodes):
        obs_batch = vec_env.reset()
        for _ in range(episode_length):
            actions_batch = [policy.compute_actions(obs) for obs in obs_batch]
            obs_batch, rewards, _, _ = vec_env.step(actions_batch)
            all_observations.append([obs["grid1"] for obs in obs_batch])
            all_rewards.append([reward["grid1"] for reward in rewards])
    shape = (episodes, episode_length, vec_env.num_envs)
    return {
        "observations": np.reshape(all_observations, (*shape, -1)),
        "rewards": np.reshape(all_rewards, shape),
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Run devices under a grid in many rollouts.")
    parser.add_argument("--num-envs", type=int, default=128, help="rollouts side by side")
    parser.add_argument("--episodes", type=int, default=2)
    parser.add_argument("--steps", type=int, default=24, help="of an episode")
    where = parser.add_mutually_exclusive_group()
    where.add_argument("--kafka", metavar="HOST:PORT", help="a broker; without it, one in memory")
    where.add_argument("--sync", action="store_true", help="call the devices, without a broker")
    parser.add_argument("--run", help="name of the run on the broker")
    parser.add_argument("--hosted", nargs="*", default=[], help="agents that run elsewhere")
    given = parser.parse_args()
    with VectorizedKafkaEnv(
        agent_factory=create_agents,
        root_agent_ids=["grid1"],
        num_envs=given.num_envs,
        kafka_mode="kafka" if given.kafka else "memory",
        env_class=GridEnv,
        broker_kwargs={"bootstrap": given.kafka, "run": given.run} if given.kafka else None,
        hosted=given.hosted,
        execution_mode=ExecutionMode.SYNC if given.sync else None,
    ) as vec_env:
        rollouts = roll_out(vec_env, given.episodes, given.steps)
    print(f"{given.num_envs} rollouts, mean reward {rollouts['rewards'].mean():.4f}")
    print(f"digest {digest(rollouts)}")
