"""In a file of its own, as worker processes import it, and nothing else then."""

from __future__ import annotations

from parllel.cages import TrajInfo


class SteppedTrajInfo(TrajInfo):
    """Is told of every step, and so has its numbers in another place than a plain one."""

    def __init__(self, discount=0.9):
        super().__init__(discount)
        self.farthest = 0.0

    def step(self, observation, action, reward, terminated, truncated, env_info):
        super().step(observation, action, reward, terminated, truncated, env_info)
        self.farthest = max(self.farthest, abs(float(observation[0])))
