"""A policy as the root of a hierarchy of agents, over any broker."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import gymnasium as gym
from distances import N_SEEDS, SEEDS, Played
from short_runs import NAMES

from parllel.messaging import Agent, KafkaMultiAgentEnv, VectorizedKafkaEnv
from parllel.policies import load_policy


class Pilot(Agent):
    """The root: hands the policy's action to the body, and reports what that reports."""

    def observe(self, global_state: Any) -> Any:
        return global_state["observation"]

    def decide(self, observation: Any, action: Any) -> Any:
        return {"body": action}

    def compile_info(self, infos: Any) -> Any:
        return dict(infos["body"])


class Body(Agent):
    """The leaf, whose action physics gets."""

    def observe(self, global_state: Any) -> Any:
        return global_state

    def compile_info(self, infos: Any) -> Any:
        return dict(self._last_observation)


class Physics(KafkaMultiAgentEnv):
    """An environment of gymnasium, reset with the seed itself."""

    def __init__(self, *arguments: Any, name: str, **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.env = gym.make(NAMES[name])
        self.seen: dict[str, Any] = {}
        self.ended = (False, False)

    def reset_physics(self) -> None:
        observation, _ = self.env.reset(seed=self.np_random_seed)
        self.seen, self.ended = {"observation": observation, "reward": 0.0}, (False, False)

    def apply_actions(self, actions: Any) -> None:
        observation, reward, *ended, _ = self.env.step(actions["body"])
        self.seen, self.ended = {"observation": observation, "reward": float(reward)}, (*ended,)

    def get_global_state(self) -> Any:
        return self.seen

    def is_terminated(self, all_info: Any) -> bool:
        return self.ended[0]

    def is_truncated(self, all_info: Any) -> bool:
        return self.ended[1]

    def close(self) -> None:
        self.env.close()
        super().close()


def make_agents(env_id: str) -> dict[str, Agent]:
    body = Body("body")
    return {"pilot": Pilot("pilot", subordinates={"body": body}), "body": body}


def as_root_agent(name: str, run: Path, **settings: Any) -> Played:
    """Play all episodes side by side, each in an environment with agents of its own."""
    arguments: Any = {"env_class": Physics, "env_kwargs": {"name": name}, **settings}
    with (
        load_policy(run) as policy,
        VectorizedKafkaEnv(make_agents, ["pilot"], N_SEEDS, **arguments) as envs,
    ):
        seen: list[Any] = envs.reset(seed=SEEDS)
        played, playing = dict.fromkeys(SEEDS, (0.0, 0)), [True] * N_SEEDS
        while any(playing):
            actions = [
                {"pilot": policy.act_one(one["pilot"])} if on else None
                for one, on in zip(seen, playing, strict=True)
            ]
            seen, rewards, dones, _ = envs.step(actions)
            for i, seed in enumerate(SEEDS):
                if playing[i]:
                    return_, length = played[seed]
                    played[seed] = (return_ + rewards[i]["pilot"], length + 1)
                    playing[i] = not dones[i]["pilot"]
        return played
