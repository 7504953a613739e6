"""A task that needs messages in both directions: each device must be set to another device's signal.

    grid  --setting for each device-->  feeders  --setting-->  devices
    grid  <---signals of all below----  feeders  <--signal---  devices

Each of four devices sees one of three signals, drawn anew in each step. A device that is set to the signal
that its counterpart on the other feeder saw earns 1/4. Only the grid can know that signal, and only from what
was reported in the step before. An episode has 16 steps. In the first, nothing has been reported yet, and any
setting is right once in three times, so the best mean return is 15 + 1/3. With reports or settings cut, a
setting is right once in three times whatever the policy does, and the mean return is 16/3.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium.spaces import MultiDiscrete
from gymnasium.vector import VectorEnv

from parllel.distributed.messaging import Agent, KafkaMultiAgentEnv, VectorizedKafkaEnv

Cut: TypeAlias = Literal["none", "up", "down"]

FEEDERS = {"north": ("north-1", "north-2"), "south": ("south-1", "south-2")}
DEVICES = [device for devices in FEEDERS.values() for device in devices]
# device -> the device whose signal is its correct setting
OTHER = dict(zip(DEVICES, DEVICES[2:] + DEVICES[:2], strict=True))
N_SIGNALS = 3
UNKNOWN = N_SIGNALS
MAX_STEPS = 16
BEST_RETURN = MAX_STEPS - 1 + 1 / N_SIGNALS
CHANCE_RETURN = MAX_STEPS / N_SIGNALS


class Device(Agent):
    """A device that reports its signal, and receives its setting from its feeder.

    Args:
        cut: "up": it reports nothing of its signal; "down": it ignores what it is to be set to.
    """

    def __init__(self, agent_id: str, cut: Cut) -> None:
        super().__init__(agent_id, level=1)
        self.cut = cut

    def observe(self, global_state: Mapping[str, int]) -> int:
        """Return the device's signal."""
        return global_state[self.agent_id]

    def decide(self, observation: int, action: int) -> int:
        """Return the device's setting."""
        return 0 if self.cut == "down" else action

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Report the signal, by the device's name."""
        return {self.agent_id: UNKNOWN if self.cut == "up" else self._last_observation}


class Feeder(Agent):
    """Connects devices to the grid: observes nothing, and forwards messages."""

    def observe(self, global_state: Mapping[str, int]) -> None:
        """Return None: a feeder has no observation."""

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Report the signals of all devices."""
        return {device: signal for info in infos.values() for device, signal in info.items()}


class Grid(Agent):
    """The root agent: a policy observes the reported signals and chooses all settings."""

    def __init__(self, feeders: dict[str, Agent]) -> None:
        super().__init__(
            "grid",
            level=3,
            observation_space=MultiDiscrete([N_SIGNALS + 1] * len(DEVICES)),
            action_space=MultiDiscrete([N_SIGNALS] * len(DEVICES)),
            subordinates=feeders,
        )

    def observe(self, global_state: Mapping[str, int]) -> np.ndarray:
        """Return unknown signals: the grid observes none itself."""
        return np.full(len(DEVICES), UNKNOWN)

    def decide(self, observation: np.ndarray, action: np.ndarray) -> dict[str, dict[str, int]]:
        """Return the settings for each feeder's devices."""
        settings = dict(zip(DEVICES, np.asarray(action).tolist(), strict=True))
        return {
            feeder: {device: settings[device] for device in devices}
            for feeder, devices in FEEDERS.items()
        }

    def compile_info(self, infos: dict[str, dict[str, Any]]) -> dict[str, Any]:
        """Return the policy's next observation: the signals of all devices."""
        signals = {device: signal for info in infos.values() for device, signal in info.items()}
        return {"observation": np.array([signals[device] for device in DEVICES])}


class SignalsEnv(KafkaMultiAgentEnv):
    """Physics: the signals, and the share of devices with the correct setting."""

    def reset_physics(self) -> None:
        """Draw the first signals."""
        self.right = 0.0
        self._draw()

    def _draw(self) -> None:
        signals = self.np_random.integers(N_SIGNALS, size=len(DEVICES))
        self.signals = dict(zip(DEVICES, signals.tolist(), strict=True))

    def apply_actions(self, actions: dict[str, int]) -> None:
        """Compare the settings with the signals, and draw new ones."""
        right = [actions[device] == self.signals[OTHER[device]] for device in DEVICES]
        self.right = sum(right) / len(right)
        self._draw()

    def get_global_state(self) -> Mapping[str, int]:
        """Return the signals. Each device observes its own."""
        return self.signals

    def _extract_rewards(self, all_info: dict[str, Any]) -> dict[str, float]:
        """Return the share of correct settings. It is not sent in messages, so no cut can hide it."""
        return {"grid": self.right}

    def physics_state(self) -> dict[str, Any]:
        """Return the state of the physics for a checkpoint."""
        return {"signals": dict(self.signals), "right": self.right}

    def load_physics_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `physics_state`."""
        self.signals, self.right = dict(state["signals"]), state["right"]


def create_agents(env_id: str, cut: Cut = "none") -> dict[str, Agent]:
    """Create the agents of one environment."""
    devices = {device: Device(device, cut) for device in DEVICES}
    feeders: dict[str, Agent] = {
        feeder: Feeder(feeder, level=2, subordinates={name: devices[name] for name in below})
        for feeder, below in FEEDERS.items()
    }
    return {"grid": Grid(feeders), **feeders, **devices}


def make_signals(n: int, cut: Cut = "none") -> VectorEnv:
    """Return n environments as a native vector environment for the grid's policy."""
    return VectorizedKafkaEnv(
        partial(create_agents, cut=cut),
        ["grid"],
        num_envs=n,
        env_class=SignalsEnv,
        env_kwargs={"max_steps": MAX_STEPS},
    ).as_vector_env()
