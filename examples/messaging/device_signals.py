"""A task for policies below the root: each setting depends on a device's signal and on a message.

    grid  --signals of the counterparts-->  feeders  --signal-->  devices
    grid  <----signals of all below-------  feeders  <-signal---  devices

Devices and signals are those of `signals.py`. A device's correct setting is the sum of its own signal and its
counterpart's on the other feeder, modulo 3. The grid follows a rule: it sends each device the signal of its
counterpart. The policies act for the devices, or for the feeders, which then set their devices.

All signals are equally likely. A policy that does not know the counterpart's, or always chooses the same
setting, is right once in three times, and so is every policy in the first step, before any report. The best
mean return of the devices together is therefore that of `signals.py`, 15 + 1/3. Without messages it is 16/3.
"""

from __future__ import annotations

from functools import partial
from typing import Any, Literal, TypeAlias

import numpy as np
from gymnasium.spaces import Box, Discrete, MultiDiscrete
from gymnasium.vector import VectorEnv
from signals import (  # type: ignore[import-not-found]
    DEVICES,
    FEEDERS,
    MAX_STEPS,
    N_SIGNALS,
    OTHER,
    UNKNOWN,
    Cut,
    Device,
    Feeder,
    Grid,
    SignalsEnv,
)

from parllel.distributed.messaging import Agent, VectorizedKafkaEnv

Level: TypeAlias = Literal["devices", "feeders"]


def one_hot(signals: list[int]) -> np.ndarray:
    """Return float32 [N_SIGNALS] for each signal, in a single vector; zeros if it is unknown."""
    return np.eye(N_SIGNALS + 1, N_SIGNALS, dtype=np.float32)[signals].ravel()


class RelayGrid(Grid):  # type: ignore[misc]
    """The root agent, with a rule: each device gets the signal that its counterpart reported."""

    def decide(self, observation: np.ndarray, action: None) -> dict[str, dict[str, int]]:
        """Return the counterparts' signals, by feeder and device."""
        reported = self._compiled_info.get("observation", observation)
        signals = dict(zip(DEVICES, reported.tolist(), strict=True))
        return {
            feeder: {device: signals[OTHER[device]] for device in devices}
            for feeder, devices in FEEDERS.items()
        }


class LearningDevice(Device):  # type: ignore[misc]
    """A device whose policy observes its own signal and the one that its feeder sends."""

    def __init__(self, agent_id: str, cut: Cut) -> None:
        super().__init__(agent_id, cut)
        self.observation_space = Box(0.0, 1.0, (2 * N_SIGNALS,))
        self.action_space = Discrete(N_SIGNALS)

    def policy_observation(self, observation: int, action: int) -> np.ndarray:
        """Return the device's own signal and its counterpart's."""
        return one_hot([observation, UNKNOWN if self.cut == "down" else action])

    def decide(self, observation: int, action: int) -> int:
        """Return the setting."""
        return int(action)


class LearningFeeder(Feeder):  # type: ignore[misc]
    """A feeder whose policy observes the signals of its devices and those of their counterparts."""

    def __init__(self, agent_id: str, cut: Cut, devices: dict[str, Agent]) -> None:
        super().__init__(
            agent_id,
            level=2,
            observation_space=Box(0.0, 1.0, (2 * len(devices) * N_SIGNALS,)),
            action_space=MultiDiscrete([N_SIGNALS] * len(devices)),
            subordinates=devices,
        )
        self.cut = cut

    def policy_observation(self, observation: None, action: dict[str, int]) -> np.ndarray:
        """Return the reported signals of the devices, and the counterparts'."""
        own = [self._compiled_info.get(device, UNKNOWN) for device in self.subordinates]
        sent = [UNKNOWN if self.cut == "down" else action[device] for device in self.subordinates]
        return one_hot(own + sent)

    def decide(self, observation: None, action: np.ndarray) -> dict[str, int]:
        """Return the devices' settings."""
        return dict(zip(self.subordinates, np.asarray(action).tolist(), strict=True))


class DeviceSignalsEnv(SignalsEnv):  # type: ignore[misc]
    """Physics: the signals, and the reward of each device."""

    def reset_physics(self) -> None:
        """Draw the first signals."""
        self.rewards = dict.fromkeys(DEVICES, 0.0)
        self._draw()

    def apply_actions(self, actions: dict[str, int]) -> None:
        """Compare the settings with the sums of the signals, and draw new ones."""
        for device in DEVICES:
            correct = (self.signals[device] + self.signals[OTHER[device]]) % N_SIGNALS
            self.rewards[device] = float(actions[device] == correct) / len(DEVICES)
        self._draw()

    def _extract_rewards(self, all_info: dict[str, Any]) -> dict[str, float]:
        """Return each agent's rewards. They are not sent in messages, so no cut can hide them."""
        return {
            agent: sum(self.rewards[device] for device in FEEDERS.get(agent, [agent]))
            for agent in all_info
        }

    def physics_state(self) -> dict[str, Any]:
        """Return the state of the physics for a checkpoint."""
        return {"signals": dict(self.signals), "rewards": dict(self.rewards)}

    def load_physics_state(self, state: dict[str, Any]) -> None:
        """Restore a state returned by `physics_state`."""
        self.signals, self.rewards = dict(state["signals"]), dict(state["rewards"])


def create_agents(env_id: str, level: Level = "devices", cut: Cut = "none") -> dict[str, Agent]:
    """Create the agents of one environment."""
    devices: dict[str, Agent]
    if level == "devices":
        devices = {device: LearningDevice(device, cut) for device in DEVICES}
    else:
        # A feeder sets these, so a cut of the way down is at the feeder.
        devices = {device: Device(device, "up" if cut == "up" else "none") for device in DEVICES}
    feeders: dict[str, Agent] = {}
    for feeder, names in FEEDERS.items():
        below = {name: devices[name] for name in names}
        feeders[feeder] = (
            Feeder(feeder, level=2, subordinates=below)
            if level == "devices"
            else LearningFeeder(feeder, cut, below)
        )
    return {"grid": RelayGrid(feeders), **feeders, **devices}


def make_device_signals(
    n: int, level: Level = "devices", cut: Cut = "none", **settings: Any
) -> VectorEnv:
    """Return n environments as a native vector environment for the policies of one level.

    settings: of VectorizedKafkaEnv.
    """
    return VectorizedKafkaEnv(
        partial(create_agents, level=level, cut=cut),
        ["grid"],
        num_envs=n,
        env_class=DeviceSignalsEnv,
        env_kwargs={"max_steps": MAX_STEPS},
        trained=DEVICES if level == "devices" else list(FEEDERS),
        **settings,
    ).as_vector_env()
