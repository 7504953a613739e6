"""Play a trained policy as the root of a hierarchy of agents over a broker, in a gymnasium environment.

    python examples/messaging/pilot.py runs/cartpole/ppo-seed0
    python examples/messaging/pilot.py runs/cartpole/ppo-seed0 --kafka 127.0.0.1:9092

    policy --action--> pilot --action--> body --action--> the environment
           <-- observation and reward, by way of the body and the pilot --

All episodes are played side by side, with the returns that `parllel play` prints.
`--kafka mock` starts a small broker on loopback, for first steps without one.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import Any

import gymnasium as gym

from parllel.distributed.messaging import Agent, KafkaMultiAgentEnv, VectorizedKafkaEnv
from parllel.policies import Policy, load_policy
from parllel.testing import MockKafkaBroker


class Pilot(Agent):
    """The root agent: forwards the policy's action down and the body's report up."""

    def observe(self, global_state: Mapping[str, Any]) -> Any:
        """Return the environment's observation."""
        return global_state["observation"]

    def decide(self, observation: Any, action: Any) -> dict[str, Any]:
        """Forward the action to the body."""
        return dict.fromkeys(self.subordinates, action)

    def compile_info(self, infos: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Report the body's next observation and reward."""
        (report,) = infos.values()
        return report


class Body(Agent):
    """The leaf agent, whose action goes to the environment."""

    def observe(self, global_state: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the result of the last step."""
        return global_state

    def compile_info(self, infos: Mapping[str, dict[str, Any]]) -> dict[str, Any]:
        """Report the result of the last step."""
        return dict(self._last_observation)


class PilotedEnv(KafkaMultiAgentEnv):
    """A gymnasium environment as the physics of a hierarchy. Resets pass the seed unchanged."""

    def __init__(self, *arguments: Any, make_env: Callable[[], Any], **settings: Any) -> None:
        super().__init__(*arguments, **settings)
        self.env: gym.Env[Any, Any] = make_env()
        self.seen: dict[str, Any] = {}
        self.ended = (False, False)

    def reset_physics(self) -> None:
        """Begin an episode of the environment."""
        observation, _ = self.env.reset(seed=self.np_random_seed)
        self.seen, self.ended = {"observation": observation, "reward": 0.0}, (False, False)

    def apply_actions(self, actions: Mapping[str, Any]) -> None:
        """Step the environment."""
        observation, reward, terminated, truncated, _ = self.env.step(actions["body"])
        self.seen = {"observation": observation, "reward": float(reward)}
        self.ended = (bool(terminated), bool(truncated))

    def get_global_state(self) -> dict[str, Any]:
        """Return the result of the last step."""
        return self.seen

    def is_terminated(self, all_info: Mapping[str, Any]) -> bool:
        """Return the environment's flag."""
        return self.ended[0]

    def is_truncated(self, all_info: Mapping[str, Any]) -> bool:
        """Return the environment's flag."""
        return self.ended[1]

    def close(self) -> None:
        """Close the hierarchy and the environment."""
        self.env.close()
        super().close()


def make_agents(env_id: str) -> dict[str, Agent]:
    """Return the agents of one environment."""
    body = Body("body")
    return {"pilot": Pilot("pilot", subordinates={"body": body}), "body": body}


def play(
    policy: Policy, make_env: Callable[[], Any], seeds: Sequence[int], **settings: Any
) -> dict[int, tuple[float, int]]:
    """Play an episode per seed, and return its return and length.

    settings: of VectorizedKafkaEnv.
    """
    kwargs = {"make_env": make_env}
    with VectorizedKafkaEnv(
        make_agents, ["pilot"], len(seeds), env_class=PilotedEnv, env_kwargs=kwargs, **settings
    ) as envs:
        seen = envs.reset(seed=seeds)
        policy.reset(range(len(seeds)))
        played, playing = [(0.0, 0)] * len(seeds), set(range(len(seeds)))
        while playing:
            # One at a time, as for a single environment: matrix products of several rows may round
            # differently.
            actions: list[Any] = [None] * len(seeds)
            for i in playing:
                actions[i] = {"pilot": policy.act_one(seen[i]["pilot"], i)}
            seen, rewards, dones, _ = envs.step(actions)
            for i in sorted(playing):
                return_, length = played[i]
                played[i] = (return_ + rewards[i]["pilot"], length + 1)
                if dones[i]["pilot"]:
                    playing.remove(i)
        return dict(zip(seeds, played, strict=True))


def main() -> None:
    """Parse the arguments, play and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("run", help="folder of a run")
    parser.add_argument("--seeds", type=int, default=10, metavar="N", help="0 to N - 1")
    parser.add_argument("--kafka", metavar="HOST:PORT", help="of a broker, or mock; default memory")
    options = parser.parse_args()
    settings: dict[str, Any] = {}
    with ExitStack() as stack:
        if options.kafka is not None:
            address = options.kafka
            if address == "mock":
                address = stack.enter_context(MockKafkaBroker()).address
            settings = {"kafka_mode": "kafka", "broker_kwargs": {"bootstrap": address}}
        policy = stack.enter_context(load_policy(options.run))
        played = play(policy, policy.make_env, range(options.seeds), **settings)
    for seed, (return_, length) in played.items():
        print(f"seed {seed}: return {return_:.2f} in {length} steps")
    print(f"mean return {sum(return_ for return_, _ in played.values()) / len(played):.2f}")


if __name__ == "__main__":
    main()
